#!/usr/bin/env bash
# The C example of README.md: extracted as printed, compiled against an installation as a user has it, run twice.
. tests/cli/lib.sh

if nm -D "$BUILD/lib/libaoticache.so.0" | grep -qE ' __(asan|tsan)_init'; then
    skip 'README example' 'this build is instrumented, a program that is not cannot link it'
    finish
fi
example=$work/example.c
awk '/^```c$/ { on = 1; next } /^```/ { on = 0 } on' README.md >"$example"
holds 'the example has at most 25 lines' [ "$(wc -l <"$example")" -le 25 ]
holds 'and is there' grep -q 'aoticache_eager_get_runner' "$example"

stage=$work/stage
sed -e "s|^prefix=.*|prefix=$stage|" -e "s|^libdir=.*|libdir=$stage/lib|" -e "s|^includedir=.*|includedir=$stage/include|" \
    "$BUILD/aoticache.pc" >"$work/aoticache.pc"
try 'installed' 0 install_to '' "$stage"
# shellcheck disable=SC2046 # several words
try 'it compiles as printed, without warnings' 0 cc -Wall -Wextra -Werror "$example" \
    $(PKG_CONFIG_PATH=$work pkg-config --cflags --libs aoticache) -Wl,-rpath,"$stage/lib" -o "$work/example"
try 'the first run compiles the kernel' 0 "$work/example"
prints 'and prints the result' '^1 3 5$'
try 'the second run finds it' 0 "$work/example"
prints 'and prints the same' '^1 3 5$'
try 'statistics of the installed tool' 0 env -i HOME="$work" AOTICACHE_DIR="$AOTICACHE_DIR" "$stage/bin/aoticache-stat" --json
member 'one compile' counters.compiles 1
member 'one hit' counters.hits 1
try 'uninstalled' 0 uninstall_from '' "$stage"
is 'and nothing is left' '' "$(find "$stage" -type f 2>/dev/null)"
finish
