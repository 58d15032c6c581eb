#!/usr/bin/env bash
# The examples of docs/kernels.md, as printed, against an installation as a user has it: a library in C, a host that changes its
# constants, a user's kernel next to the included ones. (The library's results: tests/unit/runtime/test_kernel_docs.c.)
. tests/cli/lib.sh

install_for_examples 'docs/kernels.md'
export prefix=$stage LD_LIBRARY_PATH=$stage/lib
in_work() { (cd "$work" && exec "$@"); }

example docs/kernels.md linear >"$work/linear.c"
example docs/kernels.md build-linear >"$work/build-library"
try 'the library compiles as printed' 0 in_work sh -e build-library
# docs/operations.md promises 60 KiB, as a cache shows them: 64 KiB at most.
is_small() { [ -f "$1" ] && [ "$(stat -c %s "$1")" -le 65536 ]; }
holds 'and is as small as promised' is_small "$work/linear.so"
example docs/kernels.md update >"$work/update.c"
example docs/kernels.md build-update >"$work/build-host"
try 'the host compiles as printed' 0 in_work sh -e build-host
try 'and without warnings' 0 in_work sh -ec 'cc -Wall -Wextra -Werror -fsyntax-only update.c $(pkg-config --cflags aoticache)'
try 'it runs' 0 in_work ./update
is 'and prints what the page says' '16 35|11 21|11 21|3.5 6.25|' "$(head -4 "$out" | tr '\n' '|')"
prints 'a name that is none' "layer\.bais.*layer\.bias"

# The other command lines of a document that build a kernel: those of docs/hooks.md.
mkdir "$work/made"
example docs/hooks.md command-hook >"$work/command-hook"
printf '{"protocol":1,"id":7,"operator":"aten::abs","arguments":[{"kind":"tensor","dtype":"float32"}],"directory":"%s"}\n' \
    "$work/made" >"$work/request"
try 'the command of docs/hooks.md' 0 env AOTICACHE_HOME="$stage" sh -c "sh '$work/command-hook' <'$work/request'"
holds 'makes a library as small' is_small "$work/made/kernel.so"
example docs/hooks.md callback >"$work/callback.c"
compile_example "$work/callback.c" "$work/callback"
try 'the callback of docs/hooks.md' 0 env -C "$work" AOTICACHE_DIR="$work/callbacks" ./callback
is 'computes' '16 35' "$(cat "$out")"
is 'and makes a library as small' '' "$(find "$work/callbacks/objects" -type f -size +64k)"
holds 'which is there' [ -n "$(find "$work/callbacks/objects" -type f -size +32k)" ]
rm "$work/linear.c"
try 'the second time it compiles nothing' 0 env -C "$work" AOTICACHE_DIR="$work/callbacks" ./callback
is 'and computes the same' '16 35' "$(cat "$out")"

mkdir "$work/kernels"
example docs/kernels.md softsign >"$work/kernels/my_ops_softsign.c"
example docs/kernels.md run-softsign >"$work/session-printed"
cd "$work" || exit 1
plays 'the session is as printed' <session-printed
cd "$OLDPWD" || exit 1
softsign=(aoticache run my_ops::softsign --input float32:3=arange --hook c --kernels kernels --json)
try 'a kernel of one'"'"'s own' 0 in_work "${softsign[@]}"
is 'computes' '[0.0, 0.5, 0.666' "$(field outputs.0.values | cut -c1-16)"
first=$(field key)
try 'beside one that comes along' 0 in_work aoticache run aten::neg --input float32:3=arange --hook c --kernels kernels --json
member 'computes, too' outputs.0.values '[-0.0, -1.0, -2.0]'
member 'and has the key that it has without' key "$(aoticache run aten::neg --input float32:3=arange --hook c --json >"$work/plain" && field key "$work/plain")"
mkdir "$work/nearer"
sed 's/apply(TYPE x)/apply(TYPE x) \/* another one *\//' "$work/kernels/my_ops_softsign.c" >"$work/nearer/my_ops_softsign.c"
try 'a directory that is named before' 0 in_work "${softsign[@]}" --kernels nearer
member 'is searched before' key "$first"
try 'so with another order' 0 in_work aoticache run my_ops::softsign --input float32:3=arange --hook c --kernels nearer --kernels kernels --json
holds 'it is another kernel' [ "$(field key)" != "$first" ]
try 'one that nobody has' 5 in_work aoticache run my_ops::none --input float32:3 --hook c --kernels kernels --kernels nearer
says 'names all directories' "my_ops_none.c is not in $work/kernels, $work/nearer, "
finish
