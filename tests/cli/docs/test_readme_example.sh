#!/usr/bin/env bash
# The C example of README.md: extracted as printed, compiled against an installation as a user has it, run twice.
. tests/cli/lib.sh

install_for_examples 'README example'
example=$work/example.c
example README.md c >"$example"
holds 'the example has at most 25 lines' [ "$(wc -l <"$example")" -le 25 ]
holds 'and is there' grep -q 'aoticache_call' "$example"
holds 'in at most six calls' [ "$(grep -c 'aoticache_[a-z_]*(' "$example")" -le 6 ]

compile_example "$example" "$work/example"
try 'the first run compiles the kernel' 0 "$work/example"
prints 'and prints the result' '^1 3 5$'
try 'the second run finds it' 0 "$work/example"
prints 'and prints the same' '^1 3 5$'
try 'statistics of the installed tool' 0 env -i HOME="$work" AOTICACHE_DIR="$AOTICACHE_DIR" "$stage/bin/aoticache-stat" --json
member 'one compile' counters.compiles 1
member 'the call that loads it is one hit' counters.hits 1
member 'of a lookup' counters.hits_loaded 0
try 'uninstalled' 0 uninstall_from '' "$stage"
is 'and nothing is left' '' "$(find "$stage" -type f 2>/dev/null)"
finish
