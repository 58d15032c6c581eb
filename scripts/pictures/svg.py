"""Parts that the SVG files of the documents share: text, colours for light and for dark pages. Needs no libraries.

The plots are made by tests/fleet/lines.py and scripts/pictures/plot-bench, the demo by scripts/pictures/record-demo. The same
input gives the same bytes.
"""
from __future__ import annotations

import html
import math

#: Colours of a series: on light pages, on dark ones. The class cN has them as stroke and as color (for
#: fill="currentColor").
COLOURS = (("#0969da", "#58a6ff"), ("#1a7f37", "#3fb950"), ("#bc4c00", "#f0883e"), ("#cf222e", "#ff7b72"),
           ("#8250df", "#d2a8ff"), ("#57606a", "#a0a8b0"), ("#bf3989", "#f778ba"))


def style(extra: str = "", extra_dark: str = "") -> str:
    """Returns the style of a plot: text, .t a title, .g the grid, .l a line, .d a dashed one, .b the page, and the
    colours."""
    light, dark = ("".join(f".c{i}{{stroke:{pair[page]};color:{pair[page]}}}" for i, pair in enumerate(COLOURS))
                   for page in (0, 1))
    return ("<style>text{font:12px sans-serif;fill:#24292f;stroke:none}.t{font-size:14px;font-weight:bold}"
            ".g{stroke:#d0d7de;stroke-width:1}.l{fill:none;stroke-width:2}.d{stroke-dasharray:5 4}.b{fill:#ffffff}"
            + light + extra + "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.g{stroke:#373e47}.b{fill:#0d1117}"
            + dark + extra_dark + "}</style>")


def page(title: str, width: float, height: float, parts: list[str], styles: str) -> str:
    """Returns a file: its title is also what a screen reader reads."""
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">', styles,
                      f'<rect class="b" width="{width:g}" height="{height:g}"/><title>{html.escape(title)}</title>',
                      *parts]) + "\n</svg>\n"


def text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text{" " * bool(more)}{more} x="{x:g}" y="{y:g}">{html.escape(words)}</text>'


def span(values: list[float]) -> tuple[int, int]:
    """Returns the powers of ten around the values. Zero, which has no logarithm, is placed below them."""
    some = [value for value in values if value > 0] or [1.0]
    low, high = math.floor(math.log10(min(some)) + 1e-9), math.ceil(math.log10(max(some)) - 1e-9)
    return low - (min(values) <= 0), max(high, low + 1)
