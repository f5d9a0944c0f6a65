"""What a database holds, and what statements mean: rows in SQLite, and nothing of Lockstep, Delta or Spark.

A state is a bag of rows for each table. Statements run on it as one unit does: reads see the writes before them.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.judge.tables import COLUMNS, VIEWS, Layout

Bag: TypeAlias = Counter[tuple[Any, ...]]
State: TypeAlias = Mapping[str, Bag]
"""Rows by table."""
Answer: TypeAlias = tuple[tuple[Any, ...], ...]
"""The rows of a query, sorted."""


@dataclass(frozen=True, slots=True)
class Query:
    """A read of a unit: asked before the operation of each number in `at`."""

    lite: str
    limit: int | None
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Update:
    """A write of a unit."""

    table: str
    lite: tuple[str, ...]


Operation: TypeAlias = Query | Update


@dataclass(frozen=True, slots=True)
class Effect:
    """What a unit changed: the rows that went and the rows that came, by table; those that did both are neither."""

    gone: Mapping[str, Bag]
    came: Mapping[str, Bag]

    def __bool__(self) -> bool:
        return any(self.gone.values()) or any(self.came.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Effect) and (_bags(self.gone), _bags(self.came)) == (
            _bags(other.gone),
            _bags(other.came),
        )

    def __hash__(self) -> int:
        return hash((frozenset(_bags(self.gone)), frozenset(_bags(self.came))))


@dataclass(frozen=True, slots=True)
class Run:
    """What a unit found, for each of its queries and each place where it may have been asked, and what it did."""

    answers: Mapping[int, Mapping[int, Answer]]
    effect: Effect


class CannotApplyError(Exception):
    """An effect takes rows away that are not there."""


def _bags(bags: Mapping[str, Bag]) -> dict[str, Any]:
    return {name: frozenset((+bag).items()) for name, bag in bags.items() if +bag}


def sorted_rows(rows: Iterable[Sequence[Any]]) -> Answer:
    """Sort rows that may hold NULL, and values of several types."""
    return tuple(sorted((tuple(row) for row in rows), key=lambda row: [(v is not None, str(v)) for v in row]))


def applied(state: State, effect: Effect) -> State:
    """Return the state after an effect.

    Raises:
        CannotApplyError: a row that it removes is not there.
    """
    after = {name: Counter(bag) for name, bag in state.items()}
    for name, bag in effect.gone.items():
        if missing := bag - after[name]:
            raise CannotApplyError(f"{name} has no {sorted_rows(missing)} to remove")
        after[name] -= bag
    for name, bag in effect.came.items():
        after[name] += bag
    return after


class Model:
    """A database in memory."""

    def __init__(self, tables: Sequence[Layout], start: State) -> None:
        self._sql = sqlite3.connect(":memory:", isolation_level=None)
        self._sql.execute("PRAGMA case_sensitive_like = ON")
        self._sql.create_function("is_odd", 1, lambda k: None if k is None else int(k % 2 == 1), deterministic=True)
        self._tables = {table.name: table.columns for table in tables}
        for name, columns in self._tables.items():
            self._sql.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            self._sql.execute(f"CREATE TABLE {name}_at_start ({', '.join(columns)})")
            self._fill(f"{name}_at_start", start[name])
        for name, (_, text) in VIEWS.items():
            self._sql.execute(f"CREATE VIEW {name} AS {text.format(**{t: t for t in self._tables})}")
        self._loaded: State = {name: Counter() for name in self._tables}

    def close(self) -> None:
        self._sql.close()

    def _fill(self, table: str, rows: Bag) -> None:
        width = len(COLUMNS) if not table.startswith("ids") else 1
        marks = ", ".join("?" * width)
        self._sql.executemany(f"INSERT INTO {table} VALUES ({marks})", list(rows.elements()))

    def load(self, state: State) -> None:
        """Make this the state that units run on."""
        for name, bag in state.items():
            if self._loaded[name] != bag:
                self._sql.execute(f"DELETE FROM {name}")
                self._fill(name, bag)
        self._loaded = state

    def rows(self, table: str) -> Bag:
        return Counter(self._sql.execute(f"SELECT * FROM {table}"))

    def run(self, operations: Sequence[Operation], change: tuple[str, str, tuple[Any, ...]] | None = None) -> Run:
        """Run a unit on the loaded state, and leave that as it was.

        Args:
            operations: in order.
            change: ("with" or "without", table, row): run it as if the state had this row too, or had it once less.
        """
        before = self._loaded
        self._sql.execute("SAVEPOINT run")
        try:
            if change is not None:
                before = self._changed(*change)
            answers: dict[int, dict[int, Answer]] = {n: {} for n, op in enumerate(operations) if isinstance(op, Query)}
            for at in range(len(operations) + 1):
                for number, asked in answers.items():
                    query = operations[number]
                    if isinstance(query, Query) and at in query.at:
                        asked[at] = sorted_rows(self._sql.execute(query.lite))
                if at < len(operations) and isinstance(write := operations[at], Update):
                    for text in write.lite:
                        self._sql.execute(text)
            written = {op.table for op in operations if isinstance(op, Update)}
            after = {name: self.rows(name) for name in written}
        finally:
            self._sql.execute("ROLLBACK TO run")
            self._sql.execute("RELEASE run")
        gone = {name: before[name] - after[name] for name in written}
        came = {name: after[name] - before[name] for name in written}
        return Run(answers, Effect(gone, came))

    def _changed(self, how: str, table: str, row: tuple[Any, ...]) -> State:
        bag = Counter(self._loaded[table])
        if how == "with":
            self._fill(table, Counter([row]))
            bag[row] += 1
        else:
            columns = self._tables[table]
            same = " AND ".join(f"{column} IS ?" for column in columns)
            found = self._sql.execute(f"SELECT rowid FROM {table} WHERE {same} LIMIT 1", row).fetchone()
            self._sql.execute(f"DELETE FROM {table} WHERE rowid = ?", found)
            bag -= Counter([row])
        return {**self._loaded, table: bag}


def holds(observed: Answer, expected: Answer, limit: int | None) -> bool:
    """Tell whether what was seen is what a query means; with a limit, any so many of its rows are."""
    if limit is None:
        return observed == expected
    return not Counter(observed) - Counter(expected) and len(observed) == min(limit, len(expected))
