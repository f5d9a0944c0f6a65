"""The tables of docs/statements.md, from `tests.support.statement_cases`: what `make statements` finds to be so."""

from __future__ import annotations

from itertools import groupby

from tests.support.matrix import Case, Setting
from tests.support.statement_cases import CASES

SETTINGS: dict[Setting, str] = {
    "plain": "plain Delta",
    "alone": "Lockstep, alone",
    "transaction": "Lockstep, in a transaction",
}


def statements() -> str:
    """Return a table for each group of statements."""
    return "\n\n".join(_section(name, list(cases)) for name, cases in groupby(CASES, lambda case: case.group))


def _section(name: str, cases: list[Case]) -> str:
    head = f"| | {' | '.join(SETTINGS.values())} | |"
    return "\n".join([f"## {name}", "", head, "|---" * (len(SETTINGS) + 2) + "|", *map(_line, cases)])


def _line(case: Case) -> str:
    cells = [case.refused.get(setting, "✓") for setting in SETTINGS]
    remarks = [f"`{key} = {value}`" for key, value in case.settings.items()]
    remark = ", ".join([case.why] * bool(case.why) + remarks)
    # A span that holds backticks is fenced by more of them; a | would end the cell.
    title = case.title.replace("|", "\\|")
    code = f"`` {title} ``" if "`" in title else f"`{title}`"
    return f"| {code} | {' | '.join(cells)} | {remark} |"


def count() -> str:
    """Return how many there are, and how many of them do the same in all three settings."""
    same = [case for case in CASES if len({case.refused.get(setting) for setting in SETTINGS}) == 1]
    return f"{len(CASES)} statements, {len(same)} of them alike in all three."


def parts() -> dict[str, str]:
    """Return what stands between the marks of the page, by the marks' names."""
    return {"statements": statements(), "count": count()}
