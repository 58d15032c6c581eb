#!/usr/bin/env bash
# The page of aoticache-stat --html, opened and photographed by a browser without a window.
. tests/cli/lib.sh

browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v $name)
done

# browse OPTION...: opens the page with options of the browser's
browse() {
    run timeout 90 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
        --user-data-dir="$work/profile" --window-size=1000,800 "$@" "file://$work/page.html"
}

# colours FILE: how many an 8-bit RGB or RGBA PNG has, and its size
colours() {
    python3 - "$1" <<'PYTHON'
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n"
at, packed = 8, b""
while at < len(data):
    length, kind = struct.unpack(">I4s", data[at : at + 8])
    body = data[at + 8 : at + 8 + length]
    if kind == b"IHDR":
        width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
        assert depth == 8 and colour in (2, 6) and not interlaced, (depth, colour)
    packed += body if kind == b"IDAT" else b""
    at += 12 + length
size = 3 if colour == 2 else 4
raw, line = zlib.decompress(packed), bytes(width * size)
seen = set()
for y in range(height):
    start = y * (width * size + 1)
    method, row = raw[start], bytearray(raw[start + 1 : start + 1 + width * size])
    for x in range(len(row)):
        left = row[x - size] if x >= size else 0
        above, corner = line[x], line[x - size] if x >= size else 0
        if method == 1:
            row[x] = row[x] + left & 255
        elif method == 2:
            row[x] = row[x] + above & 255
        elif method == 3:
            row[x] = row[x] + (left + above) // 2 & 255
        elif method == 4:
            guess = left + above - corner
            nearest = min((abs(guess - left), 0, left), (abs(guess - above), 1, above), (abs(guess - corner), 2, corner))
            row[x] = row[x] + nearest[2] & 255
    line = bytes(row)
    seen.update(line[x : x + 3] for x in range(0, len(line), size))
print(len(seen), width, height)
PYTHON
}

aoticache run aten::abs --input float32:2 --hook c --quiet >/dev/null || not_ok 'set-up' 'run failed'
try 'a young cache has a page' 0 aoticache-stat --html "$work/young.html"
prints_nothing 'nothing is printed'
holds 'it has four plots' [ "$(grep -c '<svg class="plot"' "$work/young.html")" = 4 ]
python3 tests/cli/statistics_history.py "$AOTICACHE_DIR/index.sqlite3" || not_ok 'set-up' 'no history'
try 'stat --html' 0 aoticache-stat --html "$work/page.html"
holds 'nothing is taken from elsewhere' python3 - "$work/page.html" <<'PYTHON'
import html.parser, sys
text = open(sys.argv[1], encoding="utf-8").read()
class Reader(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "img", "iframe", "object", "embed"), tag
        for name, value in attributes:
            assert name not in ("src", "href", "xlink:href") and not name.startswith("on"), (tag, name, value)
Reader().feed(text)
assert "url(" not in text and "@import" not in text
PYTHON
holds 'names are escaped' grep -q 'my_project::a &lt;b&gt; &amp; &quot;quoted&quot; operator' "$work/page.html"
holds 'and never as they are' [ "$(grep -c 'a <b> &' "$work/page.html")" = 0 ]
is 'the file is for all to read' 644 "$(stat -c %a "$work/page.html")"
first=$(stat -c %i "$work/page.html")
try 'again' 0 aoticache-stat --html "$work/page.html" --since 1d
holds 'it is replaced, not written over' [ "$first" != "$(stat -c %i "$work/page.html")" ]

if [ -z "$browser" ]; then
    skip 'in a browser' 'there is no chromium'
    finish
fi
browse --dump-dom
is 'the browser ends well' 0 "$status"
for plot in hit-rate bytes saved latency; do
    prints "the document has the plot of $plot" "<svg[^>]* id=\"plot-$plot\""
done
is 'every plot draws something' 4 "$(python3 - "$out" <<'PYTHON'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
print(sum(bool(re.search(r"<(path|rect) [^>]*(stroke|fill)=\"var", plot)) for plot in re.findall(r"<svg.*?</svg>", text, re.S)))
PYTHON
)"
for look in light dark; do
    browse --screenshot="$work/$look.png" --blink-settings=preferredColorScheme=$([ $look = dark ] && echo 0 || echo 1)
    read -r count width height <<<"$(colours "$work/$look.png" 2>&1 | tail -n 1)"
    is "the picture ($look) has the window's size" '1000 800' "$width $height"
    if [ "${count:-0}" -ge 50 ] 2>/dev/null; then ok "the picture ($look) is not blank"; else not_ok "the picture ($look) is not blank" "$count colours"; fi
done
holds 'light and dark differ' [ "$(sha256sum <"$work/light.png")" != "$(sha256sum <"$work/dark.png")" ]
finish
