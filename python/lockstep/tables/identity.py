"""Identity columns (Protocol, "Identity Columns"): values of new rows, and the mark up to which they were given.

A value is `start + k * step`, beyond the mark in the direction of the step; the commit that gives values moves the
mark, which stands in the column's metadata. So two commits that give values change the same metadata, and of two at
once the second is refused (40001): no value is given twice, whoever gives it. Values that rows bring move no mark, as
in Delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.errors import InvalidError
from lockstep.tables.conform import OUT_OF_RANGE

PREFIX = "delta.identity."
START, STEP = f"{PREFIX}start", f"{PREFIX}step"
MARK, EXPLICIT = f"{PREFIX}highWaterMark", f"{PREFIX}allowExplicitInsert"

GIVEN_EXPLICITLY = "42808"
"""Delta's SQLSTATE of a value for a column that is always generated."""

_LEAST, _GREATEST = -(2**63), 2**63 - 1
"""What a long has room for."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity column.

    Attributes:
        name: the column's.
        start, step: what its values follow.
        mark: the last that was given, None before the first.
        is_explicit: whether rows may bring values of their own.
    """

    name: str
    start: int
    step: int
    mark: int | None
    is_explicit: bool

    def first(self) -> int:
        """Return the value of the next row."""
        return self.start if self.mark is None else self.mark + self.step


def is_identity(field: Mapping[str, Any]) -> bool:
    """Tell whether a column of a schema is an identity column."""
    return any(key.startswith(PREFIX) for key in field["metadata"])


def unknown_identities(fields: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the identity columns that are not what the protocol says, and columns that have one in their type."""
    return [
        str(field["name"])
        for field in fields
        if (is_identity(field) and _identity(field) is None) or PREFIX in msgspec.json.encode(field["type"]).decode()
    ]


def _identity(field: Mapping[str, Any]) -> Identity | None:
    said = field["metadata"]
    start, step, mark, is_explicit = (said.get(key) for key in (START, STEP, MARK, EXPLICIT))
    if type(start) is not int or type(step) is not int or not step or type(is_explicit) is not bool:
        return None
    # A mark that is none of the column's values tells nothing of the next: Delta does not go on from it either.
    if mark is not None and (type(mark) is not int or (mark - start) % step or (mark - start) * step < 0):
        return None
    return Identity(field["name"], start, step, mark, is_explicit) if field["type"] == "long" else None


def with_values(
    rows: pa.Table, fields: Iterable[Mapping[str, Any]], table: str
) -> tuple[pa.Table, dict[str, dict[str, int]]]:
    """Return rows with values of the identity columns that they do not have, and by column what its metadata says then.

    Args:
        fields: the table's columns, as Delta's schema has them, see `unknown_identities`.
        table: its name, for messages.

    Raises:
        InvalidError: they have values of a column that is always generated (42808), or a long has no room for the next
            ones (22003).
    """
    marks: dict[str, dict[str, int]] = {}
    for identity in filter(None, map(_identity, filter(is_identity, fields))):
        name = identity.name
        if name in rows.column_names and not identity.is_explicit:
            raise InvalidError(
                f"column {name} of table {table} is GENERATED ALWAYS AS IDENTITY: leave it out of the rows. Nothing "
                "was written",
                sqlstate=GIVEN_EXPLICITLY,
            )
        if name in rows.column_names or not rows.num_rows:
            continue
        first = identity.first()
        last = first + (rows.num_rows - 1) * identity.step
        if not all(_LEAST <= value <= _GREATEST for value in (first, last)):
            raise InvalidError(
                f"identity column {name} of table {table} has no room for {rows.num_rows} more values, from {first} "
                "on; nothing was written",
                sqlstate=OUT_OF_RANGE,
            )
        rows = rows.append_column(name, _values(first, identity.step, rows.num_rows))
        marks[name] = {MARK: last}
    return rows, marks


def _values(first: int, step: int, count: int) -> pa.Array:
    if abs(step) * count > _GREATEST:  # few values then
        return pa.array([first + number * step for number in range(count)], pa.int64())
    steps = pc.multiply_checked(pa.arange(0, count), pa.scalar(step, pa.int64()))
    return pc.add_checked(steps, pa.scalar(first, pa.int64()))
