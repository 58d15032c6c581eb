#!/usr/bin/env bash
# The examples of docs/kernels.md, as printed, against an installation as a user has it: a library in C, a host that changes
# its constants, a kernel of one's own beside those that come along. (What the library computes: tests/unit/test_kernel_docs.c.)
. tests/cli/lib.sh

install_for_examples 'docs/kernels.md'
export prefix=$stage LD_LIBRARY_PATH=$stage/lib
in_work() { (cd "$work" && exec "$@"); }

example docs/kernels.md linear >"$work/linear.c"
example docs/kernels.md build-linear >"$work/build-library"
try 'the library compiles as printed' 0 in_work sh -e build-library
example docs/kernels.md update >"$work/update.c"
example docs/kernels.md build-update >"$work/build-host"
try 'the host compiles as printed' 0 in_work sh -e build-host
try 'and without warnings' 0 in_work sh -ec 'cc -Wall -Wextra -Werror -fsyntax-only update.c $(pkg-config --cflags aoticache)'
try 'it runs' 0 in_work ./update
is 'and prints what the page says' '16 35|11 21|11 21|3.5 6.25|' "$(head -4 "$out" | tr '\n' '|')"
prints 'a name that is none' "layer\.bais.*layer\.bias"

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
try 'a folder that is named before' 0 in_work "${softsign[@]}" --kernels nearer
member 'is searched before' key "$first"
try 'so with another order' 0 in_work aoticache run my_ops::softsign --input float32:3=arange --hook c --kernels nearer --kernels kernels --json
holds 'it is another kernel' [ "$(field key)" != "$first" ]
try 'one that nobody has' 5 in_work aoticache run my_ops::none --input float32:3 --hook c --kernels kernels --kernels nearer
says 'names all folders' "there is no my_ops_none.c in $work/kernels, $work/nearer, "
finish
