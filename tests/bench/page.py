"""docs/benchmarks.md, part by part: a section between comments is written by its own module, kept by the others."""

from __future__ import annotations

from pathlib import Path

from project.render_docs import between

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"
MARKS = ("slow", "conflicts", "fairness", "hosts", "dbt", "scale")
"""Of the sections, in the order of the page."""


def section(page: str, mark: str) -> str:
    """Return a section as it stands in a page, with its comments; empty comments if the page has none."""
    start, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    if start not in page or end not in page:
        return start + end
    return start + page.partition(start)[2].partition(end)[0] + end


def sections(page: str) -> str:
    """Return all sections as they stand in a page, for a new one."""
    return "\n\n".join(section(page, mark) for mark in MARKS)


def with_section(page: str, mark: str, text: str) -> str:
    """Return a page in which a section says this; one that the page does not have comes to its end."""
    if f"<!-- {mark} -->" not in page:
        page = f"{page.rstrip()}\n\n{section(page, mark)}\n"
    return between(page, mark, text)
