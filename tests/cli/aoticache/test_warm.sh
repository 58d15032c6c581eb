#!/usr/bin/env bash
# Lists of requests: aoticache warm compiles them, aoticache record writes them.
. tests/cli/lib.sh

list=$work/list.txt
cat >"$list" <<'LIST'
# what the model asks for
aten::add.Tensor(float32[2, 3], float32[2, 3], alpha=1) on cpu

aten::abs(float32[4,5])
  aten::abs( float32[4, 5] ) on cpu
aten::mm(float32[2, 3], float32[3, 4]) on cpu
LIST

# ---- what is missing ----
try 'a dry run of an empty cache' 3 aoticache warm "$list" --hook c --dry-run
is 'it prints what is missing, each once, as a list' 3 "$(wc -l <"$out")"
prints 'in the form of a list' '^\{"operator":"aten::abs","device":"cpu","arguments":\[\{"kind":"tensor","dtype":"float32","sizes":\[4,5\]'
cp "$out" "$work/missing"
says 'and counts' '^aoticache warm: 0 there, 3 missing, 0 failed, 0 unsupported$'
holds 'it does not create the directory' [ ! -e "$AOTICACHE_DIR" ]

# ---- compiling ----
try 'a list is compiled' 0 aoticache warm "$list" --hook c --jobs 2
prints 'the summary' '^0 there, 3 compiled, 0 failed, 0 unsupported, in [0-9.]+ (us|ms|s)$'
says_nothing 'nothing on standard error'
try 'again' 0 aoticache warm "$list" --hook c --json
member 'all are there' there 3
member 'nothing was compiled' compiled 0
member 'the request is named' results.0.request 'aten::add.Tensor(float32[2, 3], float32[2, 3], alpha=1) on cpu'
member 'and its line' results.1.line 4
key=$(field results.1.key)
try 'what was compiled is found by the tool that looks up' 0 aoticache compile aten::abs --input float32:4x5 --hook c --json
member 'under the same key' key "$key"
member 'in the index' source index
try 'a dry run of a warm cache' 0 aoticache warm "$list" --hook c -n
prints_nothing 'prints nothing'
try 'quiet' 0 aoticache warm "$list" --hook c --quiet
prints_nothing 'prints nothing either'
try 'an empty list' 0 aoticache warm /dev/null --hook c
prints 'is done' '^0 there, 0 compiled'

try 'the list of what was missing is a list' 0 aoticache warm "$work/missing" --hook c
prints 'of the same requests' '^3 there, 0 compiled'
cat "$list" "$work/missing" >"$work/both"
try 'text and JSON in one list' 0 aoticache warm "$work/both" --hook c
prints 'are one request where they say the same' '^3 there, 0 compiled'

# ---- standard input, several files ----
run bash -c "echo 'aten::neg(float32[7])' | aoticache warm - '$list' --hook c"
is 'the standard input and a file' 0 "$status"
prints 'count together' '^3 there, 1 compiled, '

# ---- wrong lists ----
printf 'aten::abs(float32[4])\n# fine\naten::abs(float32[4)\naten::abs(floa32[4])\n' >"$work/wrong"
try 'a wrong list' 2 aoticache warm "$work/wrong" --hook c
says 'the first mistake has its place' "^aoticache warm: $work/wrong:3:20: expected ',' or '\]', found '\)'$"
says 'the second too' "^aoticache warm: $work/wrong:4:11: unknown name 'floa32'; did you mean float32?"
try 'nothing was compiled' 3 aoticache warm --hook c -n <(echo 'aten::abs(float32[4])')
printf '{"operator":"aten::abs","arguments":[]}\n{"operator":"aten::abs" "arguments":[]}\n{"operator":"aten::abs"}\n' >"$work/wrong.json"
try 'a wrong list of JSON' 2 aoticache warm "$work/wrong.json" --hook c
says 'what is no JSON has its place' "^aoticache warm: $work/wrong.json:2:[0-9]+: "
says 'what is no request is told' "^aoticache warm: $work/wrong.json:3: \"arguments\" is not a list"
printf 'aten::abs(float32[4])\0\n' >"$work/zero"
try 'a zero byte' 2 aoticache warm "$work/zero" --hook c
says 'is told' 'zero:1:22: a zero byte'
try 'a constant' 2 aoticache warm --hook c <(echo 'a::w(const float32[2]#1a2b3c4d)')
says 'cannot be had' 'constant'
try 'a list that is not there' 1 aoticache warm "$work/none" --hook c
says 'is named' "cannot open $work/none: No such file"
try 'no list' 2 aoticache warm --hook c
try 'no hook' 2 aoticache warm "$list" --hook none
try 'no jobs' 2 aoticache warm "$list" --hook c --jobs 0

# ---- failures ----
mkdir -p "$work/kernels"
cp "$BUILD"/share/aoticache/kernels/* "$work/kernels" 2>/dev/null
kernel "$work/kernels" aten_relu.c <<<'#error this kernel is broken'
printf 'aten::relu(float32[4])\naten::sum(float32[4])\naten::nothing(float32[4])\naten::neg(float32[9])\n' >"$work/partly"
try 'some cannot be compiled' 1 aoticache warm "$work/partly" --hook c --kernels "$work/kernels"
says 'a failure has its place' "^aoticache warm: $work/partly:1: aten::relu\(float32\[4\]\) on cpu: ."
says 'and the message of the compiler' 'this kernel is broken'
says 'what is not supported too' "partly:3: aten::nothing\(float32\[4\]\) on cpu: .*no kernel for aten::nothing"
prints 'the others are compiled' '^0 there, 2 compiled, 1 failed, 1 unsupported'
try 'the failure is remembered' 1 aoticache warm "$work/partly" --hook c --kernels "$work/kernels" --json
member 'as one' failed 1
member 'and its message is there' results.0.result failed
cp "$BUILD/share/aoticache/kernels/aten_relu.c" "$work/kernels/"
head -n 1 "$work/partly" >"$work/first"
try 'when it is fixed' 0 aoticache warm "$work/first" --hook c --kernels "$work/kernels" --retry
kernel "$work/broken" aten_abs.c <<<'#error no'
printf 'aten::abs(float32[%d])\n' 11 12 13 14 >"$work/four"
try 'fail-fast begins nothing more' 1 aoticache warm "$work/four" --hook c --kernels "$work/broken" --jobs 1 --fail-fast --json
member 'one failed' failed 1
member 'three were not tried' pending 3

# ---- several at a time ----
cat >"$work/meet" <<HOOK
#!/bin/sh
read -r request
: >"$work/here.\$\$"
for _ in \$(seq 200); do
    [ "\$(ls "$work" | grep -c '^here\\.')" -ge 3 ] && echo 'all three met' >&2 && exit 1
    sleep 0.1
done
echo 'nobody came' >&2
exit 1
HOOK
chmod +x "$work/meet"
printf 'test::op(float32[%d])\n' 1 2 3 >"$work/three"
try 'three compiles' 1 aoticache warm "$work/three" --hook "command:$work/meet" --jobs 3
is 'run at once' 3 "$(grep -c 'all three met' "$err")"

# ---- a signal ----
printf '#!/bin/sh\nread -r request\necho $$ >>%s/started\nexec sleep 60\n' "$work" >"$work/slow"
chmod +x "$work/slow"
aoticache warm "$work/three" --hook "command:$work/slow" --jobs 3 --retry >"$out" 2>"$err" &
warm=$!
for _ in $(seq 200); do
    [ -e "$work/started" ] && [ "$(wc -l <"$work/started")" -eq 3 ] && break
    sleep 0.1
done
kill -TERM "$warm"
wait "$warm"
is 'a signal ends it' 143 $?
any_left() { for pid in $(cat "$work/started"); do kill -0 "$pid" 2>/dev/null && return 0; done; return 1; }
for _ in $(seq 600); do any_left || break; sleep 0.1; done
if any_left; then not_ok 'and the compilers that it started' "still there: $(cat "$work/started")"; else ok 'and the compilers that it started'; fi

# ---- a terminal ----
if has_terminal; then
    rm -f "$work"/here.*
    printf '#!/bin/sh\nread -r request\nsleep 2\nexit 1\n' >"$work/slow"
    try 'on a terminal' 1 on_terminal xterm "aoticache warm $work/three --hook command:$work/slow --jobs 3"
    prints 'it shows how far it is' '0/3 kernels'
    try 'on a dumb terminal' 1 on_terminal dumb "aoticache warm $work/three --hook command:$work/slow --jobs 3 --retry"
    prints_not 'it does not' '/3 kernels'
else
    skip 'progress on a terminal' "$no_terminal"
fi

# ---- record: the cache ----
try 'a list of what the cache holds' 0 aoticache record --from-cache
cp "$out" "$work/held"
prints 'has the requests' '^\{"operator":"aten::mm","device":"cpu",.*"sizes":\[3,4\]'
try 'it warms another cache' 0 aoticache warm "$work/held" --hook c --cache-dir "$work/other"
prints 'whole' "^0 there, $(wc -l <"$work/held") compiled, 0 failed"
try 'one operator, to a file' 0 aoticache record --from-cache --op aten::mm -o "$work/mm"
is 'has one line' 1 "$(grep -c '^{"operator":"aten::mm"' "$work/mm")"
try 'which is the request that people read' 0 aoticache warm "$work/mm" --hook c --json
member 'in the other form' results.0.request 'aten::mm(float32[2, 3], float32[3, 4]) on cpu'
try 'another device' 3 aoticache record --from-cache --device cuda
try 'what was used lately' 0 aoticache record --from-cache --used 1h --json
holds 'as JSON' [ "$(field requests | grep -o 'aten::' | wc -l)" -ge 4 ]
try 'a library that is there' 0 aoticache ls aten::abs --json
library=$(field entries.0.library)
cp "$(object_path "$library")" "$work/kernel.so"
cat >"$work/copy" <<HOOK
#!/bin/sh
read -r request
id=\$(printf '%s' "\$request" | sed 's/.*"id": *\\([0-9]*\\).*/\\1/')
printf '{"id":%s,"ok":true,"files":[{"name":"kernel.so","path":"$work/kernel.so"}],"requirements":[]}\\n' "\$id"
HOOK
chmod +x "$work/copy"
try 'a kernel with constants' 0 aoticache compile aten::add.Tensor --input float32:2 --weight float32:2 --hook "command:$work/copy"
try 'is left out' 0 aoticache record --from-cache
prints 'with the reason' '^\{"left_out":"aten::add.Tensor\(float32\[2\], const float32\[2\]#[0-9a-f]{8}\) on cpu","reason":".*constant'
says 'and counted' '1 of [0-9]+ left out'
cp "$out" "$work/left-out"
try 'a list with such a line is read' 0 aoticache warm "$work/left-out" --hook c

# ---- record: a program ----
cd "$work" || exit 1
try 'a program' 7 aoticache record -o recorded -- sh -c 'echo "aten::abs(float32[3]) on cpu" >>"$AOTICACHE_RECORD"; exit 7' --help
says 'what it recorded is counted' '^aoticache record: 1 new request in recorded, 1 in all$'
try 'again, from another directory' 0 aoticache record -o recorded sh -c 'cd / && echo "# x" >>"$AOTICACHE_RECORD"'
says 'it is appended to' '0 new requests in recorded, 1 in all'
try 'the list serves' 0 aoticache warm recorded --hook c
try 'the default list' 0 aoticache record -- true
holds 'is made in this directory' [ -f aoticache-requests.txt ]
try 'a program that is not there' 127 aoticache record -- "$work/no-program"
try 'a program that dies' 143 aoticache record -- sh -c 'kill -TERM $$'
try 'a list that cannot be written' 1 aoticache record -o "$work/no/list" -- true
try 'neither program nor cache' 2 aoticache record
try 'both' 2 aoticache record --from-cache true
try 'a filter without the cache' 2 aoticache record --op aten::mm -- true
finish
