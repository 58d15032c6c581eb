#!/usr/bin/env bash
# aoticache run and compile, with kernels written in C.
. tests/cli/lib.sh

add=(aoticache run aten::add.Tensor --input float32:2x3=arange --input float32:2x3=10 --hook c)

# ---- the main case ----
try 'a miss compiles and runs' 0 "${add[@]}" --json
member 'the source of a miss' source compiled
member 'it is stored' stored true
member 'the values' outputs.0.values '[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]'
member 'the dtype' outputs.0.dtype float32
member 'the sizes' outputs.0.sizes '[2, 3]'
key=$(field key)
library=$(field library)
holds 'the key has 64 digits' [ ${#key} -eq 64 ]
holds 'the library is an object of the store' [ -f "$(object_path "$library")" ]
try 'a hit' 0 "${add[@]}" --json --repeat 50
member 'the source of a hit' source index
member 'the same key' key "$key"
member 'the same library' library "$library"
member 'the number of repetitions' repeat 50
holds 'the median is a time' [ "$(field run_median_ns)" -gt 0 ]
holds 'the minimum is not above the median' [ "$(field run_min_ns)" -le "$(field run_median_ns)" ]

try 'results for people' 0 "${add[@]}"
prints 'the tensor has its dtype and sizes' '^output 0: float32\[2, 3\]$'
prints 'its rows' '^  \[\[10\., 11\., 12\.\],$'
prints 'where it came from' '^source +found in the cache \(cc '
prints 'the key is shortened' "^key +${key:0:12}\$"
says_nothing 'a hit is silent on standard error'
try 'quiet prints the result only' 0 "${add[@]}" --quiet
is 'quiet has three lines' 3 "$(wc -l <"$out")"

try 'without a hook the cache alone answers' 0 "${add[@]}" --hook none --json
member 'it is the same kernel' key "$key"
try 'a miss without a hook' 3 aoticache run aten::add.Tensor --input float32:7 --input float32:7 --hook none
says 'the miss names the operator' 'aten::add.Tensor'
try 'nothing cached yet, without a hook' 3 "${add[@]}" --hook none --cache-dir "$work/none"
holds 'and the directory is not created' [ ! -e "$work/none" ]

try 'compile alone' 0 aoticache compile aten::mm --input float32:2x3 --input float32:3x4 --hook c --json
member 'compile: stored' stored true
member 'compile: the entry is shown' entry.op aten::mm
try 'then run hits' 0 aoticache run aten::mm --input float32:2x3=ones --input float32:3x4=arange --hook c --json
member 'it hits' source index
member 'the product' outputs.0.values '[12.0, 15.0, 18.0, 21.0, 12.0, 15.0, 18.0, 21.0]'
try 'compile of what is there' 0 aoticache compile aten::mm --input float32:2x3 --input float32:3x4 --hook c --quiet
prints 'compile --quiet prints the key' '^[0-9a-f]{64}$'

# ---- tensors ----
neg=(aoticache run aten::neg --hook c --json)
try 'a transposed tensor' 0 "${neg[@]}" --input float32:2x3@1x2=arange
member 'its values are by position' outputs.0.values '[-0.0, -1.0, -2.0, -3.0, -4.0, -5.0]'
try 'a tensor without dimensions' 0 "${neg[@]}" --input float32:=2.5
member 'its value' outputs.0.values '[-2.5]'
member 'its sizes' outputs.0.sizes '[]'
try 'the word scalar' 0 "${neg[@]}" --input float64:scalar=1e300
member 'a double' outputs.0.values '[-1e+300]'
try 'a tensor without elements' 0 "${neg[@]}" --input float32:0x4
member 'no values' outputs.0.values '[]'
try 'integers' 0 "${neg[@]}" --input int64:3=-9007199254740993
member 'all digits' outputs.0.values '[9007199254740993, 9007199254740993, 9007199254740993]'
try 'infinity' 0 "${neg[@]}" --input float32:1=inf
member 'is a string in JSON' outputs.0.values '["-Infinity"]'
try 'the same seed' 0 "${neg[@]}" --input float32:4 --seed 7
first=$(field outputs.0.values)
try 'again' 0 "${neg[@]}" --input float32:4 --seed 7
member 'gives the same numbers' outputs.0.values "$first"
try 'another seed' 0 "${neg[@]}" --input float32:4 --seed 8
holds 'gives other numbers' [ "$(field outputs.0.values)" != "$first" ]
printf '\0\0\200\77\0\0\0\100' >"$work/two.bin"
try 'values from a file' 0 "${neg[@]}" --input "float32:2=@$work/two.bin"
member 'are read in order' outputs.0.values '[-1.0, -2.0]'
try 'a file of the wrong size' 2 "${neg[@]}" --input "float32:3=@$work/two.bin"
says 'both sizes are named' '8 bytes, the tensor has 12'
try 'many values' 0 "${neg[@]}" --input float32:40x40
member 'are cut in JSON' outputs.0.truncated true
is 'after a thousand' 1000 "$(field outputs.0.values | tr , '\n' | wc -l)"
try 'unless all are wanted' 0 "${neg[@]}" --input float32:40x40 --all-values
is 'all are there' 1600 "$(field outputs.0.values | tr , '\n' | wc -l)"
try 'a big tensor for people' 0 aoticache run aten::neg --hook c --input float32:40x40
prints 'is shortened' '\.\.\.'

# ---- failures ----
try 'an operator that no kernel serves' 5 aoticache run aten::no_such --input float32:2 --hook c
says 'is named' 'aten::no_such'
kernel "$work/broken" aten_abs.c <<<'#error this kernel is broken'
broken=(aoticache run aten::abs --input float32:2 --hook c --kernels "$work/broken")
try 'a compile that fails' 5 "${broken[@]}"
says 'shows what the compiler said' 'this kernel is broken'
try 'failures are listed' 0 aoticache ls --failed
prints 'with their kernel' 'aten::abs\(float32\[2\]\)'
prints 'and their message' 'this kernel is broken'
try 'failures as JSON' 0 aoticache ls --failed --json
member 'name the operator' failures.0.op aten::abs
try 'another program hears the same without compiling' 5 "${broken[@]}"
try 'it can be tried again' 5 "${broken[@]}" --retry
try 'failures can be forgotten' 0 aoticache rm --failed
try 'then none is listed' 0 aoticache ls --failed
prints_nothing 'no failure is left'

never() { # PATTERN OPERATOR SIZES SIZES
    try "$2 of $3 and $4" 5 aoticache run "$2" --input "float32:$3" --input "float32:$4" --hook c
    says 'is a fault of the request' "hook c: $2\\(float32\\[.*\\) on cpu by .*: .*$1"
}
before=$(aoticache ls)
for op in aten::add.Tensor aten::mul.Tensor; do
    never 'cannot be broadcast, so it cannot run' $op 2x3 3x3
    never 'cannot be broadcast, so it cannot run' $op 4x2x3 1x5x1
    never 'cannot be broadcast, so it cannot run' $op 0 2
done
never 'its inner sizes differ, so it cannot run' aten::mm 2x3 2x3
never 'served with two matrices' aten::mm 2x3 3
is 'nothing of that is stored' "$(wc -l <<<"$before")" "$(aoticache ls | wc -l)"

cat >"$work/writer" <<'SCRIPT'
#!/bin/sh
read -r request
echo "no library" >"$(echo "$request" | sed 's/.*"directory":"\([^"]*\)".*/\1/')/kernel.so"
echo '{"id":1,"ok":true,"files":[{"name":"kernel.so","path":"kernel.so"}],"requirements":[]}'
SCRIPT
chmod +x "$work/writer"
no_library=(aoticache run aten::abs --input float32:2 --hook "command:$work/writer")
try 'a product that is no library' 5 "${no_library[@]}"
says 'is named with what made it' "hook command \($work/writer\): its library kernel.so is not stored"
run aoticache ls aten::abs
prints_not 'nothing of it is stored' 'command writer'
try 'it is a failed compile' 0 aoticache ls --failed
prints 'and remembered as one' 'its library kernel.so is not stored'

cat >"$work/sleeper" <<'SCRIPT'
#!/bin/sh
echo $$ >"$0.pid"
exec sleep 60
SCRIPT
chmod +x "$work/sleeper"
alive() { [ -s "$work/sleeper.pid" ] && kill -0 "$(cat "$work/sleeper.pid")" 2>/dev/null; }
gone_soon() {
    for _ in $(seq 300); do
        alive || return 0
        sleep 0.1
    done
    return 1
}
try 'a compile that takes too long' 5 aoticache run aten::abs --input float32:2 --hook "command:$work/sleeper" --timeout 1
holds 'its process is ended' gone_soon
rm -f "$work/sleeper.pid"
aoticache run aten::abs --input float32:2 --hook "command:$work/sleeper" --retry >"$out" 2>"$err" &
tool=$!
for _ in $(seq 300); do alive && break || sleep 0.1; done
holds 'a compile is running' alive
kill -TERM "$tool"
wait "$tool" 2>/dev/null
holds 'its process ends with the tool' gone_soon
try 'and the next one does not wait' 5 aoticache run aten::abs --input float32:2 --hook command:/bin/false --retry

# ---- a cache that cannot be written ----
# From no free space up to the first size at which all fits: each time the caller gets the
# kernel.
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    mkdir -p "$work/small"
    for kib in $(seq 32 32 640) $(seq 768 256 4096); do
        run unshare -m sh -c "mount -t tmpfs -o size=${kib}k,mode=700 none '$work/small' && AOTICACHE_DIR='$work/small' \
            aoticache run aten::add.Tensor --input float32:2=1 --input float32:2=2 --hook c --json"
        is "a disk of $kib KiB: the kernel runs" 0 "$status"
        [ "$status" = 0 ] || continue
        [ "$(field stored)" = true ] && break
        member "a disk of $kib KiB: the result is right" outputs.0.values '[3.0, 3.0]'
        says "a disk of $kib KiB: it is said why nothing is stored" 'not stored|stores nothing'
    done
    member 'with room enough it is stored' stored true
else
    skip 'a full disk' 'mounting a small file system is not permitted here'
fi
finish
