#!/usr/bin/env bash
# Two versions concurrently, in small: older versions of the project and this one use the same cache
# (tests/versions/trial.py; docs/store.md describes what they do). `make long FORMS=versions` tests all versions of
# tests/versions/list.
# Not a quick test: it compiles other versions.
. tests/cli/lib.sh

if is_instrumented; then
    skip 'two versions' 'this build is instrumented, and the player is not'
    finish
fi
run git rev-parse --git-dir
if [ "$status" != 0 ]; then
    skip 'two versions' 'this is no git repository: the older versions are not there'
    finish
fi
# Its lines count as this script's.
python3 tests/versions/trial.py --short --seconds 4 2>"$err" | tee "$out"
status=${PIPESTATUS[0]}
passed=$(grep -c '^ok - ' "$out")
failed=$(grep -c '^not ok - ' "$out")
skipped=$(grep -c '^skip - ' "$out")
[ "$status" = 0 ] || [ "$failed" -gt 0 ] || not_ok 'two versions' 'the trial did not come to its end'
finish
