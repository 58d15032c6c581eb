#!/usr/bin/env bash
# Compiles tests/gpu/kernels/NAME.cu and the runtime of this build into a kernel library with nvcc.
#
# usage: build_kernel.sh NAME OUTPUT NVCC_OPTION...    the options say the architectures: -arch=sm_90
#
# BUILD says where the build is (default build), NVCC the compiler, with a host compiler that it knows.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
BUILD=${BUILD:-build} NVCC=${NVCC:-nvcc}
name=$1 output=$2
shift 2
# nvcc puts linker options after all files, so the file to which the option is meant is one of them.
"$NVCC" -std=c++20 -O2 -shared -Xcompiler -fPIC,-fvisibility=hidden -I. "$@" "tests/gpu/kernels/$name.cu" \
    "$BUILD/lib/libaoticache_runtime.a" \
    -Xlinker "--push-state,--no-as-needed,$BUILD/lib/aoticache/libtorch_cpu.so,--pop-state" -o "$output"
