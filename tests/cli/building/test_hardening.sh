#!/usr/bin/env bash
# The built files are hardened: programs are position independent, tables of functions are read-only once a file is loaded, no
# stack is executable, calls of libc are checked. And the same sources give the same bytes wherever and whenever they are built.
. tests/cli/lib.sh

if is_instrumented; then
    skip 'hardening' 'this build is instrumented'
    finish
fi
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

libraries="lib/libaoticache.so.0 lib/libaoticache_torchshim.so lib/libaoticache_cxxbridge.so"
programs="bin/aoticache bin/aoticache-gc bin/aoticache-stat"

segment() { readelf -lW "$BUILD/$1" | awk -v name="$2" '$1 == name { print $7 }'; } # the flags of a segment, as R or RW
dynamic() { readelf -dW "$BUILD/$1"; }

for file in $libraries $programs; do
    is "$file: its stack is not executable" RW "$(segment "$file" GNU_STACK)"
    is "$file: it has a part that becomes read-only" R "$(segment "$file" GNU_RELRO)"
    dynamic "$file" >"$out"
    prints "$file: all functions are bound when it is loaded" 'FLAGS_1.*NOW'
    prints_not "$file: no code is changed while it is loaded" TEXTREL
done
dynamic lib/libaoticache.so.0 >"$out"
prints_not 'a program that links the library gets no library that only some calls need' \
    'NEEDED.*lib(gcc_s|stdc\+\+|crypto|curl|zip|archive|zstd|dl|m)\.so'
is 'lib/aoticache/libtorch_cpu.so: its stack is not executable' RW "$(segment lib/aoticache/libtorch_cpu.so GNU_STACK)"
for file in $programs; do
    dynamic "$file" >"$out"
    prints "$file: it is position independent" 'FLAGS_1.*PIE'
done
# The compiler makes a checked call of a function only if it knows the size of the buffer: in each of these files it does.
for file in lib/libaoticache.so.0 lib/libaoticache_torchshim.so $programs; do
    nm -D "$BUILD/$file" >"$out"
    prints "$file: calls of libc are checked" '__[a-z]+_chk(@|$)'
    prints_not "$file: no unchecked call writes text without knowing where its end is" ' U (strcpy|strcat|sprintf|vsprintf|gets)(@|$)'
done
for file in lib/libaoticache.so.0 $programs; do
    nm -D "$BUILD/$file" >"$out"
    prints "$file: a stack that was overwritten ends the process" '__stack_chk_fail'
done
nm -D --defined-only "$BUILD/lib/libaoticache.so.0" >"$out"
is 'the library offers names of its own alone' '' "$(awk '$3 !~ /^(aoticache_[a-z0-9_]+@@AOTICACHE_0|AOTICACHE_0)$/ { print $3 }' "$out")"

# ---- the same bytes ----

! is_quick || finish

# The build outputs, built twice, in different directories, at different times, with other zones, locales and umasks. The short
# form builds one output of each kind: a library with its map, an archive, C++, modules, a text. `make long FORMS=reproducible`
# builds everything.
products=(lib/libaoticache_torchshim.so lib/libaoticache_runtime.a lib/libaoticache_cxxbridge.so lib/aoticache/proxy_executor.so
    aoticache.pc)
for module in "$BUILD"/lib/libaoticache_remote_*.so; do [ ! -e "$module" ] || products+=("lib/${module##*/}"); done
build_copy() { # DIRECTORY BUILD ZONE UMASK DAY
    local targets=(all)
    [ "${REPRODUCE:-}" = all ] || targets=("${products[@]/#/$2/}")
    mkdir -p "$1"
    cp -r Makefile aoticache aoticache.h base cache eager index loader runtime scripts third_party tools "$1"
    find "$1" -exec touch -d "$5" {} +
    (cd "$1" && umask "$4" && env TZ="$3" LC_ALL="C" make -s -j"$(nproc)" BUILD="$2" WARN= OPTIMISE='-O0 -g' "${targets[@]}")
}
try 'one copy is built' 0 build_copy "$work/one" build UTC0 022 2021-03-04
try 'another one is built elsewhere' 0 build_copy "$work/two/deeper down/here" "$work/elsewhere" XYZ+11 077 2024-05-06
sums() { (cd "$1" && find bin lib share include aoticache.pc -type f -print0 2>/dev/null | sort -z | xargs -0 sha256sum); }
sums "$work/one/build" >"$work/sums.one"
sums "$work/elsewhere" >"$work/sums.two"
holds 'there is something to compare' [ "$(wc -l <"$work/sums.one")" -ge "$([ "${REPRODUCE:-}" = all ] && echo 50 || echo ${#products[@]})" ]
run diff "$work/sums.one" "$work/sums.two"
prints_nothing 'both have the same bytes'
finish
