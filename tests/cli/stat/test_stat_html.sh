#!/usr/bin/env bash
# The page of aoticache-stat --html: its contents, and how a browser shows it.
. tests/cli/lib.sh

browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v $name)
done

aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
try 'a young cache has a page' 0 aoticache-stat --html "$work/young.html"
prints_nothing 'nothing is printed'
python3 tests/cli/stat/statistics_history.py "$AOTICACHE_DIR/index.sqlite3" || not_ok 'set-up' 'no history'
# Names that would end the script element, or run something.
python3 - "$AOTICACHE_DIR/index.sqlite3" <<'PYTHON' || not_ok 'set-up' 'no hostile names'
import sqlite3, sys
index = sqlite3.connect(sys.argv[1])
for name in ("evil::</script><script>console.log('evil')</script>", "evil::<!--<script>", "evil::a\u2028b\u202ec&amp;",
             "evil::<img src=x onerror=console.log(1)>", "evil::\"'`${1}\\"):
    index.execute("INSERT INTO groups VALUES(0, ?, 3, 2, 2, 1, 9, 9, 1, 1000000)", (name,))
index.commit()
PYTHON
try 'stat --html' 0 aoticache-stat --html "$work/page.html"
try 'the same as JSON' 0 aoticache-stat --json --history=5min
cp "$out" "$work/statistics.json"
holds 'the page has the JSON of --json, and loads nothing' python3 - "$work/page.html" "$work/statistics.json" <<'PYTHON'
import base64, hashlib, html.parser, json, sys
text = open(sys.argv[1], encoding="utf-8").read()
scripts, policy = [], ""
class Reader(html.parser.HTMLParser):
    within = None
    def handle_starttag(self, tag, attributes):
        global policy
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form"), tag
        for name, value in attributes:
            assert name not in ("src", "href", "xlink:href") and not name.startswith("on"), (tag, name, value)
        if dict(attributes).get("http-equiv") == "Content-Security-Policy":
            policy = dict(attributes)["content"]
        self.within = tag
    def handle_data(self, data):
        if self.within == "script":
            scripts.append(data)
    def handle_endtag(self, tag):
        self.within = None
Reader().feed(text)
assert "url(" not in text and "@import" not in text
assert len(scripts) == 2, len(scripts)
digest = "sha256-" + base64.b64encode(hashlib.sha256(scripts[1].encode()).digest()).decode()
assert digest in policy, f"tools/stat/report.html: the policy must name the script as '{digest}'"
page, printed = json.loads(scripts[0]), json.load(open(sys.argv[2]))
report = page.pop("report")
for moving in (page, printed):
    moving["disk"].pop("filesystem_free_bytes")
assert page == printed, [name for name in printed if page.get(name) != printed[name]]
assert set(report) == {"made_ns", "version", "meanings", "octaves", "groups"}, set(report)
PYTHON
try 'fewer rows' 0 aoticache-stat --html "$work/few.html" --top 2
holds 'the others are summed up' python3 - "$work/page.html" "$work/few.html" <<'PYTHON'
import json, re, sys
def operators(path):
    return json.loads(re.search(r'"application/json">(.*?)</script>', open(path, encoding="utf-8").read()).group(1))["report"]["groups"][0]
full, few = map(operators, sys.argv[1:])
assert len(few["rows"]) == 2 and few["count"] == full["count"] == len(full["rows"]), few
for column in ("hits", "bytes"):
    assert sum(row[column] for row in few["rows"]) + few["rest"][column] == sum(row[column] for row in full["rows"]), column
    assert full["rest"][column] == 0
PYTHON
is 'the file is for all to read' 644 "$(stat -c %a "$work/page.html")"
cp "$work/page.html" "$work/shown.html"
first=$(stat -c %i "$work/page.html")
try 'again' 0 aoticache-stat --html "$work/page.html" --since 1d
holds 'it is replaced, not written over' [ "$first" != "$(stat -c %i "$work/page.html")" ]

if [ -z "$browser" ]; then
    skip 'in a browser' 'there is no chromium'
    finish
fi
# Histories of other lengths, whose labels are times, days and hours, or dates: STEP SLOTS
# SINCE.
pasts=()
for past in '300 3 -' '3600 30 -' '3600 720 -' '86400 3 60d' '86400 400 395d'; do
    read -r step slots since <<<"$past"
    pasts+=("$work/$slots-of-$step.html")
    python3 tests/cli/stat/statistics_history.py "$AOTICACHE_DIR/index.sqlite3" "$step" "$slots" || not_ok 'set-up' 'no history'
    if [ "$since" = - ]; then set --; else set -- --since "$since"; fi
    try "a page of $slots slots of $step s" 0 aoticache-stat --html "${pasts[-1]}" "$@"
done
run python3 tests/cli/stat/report_in_browser.py "$browser" "$work" "$work/shown.html" "$work/young.html" "${pasts[@]}"
cat "$out"
if [ "$status" = 0 ]; then ok 'in a browser it is as it should be'; else not_ok 'in a browser it is as it should be' 'above'; fi
finish
