#!/usr/bin/env bash
# Device code made by the real compiler: a kernel library in CUDA C++, and .cubin and .fatbin files, whose architectures
# the loader reads from the files; and the messages if they cannot run. tests/gpu runs them.
. tests/cli/lib.sh

nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || { echo "there is no nvcc (PATH, CUDA_HOME, /usr/local/cuda)" && exit 77; }
images=$BUILD/tests/helpers/cuda_images
export BUILD AOTICACHE_HOME=$BUILD NVCC=$nvcc
cat >"$work/empty.cu" <<'CUDA'
extern "C" __global__ void nothing(int *out) { out[threadIdx.x] = 1; }
CUDA
known=" $("$nvcc" --list-gpu-code | tr '\n' ' ') "
knows() { "$nvcc" -cubin -arch="$1" "$work/empty.cu" -o "$work/knows.cubin" >/dev/null 2>&1; }

# ---- .cubin and .fatbin files ----

for arch in sm_75 sm_80 sm_86 sm_89 sm_90 sm_90a sm_100 sm_100a sm_103 sm_120 sm_120a; do
    if ! knows "$arch"; then
        skip "a .cubin for $arch" "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p') does not make it"
        continue
    fi
    try "a .cubin for $arch" 0 "$images" "$work/knows.cubin"
    is "tells $arch" "$arch" "$(cat "$out")"
done
# A compiled image for a family is the same as one for its first architecture.
if knows sm_100f; then
    try 'a .cubin for a family' 0 "$images" "$work/knows.cubin"
    prints 'tells the architecture' '^sm_100f?$'
fi

fatbin() { # NAME EXPECTED NVCC_OPTION...
    local name=$1 expected=$2
    shift 2
    try "compiling $name" 0 "$nvcc" -fatbin "$@" "$work/empty.cu" -o "$work/file.fatbin" || return 0
    try "$name" 0 "$images" "$work/file.fatbin"
    is "$name has its images" "$expected" "$(cat "$out")"
}
fatbin 'PTX alone' compute_80 -gencode arch=compute_80,code=compute_80
fatbin 'two architectures' 'sm_80, sm_90' -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90
fatbin 'one specific, with PTX' 'sm_90a, compute_90a' -gencode 'arch=compute_90a,code=[sm_90a,compute_90a]'
case $known in
*' sm_100 '*)
    knows sm_100f && fatbin 'a family' 'sm_100f, compute_100f' -gencode 'arch=compute_100f,code=[sm_100f,compute_100f]'
    fatbin 'not compressed' 'sm_75, sm_120, compute_120' --no-compress -gencode arch=compute_75,code=sm_75 \
        -gencode 'arch=compute_120,code=[sm_120,compute_120]'
    ;;
esac

# ---- a library ----

try 'compiling a kernel library' 0 tests/gpu/build_kernel.sh add "$work/add.so" \
    -gencode arch=compute_80,code=sm_80 -gencode 'arch=compute_90,code=[sm_90,compute_90]'
try 'its images' 0 "$images" "$work/add.so"
is 'are those it was compiled for' 'sm_80, sm_90, compute_90' "$(cat "$out")"
cp "$work/add.so" "$work/stripped.so" && strip "$work/stripped.so"
try 'stripped it has them' 0 "$images" "$work/stripped.so"
is 'still' 'sm_80, sm_90, compute_90' "$(cat "$out")"
try 'the loader itself has none' 0 "$images" "$BUILD/lib/libaoticache.so"
is 'no images' '' "$(cat "$out")"

# A stand-in for the driver, so that the messages are the same on every machine.
cat >"$work/driver.c" <<'C'
#include <stddef.h>
#include <string.h>
int cuInit(unsigned flags) { return flags != 0 ? 1 : INIT; }
int cuDriverGetVersion(int *ret) { return *ret = VERSION, 0; }
int cuDeviceGetCount(int *ret) { return *ret = 1, 0; }
int cuDeviceGet(int *ret, int position) { return *ret = position, 0; }
int cuDeviceGetName(char *to, int size, int device) { return (void)device, strncpy(to, "Stand-in", (size_t)size), 0; }
int cuDeviceGetAttribute(int *ret, int name, int device) { return (void)device, *ret = name == 75 ? 7 : 5, 0; }
int cuDeviceTotalMem_v2(size_t *ret, int device) { return (void)device, *ret = (size_t)16 << 30, 0; }
C
driver() { # VERSION INIT
    cc -shared -fPIC -DVERSION="$1" -DINIT="$2" "$work/driver.c" -o "$work/driver-$1-$2.so"
    export AOTICACHE_CUDA_DRIVER=$work/driver-$1-$2.so
}
driver 13000 0
try 'an older GPU' 3 "$images" --load "$work/add.so" cuda
says 'is named, and what there is code for' \
    '^UNSUPPORTED: library .*/add\.so cannot run on cuda:0 \(Stand-in, sm_75\): it has device code for sm_80, sm_90, compute_90; compile it for sm_75$'
try 'a second GPU' 3 "$images" --load "$work/add.so" cuda:1
says 'is not there' 'no CUDA device 1: this machine has 1'
driver 13000 100
try 'a driver without a GPU' 3 "$images" --load "$work/add.so" cuda
says 'is named' '^UNSUPPORTED: library .*/add\.so cannot run on cuda:0: there is no CUDA device: the driver .*, for CUDA 13\.0, finds none$'
AOTICACHE_CUDA_DRIVER=$work/none
try 'no driver' 3 "$images" --load "$work/add.so" cuda
says 'is what is said' '^UNSUPPORTED: library .*/add\.so cannot run on cuda:0: there is no CUDA driver: '"$work/none"

tests/gpu/build_kernel.sh add "$work/shared.so" -arch=sm_75 -cudart shared >/dev/null 2>&1
needed=$(readelf -d "$work/shared.so" 2>/dev/null | sed -n 's/.*\[libcudart\.so\.\([0-9]*\).*/\1/p')
if [ -n "$needed" ] && ldconfig -p 2>/dev/null | grep -q "libcudart\.so\.$needed"; then
    driver $(((needed - 1) * 1000 + 90)) 0
    try 'an older driver than the runtime' 3 "$images" --load "$work/shared.so" cuda
    says 'names both versions' \
        "needs libcudart\.so\.$needed, which requires a driver for CUDA $needed\.0 or later; the driver .* is for CUDA $((needed - 1))\.9:"
else
    skip 'an older driver than the runtime' 'the dynamic linker finds no libcudart of this nvcc'
fi

# ---- this machine ----

unset AOTICACHE_CUDA_DRIVER
# Its constant must be a tensor in the GPU's memory, which only PyTorch provides. tests/gpu/gpu_battery.py has PyTorch.
run "$images" --load "$work/add.so" cuda
says 'without a GPU or PyTorch the refusal says so' \
    '^(UNSUPPORTED: .*(there is no CUDA (driver|device)|cannot run on cuda:0)|LOAD_FAILED: .*needs PyTorch in the process)'
finish
