#!/usr/bin/env bash
# What make reports about a compiler before it compiles anything: another C library, another machine, Clang. The
# compilers are scripts that answer with macros; nothing is built.
. tests/cli/lib.sh
unset MAKEFLAGS MFLAGS MAKELEVEL

answers() { # NAME MACRO...: makes a compiler that has these
    local name=$1
    shift
    printf '#!/bin/sh\ncat >/dev/null\n' >"$work/$name"
    printf 'echo "#define %s 1"\n' "$@" >>"$work/$name"
    chmod 755 "$work/$name"
}
asks() { run make -n CC="$work/$1" BUILD="$work/nothing" "${@:2}"; }

answers musl __STDC__ __x86_64__
asks musl
is 'another C library is refused' 2 "$status"
says 'with the reason' 'another C library than glibc.*docs/portability\.md'
asks musl help
is 'help needs no compiler' 0 "$status"

answers gcc __STDC__ __x86_64__ __GLIBC__
asks gcc
is 'glibc on x86-64 is taken' 0 "$status"
prints_not 'and nothing is left out' 'docs/portability\.md\)$'

answers clang __STDC__ __x86_64__ __GLIBC__ __clang__
asks clang
prints 'Clang leaves wide vectors out' '^[^ ]*clang: .*need GCC.*docs/portability\.md'
answers clang __STDC__ __x86_64__ __GLIBC__ __clang__ __AVX512F__
asks clang
prints_not 'but not where all is compiled for AVX-512' 'need GCC'

answers aarch64-linux-gnu-gcc __STDC__ __aarch64__ __GLIBC__
asks aarch64-linux-gnu-gcc
is 'arm64 is taken' 0 "$status"
prints 'and what is for x86-64 is said' '^[^ ]*aarch64-linux-gnu-gcc: .*AVX2.*x86-64'
mkdir -p "$work/nothing/obj"
asks aarch64-linux-gnu-gcc
prints_not 'once for a build directory' 'docs/portability\.md\)$'

finish
