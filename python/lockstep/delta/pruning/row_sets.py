"""Which rows of a table were read: conditions, of which every row that mattered satisfies at least one.

Conditions are Spark's SQL on the table's physical columns, as `lockstep.delta.pruning.predicates` judges them. What
cannot be said in conditions is any row, so a set of rows is never smaller than what was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Rows: TypeAlias = frozenset[str] | None
"""Conditions, joined by "or"; none at all is no row, `EVERY_ROW` (None) is any."""

EVERY_ROW: Rows = None

NO_ROW: Rows = frozenset()
"""Of a table of which only the columns were read, as who writes it has."""

AS_IT_WAS = "false"
"""What stands for conditions where a table was read as it had been, or for what had changed: none of its rows mattered.

So no conflict comes of it, see `rows_of`; but who takes an older version back has to know that somebody had read it."""

MAX_CONDITIONS = 64
MAX_CHARACTERS = 4096
"""What an entry keeps of one table: more conditions, or a longer one, count as every row."""

MAX_TOUCHES = 10000
"""Uses of tables that a transaction tells apart; of those after them any row counts as read."""


class RowsRead:
    """What a transaction has read, by table id. It is only ever added to, but for uses of which there were none."""

    def __init__(self) -> None:
        self._rows: dict[str, Rows] = {}
        self._uses: set[tuple[str, int | None]] = set()
        self._settled_uses: set[int] = set()

    def add(self, table: str, condition: str | None) -> None:
        """Add rows: those that satisfy a condition, or any."""
        self._rows[table] = either(self._rows.get(table, NO_ROW), condition)

    def add_columns(self, table: str) -> None:
        """Add what the columns of the table are, and no row."""
        self._rows.setdefault(table, NO_ROW)

    def touch(self, table: str, number: int | None) -> None:
        """Add a use of the table, by its number: it may be of any row until it is settled."""
        self._uses.add((table, number if len(self._uses) < MAX_TOUCHES else None))

    def settle(self, numbers: Iterable[int]) -> None:
        """Note of which uses all is known: they read columns, and the rows that were added."""
        self._settled_uses.update(numbers)

    def forget(self, numbers: Iterable[int]) -> None:
        """Take back uses that were added ahead, and of which there were none."""
        unused = set(numbers)
        self._uses = {use for use in self._uses if use[1] not in unused}

    def by_table(self) -> dict[str, Rows]:
        """Return all that was read."""
        rows = dict(self._rows)
        for table, number in self._uses:
            rows[table] = rows.get(table, NO_ROW) if number in self._settled_uses else EVERY_ROW
        return rows


def either(rows: Rows, condition: str | None) -> Rows:
    """Return these rows and those that satisfy a condition; None is any row."""
    if rows is None or condition is None or len(condition) > MAX_CHARACTERS:
        return EVERY_ROW
    together = rows | {condition}
    return together if len(together) <= MAX_CONDITIONS else EVERY_ROW


def with_older(rows: Rows) -> Rows:
    """Return these rows, and that the table was read as it had been, which says nothing beside any row of its own."""
    return rows if rows is None or rows else frozenset({AS_IT_WAS})


def predicates_of(rows: Rows) -> list[str] | None:
    """Return the rows as an entry says them."""
    return None if rows is None else sorted(rows)


def rows_of(predicates: list[str] | None) -> Rows:
    """Return the rows that an entry says, of those that the table had."""
    return None if predicates is None else frozenset(predicates) - {AS_IT_WAS}
