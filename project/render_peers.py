"""docs/images/peers.svg: commits a second beside other systems, out of docs/benchmarks.md."""

from __future__ import annotations

import re

from project.pictures import bars, frame, legend

WORKS = ("one table", "a table each", "two tables")
ROW = re.compile(
    r"^\| (?P<name>[^|]+?) \| \*\*(\d+)\*\* [^|]*\| \*\*(\d+)\*\* [^|]*\| \*\*(\d+)\*\* [^|]*\|", re.MULTILINE
)
LEFT, TOP, STEP = 350, 76, 52


def rates(page: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return what each system commits a second, in the order of the page; nothing if nothing was measured."""
    section = page.partition("<!-- peers -->")[2].partition("<!-- /peers -->")[0]
    return [(row["name"], tuple(int(row[n]) for n in (2, 3, 4))) for row in ROW.finditer(section)]


def svg(page: str) -> str:
    """Return the picture: a bar for each system and work."""
    rows = rates(page)
    words = "; ".join(
        f"{name}: " + ", ".join(f"{work} {rate}" for work, rate in zip(WORKS, each, strict=True)) for name, each in rows
    )
    lines = [*legend(WORKS, step=140), *bars(rows, left=LEFT, top=TOP, step=STEP)]
    title = "Commits a second, 8 writers (higher is better)"
    return frame("Commits a second beside other systems", title, words, TOP + STEP * len(rows) + 20, lines)
