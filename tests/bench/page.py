"""docs/benchmarks.md, part by part: a section between comments is written by its own module, kept by the others."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import fill

from project.render_docs import between

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"
MARKS = (
    *(
        "peers",
        "iceberg",
        "tpch",
        "tpch-1",
        "large",
        "listings",
        "transaction",
        "slow",
        "s3",
        "conflicts",
        "fairness",
        "hosts",
        "dbt",
        "scale",
        "exports",
    ),
    *("adopt", "warehouse", "beside", "long", "profile", "turns", "before-after", "fsync"),
    *("memory", "retention", "recovery", "tables"),
)
"""Of the sections, in the order of the page; `before-after` and `fsync` are written by hand."""


def conditions() -> str:
    """Return on how many cores, beside which load and at which priority something is measured."""
    first = os.sched_getscheduler(0) in (os.SCHED_RR, os.SCHED_FIFO)
    load = f"{os.cpu_count()} cores with a load of {os.getloadavg()[0]:.0f}"
    return f"{load}, before which this came (`chrt -r 1`)" if first else load


def paragraph(text: str) -> str:
    """Return a text as a paragraph of the page."""
    return fill(" ".join(text.split()), width=119, break_long_words=False, break_on_hyphens=False)


def section(page: str, mark: str) -> str:
    """Return a section as it stands in a page, with its comments; empty comments if the page has none."""
    start, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    if start not in page or end not in page:
        return start + end
    return start + page.partition(start)[2].partition(end)[0] + end


def sections(page: str) -> str:
    """Return all sections as they stand in a page, for a new one.

    Raises:
        ValueError: behind the first section there is text in none, which the new page would not have.
    """
    found = [section(page, mark) for mark in MARKS]
    rest = page[page.find("<!-- ") :]
    for text in found:
        rest = rest.replace(text, "")
    if outside := rest.strip():
        raise ValueError(f"put comments around this, and its mark into MARKS of {__name__}: {outside[:200]}")
    return "\n\n".join(found)


def with_section(page: str, mark: str, text: str) -> str:
    """Return a page in which a section says this; one that the page does not have comes to its end."""
    if f"<!-- {mark} -->" not in page:
        page = f"{page.rstrip()}\n\n{section(page, mark)}\n"
    return between(page, mark, text)
