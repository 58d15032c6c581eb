#!/usr/bin/env bash
# Every argument, environment variable and directory is untrusted: a clear error, nothing lost, nothing half written.
. tests/cli/lib.sh

refused() { # NAME PATTERN COMMAND...: status 2, one line that matches, nothing on standard output
    local name=$1 pattern=$2
    shift 2
    run "$@"
    if [ "$status" != 2 ]; then not_ok "$name" "expected status 2"; return; fi
    if [ -s "$out" ]; then not_ok "$name" "standard output is not empty"; return; fi
    if [ "$(wc -l <"$err")" != 1 ]; then not_ok "$name" "not one line"; return; fi
    if grep -Eq -- "$pattern" "$err"; then ok "$name"; else not_ok "$name" "no line matches: $pattern"; fi
}

# ---- words ----
refused 'no command' "see 'aoticache help'" aoticache
refused 'an unknown command' "unknown command 'rnu' \(did you mean run\?\)" aoticache rnu
refused 'an option before the command' 'options come after' aoticache --json ls
refused 'help of an unknown command' "unknown command 'nothing'" aoticache help nothing
refused 'an unknown option' "^aoticache run: unknown option --foo; see 'aoticache help run'\$" aoticache run --foo
refused 'an unknown short option' 'unknown option -Z' aoticache ls -Z
refused 'an option without its value' 'option --input needs a value: SPEC' aoticache run aten::abs --input
refused 'an option in place of a value' 'option --input needs a value' aoticache run aten::abs --input --json
refused 'a value for what takes none' 'option --json takes no value' aoticache ls --json=yes
refused 'a colour' "'pink' is not auto, always or never" aoticache ls --color pink
refused 'no operator' 'an operator is needed' aoticache run
refused 'two operators' "the operator is aten::abs" aoticache run aten::abs aten::neg
refused 'an empty directory name' 'needs a directory' aoticache ls --cache-dir=
for command in run compile ls show verify rm doctor; do
    try "help of $command" 0 aoticache help $command all
    prints "help of $command has the exit codes" '^  5  no kernel: the compile failed'
done
refused 'help of what is nearly a topic' 'did you mean trouble\?' aoticache help truble
refused 'a topic is no command' "unknown command 'trouble'" aoticache trouble
for topic in $(aoticache help all | sed -n '/^Topics:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    topics=$((${topics:-0} + 1))
    try "help of the topic $topic" 0 aoticache help "$topic"
    is "$topic: lines fit 80 columns" 0 "$(awk 'length > 79' "$out" | wc -l)"
    # Each command and program that it names exists.
    while read -r word; do
        if [[ $word == aoticache-* ]]; then holds "$topic: $word" test -x "$BUILD/bin/$word"
        else try "$topic: aoticache $word" 0 aoticache help "$word"; fi
    done < <(aoticache help "$topic" | grep -oE '^  aoticache(-[a-z]+| [a-z]+)|, aoticache [a-z]+' | sed -E 's/^[ ,]*(aoticache )?//')
done
is 'there are topics' 6 "${topics:-0}"
for tool in aoticache aoticache-gc aoticache-stat; do
    try "$tool --version" 0 $tool --version
    prints "$tool has a version" '^aoticache [0-9]+\.[0-9]+\.[0-9]+$'
    try "$tool --help" 0 $tool --help
done

# ---- arguments of operators ----
abs=(aoticache run aten::abs --hook c)
for spec in '' float32 float33:2 'float32:2y3' 'float32:-1' 'float32:2x' 'float32:x2' 'float32: 2' 'float32:2@1x1' \
    'float32:2@-1' 'float32:99999999999999999999' 'float32:4294967296x4294967296x4294967296' \
    'float32:9223372036854775807' 'float32:1000000x1000000x1000' 'float32:2@9223372036854775807' 'float32:2=' \
    'float32:2=nonsense' 'float32:2=@' "float32:2=@$work/none" 'float32:2=@/' 'float32:2=@/dev/zero' 'int8:2=300' \
    'int8:2=1.5' 'bool:1=2' 'uint8:1=-1' 'float32:1=1e999' 'float4_e2m1fn_x2:2=1' \
    "float32:$(printf '1x%.0s' $(seq 64))1"; do
    name=${spec//$work/}
    refused "tensor '${name:0:44}'" "^aoticache run: option --input '.*see 'aoticache help run'" "${abs[@]}" "--input=$spec"
done
for option in --scalar=abc --scalar= --scalar=1e999 --scalar=99999999999999999999 --scalar=0x --int=1.5 --int= \
    --int=9223372036854775808 '--int= 1' --double=one --bool=yes --bool= --complex=1 --complex=1,x --dtype=float33 \
    --layout=round --memory-format=square --device-argument=toaster --list=1,,2 --list=1, --list=a --none=1x \
    --inputs=float32:2,,float32:2 --inputs=float32; do
    refused "argument $option" "^aoticache run: option ${option%%=*}" "${abs[@]}" "$option"
done
refused 'text that is not UTF-8' "option --string '.*\\\\xff" "${abs[@]}" --string $'\xff\xfe'
refused 'an operator that is not UTF-8' 'aoticache run: ' aoticache run $'aten::\xff' --hook c
refused 'an operator with a space' 'aoticache run: ' aoticache run 'aten::a b' --hook c
refused 'an operator without a namespace' 'aoticache run: ' aoticache run abs --hook c
refused 'an operator that is too long' 'aoticache run: ' aoticache run "aten::$(printf 'a%.0s' $(seq 300))" --hook c
refused 'a positional argument after a keyword' 'option --input' "${abs[@]}" --scalar alpha=2 --input float32:2
for option in --hook=magic --hook= --hook=command: --timeout=0 --timeout=-1 --timeout=1e9 --timeout=99999999999 --seed=-1 \
    --repeat=0 --repeat=-5 --repeat=99999999999999999999 --cpu=quantum --device=toaster --device=cuda:0 --python= --kernels=; do
    refused "option $option" '^aoticache run: ' "${abs[@]}" --input float32:2 "$option"
done
holds 'nothing of this created a directory' [ ! -e "$AOTICACHE_DIR" ]

try 'a Python that is none' 5 aoticache run aten::abs --input float32:2 --hook worker --python "$work/none"
says 'is named' "$work/none"
try 'a program that is none' 5 aoticache run aten::abs --input float32:2 --hook "command:$work/none"
says 'is named, too' "$work/none"
printf '#!/bin/sh\necho this is no JSON\n' >"$work/liar"
chmod +x "$work/liar"
try 'a hook that answers nonsense' 5 aoticache run aten::abs --input float32:2 --hook "command:$work/liar"
try 'a directory of kernels that is none' 5 "${abs[@]}" --input float32:2 --kernels "$work/none"

# ---- the directory ----
call=(aoticache run aten::abs --input float32:2=-1 --hook c --json)
denied() { # NAME PATTERN [ARGUMENT...]
    local name=$1 pattern=$2
    shift 2
    try "$name is refused" 1 "${call[@]}" "$@" && says "$name is named" "$pattern"
}
mkdir -p "$work/shared" && chmod 777 "$work/shared"
denied 'a directory that others may write' "$work/shared" --cache-dir "$work/shared"
is 'and nothing is put there' 0 "$(ls -A "$work/shared" | wc -l)"
try 'unless that is allowed' 0 "${call[@]}" --cache-dir "$work/shared" --allow-shared
chmod 755 "$work/shared"
if [ "$(id -u)" = 0 ]; then
    mkdir "$work/other" && chown 12345 "$work/other"
    denied "somebody else's directory" 'owne[rd]|12345' --cache-dir "$work/other"
else
    skip "somebody else's directory" 'only root can make one'
fi
echo file >"$work/file"
denied 'a file in place of the directory' "$work/file" --cache-dir "$work/file"
denied 'a directory below a file' "$work/file" --cache-dir "$work/file/below"
denied 'a path that is too long' 'longer than|too long' --cache-dir "$work/$(printf 'a%.0s' $(seq 5000))"
run env -u AOTICACHE_DIR -u HOME "${call[@]}"
holds 'no home: an error, no crash' [ "$status" -ge 1 -a "$status" -le 3 ]
says 'no home: what to set is said' 'HOME|AOTICACHE_DIR'
try 'an empty AOTICACHE_DIR counts as unset' 0 env AOTICACHE_DIR= XDG_CACHE_HOME="$work/xdg" "${call[@]}"
holds 'XDG_CACHE_HOME is used then' [ -d "$work/xdg/aoticache" ]
try 'a directory whose name is not UTF-8' 0 "${call[@]}" --cache-dir "$work/"$'caf\xe9'
try 'is listed' 0 aoticache ls --json --cache-dir "$work/"$'caf\xe9'
holds 'as valid JSON' [ "$(field directory | grep -c 'xe9')" = 1 ]

aoticache compile aten::abs --input float32:2 --hook c --quiet >/dev/null
mkdir "$work/outside"
cp -r "$AOTICACHE_DIR" "$work/planted"
mv "$work/planted/objects" "$work/outside/objects"
ln -s "$work/outside/objects" "$work/planted/objects"
outside=$(find "$work/outside" | sort)
try 'a planted link objects/ stops nothing' 0 "${call[@]}" --cache-dir "$work/planted"
member 'but is not followed: the kernel is compiled' source compiled
member 'and not stored' stored false
is 'nothing is written where it points' "$outside" "$(find "$work/outside" | sort)"
cp -r "$AOTICACHE_DIR" "$work/linked"
rm -f "$work/linked"/index.sqlite3*
: >"$work/victim"
ln -s "$work/victim" "$work/linked/index.sqlite3"
run "${call[@]}" --cache-dir "$work/linked"
holds 'a planted link for the index is not written through' [ ! -s "$work/victim" ]
cp -r "$AOTICACHE_DIR" "$work/newer"
for file in "$work/newer/format"; do [ -e "$file" ] && chmod u+w "$file" && echo 'aoticache 999999' >"$file"; done
run "${call[@]}" --cache-dir "$work/newer"
holds 'a format from the future is refused, or set right' [ "$status" != 139 -a "$status" != 134 ]

if [ "$(id -u)" != 0 ]; then
    cp -r "$AOTICACHE_DIR" "$work/readonly" && chmod -R a-w "$work/readonly"
    readonly_call=("${call[@]}" --cache-dir "$work/readonly")
    try 'a read-only directory answers' 0 "${readonly_call[@]}"
    member 'from what it has' source index
    try 'a read-only directory and a miss' 0 aoticache run aten::abs --input float32:9 --hook c --json --cache-dir "$work/readonly"
    member 'it is compiled but not stored' stored false
elif unshare -m true 2>/dev/null; then
    readonly_run() {
        run unshare -m sh -c 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && AOTICACHE_DIR=$0 exec "$@"' \
            "$AOTICACHE_DIR" "$@"
    }
    readonly_run "${call[@]}"
    is 'a read-only directory answers' 0 "$status"
    member 'from what it has' source index
    readonly_run aoticache run aten::abs --input float32:9 --hook c --json
    is 'a read-only directory and a miss' 0 "$status"
    member 'it is compiled but not stored' stored false
    readonly_run aoticache rm --all --yes
    is 'nothing can be removed from it' 1 "$status"
    readonly_run aoticache-gc --max-size 1B
    is 'nor collected' 1 "$status"
else
    skip 'a read-only directory' 'root writes everywhere, and mounting is not permitted here'
fi

# ---- output ----
if [ -w /dev/full ]; then
    for command in "aoticache ls" "aoticache ls --json" "aoticache-stat" "aoticache help run" "aoticache doctor --json"; do
        $command >/dev/full 2>"$err"
        is "$command to a full device" 1 "$?"
        grep -q 'cannot write to standard output: No space left on device' "$err" && ok "$command says why" ||
            not_ok "$command says why" 'no message'
    done
else
    skip 'a full device' 'there is no /dev/full'
fi
(aoticache ls && aoticache ls --json; echo $? >"$work/pipe") 2>"$err" | true
is 'a closed pipe ends it as it ends git' 141 "$(cat "$work/pipe")"
says_nothing 'without a word'

escape=$'\033'
try 'no colours in a pipe' 0 env TERM=xterm aoticache ls
prints_not 'plain text' "$escape"
try 'colours where they are asked for' 0 aoticache ls --color always
prints 'the heading is bold' "$escape\[1m"
if has_terminal; then
    on_terminal xterm 'aoticache ls' >"$out" 2>&1
    prints 'colours on a terminal' "$escape\[1m"
    on_terminal xterm 'NO_COLOR=1 aoticache ls' >"$out" 2>&1
    prints_not 'NO_COLOR is respected' "$escape\["
else
    skip 'colours on a terminal' "$no_terminal"
fi
kernel "$work/rude" aten_abs.c <<<"#error beware $escape[2J of this"
try 'a message with control characters' 5 "${abs[@]}" --input float32:2 --kernels "$work/rude"
holds 'does not reach the terminal as it is' [ "$(grep -c "$escape" "$err")" = 0 ]
try 'nor from the index' 0 aoticache ls --failed
prints_not 'it is escaped there, too' "$escape"
finish
