#!/usr/bin/env bash
# The C example of docs/dispatch.md, a fallback: extracted as printed, compiled against an installation, run twice.
. tests/cli/lib.sh

if nm -D "$BUILD/lib/libaoticache.so.0" | grep -qE ' __(asan|tsan)_init'; then
    skip 'example of docs/dispatch.md' 'this build is instrumented, a program that is not cannot link it'
    finish
fi
example=$work/example.c
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' docs/dispatch.md >"$example"
holds 'the example is there' grep -q 'AOTICACHE_VALUE_OUTPUT' "$example"

stage=$work/stage
sed -e "s|^prefix=.*|prefix=$stage|" -e "s|^libdir=.*|libdir=$stage/lib|" -e "s|^includedir=.*|includedir=$stage/include|" \
    "$BUILD/aoticache.pc" >"$work/aoticache.pc"
try 'installed' 0 install_to '' "$stage"
# shellcheck disable=SC2046 # several words
try 'it compiles as printed, without warnings' 0 cc -Wall -Wextra -Werror "$example" \
    $(PKG_CONFIG_PATH=$work pkg-config --cflags --libs aoticache) -Wl,-rpath,"$stage/lib" -o "$work/example"
try 'the first run' 0 "$work/example"
prints 'the fallback answers first' '^-1 2 -3, fallback called 1 times$'
is 'and the compiled kernel, which gives the same, from then on' 2 "$(grep -c '^-1 2 -3, fallback called 1 times$' "$out")"
try 'the second run' 0 "$work/example"
is 'needs no fallback' 2 "$(grep -c '^-1 2 -3, fallback called 0 times$' "$out")"
finish
