#!/usr/bin/env bash
# The setting `cpu`: a builder with a better CPU compiles for the level that all machines have.
# (tests/unit/eager/compile/test_cpu_level.c tests that a lesser machine finds the entry.)
. tests/cli/lib.sh

level=x86-64-v3
[ "$(uname -m)" = x86_64 ] || { skip 'levels' 'they are of x86-64' && finish; }
example docs/fleet.md cpu >"$work/aoticache.conf" # docs/fleet.md cpu
export AOTICACHE_CONFIG=$work/aoticache.conf
run aoticache config cpu
[ ! -s "$err" ] || { skip 'levels' "this machine has less than $level" && finish; }
is 'the file says which level' "$level" "$(cat "$out")"

# prints what the last command's entries require beyond the level
within() { python3 - "$out" <<'PYTHON'
import json, sys
level = {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
entries = json.load(open(sys.argv[1]))["entries"]
print(len(entries), *sorted({feature for entry in entries for feature in entry["requirements"]} - level))
PYTHON
}
has_more=false # than the level
"${CC:-cc}" -march=native -dM -E -x c /dev/null | grep -q __AVX512F__ && has_more=true

# ---- kernels in C ----

abs=(aten::abs --input float32:256=-2 --hook c)
try 'a kernel is compiled' 0 aoticache run "${abs[@]}" --json
member 'and runs' source compiled
try 'its entry' 0 aoticache show "$(field key)" --json
is 'requires no more than the level' 1 "$(within)"
holds 'and something of it' grep -q '"avx2"' "$out"
export AOTICACHE_DIR=$work/variable
AOTICACHE_CPU=x86-64-v2 try 'the variable wins over the file' 0 aoticache run "${abs[@]}" --json
try 'its entry' 0 aoticache show "$(field key)" --json
is 'requires less' 1 "$(within)"
holds 'no AVX' sh -c '! grep -q avx "$1"' - "$out"
export AOTICACHE_DIR=$work/option
try 'the option wins over both' 0 env AOTICACHE_CPU=x86-64-v2 aoticache run "${abs[@]}" --cpu native --json
try 'its entry' 0 aoticache show "$(field key)" --json
if $has_more; then
    holds 'is for this machine' grep -q '"avx512f"' "$out"
else
    skip 'native is for this machine' "this machine has no more than $level"
fi

# ---- invalid values ----

export AOTICACHE_DIR=$work/wrong
AOTICACHE_CPU=x86-64-v5 try 'a level that does not exist' 0 aoticache config cpu
says 'is named, with those that do' "cpu: 'x86-64-v5' is not native, a level \\(x86-64, x86-64-v2, x86-64-v3, x86-64-v4\\) or features such as avx2,fma; it stays at $level$"
prints 'and not used' "^$level$"
# Only Xeon Phi has it.
AOTICACHE_CPU=avx512_4fmaps try 'more than this machine has' 0 aoticache run "${abs[@]}" --json
says 'is named' "cpu: 'avx512_4fmaps' needs more than this machine has, which lacks avx512_4fmaps; it stays at $level\"}$"
is 'once' 1 "$(grep -c avx512_4fmaps "$err")"
member 'and the kernel is compiled all the same' source compiled
echo 'cpu = skylake' >"$work/wrong.conf"
try 'a file can be checked beforehand' 1 aoticache config --check "$work/wrong.conf"
says 'with the place' "wrong.conf:1: cpu: 'skylake' is not native, a level"

# ---- PyTorch's worker ----

export AOTICACHE_DIR=$work/worker AOTICACHE_PYTHON=$VENV/bin/python
if is_instrumented; then
    skip 'the worker' 'this build is instrumented, and Python is not'
elif "$AOTICACHE_PYTHON" -c 'import torch' 2>/dev/null; then
    try 'the worker compiles' 0 aoticache run aten::add.Tensor --input float32:64x64=-2 --input float32:64x64=1 --hook worker --json
    member 'and its kernel runs' source compiled
    member 'right' outputs.0.values.0 -1.0
    try 'its entry' 0 aoticache show "$(field key)" --json
    is 'requires no more than the level' 1 "$(within)"
    holds 'and something of it' grep -q '"avx2"' "$out"

    ! is_quick || finish
    # torch.compile compiles in its own process: this sets what docs/fleet.md says for it.
    cat >"$work/compile.py" <<'PYTHON'
import aoticache, torch
aoticache.install_compile_cache()
print(torch.compile(lambda x: torch.relu(x * 2 + 1))(torch.ones(64))[0].item())
PYTHON
    export AOTICACHE_DIR=$work/compile
    try 'torch.compile compiles' 0 env PYTHONPATH="$PWD/eager/torch" AOTICACHE_HOME="$BUILD" TORCHINDUCTOR_CACHE_DIR="$work/inductor" \
        ATEN_CPU_CAPABILITY=avx2 TORCHINDUCTOR_CPP_MARCH="$level" "$AOTICACHE_PYTHON" "$work/compile.py"
    prints 'and runs' '^3.0$'
    try 'its libraries' 0 aoticache ls --kind inductor-cpp --json
    is 'require no more than the level' 2 "$(within)"
    holds 'and something of it' grep -q '"avx2"' "$out"

    # The worker's code compiles a stored model in the program's process, too.
    cat >"$work/model.py" <<'PYTHON'
import aoticache, torch
with torch.no_grad():
    aoticache.compile(torch.nn.Softmax(1), (torch.ones(8, 64),), id="softmax")
PYTHON
    export AOTICACHE_DIR=$work/model
    try 'a model is compiled' 0 env PYTHONPATH="$PWD/eager/torch" AOTICACHE_HOME="$BUILD" TORCHINDUCTOR_CACHE_DIR="$work/inductor" \
        "$AOTICACHE_PYTHON" "$work/model.py"
    try 'its program' 0 aoticache ls --kind program --json
    is 'requires no more than the level' 1 "$(within)"
    holds 'and something of it' grep -q '"avx2"' "$out"
else
    skip 'the worker' 'there is no PyTorch'
fi
finish
