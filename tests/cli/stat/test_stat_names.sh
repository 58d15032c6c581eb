#!/usr/bin/env bash
# Each counter has one name: in C, text, JSON, CSV, the page, Prometheus, Python and docs/statistics.md.
. tests/cli/lib.sh

aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
aoticache-stat --quiet >/dev/null # merges the statistics that the process has left pending
# Each counter gets a different number, so that a name with another one's number is noticed.
python3 - "$AOTICACHE_DIR/index.sqlite3" >"$work/numbers" <<'PYTHON' || not_ok 'set-up' 'no numbers'
import re, sqlite3, sys
header = open("cache/stats/statistics.h").read()
names = re.findall(r"X\((\w+),", header.partition("#define AOTICACHE_COUNTER_LIST")[2].partition("#define AOTICACHE_DERIVED")[0])
assert len(names) > 30, names
index = sqlite3.connect(sys.argv[1])
for position, name in enumerate(names):
    number = 10**6 * 2**position if name in ("hits", "misses") else 1000 + position
    number = number * 10**9 if name.endswith("_ns") else (100 + position) * 2**20 if name.endswith("_bytes") else number
    index.execute("INSERT OR REPLACE INTO counts VALUES(?, ?)", (name, number))
    print(name, number)
index.commit()
PYTHON
try 'text' 0 aoticache-stat --verbose
cp "$out" "$work/text"
try 'the lines that matter' 0 aoticache-stat
cp "$out" "$work/short"
try 'JSON' 0 aoticache-stat --json
cp "$out" "$work/json"
try 'CSV' 0 aoticache-stat --csv
cp "$out" "$work/csv"
try 'CSV, history' 0 aoticache-stat --csv --history
cp "$out" "$work/history"
try 'Prometheus' 0 aoticache-stat --prometheus
cp "$out" "$work/prometheus"
try 'the page' 0 aoticache-stat --html "$work/page.html"
python3 - "$work" <<'PYTHON'
import ast, json, re, sys
work = sys.argv[1]
read = lambda name: open(name, encoding="utf-8").read()
numbers = {name: int(number) for name, number in (line.split() for line in read(f"{work}/numbers").splitlines())}
derived = {"hits_index": numbers["hits"] - numbers["hits_loaded"] - numbers["hits_remote"],
           "misses_absent": numbers["misses"] - sum(numbers["misses_" + one] for one in ("requirement", "guard", "damaged", "failed"))}
all_numbers = numbers | derived
latencies = json.loads(read(f"{work}/json"))["latencies"]
failed = False

def compare(name, found, expected):
    global failed
    failed |= found != expected
    print(f"ok - {name}" if found == expected else f"not ok - {name}: {sorted(set(found) ^ set(expected)) or (found, expected)}")

def text_of(name):
    return (name[:-3] + "_time" if name.endswith("_ns") else name).replace("_", " ")

def prometheus_of(name):
    if not name.endswith("_ns"):
        return f"aoticache_{name}_total"
    return f"aoticache_{name[:-3]}_seconds_{'sum' if name[:-3] in latencies else 'total'}"

def shown(name):
    value = all_numbers[name]
    seconds = value // 10**9
    return (f"{seconds // 60} min {seconds % 60} s" if name.endswith("_ns") else
            f"{value / 2**20:.1f} MiB" if name.endswith("_bytes") else str(value))

compare("JSON", json.loads(read(f"{work}/json"))["counters"], all_numbers)
page = json.loads(re.search(r'type="application/json">(.*?)</script>', read(f"{work}/page.html"), re.S).group(1))
compare("the page", page["counters"], all_numbers)
compare("the page says what each is", set(page["report"]["meanings"]["counters"]), set(all_numbers))
csv = dict(line.split(",") for line in read(f"{work}/csv").splitlines())
compare("CSV", {name: int(csv.get(name, -1)) for name in all_numbers}, all_numbers)
compare("CSV, history", read(f"{work}/history").splitlines()[0].split(","), ["start_ns", *all_numbers])
rows = dict(re.findall(r"^  +([a-z][a-z ]*?)  +([0-9][^\n]*?)(?:   .*)?$", read(f"{work}/text").partition("\nLatencies")[0], re.M))
compare("text", {text_of(name): rows.get(text_of(name)) for name in all_numbers}, {text_of(name): shown(name) for name in all_numbers})
known = {"cache", "since", "size", "entries", "failures remembered", *map(text_of, all_numbers)}
lines = re.findall(r"^([a-z ]+?)  ", read(f"{work}/short"), re.M)
compare("the lines that matter", [line for line in lines if line not in known], [])
compare("they have what needs attention", [name for name in ("not_stored", "damaged", "refused_untrusted", "remote_errors")
                                           if text_of(name) not in lines], [])
compare("and the main reason of misses, if that is not the absence of an entry", "misses absent" in read(f"{work}/short"), False)
samples = dict(re.findall(r"^(\w+)\{[^,\n}]*\} (\S+)$", read(f"{work}/prometheus"), re.M))
totals = {name for name in samples if name.endswith("_total")}
compare("Prometheus", totals, {name for name in map(prometheus_of, all_numbers) if name.endswith("_total")})
scaled = {prometheus_of(name): value / (1e9 if name.endswith("_ns") else 1) for name, value in all_numbers.items()}
compare("Prometheus, numbers", {name: float(samples[name]) for name in totals}, {name: scaled[name] for name in totals})
compare("Prometheus, sums", [name for name in scaled if name not in samples], [])

tree = ast.parse(read("eager/torch/aoticache/_core/capi.py"))
classes = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
words = lambda node: [word for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str) for word in one.value.split()]
compare("Python, in the same order", words(classes["Counters"]), list(numbers))
stats = {one.name: [item.target.id for item in one.body if isinstance(item, ast.AnnAssign)]
         for one in ast.parse(read("eager/torch/aoticache/_stats.py")).body if isinstance(one, ast.ClassDef)}
in_python = {name[:-3] + "_seconds" if name.endswith("_ns") else name for name in (*all_numbers, *words(classes["HolderCounts"]))}
compare("stats() of Python, the cache", [name for name in stats["CacheStats"]
        if name not in in_python | {"directory", "read_only", "entries", "bytes"}], [])
compare("stats() of Python, operators", sorted(in_python & set(stats["OperatorStats"])),
        sorted(name[:-3] + "_seconds" if name.endswith("_ns") else name for name in words(classes["HolderCounts"])))

table = re.findall(r"^\| `(\w+)` \| ([a-z ]+) \| `(\w+)` \| .+ \|$", read("docs/statistics.md"), re.M)
compare("docs/statistics.md", {name: (text, metric) for name, text, metric in table},
        {name: (text_of(name), prometheus_of(name)) for name in all_numbers})
sys.exit(failed)
PYTHON
is 'no counter has a second name' 0 $?
finish
