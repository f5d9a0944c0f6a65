"""What Lockstep costs, out of docs/benchmarks.md: the picture docs/images/cost.svg and the table of the README.

`make bench` writes the figures once, into the page; whatever else shows them is made from there, so that no two places
can say different things.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from project.pictures import frame, legend

SECTION = re.compile(r"^### With (?P<setting>.+)\n\n.+\n\|[-|]+\|\n(?P<rows>(?:\|.+\n)+)", re.MULTILINE)
ROW = re.compile(
    r"^\| (?P<work>.+?) \| [^|]+ \| [^|]+ \| \*\*(?P<median>[\d.]+)\*\* \((?P<low>[\d.]+)-(?P<high>[\d.]+)\) \|",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Cost:
    """What a work costs beside plain Delta: the paired ratios' median and quartiles; 1 is the same, 2 is twice."""

    work: str
    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"  # noqa: RUF001 -- between numbers


def costs(page: str) -> dict[str, list[Cost]]:
    """Return the figures against plain Delta, setting by setting, in the order of docs/benchmarks.md.

    Raises:
        ValueError: the page has none, or the settings do not have the same works.
    """
    of = {
        section["setting"]: [
            Cost(row["work"], float(row["low"]), float(row["median"]), float(row["high"]))
            for row in ROW.finditer(section["rows"])
        ]
        for section in SECTION.finditer(page)
    }
    if len({tuple(cost.work for cost in each) for each in of.values()}) != 1 or not all(of.values()):
        raise ValueError("docs/benchmarks.md has no figures against plain Delta, or not the same for each setting")
    return of


def table(page: str) -> str:
    """Return the README's table: a row for each work, a column for each setting."""
    of = costs(page)
    lines = [f"| Lockstep / plain Delta | {' | '.join(of)} |", f"|---|{'---|' * len(of)}"]
    lines += [f"| {row[0].work} | {' | '.join(map(str, row))} |" for row in zip(*of.values(), strict=True)]
    return "\n".join(lines)


LEFT, RIGHT, TOP, STEP = 430, 880, 78, 40
"""Where the plot begins and ends, and what a work takes, in units of the picture."""

TITLE = "Time taken, as a multiple of plain Delta's (lower is better)"


def svg(page: str) -> str:
    """Return the picture: for each work and setting the median, and a line from quartile to quartile."""
    of = costs(page)
    works = [cost.work for cost in next(iter(of.values()))]
    widest = max(1.5, *(cost.high for each in of.values() for cost in each))
    height = TOP + STEP * len(works) + 46
    lines = [*legend(f"with {setting}" for setting in of), *axis(widest, height - 40)]
    for number, work in enumerate(works):
        middle = TOP + STEP * number + 10
        lines.append(f'<text class="text" x="{LEFT - 14}" y="{middle + 5}" text-anchor="end">{escape(work)}</text>')
        for place, each in enumerate(of.values()):
            y = middle + (place - (len(of) - 1) / 2) * 13
            low, median, high = (
                x_of(ratio, widest) for ratio in (each[number].low, each[number].median, each[number].high)
            )
            lines.append(f'<line class="s{place}" x1="{low}" y1="{y}" x2="{high}" y2="{y}" stroke-width="3"/>')
            lines.append(f'<circle class="s{place}" cx="{median}" cy="{y}" r="4.5"/>')
    return frame("What Lockstep costs beside plain Delta", TITLE, description(of), height, lines)


def x_of(ratio: float, widest: float) -> float:
    """Return where a ratio stands in a picture that ends at the widest one."""
    return round(LEFT + (RIGHT - LEFT) * ratio / widest, 1)


def axis(widest: float, bottom: int) -> list[str]:
    """Return a line each quarter, a label each half; plain Delta's own time is the line at 1."""
    lines = []
    for ratio in (quarter / 4 for quarter in range(int(widest * 4) + 1)):
        x, kind = x_of(ratio, widest), "same" if ratio == 1 else "grid"
        lines.append(f'<line class="{kind}" x1="{x}" y1="{TOP - 14}" x2="{x}" y2="{bottom}"/>')
        if (ratio * 2).is_integer():
            label = "plain Delta" if ratio == 1 else f"{ratio:g}"
            lines.append(f'<text class="soft" x="{x}" y="{bottom + 20}" text-anchor="middle">{label}</text>')
    return lines


def description(of: dict[str, list[Cost]]) -> str:
    """Return the picture in words, for who does not see it."""
    parts = [f"With {setting}: " + "; ".join(f"{cost.work}: {cost}" for cost in each) for setting, each in of.items()]
    return ". ".join(parts) + ". Medians with quartiles; 1 is plain Delta's time."
