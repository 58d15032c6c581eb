#!/usr/bin/env bash
# The pictures of the documents: plots of the benchmarks' results, and the demo as an animated terminal.
. tests/cli/lib.sh

# shellcheck disable=SC2317 # holds calls it
well_formed() { python3 -c 'import sys, xml.dom.minidom as d; d.parse(sys.argv[1])' "$1"; }
# drawn FILE NAME: checks that it is SVG, and contains nothing of this machine
drawn() {
    holds "$2 is SVG" well_formed "$1"
    holds "$2 names no path of this machine" [ "$(grep -cF -e "$PWD" -e "$work" "$1")" = 0 ]
}

# ---- the benchmarks ----

cat >"$work/bench.json" <<'JSON'
[{"name": "index lookup <raw>", "value": 3, "unit": "ns", "peer": "SQLite", "peer_value": 2, "ratio": 1.5, "target": 1.3, "met": false},
 {"name": "the same", "value": 3, "unit": "ns", "peer": "another", "peer_value": 6, "ratio": 0.5, "target": 1, "met": true},
 {"name": "bytes of a package", "value": 0, "unit": "MB", "peer": "PyTorch", "peer_value": 69, "ratio": 0, "target": 0, "met": null},
 {"name": "instructions of a hit", "value": 496, "unit": "", "peer": "-", "peer_value": 0, "ratio": 0, "target": 0, "met": null},
 {"left_out": "a million entries", "why": "QUICK=1"},
 {"name": "a call", "value": 30, "unit": "ns", "peer": "", "peer_value": 0, "ratio": null, "target": null, "met": null}]
JSON
try 'what was measured is drawn' 0 scripts/pictures/plot-bench --note 'Of a test.' "$work/bench.json" "$work/plots"
for name in bench bench-summary; do
    drawn "$work/plots/$name.svg" "$name.svg"
    holds "$name.svg has colours for dark pages" grep -q 'prefers-color-scheme:dark' "$work/plots/$name.svg"
    holds "$name.svg says what it was made of" grep -q '>3 figures with a peer; 2 without one are left out. Of a test. ' "$work/plots/$name.svg"
    is "$name.svg has a mark for each, and three for the legend" 6 "$(grep -o 'fill="currentColor"' "$work/plots/$name.svg" | wc -l)"
done
is 'what is called the same has its name' 2 "$(grep -c '>index lookup &lt;raw&gt;<' "$work/plots/bench.svg")"
cp -r "$work/plots" "$work/plots.first"
scripts/pictures/plot-bench --note 'Of a test.' "$work/bench.json" "$work/plots" >/dev/null
holds 'twice the same' diff -r "$work/plots" "$work/plots.first"
echo '[]' >"$work/bench.json"
try 'where nothing has a peer, nothing is drawn' 0 scripts/pictures/plot-bench "$work/bench.json" "$work/none"
says 'and that is said' 'nothing is drawn'
try 'an option that there is not' 2 scripts/pictures/plot-bench --none
BENCHES=none try 'a benchmark that there is not' 2 scripts/bench
says 'is named' 'there is no none'

# A benchmark that measures one figure and leaves one out; it prints whether it is to be quick.
mkdir -p "$work/build/tests/bench"
cat >"$work/build/tests/bench/bench_fake" <<'SH'
#!/bin/sh
echo '{"name": "a call", "value": 3, "unit": "ns", "peer": "another", "peer_value": 2, "ratio": 1.5, "target": 1.2, "met": false}'
[ "$BENCH_QUICK" = 1 ] && why=QUICK=1 || why='too slow'
echo "{\"left_out\": \"a thousand calls\", \"why\": \"$why\"}"
SH
chmod +x "$work/build/tests/bench/bench_fake"
export BUILD="$work/build" VENV="$work/none"
BENCHES='fake torch' QUICK=1 try 'a quick run' 0 scripts/bench
prints 'has a table' 'a call .* 1.500  1.2x NOT MET'
prints 'says what it left out' 'left out: a thousand calls \(QUICK=1\)'
prints 'and what needs PyTorch' 'left out: all of bench_torch.py \(there is no virtual environment'
is 'the file has that too' 2 "$(grep -c '"left_out"' "$BUILD/bench.json")"
holds 'the plot says that it was quick' grep -q 'Of make bench QUICK=1: fake, torch' "$BUILD/bench.svg"
BENCHES=fake QUICK=0 try 'one that is not quick' 0 scripts/bench
prints 'leaves out another figure' 'left out: a thousand calls \(too slow\)'
unset BUILD VENV
# Limits apply to ratios: in seconds they would depend on the machine.
is 'no benchmark has a limit in place of a peer' '' "$(grep -lE '"(the limit|goal)"|target_is' tests/bench/*.c tests/bench/*.py scripts/bench)"

# ---- models ----

cat >"$work/models.json" <<'JSON'
[{"name": "a run of A & B, 1 thread", "value": 3, "unit": "ms", "peer": "ONNX Runtime", "peer_value": 2, "ratio": 1.5, "target": null, "met": null},
 {"name": "a run of A & B, 2 threads", "value": 3, "unit": "ms", "peer": "aoti_load_package", "peer_value": 6, "ratio": 0.5, "target": 1, "met": true},
 {"name": "resident memory of A & B", "value": 3, "unit": "MiB", "peer": "ONNX Runtime", "peer_value": 6, "ratio": 0.5, "target": null, "met": null},
 {"name": "geometric mean of the runs of 1 model, 1 thread", "value": 1.5, "unit": "", "peer": "ONNX Runtime", "peer_value": 1, "ratio": 1.5, "target": 1, "met": false}]
JSON
try 'times of models are drawn' 0 scripts/pictures/plot-models "$work/models.json" "$work/models.svg"
drawn "$work/models.svg" 'models.svg'
holds 'models.svg has a line for the model' grep -q '>A &amp; B<' "$work/models.svg"
holds 'and one for the geometric mean' grep -q '>geometric mean<' "$work/models.svg"
is 'models.svg has a mark for each run and mean, and two for the legend' 5 "$(grep -c '<circle' "$work/models.svg")"
cp "$work/models.svg" "$work/models.first"
scripts/pictures/plot-models "$work/models.json" "$work/models.svg" 2>"$work/err"
holds 'twice the same' cmp "$work/models.svg" "$work/models.first"
try 'where no model was measured, nothing is drawn' 0 scripts/pictures/plot-models "$work/bench.json" "$work/none.svg"
says 'and that is said' 'nothing is drawn'
try 'an option that there is not' 2 scripts/pictures/plot-models --none

# ---- the demo ----

printf '\033[1m1. A step & its name\033[0m\n\r\033[Kcompiling, 1 s\r\033[K   compiled\n   %s/cache\n   /tmp/tmp.aB3xYz/cache at 2026-01-02 03:04:05 UTC\n%s\n' \
    "$PWD" "$(printf 'x%.0s' {1..130})" >"$work/demo.txt"
try 'what the demo printed is drawn' 0 scripts/pictures/record-demo --from "$work/demo.txt" "$work/demo.svg"
drawn "$work/demo.svg" 'demo.svg'
holds 'a temporary directory and a date are those of any machine' grep -q '/tmp/demo/cache at YYYY-MM-DD hh:mm:ss<' "$work/demo.svg"
holds 'what was replaced in place is not there' [ "$(grep -c '>compiling' "$work/demo.svg") $(grep -c '>   compiled<' "$work/demo.svg")" = '0 1' ]
holds 'a step stands out' grep -q 'class="h".*>1. A step &amp; its name<' "$work/demo.svg"
holds 'a long line is wrapped' grep -q '>x\{20\}<' "$work/demo.svg"
cp "$work/demo.svg" "$work/demo.first"
scripts/pictures/record-demo --from "$work/demo.txt" "$work/demo.svg" >/dev/null
holds 'twice the same' cmp "$work/demo.svg" "$work/demo.first"
echo 'object /srv/secret/file' >"$work/demo.txt"
try 'another path of this machine is refused' 1 scripts/pictures/record-demo --from "$work/demo.txt" "$work/no.svg"
says 'and named' '/srv/secret/file'
holds 'nothing is written' [ ! -e "$work/no.svg" ]
finish
