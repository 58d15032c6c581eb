#!/usr/bin/env bash
# CPU features of arm64 as requirements, on two processors that qemu emulates: one with all that it knows (max), and one with
# nothing beyond Armv8.0 (cortex-a53). And a kernel in C that its author compiled. scripts/check-arm64 runs it.
# shellcheck source=tests/cli/lib.sh
. tests/cli/lib.sh

large() { QEMU_CPU=max "$@"; }
small() { QEMU_CPU=cortex-a53 "$@"; }
abs=(aten::abs --input float32:3=-2)

# ---- each compiles for itself ----

try 'a processor with everything compiles' 0 large aoticache run "${abs[@]}" --hook c
prints 'and runs what it compiled' '\[2\., 2\., 2\.\]'
run large aoticache ls --json
for feature in asimddp i8mm bf16 sve sve2 fphp asimdhp atomics; do
    prints "the kernel requires $feature" "^ *\"$feature\",?\$"
done

try 'the small processor does not get that kernel' 3 small aoticache run "${abs[@]}" --hook none
says 'and is told why' 'not stored in a form that this machine can run'
run small aoticache ls --json
lacking=$(field entries.0.lacking)
for feature in asimddp i8mm bf16 sve sve2 fphp asimdhp atomics; do
    holds "the list says that it lacks $feature" grep -q "\"$feature\"" <<<"$lacking"
done
try 'it compiles one for itself' 0 small aoticache run "${abs[@]}" --hook c
prints 'and runs it' '\[2\., 2\., 2\.\]'
try 'both kernels are there' 0 large aoticache ls
try 'the small processor is served from the cache now' 0 small aoticache run "${abs[@]}" --hook none
try 'and the large one' 0 large aoticache run "${abs[@]}" --hook none

# ---- less than this machine ----

rm -rf "$AOTICACHE_DIR"
try 'a version and extensions can be asked for' 0 large aoticache run "${abs[@]}" --hook c --cpu armv8.2-a,fp16,dotprod
try 'a kernel of Armv8.2 is not for Armv8.0' 3 small aoticache run "${abs[@]}" --hook none
rm -rf "$AOTICACHE_DIR"
try 'the large processor compiles for the small one' 0 large aoticache compile "${abs[@]}" --hook c --cpu armv8-a
try 'which runs that' 0 small aoticache run "${abs[@]}" --hook none
try 'a feature of x86-64 is refused' 5 large aoticache compile aten::neg --input float32:3 --hook c --cpu avx2
try 'the small processor compiles for a larger one, and cannot run it' 5 small aoticache run aten::neg --input float32:3 --hook c --cpu sve
try 'the larger one runs it' 0 large aoticache run aten::neg --input float32:3=-2 --hook none

# ---- what the tools say of a kernel library and of the machine ----

try 'a kernel in C, compiled by hand' 0 cc -O2 -shared -fPIC -fvisibility=hidden -march=armv8.2-a+sve -ffp-contract=off -I. \
    tests/hosts/kernels/affine.c "$BUILD/lib/libaoticache_runtime.a" -lm -o "$work/affine.so"
try 'inspect knows that it is for arm64' 0 large aoticache inspect "$work/affine.so"
prints 'and says so' 'aarch64'
try 'doctor runs' 0 large aoticache doctor
prints 'and names the version' 'processor +armv9-a, '
try 'also on the small processor' 0 small aoticache doctor
prints 'which has another' 'processor +armv8-a, '

finish
