#!/usr/bin/env bash
# A simulated year: the size stays within the budget, and the kept entries are those that will be needed, nearly as well
# as with plain LRU. The long form is `make year`; its figures are in docs/performance.md.
. tests/cli/lib.sh

place=$work
[ ! -w /dev/shm ] || place=$(mktemp -d /dev/shm/aoticache-year.XXXXXX) # its puts wait for no disk
try 'the size is never above the budget' 0 "$BUILD/tests/helpers/simulate_year" "${KEYS:-600}" "${REQUESTS:-6000}" 0.25 "$place/year"
sed 's/^/# /' "$out"
sed -n 1p "$out" >"$work/figures"
holds 'hits are within 5 of 100 of what plain LRU has' python3 - "$work/figures" <<'PYTHON'
import json, sys
figures = json.load(open(sys.argv[1]))
assert figures["hit_rate"] >= figures["hit_rate_lru"] - 0.05, figures
assert figures["hit_rate_belady"] >= figures["hit_rate_lru"] - 0.001, figures
PYTHON
[ "$place" = "$work" ] || rm -rf "$place"
finish
