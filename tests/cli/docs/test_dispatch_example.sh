#!/usr/bin/env bash
# The C example of docs/dispatch.md, a fallback: extracted as printed, compiled against an installation, run twice.
. tests/cli/lib.sh

install_for_examples 'example of docs/dispatch.md'
example=$work/example.c
example docs/dispatch.md fallback >"$example"
holds 'the example is there' grep -q 'AOTICACHE_VALUE_OUTPUT' "$example"

compile_example "$example" "$work/example"
try 'the first run' 0 "$work/example"
prints 'the fallback answers first' '^-1 2 -3, fallback called 1 times$'
is 'and the compiled kernel, which gives the same, from then on' 2 "$(grep -c '^-1 2 -3, fallback called 1 times$' "$out")"
try 'the second run' 0 "$work/example"
is 'needs no fallback' 2 "$(grep -c '^-1 2 -3, fallback called 0 times$' "$out")"
finish
