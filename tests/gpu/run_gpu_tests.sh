#!/usr/bin/env bash
# All tests that need a GPU, and those of its code that do not. docs/gpu.md says what each part shows.
#
# usage: run_gpu_tests.sh [LOG]    the output goes to LOG, too (default $BUILD/tests/log/gpu.log)
#
# BUILD: the build (default build). AOTICACHE_GPU_PYTHON: a Python whose PyTorch has CUDA (default build/venv-cuda, then
# VENV, then python3, whichever has one). nvcc comes from PATH, CUDA_HOME or /usr/local/cuda. GPU_TORCH: only these parts of
# gpu_torch.py.
#
# Prints "ok - NAME", "not ok - NAME", "skip - NAME: REASON". Exit 0; 1 where something failed; 77 where there is no GPU.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
BUILD=$(realpath -m "${BUILD:-build}")
VENV=$(realpath -sm "${VENV:-build/venv}")
export BUILD VENV AOTICACHE_HOME=$BUILD
log=${1:-$BUILD/tests/log/gpu.log}
mkdir -p "$(dirname "$log")"
work=$(mktemp -d "${TMPDIR:-/tmp}/aoticache-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
images=$BUILD/tests/helpers/cuda_images
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
export NVCC=$nvcc

try() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "ok - $name"
    else
        echo "not ok - $name"
        sed 's/^/# /' "$work/out"
    fi
}

# The first Python whose PyTorch sees a GPU.
find_python() {
    local python
    for python in "${AOTICACHE_GPU_PYTHON:-}" build/venv-cuda/bin/python "$VENV/bin/python" python3; do
        [ -n "$python" ] && command -v "$python" >/dev/null &&
            "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null &&
            command -v "$python" && return 0
    done
    return 1
}

describe_machine() { # what the record in docs/gpu.md needs
    echo "# $(date -u +%F), $(uname -sm), aoticache $("$BUILD/bin/aoticache" --version 2>/dev/null | head -n 1)"
    "$BUILD/bin/aoticache" doctor 2>/dev/null | grep -E 'CUDA driver|GPU [0-9]' | sed 's/^/# /'
    [ ! -x "$nvcc" ] || echo "# $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\), V\(.*\)/nvcc \2/p')"
    [ -z "$python" ] || "$python" -c 'import torch; print("# PyTorch", torch.__version__, "for CUDA", torch.version.cuda)'
}

# own.so, ptx.so, several.so and other.so, as gpu_battery.py wants them. $1: "90"; some are for that GPU alone: "90a".
compile_kernels() {
    local own=$1 other=75
    [ "${own:0:1}" != 7 ] || [ "${#own}" -ne 2 ] || other=90
    build() { try "nvcc makes $1" tests/gpu/build_kernel.sh add "$work/$1" "${@:2}"; }
    build own.so -gencode "arch=compute_$own,code=sm_$own"
    build ptx.so -gencode "arch=compute_$own,code=compute_$own"
    build several.so -gencode "arch=compute_$other,code=sm_$other" -gencode "arch=compute_$own,code=[sm_$own,compute_$own]"
    build other.so -gencode "arch=compute_$other,code=sm_$other"
}

# In a process without PyTorch, which has no tensors in the GPU's memory.
create_alone() {
    refused 'without PyTorch constants on the GPU are' own.so 'device type 1 (cuda) needs PyTorch in the process'
    refused 'a library for another architecture is' other.so 'it has device code for sm_'
}

refused() { # WHAT LIBRARY WORDS
    if "$images" --load "$work/$2" cuda:0 >"$work/refusal" 2>&1; then
        echo "not ok - $1 refused"
    else
        try "$1 refused" grep -F "$3" "$work/refusal"
    fi
}

all() {
    local arch
    arch=$("$BUILD/bin/aoticache" doctor 2>/dev/null | sed -n 's/.*GPU 0 .*, sm_\([0-9]*\),.*/\1/p')
    python=$(find_python) || python=
    describe_machine
    for test in loader/test_cuda loader/test_cuda_image runtime/test_device eager/compile/test_hook_environment; do
        try "unit/$test" "$BUILD/tests/unit/$test"
    done
    if [ -x "$nvcc" ]; then
        bash tests/cli/aoticache/test_cuda_library.sh 2>/dev/null
    else
        echo 'skip - device code made by nvcc: there is no nvcc (PATH, CUDA_HOME, /usr/local/cuda)'
    fi
    if [ -z "$arch" ]; then
        echo 'skip - everything that runs on a GPU: no CUDA device'
        return
    fi
    if [ ! -x "$nvcc" ]; then
        echo 'skip - kernel libraries in CUDA C++: there is no nvcc (PATH, CUDA_HOME, /usr/local/cuda)'
    else
        compile_kernels "$arch"
        create_alone
    fi
    if [ -z "$python" ]; then
        echo 'skip - the battery: no Python has a PyTorch that sees the GPU (AOTICACHE_GPU_PYTHON)'
    elif [ -x "$nvcc" ]; then
        TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$work/inductor} \
            "$python" -B tests/gpu/gpu_battery.py --kernels "$work" --work "$work" 2>&1
    fi
    [ -z "$python" ] || "$python" -B tests/gpu/gpu_torch.py --work "$work" ${GPU_TORCH:-} 2>&1
}

[ -x "$images" ] || { echo "$images is not built: make tests" >&2; exit 2; }
all | tee "$log"
passed=$(grep -c '^ok - ' "$log") failed=$(grep -c '^not ok - ' "$log") skipped=$(grep -c '^skip - ' "$log")
echo "$passed passed, $failed failed, $skipped skipped (record: $log)"
[ "$failed" -eq 0 ] || exit 1
! grep -q 'on a GPU: no CUDA device' "$log" || exit 77
