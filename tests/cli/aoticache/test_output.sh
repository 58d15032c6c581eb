#!/usr/bin/env bash
# Kinds of output: a pipe without a reader, a full device, a terminal of 80 columns, a window; and messages as JSON.
. tests/cli/lib.sh

tool() { python3 tests/cli/aoticache/output_of_tools.py "$@"; }
aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
aoticache run aten::add.Tensor --input float32:2x3 --input float32:2x3 --scalar alpha=2 --hook c --quiet >/dev/null
key=$(aoticache ls aten::abs --json | python3 -c 'import json,sys; print(json.load(sys.stdin)["entries"][0]["key"][:12])')
aoticache copy "$work/other" --quiet >/dev/null
aoticache tag "$key" nightly --quiet

# ---- a pipe without a reader, a full device ----

while IFS= read -r command; do
    # shellcheck disable=SC2086
    run tool broken $command
    is "nobody reads: $command" 'SIGPIPE' "$(cat "$out")"
    [ -w /dev/full ] || continue
    # shellcheck disable=SC2086
    run tool full $command
    is "full: $command" 1 "$(head -n 1 "$out")"
    prints 'and says so' 'No space left on device|cannot write'
done <<COMMANDS
aoticache help
aoticache help ls
aoticache --version
aoticache ls
aoticache ls --json
aoticache ls --sort size
aoticache ls --failed --json
aoticache show $key
aoticache verify
aoticache doctor --json
aoticache record --from-cache --quiet
aoticache pin $key
aoticache tag --list
aoticache why aten::abs --input float32:2 --hook c
aoticache du
aoticache du --by operator
aoticache export - --quiet
aoticache merge $work/other
aoticache config
aoticache run aten::abs --input float32:2 --hook c
aoticache compile aten::abs --input float32:2 --hook c
aoticache-stat
aoticache-stat --json
aoticache-stat --csv
aoticache-stat --prometheus
aoticache-stat --help
aoticache-gc --json --quiet
COMMANDS
run tool broken aoticache rm --op aten::add.Tensor
is 'what changes something has done it when it ends so' 'SIGPIPE' "$(cat "$out")"
try 'it is removed' 3 aoticache ls aten::add.Tensor
try 'a shell sees what it sees of git' 0 bash -c 'aoticache help | true; set -- "${PIPESTATUS[@]}"; [ "$1" = 141 ] || [ "$1" = 0 ]'
aoticache run aten::add.Tensor --input float32:2x3 --input float32:2x3 --scalar alpha=2 --hook c --quiet >/dev/null

# ---- 80 columns ----

run tool terminal 80 aoticache ls
is 'ls: no line is longer' 0 "$(awk 'length($0) > 80' "$out" | wc -l)"
prints 'the kernel has the most room' 'aten::add.Tensor\(float32\['
prints 'whether it runs here is told in short' ' CPU +MARKS$'
prints_not 'who made it is left out' 'PRODUCER'
run tool terminal 200 aoticache ls
prints 'all is there where there is room' 'KEY +KERNEL +SIZE +AGE +USED +USES +PRODUCER +CPU'
prints 'in full' 'aten::add.Tensor\(float32\[2, 3\], float32\[2, 3\], alpha=2\) on cpu'
run env COLUMNS=60 python3 tests/cli/aoticache/output_of_tools.py terminal 200 aoticache ls
is 'COLUMNS wins over the terminal' 0 "$(awk 'length($0) > 60' "$out" | wc -l)"
run env COLUMNS=60 aoticache ls
prints 'into a pipe goes everything' 'alpha=2\) on cpu .* PRODUCER|alpha=2\) on cpu .* cc '
run tool terminal 80 aoticache-stat --by operator
is 'stat: no line is longer' 0 "$(awk 'length($0) > 80' "$out" | wc -l)"
prints 'operators are whole' '^aten::add.Tensor '
for program in 'aoticache help all' 'aoticache-gc --help all' 'aoticache-stat --help all' \
    $(aoticache help all | sed -nE '/^Commands:/,/^$/s/^  ([a-z-]+) .*/\1/p'); do
    case $program in aoticache*) ;; *) program="aoticache help $program all" ;; esac
    is "$program: 80 columns" '' "$($program | awk 'length($0) > 80')"
done

# ---- aoticache-stat --watch ----

run tool watch 24 80 q aoticache-stat --watch=0.5
prints 'fits a small window' '^height ([1-9]|1[0-9]|2[0-4]) width ([1-9]|[1-7][0-9]|80)$'
prints 'has the latencies' '^Latencies'
prints 'what happened last' '^last .* lookups/s'
prints 'q ends it' '^status 0$'
prints 'and the terminal is as it was' '^echo True$'
run tool watch 60 100 q aoticache-stat --watch=0.5
prints 'a large window has the whole page' '^    misses requirement'
run tool watch 8 30 q aoticache-stat --watch=0.5
prints 'a tiny one is not left' '^height 8 width ([1-9]|[12][0-9]|30)$'
prints 'and its last line stays' '^last '
run tool watch 24 80 x aoticache-stat --watch=0.5
prints 'another key does not end it' '^status none'
run tool watch 24 80 $'\003' aoticache-stat --watch=0.5
prints 'Ctrl-C does' '^status 0$'
prints 'and gives the terminal back' '^echo True$'

# ---- messages as JSON ----

# message NAME PATH EXPECTED: compares a member of the last one; notes may precede it
message() {
    tail -n 1 "$err" >"$work/message"
    is "$1" "$3" "$(field "$2" "$work/message" 2>&1 | tail -n 1)"
}
try 'an operator that is not there' 3 aoticache ls aten::ad --json
message 'the message is an object' level error
message 'of that program' program 'aoticache ls'
message 'and suggests what is there' message 'no entry for operator aten::ad; did you mean aten::add.Tensor?'
member 'the result is one, too' entries '[]'
try 'a wrong command line' 2 aoticache ls --colour --json
message 'says so' message 'unknown option --colour (did you mean --color?)'
message 'and where help is' help 'aoticache help ls'
try 'an unknown command' 2 aoticache lss --json
message 'likewise' message "unknown command 'lss' (did you mean ls?)"
try 'a failure of the library' 5 aoticache run aten::abss --input float32:2 --hook c --json
message 'has its status' status UNSUPPORTED
prints_nothing 'without a result'
try 'no cache' 7 aoticache show "$key" --json --cache-dir "$work/nowhere"
message 'is an error, too' level error
try 'no failures' 0 aoticache ls --failed aten::abs --json
member 'an empty list' failures '[]'
try 'a note' 0 aoticache unpin "$key" "$key" --json
chmod g+w "$AOTICACHE_DIR"
try 'a directory that is not trusted' 1 aoticache ls --failed --json
message 'is told with the status' status DENIED
try 'the other tools' 1 aoticache-stat --json
message 'do the same' status DENIED
try 'the collector' 1 aoticache-gc --json
message 'likewise' status DENIED
chmod g-w "$AOTICACHE_DIR"
AOTICACHE_CONFIG=$work/wrong.conf && echo 'max_sise = 1' >"$work/wrong.conf"
try 'a warning' 0 env AOTICACHE_CONFIG="$work/wrong.conf" aoticache du --json
message 'is an object' level warning
export AOTICACHE_CONFIG=
try 'what follows -- is not the tool'\''s' 2 aoticache ls -- --json --json
says 'its message is text' '^aoticache ls: '

# ---- suggestions, and one word in all tools ----

kernels=$BUILD/share/aoticache/kernels
try 'an operator that no kernel is for' 5 aoticache run aten::ad --input float32:2 --hook c
says 'the nearest kernel is offered' "aten_ad.c is not in $kernels; did you mean aten::add.Tensor\?"
try 'one that is spelled right' 5 aoticache run aten::sub --input float32:2 --hook c
says 'is not corrected' "aten_sub.c is not in $kernels\$"
try 'rm of a slip' 3 aoticache rm --op aten::abss
says 'is told what there is' 'did you mean aten::abs\?'
for word in operator op; do
    try "du --by $word" 0 aoticache du --by $word
    prints 'prints operators' '^aten::abs '
    try "stat --by $word" 0 aoticache-stat --by $word
    prints 'prints operators, too' '^aten::abs '
    try "ls --sort $word" 0 aoticache ls --sort $word
done

try 'an operator where a key is asked for' 2 aoticache show aten::abs
says 'is told what to do' "'aten::abs' is an operator, not a key: 'aoticache ls aten::abs' lists its keys"
try 'also by pin' 2 aoticache pin aten::abs
says 'likewise' "'aoticache ls aten::abs' lists its keys"
try 'a program that is no command' 2 aoticache stat
says 'is named' 'did you mean the program aoticache-stat'

# ---- unpin ----

try 'unpin of what is not pinned' 0 aoticache unpin --op 'aten::*'
prints 'says so of each' "^not pinned $key "
says 'and in all' 'nothing was changed: 2 keys are not pinned'
aoticache pin "$key" --quiet
try 'unpin of two, one pinned' 0 aoticache unpin --op 'aten::*'
prints 'one was' "^unpinned $key "
prints 'one was not' '^not pinned '
says 'in all' '1 key unpinned, 1 not pinned'
aoticache pin "$key" --quiet
try 'as JSON' 0 aoticache unpin --op aten::abs --json
member 'it was changed' keys.0.changed true
finish
