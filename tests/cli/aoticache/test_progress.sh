#!/usr/bin/env bash
# Progress messages during long operations: they appear only on a terminal.
. tests/cli/lib.sh

printf '#!/bin/sh\nread -r request\nsleep 2\nexit 1\n' >"$work/slow"
chmod +x "$work/slow"
call="aoticache compile aten::abs --input float32:2 --hook command:$work/slow --retry"
if ! has_terminal; then
    skip 'progress on a terminal' "$no_terminal"
    finish
fi

try 'a slow compile on a terminal' 5 on_terminal xterm "$call"
prints 'says what it does and for how long' 'compiling aten::abs, 1 s'
try 'the same on a dumb terminal' 5 on_terminal dumb "$call"
prints_not 'says nothing meanwhile' 'compiling aten::abs, '
try 'the same, quiet' 5 on_terminal xterm "$call --quiet"
prints_not 'says nothing meanwhile either' 'compiling aten::abs, '
# shellcheck disable=SC2086 # several words
try 'the same, not on a terminal' 5 $call
prints_nothing 'prints nothing'
if grep -q 'compiling aten::abs,' "$err"; then not_ok 'no progress in a log' 'there is'; else ok 'no progress in a log'; fi
finish
