#!/usr/bin/env bash
# Installations in the layouts of distributions: lib64, lib/x86_64-linux-gnu, staged below DESTDIR, moved as a whole, with
# the shared libcrypto; and programs that are linked statically, which are refused cleanly.
. tests/cli/lib.sh

if is_instrumented; then
    skip 'layouts of installations' 'this build is instrumented, and make would build the rest without'
    finish
fi
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL

# Uses the compiled objects: only files that depend on the directories are built again.
mkdir "$work/build"
(cd "$BUILD" && tar cf - obj lib bin include share prefix aoticache.pc) | tar xf - -C "$work/build"
make_it() { make -s BUILD="$work/build" "$@"; }

installed() { # with only the installation
    local bin=$1
    shift
    env -i PATH=/usr/bin:/bin HOME="$work" AOTICACHE_CONFIG= AOTICACHE_DIR="$work/cache" "$bin/$1" "${@:2}"
}

works() { # NAME BIN
    rm -rf "$work/cache"
    try "$1: a kernel is compiled, loaded and run" 0 installed "$2" aoticache run aten::abs --hook c --input float32:2x3 --json
    member "$1: by what is installed" source compiled
    try "$1: the statistics start" 0 installed "$2" aoticache-stat --json
    try "$1: the collector starts" 0 installed "$2" aoticache-gc --version
}

for libdir in lib64 lib/x86_64-linux-gnu; do
    stage=$work/stage-${libdir##*/}
    try "$libdir is installed below DESTDIR" 0 make_it install DESTDIR="$stage" prefix=/usr libdir="/usr/$libdir"
    works "$libdir below DESTDIR" "$stage/usr/bin"
    holds "$libdir holds the library" [ -f "$stage/usr/$libdir/libaoticache.so.0" ]
    holds "$libdir is in aoticache.pc" grep -qx "libdir=/usr/$libdir" "$stage/usr/$libdir/pkgconfig/aoticache.pc"
    try "$libdir is uninstalled" 0 make_it uninstall DESTDIR="$stage" prefix=/usr libdir="/usr/$libdir"
    is "$libdir leaves nothing" '' "$(find "$stage" -type f)"
done

# Without DESTDIR, each directory somewhere else, with the shared libcrypto.
directories=(prefix="$work/opt" libdir="$work/opt/lib64/deep" bindir="$work/programs" datadir="$work/data" includedir="$work/headers")
try 'directories of their own are installed' 0 make_it install "${directories[@]}" STATIC_CRYPTO=
works 'directories of their own' "$work/programs"
holds 'STATIC_CRYPTO= needs the shared libcrypto' \
    sh -c 'readelf -d "$1" | grep -q "NEEDED.*libcrypto"' sh "$work/opt/lib64/deep/libaoticache.so.0"
example=$work/example.c
example README.md c >"$example"
flags() { PKG_CONFIG_PATH=$work/opt/lib64/deep/pkgconfig pkg-config "$@" aoticache; }
# shellcheck disable=SC2046 # several words
try 'a program finds headers and library' 0 cc "$example" $(flags --cflags --libs) -o "$work/program"
try 'and runs' 0 env LD_LIBRARY_PATH="$work/opt/lib64/deep" AOTICACHE_DIR="$work/cache" "$work/program"
prints 'with what is installed' '^1 3 5$'

# Without linear algebra: the shim is linked, and no longer names what it lacks.
shim=$work/build/lib/libaoticache_torchshim.so
names() { grep -aoE 'aten::(linalg_lu|bincount)\(' "$shim" | sort -u | tr '\n' ' '; }
is 'the shim has linear algebra' 'aten::bincount( aten::linalg_lu( ' "$(names)"
rm "$work/build/obj/runtime/shim/named_operators.o" "$shim"
try 'LINEAR_ALGEBRA=0 builds a shim' 0 make_it LINEAR_ALGEBRA=0 "$shim"
is 'which has everything else' 'aten::bincount( ' "$(names)"

# shellcheck disable=SC2046
if cc -static "$example" $(flags --cflags) "$work/opt/lib64/deep/libaoticache.a" $(pkg-config --static --libs sqlite3 libcrypto jansson) -lm -ldl \
    -lpthread -o "$work/static" 2>"$work/static.log"; then
    try 'a program that is linked statically' 1 env AOTICACHE_HOME="$work/build" AOTICACHE_DIR="$work/cache" "$work/static"
    prints_nothing 'it does not run'
    says 'it is told how to link' 'linked statically, and such a program cannot load libraries; link it without -static'
else
    skip 'a program that is linked statically' "it cannot be linked here: $(grep -m 1 -E 'cannot find|undefined' "$work/static.log")"
fi
try 'directories of their own are uninstalled' 0 make_it uninstall "${directories[@]}"
is 'they leave nothing' '' "$(find "$work/opt" "$work/programs" "$work/data" "$work/headers" -type f 2>/dev/null)"
finish
