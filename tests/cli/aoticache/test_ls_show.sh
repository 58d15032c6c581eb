#!/usr/bin/env bash
# aoticache ls, show and rm.
. tests/cli/lib.sh

try 'ls where nothing was ever stored' 7 aoticache ls
says 'names the directory' "$AOTICACHE_DIR"
holds 'and does not create it' [ ! -e "$AOTICACHE_DIR" ]

for size in 2 3; do
    run aoticache compile aten::abs --input float32:$size --hook c --json
    [ "$status" = 0 ] || { not_ok "compile $size" 'needed for the rest' && finish; }
done
key=$(field key) library=$(field entry.library) artifact=$(field entry.artifact)
aoticache compile aten::mm --input float32:8x8 --input float32:8x8 --hook c --quiet >/dev/null

try 'ls' 0 aoticache ls
prints 'has a heading' '^KEY +KERNEL +SIZE +AGE +USED +USES +PRODUCER +CPU$'
prints 'has a row for each entry' "^${key:0:12}  aten::abs\(float32\[3\]\) on cpu +[0-9.]+ KiB"
is 'four lines' 4 "$(wc -l <"$out")"
try 'ls of one operator' 0 aoticache ls aten::mm
is 'has its entries only' 2 "$(wc -l <"$out")"
try 'ls of an operator that is not there' 3 aoticache ls aten::nothing
try 'ls --json' 0 aoticache ls --json
is 'has all entries' 3 "$(field entries | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))')"
member 'sorted by operator' entries.2.op aten::mm
try 'ls sorted by age' 0 aoticache ls --sort age --json
member 'the newest first' entries.0.op aten::mm
try 'reversed' 0 aoticache ls --sort age --reverse --json
member 'the newest last' entries.2.op aten::mm
try 'a wrong order' 2 aoticache ls --sort colour
says 'lists what there is' 'not one of operator, size, age, used, uses or compile'
try 'a use is counted' 0 aoticache run aten::mm --input float32:8x8 --input float32:8x8 --hook c --quiet
try 'ls sorted by uses' 0 aoticache ls --sort uses --json
member 'the used one first' entries.0.op aten::mm
member 'one use' entries.0.uses 1

# ---- filters ----
entries() { field entries | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))'; }
count() { # NAME EXPECTED OPTION...
    local name=$1 expected=$2
    shift 2
    run aoticache ls --json "$@"
    is "$name" "$expected" "$(entries)"
}
count 'operators like a pattern' 2 --op 'aten::a*'
count 'none of them' 0 --op 'at?n::x*'
try 'is exit code 3' 3 aoticache ls --op 'aten::x*'
says 'and said' 'no entry for operators like aten::x'
count 'kernels of operators' 3 --kind operator
count 'nothing of another kind' 0 --kind 'inductor-*'
try 'an unknown kind' 2 aoticache ls --kind inductor
says 'names the kinds' "option --kind: 'inductor' is not one of operator, model, .*inductor-cpp, .* or triton"
count 'a device' 3 --device cpu
count 'another' 0 --device cuda
try 'no device' 2 aoticache ls --device house
count 'a producer' 3 --producer 'cc *'
count 'another producer' 0 --producer 'pytorch*'
count 'a pair of the environment' 3 --environment 'arch=*'
count 'that is not there' 0 --environment 'colour=*'
count 'two of them' 0 --environment 'arch=*' --environment 'arch=none'
try 'no pair' 2 aoticache ls --environment arch
count 'used within an hour' 3 --used-since 1h
count 'not used for a day' 0 --unused-for 1d
count 'not used for no time' 3 --unused-for 0
count 'newer than a day' 3 --newer 1d
count 'larger than a byte' 3 --larger 1B
count 'larger than a GiB' 0 --larger 1G
count 'what this CPU can run' 3 --cpu
count 'what is pinned' 0 --pinned
count 'with a tag' 0 --tag v1
count 'several conditions' 1 --op 'aten::*' --cpu --larger 1K aten::mm
for option in used-since unused-for newer larger; do try "--$option of no number" 2 aoticache ls --$option much; done
count 'the first two' 2 --limit 2
member 'in their order' entries.0.op aten::abs
count 'the last two' 2 --limit 2 --reverse
member 'backwards' entries.0.op aten::mm
count 'with a minus' 3 --sort -age
member 'the newest last' entries.2.op aten::mm
count 'with a minus and reversed' 3 --sort -age --reverse
member 'the newest first' entries.0.op aten::mm
count 'by the time of the compile' 3 --sort compile
holds 'the longest first' test "$(field entries.0.compile_ns)" -ge "$(field entries.2.compile_ns)"
try 'no limit' 2 aoticache ls --limit 0

try 'show by a prefix of the key' 0 aoticache show "${key:0:10}"
prints 'the key in full' "^key +$key\$"
prints 'the artifact' "^artifact +$artifact\$"
prints 'the argument with strides' '^argument 0 +float32\[3\] strides \[1\] on cpu$'
prints 'the environment' '^environment +arch = '
prints 'the files' "$library .* "
prints 'what the library needs' '^needs +.*libc'
prints 'that PyTorch is not needed' '^PyTorch +not needed'
try 'show in upper case' 0 aoticache show "$(tr a-f A-F <<<"${key:0:10}")"
try 'show by the library' 0 aoticache show "${library:0:16}"
try 'show by the artifact, as JSON' 0 aoticache show "$artifact" --json
member 'the entry' entries.0.key "$key"
member 'the manifest' entries.0.manifest.key "$key"
member 'no problem' entries.0.problem null
member 'nothing is missing' entries.0.library_description.missing '[]'
try 'a prefix of nothing' 3 aoticache show ffffffffffffffff0000
try 'a prefix that is too short' 2 aoticache show ab
try 'no hexadecimal digits' 2 aoticache show zzzzzz
try 'no key' 2 aoticache show

# Two keys with the very same library: the sources do not depend on the request.
kernel "$work/same" aten_abs.c <tests/hosts/kernels/pointwise.c
for size in 5 6; do
    run aoticache compile aten::abs --input float32:$size --hook c --kernels "$work/same" --json
done
shared=$(field entry.library)
try 'a prefix of two keys' 2 aoticache show "$shared"
says 'is called ambiguous' "prefix $shared is ambiguous"
is 'and both are named' 2 "$(grep -c 'aten::abs' "$err")"

# ---- guards, kept output, failures ----
# Stores a kernel for many shapes with its compiler's output, as a hook would: no hook that runs here makes one.
cat >"$work/store_dynamic.py" <<'PYTHON'
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])


class File(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("path", ctypes.c_char_p)]


class Product(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("files", ctypes.POINTER(File)), ("file_count", ctypes.c_size_t),
                ("requirements", ctypes.c_uint64 * 2), ("guard", ctypes.c_char_p), ("producer", ctypes.c_char_p),
                ("compile_ns", ctypes.c_uint64), ("output", ctypes.c_char_p)]


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


cache, request = ctypes.c_void_p(), ctypes.c_void_p()
assert library.aoticache_cache_open(None, ctypes.byref(cache), None) == 0
library.aoticache_request_create.argtypes = [ctypes.c_char_p, Device, ctypes.c_void_p, ctypes.c_void_p]
assert library.aoticache_request_create(b"aten::neg", Device(0, -1), ctypes.byref(request), None) == 0
assert library.aoticache_request_set_environment(request, b"shapes", b"dynamic", None) == 0
files = (File * 1)(File(b"library.so", os.fsencode(sys.argv[2])))
product = Product(ctypes.sizeof(Product), files, 1, (ctypes.c_uint64 * 2)(), b"s0 >= 2", b"test", 1000,
                  b"warning: odd\n  at line 2 \x1b[31m\n")
assert library.aoticache_cache_put(cache, request, ctypes.byref(product), None, None) == 0
library.aoticache_cache_close(cache)
PYTHON
# A Python that is not instrumented cannot load instrumented libraries.
if is_instrumented; then
    skip 'a kernel for many shapes' 'the library is instrumented'
elif ! try 'a kernel for many shapes is stored' 0 \
    python3 "$work/store_dynamic.py" "$BUILD/lib/libaoticache.so" "$(object_path "$library")"; then
    :
else
    try 'ls of it' 0 aoticache ls aten::neg
    prints 'tells its guard' 'where s0 >= 2'
    try 'ls of it as JSON' 0 aoticache ls aten::neg --json
    member 'has the guard' entries.0.guard 's0 >= 2'
    dynamic=$(field entries.0.key)
    run aoticache show "$dynamic"
    prints 'show tells the guard' '^guard +s0 >= 2$'
    prints 'and the environment' 'shapes = dynamic'
    prints 'and where the output is' '^output +[0-9]+ B of the compiler'
    try 'show --output' 0 aoticache show --output "$dynamic"
    prints 'has what the compiler said' '^warning: odd$'
    prints_not 'without control characters' $'\x1b'
    try 'show --output as JSON' 0 aoticache show --output "$dynamic" --json
    member 'has the key' outputs.0.key "$dynamic"
    try 'rm of it' 0 aoticache rm "$dynamic" --yes
fi
try 'show --output where nothing was kept' 3 aoticache show --output "$key"
says 'and says so' 'no compiler output is kept'

printf '#!/bin/sh\necho sorry >&2\nexit 1\n' >"$work/refuser" && chmod +x "$work/refuser"
aoticache compile aten::abs --input float32:77 --hook "command:$work/refuser" --quiet >/dev/null 2>&1
try 'ls --failed' 0 aoticache ls --failed
prints 'tells when it is tried again' '^  failed .* ago, not tried again for '
aoticache compile aten::abs --input float32:77 --hook "command:$work/refuser" --quiet >/dev/null 2>&1
try 'ls --failed as JSON' 0 aoticache ls --failed --json
member 'a failure that is remembered is not another one' failures.0.count 1
python3 - "$AOTICACHE_DIR/index.sqlite3" <<'PYTHON'
import sqlite3, sys
index = sqlite3.connect(sys.argv[1])
index.execute("UPDATE failures SET retry_ns = 1")
index.commit()
PYTHON
try 'once the time has passed' 0 aoticache ls --failed
prints 'it says so' 'will be tried again$'
aoticache compile aten::abs --input float32:77 --hook "command:$work/refuser" --quiet >/dev/null 2>&1
try 'ls --failed after the second' 0 aoticache ls --failed
prints 'counts them' ', 2 times in a row, not tried again for '

# ---- rm ----
try 'rm of one key' 0 aoticache rm "${key:0:12}" --yes
prints 'says what went' "^removed ${key:0:12} aten::abs\(float32\[3\]\) on cpu\$"
try 'it is gone' 3 aoticache show "$key"
holds 'and so is its library' [ ! -e "$(object_path "$library")" ]
try 'rm again' 3 aoticache rm "${key:0:12}"
try 'rm of two prefixes, one wrong' 3 aoticache rm "${key:0:12}" ffffffff
try 'rm of an operator' 0 aoticache rm --op aten::abs --json
is 'three entries' 3 "$(field removed | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))')"
holds 'the shared library is gone with the last' [ ! -e "$(object_path "$shared")" ]
try 'rm of an operator that is not there' 3 aoticache rm --op aten::abs
try 'rm --all asks, and here is nobody to ask' 2 aoticache rm --all
says 'and says so' '--yes'
is 'nothing was removed' 2 "$(aoticache ls | wc -l)"
try 'rm --all --yes' 0 aoticache rm --all --yes
try 'ls of an empty cache' 0 aoticache ls
prints_nothing 'prints nothing'
says 'but a note' 'is empty'
try 'rm of nothing' 2 aoticache rm
try 'rm of everything at once' 2 aoticache rm --all --op aten::abs
finish
