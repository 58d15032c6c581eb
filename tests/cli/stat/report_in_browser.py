"""Opens the page of aoticache-stat --html in a browser: report_in_browser.py BROWSER DIRECTORY PAGE YOUNG PAST... It must show what
its JSON says, at widths of phones and desktops, light and dark, without requests and console messages."""
import json
import os
import re
import struct
import sys
import zlib

from browser import Browser

PLOTS = ("plot-hit-rate", "plot-bytes", "plot-saved", "plot-latency")
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
         "ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9, "h": 3600e9, "%": 0.01}
failed = 0


def ok(name, holds, said=""):
    global failed
    failed += not holds
    print(f"ok - {name}" if holds else f"not ok - {name}: {said}", flush=True)


def number(text):
    """Returns the number in a text of the page: "1,234", "137.7 MiB", "2 h 5 min"."""
    words = text.replace(",", "").split()
    if len(words) == 1:
        return float(words[0])
    return sum(float(value) * UNITS[unit] for value, unit in zip(words[::2], words[1::2]))


def picture(path):
    """Returns width, height and number of colours of an 8-bit RGB or RGBA PNG."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and not interlaced, (depth, colour)
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    size = 3 if colour == 2 else 4
    raw, line, seen = zlib.decompress(packed), bytes(width * size), set()
    for y in range(height):
        start = y * (width * size + 1)
        method, row = raw[start], bytearray(raw[start + 1:start + 1 + width * size])
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
        seen.update(line[x:x + 3] for x in range(0, len(line), size))
    return width, height, len(seen)


def compare_numbers(page, statistics):
    """Checks that every element that names its number in the JSON shows it, as precisely as its text can."""
    shown = page.evaluate("[...document.querySelectorAll('[data-path]')].map(e => [e.dataset.path, e.textContent])")
    wrong = []
    for path, text in shown:
        expected = statistics
        for part in path.split("."):
            expected = expected[int(part)] if isinstance(expected, list) else expected[part]
        if text == "–" and expected == 0:
            continue
        within = 0 if re.fullmatch(r"[\d,]+", text) else 0.02 * expected
        if abs(number(text) - expected) > within:
            wrong.append((path, text, expected))
    ok("the numbers are those of the JSON", not wrong, wrong)
    wanted = {"counters." + name for name in statistics["counters"]} | {
        f"latencies.{name}.{column}" for name, latency in statistics["latencies"].items() for column in latency if column != "sum_ns"}
    wanted |= {f"report.groups.{at}.rows.{i}.{column}" for at, groups in enumerate(statistics["report"]["groups"])
               for i, row in enumerate(groups["rows"]) for column in row if column != "name"}
    ok("and all of them are there", wanted <= {path for path, _ in shown}, wanted - {path for path, _ in shown})
    names = [row["name"] for groups in statistics["report"]["groups"] for row in groups["rows"]]
    cells = page.evaluate("[...document.querySelectorAll('td:first-child')].map(e => e.textContent)")
    ok("names are shown as they are", set(names) <= set(cells), set(names) - set(cells))


# Texts of a plot that overlap, or extend beyond it, with their contents.
OVERLAPS = """[...document.querySelectorAll('.plot svg')].flatMap(plot => {
  const edge = plot.getBoundingClientRect();
  const texts = [...plot.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([said, one], i) => [
    ...(one.left < edge.left || one.right > edge.right ? [`${plot.id}: ${said} goes beyond the plot`] : []),
    ...texts.slice(i + 1).filter(([, other]) => one.left < other.right + 4 && other.left < one.right + 4
      && one.top < other.bottom && other.top < one.bottom).map(([other]) => `${plot.id}: ${said} and ${other}`)]);
})"""
# Each table: its title, how far it scrolls, and whether it shows that more is to the right, and that more is to the left.
TABLES = """[...document.querySelectorAll('.scroll')].map(scroll => {
  const arrow = getComputedStyle(scroll.parentElement, '::after');
  return {title: scroll.ariaLabel, far: scroll.scrollWidth - scroll.clientWidth, at: scroll.scrollLeft,
          scrolls: getComputedStyle(scroll).overflowX === 'auto',
          right: arrow.content.includes('\u203a') && arrow.display !== 'none' && parseFloat(arrow.width) > 20,
          left: getComputedStyle(scroll.querySelector('td')).boxShadow !== 'none'};
})"""


def check_plots(browser, pages):
    """Labels of the axes do not touch, with a past of any length, in windows of any width."""
    for name, path in pages.items():
        wrong, counts = [], []
        for width in (320, 360, 390, 600, 768, 1000, 1240, 1440):
            page = browser.open("file://" + path, width=width)
            wrong += [f"{width} pixels: {one}" for one in page.evaluate(OVERLAPS)]
            counts.append(page.evaluate("document.querySelectorAll('#plot-hit-rate text[text-anchor=middle]').length"))
            page.close()
        ok(f"{name}: labels of axes do not touch", not wrong, wrong)
        ok(f"{name}: there are at least two, and more where there is room", min(counts) >= 2 and counts[-1] >= 3, counts)


def check_tables(browser, path):
    """A table that is wider than a phone shows that it can be scrolled, until its end is reached."""
    page = browser.open("file://" + path, width=360)
    tables = page.evaluate(TABLES)
    wide = [one["title"] for one in tables if one["far"] > 1]
    ok("360 pixels: groups and latencies are wider", {"By operator", "Latencies"} <= set(wide), wide)
    ok("all tables scroll", all(one["scrolls"] for one in tables), tables)
    ok("those that are wider show it, and no others", all(one["right"] == (one["far"] > 1) for one in tables), tables)
    ok("nothing is beyond their left edge", not any(one["left"] for one in tables), tables)
    page.evaluate("document.querySelectorAll('.scroll').forEach(scroll => { scroll.scrollLeft = 40; })")
    tables = page.evaluate(TABLES)
    ok("scrolled a little, they show both", all(one["right"] and one["left"] for one in tables if one["far"] > 41), tables)
    page.evaluate("document.querySelectorAll('.scroll').forEach(scroll => { scroll.scrollLeft = 10000; })")
    tables = page.evaluate(TABLES)
    ok("at the end, only what was on the left", not any(one["right"] for one in tables)
       and all(one["left"] for one in tables if one["far"] > 1), tables)
    hidden = page.evaluate("""[...document.querySelectorAll('.scroll')].filter(scroll => {
      const last = scroll.querySelector('td:last-child').getBoundingClientRect(), edge = scroll.getBoundingClientRect();
      return last.right > edge.right + 1; }).map(scroll => scroll.ariaLabel)""")
    ok("and the last column is seen", not hidden, hidden)
    page.close()
    page = browser.open("file://" + path, width=1440)
    ok("1440 pixels: nothing has to be scrolled", not any(one["far"] > 1 or one["right"] for one in page.evaluate(TABLES)))
    page.close()


def main(program, directory, path, young, *pasts):
    with open(path, encoding="utf-8") as file:
        statistics = json.loads(re.search(r'type="application/json">(.*?)</script>', file.read(), re.S).group(1))
    with Browser(program, os.path.join(directory, "profile")) as browser:
        for width, height in ((390, 844), (1000, 800), (1440, 900)):
            for scheme in ("light", "dark"):
                look, image = f"{width} pixels, {scheme}", os.path.join(directory, f"{width}-{scheme}.png")
                page = browser.open("file://" + path, width=width, height=height, scheme=scheme)
                ok(f"{look}: nothing goes beyond the window", page.evaluate("document.documentElement.scrollWidth") <= width)
                ok(f"{look}: no complaints", not page.complaints, page.complaints)
                ok(f"{look}: nothing is asked for", page.requests == ["file://" + path], page.requests)
                for plot in PLOTS:
                    ok(f"{look}: {plot} draws something", page.evaluate(
                        f"document.querySelectorAll('#{plot} path.line, #{plot} .bar').length") > 0)
                page.screenshot(image)
                if width == 390:  # decoding it takes a second or two
                    size = picture(image)
                    ok(f"{look}: the picture has the window's size, and is not blank", size[:2] == (width, height) and size[2] >= 50, size)
        compare_numbers(page, statistics)
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page = browser.open("file://" + path, width=1440, height=1800)
        ok("light and dark differ", back != page.evaluate("getComputedStyle(document.body).backgroundColor"), back)
        x, y, w, h = page.evaluate("(r => [r.x, r.y, r.width, r.height])(document.getElementById('plot-saved').getBoundingClientRect())")
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + w / 2, y=y + h / 2)
        told = page.evaluate("[...document.querySelectorAll('.tip:not([hidden])')].map(e => e.textContent).join()")
        ok("the pointer tells values", "saved time: " in told and "compile time: " in told, told)
        page.screenshot(os.path.join(directory, "pointer.png"))
        ok("no name became an element", page.evaluate("document.querySelectorAll('main b b, main img, main script').length") == 0)
        page = browser.open("file://" + young, width=390)
        ok("a young cache has four plots", page.evaluate("document.querySelectorAll('[id^=plot-]').length") == 4 and not page.complaints)
        page = browser.open("file://" + path, scripts=False)
        text = page.call("Runtime.evaluate", expression="document.body.innerText", returnByValue=True)["result"]["value"]
        ok("without scripts it says what to do", "Allow scripts" in text and "aoticache-stat" in text, text)
        check_plots(browser, {"a day": path, "a young cache": young, **{os.path.basename(one): one for one in pasts}})
        check_tables(browser, path)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
