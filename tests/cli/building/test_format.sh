#!/usr/bin/env bash
# The C code has the form that .clang-format gives it.
. tests/cli/lib.sh
run env VENV="$VENV" scripts/check-format
if [ "$status" = 77 ]; then
    skip 'the form of the code' "$(head -n 1 "$err")"
else
    is 'the form of the code' 0 "$status"
fi
finish
