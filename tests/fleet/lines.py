"""A plot of lines as SVG, without libraries: logarithmic axes, a legend, colours for light and for dark pages."""
import html
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "pictures"))

import svg  # noqa: E402
from svg import COLOURS, span  # noqa: E402

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 70, 170, 40, 50
ROUND = 4  # the points of the first lines are round, those of the others square


def short(value):
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def plot(title, across, up, all_series):
    """Returns the plot. all_series: [(label, [(x, y)], is_dashed)]; those with the same label have the same colour,
    and one legend."""
    left, right = span([x for _, points, _ in all_series for x, _ in points])
    values = [y for _, points, _ in all_series for _, y in points]
    low, high = span(values)
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    place_x = lambda x: LEFT + width * (math.log10(x) - left) / (right - left)
    place_y = lambda y: TOP + height * (1 - (max(low, math.log10(y) if y > 0 else low) - low) / (high - low))
    parts = [svg.text(LEFT, 22, title, 'class="t"')]
    for power in range(left, right + 1):
        x = place_x(10**power)
        parts.append(f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + height}"/>'
                     f'<text x="{x:.1f}" y="{TOP + height + 18}" text-anchor="middle">{10**power:,}</text>')
    for power in range(low, high + 1):
        y, label = place_y(10**power), 0 if power == low and min(values) <= 0 else short(10.0**power)
        parts.append(f'<line class="g" x1="{LEFT}" x2="{LEFT + width}" y1="{y:.1f}" y2="{y:.1f}"/>'
                     f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    parts.append(f'<text x="{LEFT + width / 2}" y="{HEIGHT - 10}" text-anchor="middle">{html.escape(across)}</text>'
                 f'<text x="{LEFT - 60}" y="{TOP - 8}">{html.escape(up)}</text>')
    labels = list(dict.fromkeys(label for label, _, _ in all_series))
    for label, points, is_dashed in all_series:
        colour, dashed = labels.index(label) % len(COLOURS), " d" if is_dashed else ""
        path = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in points)
        parts.append(f'<polyline class="l c{colour}{dashed}" points="{path}"/>')
        if not is_dashed:
            corner = 2.5 if colour < ROUND else 0
            parts += [f'<rect class="c{colour}" fill="currentColor" x="{place_x(x) - 2.5:.1f}" '
                      f'y="{place_y(y) - 2.5:.1f}" width="5" height="5" rx="{corner}"/>' for x, y in points]
    for number, label in enumerate(labels):
        y = TOP + 10 + 20 * number
        x = LEFT + width + 12
        parts.append(f'<line class="l c{number % len(COLOURS)}" x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}"/>'
                     f'<text x="{x + 30}" y="{y + 4}">{html.escape(label)}</text>')
    return svg.page(title, WIDTH, HEIGHT, parts, svg.style())
