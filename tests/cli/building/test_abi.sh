#!/usr/bin/env bash
# The ABI of the library is the recorded one (docs/abi.md); and that check finds the changes that it is for, in small
# libraries.
. tests/cli/lib.sh

command -v abidiff >/dev/null || { skip 'the ABI' 'there is no abidiff (Debian: abigail-tools)'; finish; }
if is_instrumented; then
    skip 'the ABI' 'this build is instrumented'
    finish
fi
check() { BUILD="$1" RECORDED="${2:-}" scripts/packaging/check-abi "${@:3}"; }

run check "$BUILD"
if [ $status = 77 ]; then
    skip 'the ABI is the recorded one' "$(cat "$out")"
elif [ $status = 1 ] && grep -q '^## 0\.1\.0 (unreleased)' CHANGELOG.md; then # docs/abi.md promises nothing before that
    skip 'the ABI is the recorded one' 'there is no release yet, and it has changed: scripts/packaging/check-abi --record'
else
    holds 'the ABI is the recorded one, or has more functions' [ $status = 0 ]
    prints 'that is said' 'the ABI is the recorded one'
fi

# library NAME OPTIONS FUNCTIONS: makes a small one with members of a struct, functions that take it
library() {
    mkdir -p "$work/$1/lib" "$work/$1/include"
    cat >"$work/$1/include/x.h" <<END
#include <stddef.h>
typedef struct aoticache_x_options { size_t size; $2 } aoticache_x_options;
typedef struct aoticache_entry { int key; $4 } aoticache_entry;
$3
END
    { echo '#include "x.h"' && sed 's/;$/ { return 0; }/' <<<"$3"; } >"$work/$1/x.c"
    cc -g -O0 -shared -fPIC -I"$work/$1/include" -Wl,-soname,libaoticache.so.0 "$work/$1/x.c" -o "$work/$1/lib/libaoticache.so.0"
}
first='int aoticache_x_open(const aoticache_x_options *options, aoticache_entry *entry);'
second='int aoticache_x_close(int number);'
library recorded 'int a;' "$first
$second" ''
try 'an ABI is recorded' 0 check "$work/recorded" "$work/x.abi" --record
try 'the same passes' 0 check "$work/recorded" "$work/x.abi"
library more 'int a;' "$first
$second
int aoticache_x_more(void);" ''
try 'a new function passes' 0 check "$work/more" "$work/x.abi"
prints 'and is named' 'aoticache_x_more'
library grown 'int a; int b;' "$first
$second" ''
try 'options that grow at their end pass' 0 check "$work/grown" "$work/x.abi"
library moved 'int b; int a;' "$first
$second" ''
try 'options that grow before their end do not' 1 check "$work/moved" "$work/x.abi"
library entry 'int a;' "$first
$second" 'int b;'
try 'nor does another struct that grows' 1 check "$work/entry" "$work/x.abi"
prints 'it is named' 'aoticache_entry'
library gone 'int a;' "$first" ''
try 'nor a function that is gone' 1 check "$work/gone" "$work/x.abi"
prints 'it is named' 'aoticache_x_close'
library changed 'int a;' "$first
int aoticache_x_close(long number);" ''
try 'nor another parameter' 1 check "$work/changed" "$work/x.abi"
says 'what to do is said' 'docs/abi.md'
finish
