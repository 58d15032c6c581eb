#!/usr/bin/env bash
# aoticache-stat: its forms and tables, times, zeroing, bad input. tests/unit/cache/test_statistics.c tests what it counts.
. tests/cli/lib.sh

for wrong in 'x' '1' '-1h' '5y' '2025-13-01' '2025-02-31' '2999-01-01' '2025-01-01T' ''; do
    try "--since '$wrong' is refused" 2 aoticache-stat "--since=$wrong"
done
for wrong in '--by=operators' '--by=' '--top=0' '--top=-1' '--top=1x' '--sort=hits' '--by=device --sort=hit' \
    '--entries=0' '--history=week' '--watch=0' '--watch=nan' '--watch=x' '--prometheus=' '--html=' '--csv --json' \
    '--csv --prometheus' '--html=a --csv' '--since=1h --day' '--day --all' '--by=operator --since=1h' \
    '--by=operator --entries=3' '--prometheus --day' '--html=a --by=device' '--zero=1'; do
    # shellcheck disable=SC2086 # several words
    try "stat $wrong is refused" 2 aoticache-stat $wrong
done
try 'a kind that is nearly right' 2 aoticache-stat --by operater
says 'has a suggestion' "^aoticache-stat: option --by: 'operater' is not one of operator, device or environment \(did you mean operator\?\); see 'aoticache-stat --help'$"
try 'an option that is nearly right' 2 aoticache-stat --promethius
says 'has one too' 'did you mean --prometheus\?'
try '--watch without a terminal' 2 aoticache-stat --watch
says 'says why' 'needs a terminal'
for form in '' --json --csv --prometheus; do
    # shellcheck disable=SC2086 # perhaps no word
    try "no cache: stat $form" 7 aoticache-stat $form
done
holds 'and none is created' [ ! -e "$AOTICACHE_DIR" ]
try 'no cache: a file' 7 aoticache-stat --prometheus="$work/none.prom"
holds 'is not written' [ ! -e "$work/none.prom" ]

for size in 2 3; do
    aoticache run aten::abs --input float32:$size --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
done
aoticache run aten::neg --input float32:2 --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
for _ in 1 2 3; do aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null; done

# ---- text and JSON ----

try 'stat' 0 aoticache-stat
is 'eight lines: nothing needs attention' 'cache since hits misses compiles saved size entries' \
    "$(awk '{ print $1 }' "$out" | paste -sd ' ')"
prints 'hits with their share' '^hits +3 \(50\.0 %\)$'
prints 'misses without the usual reason' '^misses +3$'
prints 'compiles with their time' '^compiles +3 \(compile time [0-9.]+ m?s\)$'
prints 'the time that was saved' '^saved time +[0-9.]+ m?s$'
prints 'the size, and that there is no limit' '^size +[0-9.]+ [KM]iB \(no limit, [0-9.]+ [MGT]iB free\)$'
prints 'entries' '^entries +3$'
AOTICACHE_MAX_SIZE=10M AOTICACHE_MAX_ENTRIES=12 try 'stat with limits' 0 aoticache-stat
prints 'how much of the size is used' '^size +[0-9.]+ [KM]iB of 10\.0 MiB \([0-9.]+ %\)$'
prints 'how many of the entries' '^entries +3 of 12 \(25\.0 %\)$'
try 'stat --verbose' 0 aoticache-stat --verbose
prints 'hits of the index' '^    hits index +3$'
prints 'reasons' '^    misses absent +3$'
prints 'latencies' '^  lookup +3 +[0-9]'
prints 'compiles have one too' '^  compile +3 +[0-9]'
prints 'loads' '^  load +6 +[0-9]'
try 'stat --json' 0 aoticache-stat --json
member 'hits of the index' counters.hits_index 3
member 'of loaded runners' counters.hits_loaded 0
member 'of remotes' counters.hits_remote 0
member 'reason absent' counters.misses_absent 3
member 'lookups measured' latencies.lookup.count 3
member 'compiles measured' latencies.compile.count 3
member 'loads measured' latencies.load.count 6
member 'never zeroed' zeroed_ns null
holds 'percentiles are in order' python3 - "$out" <<'PYTHON'
import json, sys
for latency in json.load(open(sys.argv[1]))["latencies"].values():
    values = [latency[name] for name in ("p50_ns", "p90_ns", "p99_ns", "max_ns")]
    assert values == sorted(values), latency
    assert (latency["count"] == 0) == (latency["max_ns"] == 0), latency
PYTHON
holds 'the disk' [ "$(field disk.index_bytes)" -gt 4096 ]

# ---- groups ----

try 'stat --by operator' 0 aoticache-stat --by operator
prints 'a line for abs' '^aten::abs +3 +2 +60\.0 % +2 +0 .* 2 +[0-9.]+ KiB$'
prints 'a line for neg' '^aten::neg +0 +1 +0\.0 % +1 +0 '
try 'stat --by operator --top 1' 0 aoticache-stat --by operator --top 1
is 'two lines' 2 "$(wc -l <"$out")"
says 'says that there is more' '1 of 2 shown'
try 'stat --by operator --sort name' 0 aoticache-stat --by operator --sort misses --json
member 'how it is sorted' groups.sort misses
member 'the first' groups.rows.0.name aten::abs
member 'its hits' groups.rows.0.hits 3
member 'its entries' groups.rows.0.entries 2
try 'stat --by device' 0 aoticache-stat --by device --json
member 'one device' groups.count 1
member 'the CPU' groups.rows.0.name cpu
member 'all entries' groups.rows.0.entries 3
is 'all bytes' "$(field bytes)" "$(field groups.rows.0.bytes)"
try 'stat --by environment' 0 aoticache-stat --by environment --json
member 'one environment' groups.count 1
member 'hits of it' groups.rows.0.hits 3

# ---- entries and history ----

try 'stat --entries' 0 aoticache-stat --entries 2
prints 'largest' '^largest '
prints 'coldest' '^[0-9a-f]{12} +[0-9.]+ KiB .* aten::abs\(float32\[3\]\)'
try 'stat --entries --json' 0 aoticache-stat --entries 5 --json
member 'the coldest was never used again' coldest.0.description 'aten::abs(float32[3]) on cpu'
holds 'the largest come first' [ "$(field largest.0.bytes)" -ge "$(field largest.2.bytes)" ]
for step in 5min hour day; do
    try "stat --history=$step" 0 aoticache-stat --history=$step --json
    is "history=$step has all hits" 3 "$(python3 -c 'import json,sys; print(sum(s["counters"]["hits"] for s in json.load(sys.stdin)["history"]["slots"]))' <"$out")"
done
for since in 1h 90m 2d 1w "$(date -u +%Y-%m-%d)" "$(date -u -d yesterday +%Y-%m-%dT%H:%M)"; do
    # A test that runs over midnight cannot check today's numbers.
    case $since in ????-??-??) [ "$(date -u +%H%M)" -gt 0010 ] || continue ;; esac
    try "stat --since $since" 0 aoticache-stat --since "$since" --json
    member "--since $since has all of it" counters.hits 3
    member "--since $since has the latencies too" latencies.lookup.count 3
done
try 'stat --day' 0 aoticache-stat --day --json
member '--day has all of it' counters.misses 3

# ---- CSV ----

try 'stat --csv' 0 aoticache-stat --csv
prints 'a header' '^name,value$'
prints 'a counter' '^hits,3$'
try 'stat --csv --by operator' 0 aoticache-stat --csv --by operator
prints 'columns' '^operator,hits,misses,compiles,compile_failures,compile_ns,saved_ns,entries,bytes$'
prints 'a row' '^aten::abs,3,2,2,0,[0-9]+,[0-9]+,2,[0-9]+$'
try 'stat --csv --history' 0 aoticache-stat --csv --history=day
prints 'slots' '^start_ns,hits,'
try 'stat --csv --entries' 0 aoticache-stat --csv --entries 9
holds 'every line has as many fields' python3 - "$out" <<'PYTHON'
import csv, sys
rows = list(csv.reader(open(sys.argv[1])))
assert len(rows) == 7 and {len(row) for row in rows} == {8}, rows
assert rows[1][2].startswith("aten::"), rows[1]
PYTHON

# ---- Prometheus ----

cat >"$work/check.py" <<'PYTHON'
"""Reads Prometheus' text format strictly, and prints one sample: check.py FILE NAME [LABEL=VALUE]"""
import re, sys
text = open(sys.argv[1]).read()
assert text.endswith("\n")
types, helps, samples, seen = {}, {}, {}, []
label = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
for line in text.splitlines():
    if line.startswith("#"):
        kind, name, rest = re.fullmatch(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.*)", line).groups()
        table = helps if kind == "HELP" else types
        assert name not in table, line
        table[name] = rest
        continue
    name, labels, value = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)", line).groups()
    pairs = label.findall(labels)
    assert ",".join(f'{key}="{text}"' for key, text in pairs) == labels, labels
    family = name
    for suffix in ("_bucket", "_sum", "_count"):
        if name.endswith(suffix) and types.get(name[: -len(suffix)]) == "histogram":
            family = name[: -len(suffix)]
    assert family in types and family in helps, f"{name} has no type"
    assert types[family] != "counter" or name.endswith("_total"), name
    assert family not in seen[:-1] or seen[-1] == family, f"{family} is not in one piece"
    if not seen or seen[-1] != family:
        seen.append(family)
    key = (name, tuple(pairs))
    assert key not in samples, f"twice: {line}"
    samples[key] = float(value)
for family, kind in types.items():
    if kind != "histogram":
        continue
    buckets = [(dict(labels)["le"], value) for (name, labels), value in samples.items() if name == family + "_bucket"]
    bounds = [float(bound) for bound, _ in buckets]
    assert bounds == sorted(set(bounds)) and bounds[-1] == float("inf"), bounds
    values = [value for _, value in buckets]
    assert values == sorted(values), family
    assert values[-1] == next(v for (name, _), v in samples.items() if name == family + "_count"), family
wanted = dict(word.split("=", 1) for word in sys.argv[3:])
found = [value for (name, labels), value in samples.items()
         if name == sys.argv[2] and all(dict(labels).get(key) == text for key, text in wanted.items())]
print(*[f"{value:g}" for value in found])
PYTHON
try 'stat --prometheus' 0 aoticache-stat --prometheus
is 'the format is right, and hits of the index' 3 "$(python3 "$work/check.py" "$out" aoticache_hits_index_total)"
is 'misses' 3 "$(python3 "$work/check.py" "$out" aoticache_misses_absent_total)"
is 'a histogram' 3 "$(python3 "$work/check.py" "$out" aoticache_lookup_seconds_bucket le=+Inf)"
is 'entries' 3 "$(python3 "$work/check.py" "$out" aoticache_entries)"
try 'stat --prometheus --by operator' 0 aoticache-stat --prometheus --by operator
is 'sums of an operator' 3 "$(python3 "$work/check.py" "$out" aoticache_operator_hits_total operator=aten::abs)"
# Bytes in a label that are not UTF-8 would make Prometheus refuse the whole file.
odd=$work/$'caf\xe9 \xed\xa0\x80 \xf0\x9f\x90\xb1 "x"'
cp -a "$AOTICACHE_DIR" "$odd"
try 'stat --prometheus of a directory whose name is not UTF-8' 0 aoticache-stat --prometheus --cache-dir "$odd"
holds 'is UTF-8' python3 -c 'import sys; t = open(sys.argv[1], "rb").read().decode(); sys.exit("caf\ufffd \ufffd\ufffd\ufffd \U0001f431 \\\"x\\\"" not in t)' "$out"
rm -rf "$odd"
try 'stat --prometheus=FILE' 0 aoticache-stat --prometheus="$work/cache.prom"
prints_nothing 'prints nothing'
is 'the file is complete' 3 "$(python3 "$work/check.py" "$work/cache.prom" aoticache_entries)"
is 'and others may read it' 644 "$(stat -c %a "$work/cache.prom")"
first=$(stat -c %i "$work/cache.prom")
aoticache-stat --prometheus="$work/cache.prom"
holds 'it is replaced, not written over' [ "$first" != "$(stat -c %i "$work/cache.prom")" ]
is 'nothing else is left there' 0 "$(find "$work" -maxdepth 1 -name '.cache.prom*' | wc -l)"
try 'a file where none can be' 1 aoticache-stat --prometheus="$work/no/such/directory.prom"
says 'says so' 'cannot write .*no/such/directory\.prom'
mkdir -m 700 "$work/odd\"na\\me" && cp -r "$AOTICACHE_DIR" "$work/odd\"na\\me/cache"
run aoticache-stat --prometheus --cache-dir "$work/odd\"na\\me/cache"
is 'a directory with an odd name' 3 "$(python3 "$work/check.py" "$out" aoticache_entries)"

# ---- zeroing ----

try 'stat --zero' 0 aoticache-stat --zero --json
says 'says what it did' '--all shows everything'
member 'no hits since' counters.hits 0
member 'but all entries' entries 3
is 'since then' "$(field zeroed_ns)" "$(field since_ns)"
aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null
try 'after one more hit' 0 aoticache-stat --json
member 'one' counters.hits 1
member 'one lookup was measured' latencies.lookup.count 1
try 'stat --all' 0 aoticache-stat --all --json
member 'has all four' counters.hits 4
try 'stat, for people' 0 aoticache-stat
prints 'says since when' '^since .*\(zeroed '
try 'groups since zero' 0 aoticache-stat --by operator --json
member 'one hit' groups.rows.0.hits 1
member 'and what is there' groups.rows.0.entries 2
run aoticache-stat --prometheus
is 'Prometheus goes on counting' 4 "$(python3 "$work/check.py" "$out" aoticache_hits_index_total)"

# ---- a live view ----

if has_terminal; then
    live="aoticache-stat --watch=0.1 & live=\$!; sleep 5; kill -INT \$live; wait \$live; echo ended with \$?"
    on_terminal dumb "$live" >"$out" 2>"$err"
    prints 'it shows the view' '^  hits +1 '
    prints 'again and again' '^last [0-9.]+ s: '
    prints 'an interruption ends it well' '^ended with 0'
else
    skip 'the live view' "$no_terminal"
fi

# ---- read-only and older caches ----

chmod -R a-w "$AOTICACHE_DIR"
try 'a read-only cache' 0 without_capabilities aoticache-stat --json
member 'has its numbers' entries 3
try 'cannot be zeroed' 1 without_capabilities aoticache-stat --zero
says 'and says why' 'for reading only'
chmod -R u+w "$AOTICACHE_DIR"
python3 - "$AOTICACHE_DIR/index.sqlite3" <<'PYTHON'
import sqlite3, sys
index = sqlite3.connect(sys.argv[1])
index.execute("PRAGMA user_version = 99")
PYTHON
try 'an index of a newer version' 1 aoticache-stat
says 'names both versions' 'its tables have version 99, and this library reads [0-9]+'
finish
