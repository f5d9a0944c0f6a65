"""What a system table is asked, what it answers, and which of its rows a condition leaves: values only.

A query is answered in batches of a bounded number of rows, each of which says where the next one begins. Conditions are
those that Spark has handed over: they are judged here in full, for Spark does not look again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec

MOST_ROWS = 5_000
"""So many rows are in a batch at most."""

MOST_LOOKED_AT = 5_000
"""So many entries of the timeline are looked at for a batch at most, however few rows they give."""

Value: TypeAlias = int | str | bool | list[str] | dict[str, str] | None
Row: TypeAlias = Mapping[str, Any]
"""A row by the names of its columns; times are `datetime`s, and become microseconds in the answer."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A condition that every row of the answer satisfies; NULL satisfies none but `null`.

    Attributes:
        column: of which column.
        op: how it compares with `value`; `in`: with one of `values`; `null`, `not null`: with neither.
        value: a number, a text, a truth value, or a time in microseconds since 1970, UTC.
    """

    column: str
    op: Literal["=", "<", "<=", ">", ">=", "in", "null", "not null"]
    value: int | str | bool | None = None
    values: tuple[int | str | bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked.

    Attributes:
        columns: those of the answer, in its order.
        filters: what each row satisfies.
        limit: how many rows are enough; None: all.
        descending: whether those come first that are last by the table's order.
        cursor: where the batch before this ended; None: the first.
    """

    columns: tuple[str, ...]
    filters: tuple[Filter, ...] = ()
    limit: int | None = None
    descending: bool = False
    cursor: int | None = None

    @property
    def most(self) -> int:
        """How many rows the batch has at most."""
        return MOST_ROWS if self.limit is None else min(MOST_ROWS, self.limit)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some rows, each as the values of the columns that were asked for; and where the next batch begins, if any."""

    rows: list[list[Value]]
    next: int | None = None


def micros(time: datetime) -> int:
    """Return a time, which has a zone, as microseconds since 1970."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def matches(row: Row, filters: Iterable[Filter]) -> bool:
    """Tell whether a row satisfies all conditions."""
    return all(_holds(each, _plain(row[each.column])) for each in filters)


def answer(row: Row, columns: Sequence[str]) -> list[Value]:
    """Return the values that were asked for."""
    return [_plain(row[column]) for column in columns]


def paged(rows: Iterable[Row], query: Query) -> Batch:
    """Return the next batch of a table whose rows are all at hand, in the same order each time."""
    begin = query.cursor or 0
    found: list[list[Value]] = []
    for at, row in enumerate(islice(rows, begin, None), begin):
        if len(found) == query.most:
            return Batch(found, at)
        if matches(row, query.filters):
            found.append(answer(row, query.columns))
    return Batch(found)


@dataclass(frozen=True, slots=True)
class Window:
    """Numbers from `first` to `last`, both among them; none, if `last` is less."""

    first: int
    last: int

    def narrowed(
        self, filters: Iterable[Filter], column: str, rank: Callable[[int], int] = lambda value: value
    ) -> Window:
        """Return what conditions on a column leave of it.

        Args:
            rank: for a value of the column, the first number that has this value or a greater one.
        """
        first, last = self.first, self.last
        for each in filters:
            if each.column != column:
                continue
            for low, high in _bounds(each):
                if low is not None:
                    first = max(first, rank(low))
                if high is not None:
                    last = min(last, rank(high + 1) - 1)
        return Window(first, last)


def wanted(filters: Iterable[Filter], column: str) -> set[Any] | None:
    """Return the values of a column that conditions leave, if they say which; None: any."""
    sets = [
        {each.value} if each.op == "=" else set(each.values)
        for each in filters
        if each.column == column and each.op in ("=", "in")
    ]
    return set.intersection(*sets) if sets else None


def _bounds(filter_: Filter) -> Iterator[tuple[int | None, int | None]]:
    """Yield the least and the greatest whole number that a condition leaves."""
    value = filter_.value
    if filter_.op == "in":
        numbers = [each for each in filter_.values if isinstance(each, int)]
        yield (min(numbers), max(numbers)) if numbers else (0, -1)
    elif isinstance(value, int):
        yield {
            "=": (value, value),
            "<": (None, value - 1),
            "<=": (None, value),
            ">": (value + 1, None),
            ">=": (value, None),
        }.get(filter_.op, (None, None))


def _holds(filter_: Filter, value: Value) -> bool:
    if filter_.op in ("null", "not null"):
        return (value is None) == (filter_.op == "null")
    if value is None:
        return False
    if filter_.op == "in":
        return value in filter_.values
    other: Any = filter_.value
    if other is None:
        return False
    if filter_.op == "=":
        return bool(value == other)
    mine: Any = value
    if filter_.op in ("<", "<="):
        return bool(mine < other or (filter_.op == "<=" and mine == other))
    return bool(mine > other or (filter_.op == ">=" and mine == other))


def _plain(value: Any) -> Value:
    plain: Value = micros(value) if isinstance(value, datetime) else value
    return plain
