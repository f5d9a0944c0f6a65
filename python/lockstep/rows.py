"""Which rows of a table were read: conditions, of which every row that mattered satisfies at least one.

Conditions are Spark's SQL on the table's physical columns, as `lockstep.delta.predicates` judges them. What cannot be
said in conditions is any row, so a set of rows is never smaller than what was read.
"""

from __future__ import annotations

from typing import TypeAlias

Rows: TypeAlias = frozenset[str] | None
"""Conditions, joined by "or"; none at all is no row, `EVERY_ROW` (None) is any."""

EVERY_ROW: Rows = None

NO_ROW: Rows = frozenset()
"""Of a table of which only the columns were read, as who writes it has."""

MAX_CONDITIONS = 64
MAX_CHARACTERS = 4096
"""What an entry keeps of one table: more conditions, or a longer one, count as every row."""


def either(rows: Rows, condition: str | None) -> Rows:
    """Return these rows and those that satisfy a condition; None is any row."""
    if rows is None or condition is None or len(condition) > MAX_CHARACTERS:
        return EVERY_ROW
    together = rows | {condition}
    return together if len(together) <= MAX_CONDITIONS else EVERY_ROW


def listed(rows: Rows) -> list[str] | None:
    """Return the rows as an entry says them."""
    return None if rows is None else sorted(rows)


def rows_of(predicates: list[str] | None) -> Rows:
    """Return the rows that an entry says."""
    return None if predicates is None else frozenset(predicates)
