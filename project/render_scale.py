"""docs/images/scale.svg: simulated commits a second by the number of writers, out of docs/scale.md."""

from __future__ import annotations

import re
from collections import defaultdict
from math import log10

from project.pictures import WIDTH, frame, legend

ROW = re.compile(r"^\| (?P<line>[^|:]+): (?P<writers>[\d,]+) \| \d+ \| \*\*(?P<rate>[\d.]+)\*\* \|", re.MULTILINE)
LEFT, RIGHT, TOP, BOTTOM = 70, WIDTH - 40, 80, 400
LEAST, MOST = 0.5, 200
"""Commits a second at the ends of the axis."""


def curves(page: str) -> dict[str, list[tuple[int, float]]]:
    """Return by arrangement the commits a second of each number of writers."""
    section = page.partition("<!-- writers -->")[2].partition("<!-- /writers -->")[0]
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in ROW.finditer(section):
        found[row["line"]].append((int(row["writers"].replace(",", "")), float(row["rate"])))
    return dict(found)


def svg(page: str) -> str:
    """Return the picture: a line for each arrangement, both axes logarithmic."""
    of = curves(page)
    lines = [*legend(of, step=222), *axes()]
    for place, points in enumerate(of.values()):
        at = [(x_of(writers), y_of(rate)) for writers, rate in points]
        lines.append(
            f'<polyline class="s{place} line" style="fill:none" points="{" ".join(f"{x},{y}" for x, y in at)}"/>'
        )
        lines += [f'<circle class="s{place}" cx="{x}" cy="{y}" r="4"/>' for x, y in at]
    words = "; ".join(f"{name}: " + ", ".join(f"{rate:g} with {n}" for n, rate in each) for name, each in of.items())
    title = "Commits a second by writers who commit every 10 seconds, simulated"
    return frame("Simulated commits a second by writers", title, words, BOTTOM + 50, lines)


def x_of(writers: float) -> float:
    """Return where a number of writers stands."""
    return round(LEFT + (RIGHT - LEFT) * (log10(writers) - 1) / 2, 1)


def y_of(rate: float) -> float:
    """Return where a rate stands; one below the axis stands at its end."""
    share = (log10(max(rate, LEAST)) - log10(LEAST)) / (log10(MOST) - log10(LEAST))
    return round(BOTTOM - (BOTTOM - TOP) * share, 1)


def axes() -> list[str]:
    """Return the grid, and what it would be if COMMIT took no time."""
    lines = []
    for writers in (10, 30, 100, 300, 1000):
        x = x_of(writers)
        lines.append(f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{BOTTOM}"/>')
        lines.append(f'<text class="soft" x="{x}" y="{BOTTOM + 20}" text-anchor="middle">{writers:,}</text>')
    for rate in (1, 10, 100):
        y = y_of(rate)
        lines.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{RIGHT}" y2="{y}"/>')
        lines.append(f'<text class="soft" x="{LEFT - 10}" y="{y + 5}" text-anchor="end">{rate}/s</text>')
    lines.append(f'<line class="same" x1="{x_of(10)}" y1="{y_of(1)}" x2="{x_of(1000)}" y2="{y_of(100)}"/>')
    lines.append(f'<text class="soft" x="{x_of(500)}" y="{y_of(80)}" text-anchor="end">offered</text>')
    return lines
