#!/usr/bin/env bash
# aoticache why: every reason for a miss, and the message for it.
. tests/cli/lib.sh

try 'why where nothing was ever stored' 3 aoticache why aten::abs --input float32:3 --hook none
for size in 2 3; do
    run aoticache compile aten::abs --input float32:$size --hook c --json
    [ "$status" = 0 ] || { not_ok "compile $size" 'needed for the rest' && finish; }
done
key=$(field key) library=$(field entry.library)
aoticache compile aten::mm --input float32:8x8 --input float32:8x8 --hook c --quiet >/dev/null
row() { prints "$1" "^  $2 +$3\$"; }

# ---- hits ----
try 'a hit' 0 aoticache why aten::abs --input float32:3 --hook c
prints 'is said to be one' '^result +hit: it is stored for exactly this$'
prints 'and which' "^entry +${key:0:12}  aten::abs\(float32\[3\]\) on cpu, made .* ago by cc "
try 'a hit without a compiler' 0 aoticache why aten::abs --input float32:3 --hook none
try 'by a line of ls' 0 aoticache why 'aten::abs(float32[3]) on cpu' --hook c --json
member 'the same key' key "$key"
member 'a hit' hit true
member 'the reason' reason stored
member 'the entry' entry.key "$key"
run aoticache ls aten::abs --sort uses --json
member 'nothing of it is counted' entries.0.uses 0

# ---- other arguments ----
try 'another size' 3 aoticache why aten::abs --input float32:5 --hook c
prints 'is a miss' '^result +miss: 2 kernels of aten::abs are stored, none for these arguments$'
row 'the difference' 'argument 0: sizes' '\[5\] +\[[23]\]'
is 'of both' 2 "$(grep -c 'argument 0: sizes' "$out")"
prints 'and what to do' '^to do +.*aoticache compile'
try 'the nearest alone' 3 aoticache why aten::abs --input float32:5 --hook c --nearest 1
is 'one' 1 "$(grep -c 'argument 0: sizes' "$out")"
try 'dtype and strides' 3 aoticache why aten::mm --input float64:8x8@1x8 --input float32:8x8 --hook c
row 'the dtype' 'argument 0: dtype' 'float64 +float32'
row 'the strides' 'argument 0: strides' '\[1, 8\] +\[8, 1\] \(contiguous\)'
prints_not 'the sizes are equal' 'argument 0: sizes'
prints_not 'so is the other argument' 'argument 1'
try 'a scalar for a tensor' 3 aoticache why aten::mm --input float32:8x8 --scalar 2 --hook c
row 'both with their kind' 'argument 1' 'int 2 +tensor float32\[8, 8\] .*'
try 'an argument too few and one too many' 3 aoticache why aten::mm --input float32:8x8 --scalar alpha=1 --hook none
row 'too few' 'argument 1' '\(not given\) +tensor .*'
row 'too many' 'argument alpha' 'int 1 +\(not given\)'
try 'another device' 3 aoticache why aten::abs --input float32:3 --device cuda:1 --hook none --json
member 'is one difference' nearest.0.differences '[{"kind": "device", "place": "", "property": "", "asked": "cuda:1", "stored": "cpu"}]'
member 'the nearest is the one with this size' nearest.0.key "$key"
member 'the reason' reason arguments

# ---- another environment ----
printf '#!/bin/sh\necho sorry >&2\nexit 1\n' >"$work/refuser" && chmod +x "$work/refuser"
try 'another compiler' 3 aoticache why aten::abs --input float32:3 --hook "command:$work/refuser" --nearest 1
prints 'the arguments are stored' '^result +miss: it is stored for the same arguments in another environment$'
prints 'the pair with both values' '^  environment [a-z]+ +[^ ]+.* +[^ ]+'
prints_not 'what is equal is not told' 'environment arch'
try 'as JSON' 3 aoticache why aten::abs --input float32:3 --hook "command:$work/refuser" --json
member 'the reason' reason environment
member 'the kind' nearest.0.differences.0.kind environment

# ---- a failure ----
aoticache compile aten::abs --input float32:3 --hook "command:$work/refuser" --quiet >/dev/null 2>&1
try 'it failed before' 3 aoticache why aten::abs --input float32:3 --hook "command:$work/refuser"
prints 'is the reason' '^result +miss: its compile failed before'
prints 'when it is tried again' '^failure +.* ago, not tried again for '
prints 'with the message' '^    .*sorry'
try 'as JSON' 3 aoticache why aten::abs --input float32:3 --hook "command:$work/refuser" --json
member 'the reason' reason failed
member 'how often' failure.count 1
aoticache rm --failed --quiet

# ---- no such operator ----
try 'a name that is nearly right' 3 aoticache why aten::ab --input float32:3 --hook none
prints 'tells what is there' '^stored are +aten::abs \(2 kernels\)$'
try 'another overload' 3 aoticache why aten::mm.out --input float32:3 --hook none --json
member 'tells it too' operators.0.op aten::mm
member 'the reason' reason operator
try 'an operator that nothing is like' 3 aoticache why there::is_nothing_like_it --hook none
prints 'says how much there is' '^stored are +3 kernels of operators with other names'
try 'an operator that the compiler does not know' 3 aoticache why aten::unheard_of --input float32:3 --hook c
prints 'says so' '^compiler +.*unheard_of.*; environments are not compared$'

# ---- kernels that this machine cannot run, and kernels for many shapes ----
cat >"$work/store.py" <<'PYTHON'
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])


class File(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("path", ctypes.c_char_p)]


class Product(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("files", ctypes.POINTER(File)), ("file_count", ctypes.c_size_t),
                ("requirements", ctypes.c_uint64 * 2), ("guard", ctypes.c_char_p), ("producer", ctypes.c_char_p),
                ("compile_ns", ctypes.c_uint64), ("output", ctypes.c_char_p)]


def store(text, guard, requirements):
    request = ctypes.c_void_p()
    assert library.aoticache_request_parse(text, 0, ctypes.byref(request), None) == 0
    if guard:
        assert library.aoticache_request_set_environment(request, b"shapes", b"dynamic", None) == 0
    files = (File * 1)(File(b"library.so", os.fsencode(sys.argv[2])))
    product = Product(ctypes.sizeof(Product), files, 1, (ctypes.c_uint64 * 2)(*requirements), guard, b"test", 1000)
    assert library.aoticache_cache_put(cache, request, ctypes.byref(product), None, None) == 0


cache = ctypes.c_void_p()
assert library.aoticache_cache_open(None, ctypes.byref(cache), None) == 0
store(b"aten::neg(float32[2]) on cpu", b"float32[s0]@cpu; s0=2..128", (0, 0))
store(b"aten::exp(float32[7]) on cpu", None, (0, 1 << 62))
store(b"aten::relu(float32[7]) on cpu key_sets 0x8001", None, (0, 0))
library.aoticache_cache_close(cache)
PYTHON
if is_instrumented; then
    skip 'kernels with guards and requirements' 'the library is instrumented'
elif try 'kernels with guards and requirements are stored' 0 \
    python3 "$work/store.py" "$BUILD/lib/libaoticache.so" "$(object_path "$library")"; then
    try 'within the guard' 0 aoticache why aten::neg --input float32:77 --hook none
    prints 'is a hit of that kernel' '^result +hit: a kernel for many shapes serves these tensors$'
    try 'outside' 3 aoticache why aten::neg --input float32:200 --hook none
    prints 'says which condition fails' '^  guard +argument 0: size of dimension 0 .*200.* float32\[s0\]'
    prints_not 'sizes are asked of the guard alone' 'argument 0: sizes'
    try 'of another dtype' 3 aoticache why aten::neg --input float64:77 --hook none
    row 'says so' 'argument 0: dtype' 'float64 +float32'
    prints_not 'once' '^  guard '
    try 'what PyTorch asked for' 3 aoticache why aten::relu --input float32:7 --hook none
    row 'has dispatch keys' 'argument 0: dispatch keys' '0x0 \(none: no PyTorch\) +0x8001'
    prints 'and it says how to ask with them' "record --from-cache --op aten::relu'"
    try 'asked so' 0 aoticache why "$(aoticache record --from-cache --op aten::relu | grep '"operator"')" --hook none
    try 'what this CPU cannot run' 3 aoticache why aten::exp --input float32:7 --hook none
    prints 'is the reason' '^result +miss: it is stored, but this CPU cannot run it$'
    row 'what is missing' 'CPU' 'this CPU lacks [a-z0-9]+ +needs .*'
    try 'as JSON' 3 aoticache why aten::exp --input float32:7 --hook none --json
    member 'the reason' reason requirement
    holds 'what it lacks' [ "$(field entry.lacking)" = "$(field entry.requirements)" ]
fi

# ---- damage ----
damage "$(object_path "$library")"
try 'a damaged library' 3 aoticache why aten::abs --input float32:3 --hook c
prints 'is the reason' '^result +miss: it is stored, but its files are damaged or missing$'
prints 'what is wrong' '^damage +.*'"${library:2:8}"
prints 'and what to do' '^to do +.*verify --repair'
holds 'nothing was moved' [ -e "$(object_path "$library")" ]

# ---- words ----
try 'no operator' 2 aoticache why
try 'a line that is none' 2 aoticache why 'aten::abs(float32[3'
says 'says where' 'column 20'
try 'a line and arguments' 2 aoticache why 'aten::abs(float32[3]) on cpu' --scalar 2
try 'a wrong number' 2 aoticache why aten::abs --nearest many
aoticache rm --all --yes --quiet
try 'an empty cache' 3 aoticache why aten::abs --input float32:3 --hook none
prints 'is said to be one' "^result +miss: the cache at $AOTICACHE_DIR is empty\$"
finish
