"""The tables of a judged program: their columns, the values in these, and what makes each table special.

Every row says who wrote it: `writer` is the transaction's tag, `seq` the number of the statement. All tables but `ids`
have the same columns, so that any query can be asked of any of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

from lockstep.delta.pruning.predicates import FileValues
from tests.judge.sql import Sql

Value: TypeAlias = int | float | str | None
Row: TypeAlias = tuple[Value, ...]
"""Values in the order of `COLUMNS`; booleans are 0 and 1, dates and times ISO texts in UTC, a struct is its field."""

TYPES: Mapping[str, str] = {
    "id": "INT",
    "k": "INT",
    "s": "STRING",
    "c": "CHAR(3)",
    "d": "DATE",
    "ts": "TIMESTAMP",
    "x": "DOUBLE",
    "b": "BOOLEAN",
    "st": "STRUCT<f: INT>",
    "p": "STRING",
    "writer": "STRING",
    "seq": "INT",
}
COLUMNS = tuple(TYPES)
SHOWN = ("id", "k", "s", "p", "writer", "seq")
"""What queries for rows return."""

DOMAINS: Mapping[str, tuple[Value, ...]] = {
    "id": (1, 2, 3, 4, 5, 6),
    "k": (None, 0, 1, 2, 3),
    "s": (None, "a", "ab", "b", "B", "it's"),
    "c": (None, "x  ", "xy ", "xyz"),
    "d": (None, "2026-01-01", "2026-01-02", "2026-02-01"),
    "ts": (None, "2026-01-01 00:00:00", "2026-01-01 20:00:00", "2026-01-02 07:59:59"),
    "x": (None, -0.5, 0.0, 1.5),
    "b": (None, 0, 1),
    "st": (None, 0, 1),
    "p": ("p", "q"),
}

ZONES = ("UTC", "America/Los_Angeles", "Asia/Kolkata")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is made: `partition` column, and properties."""

    name: str
    spark: str
    partition: str = ""
    properties: Mapping[str, str] | None = None
    renamed: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return ("k",) if self.name == "ids" else COLUMNS

    def ddl(self) -> list[str]:
        """Return the statements that create it; the column `renamed` has another name at first."""
        columns = ", ".join(f"{c}{'_old' * (c == self.renamed)} {TYPES[c]}" for c in self.columns)
        partitioned = f" PARTITIONED BY ({self.partition})" if self.partition else ""
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in (self.properties or {}).items())
        made = [
            f"CREATE TABLE {self.spark} ({columns}){partitioned}"
            + (f" TBLPROPERTIES ({properties})" * bool(properties))
        ]
        if self.renamed:
            made.append(f"ALTER TABLE {self.spark} RENAME COLUMN {self.renamed}_old TO {self.renamed}")
        return made


_MAPPED = {"delta.columnMapping.mode": "name"}
_VECTORS = {"delta.enableDeletionVectors": "true"}
IDS = Layout("ids", "lake.default.ids")

LAYOUTS: tuple[tuple[Layout, ...], ...] = (
    (
        Layout("a", "lake.default.a", properties=_VECTORS),
        Layout("b", "lake.default.b", "p"),
        Layout("c", "lake.n.m.c", properties=_MAPPED, renamed="k"),
        Layout("e", "lake.n.e"),
        IDS,
    ),
    (
        Layout("a", "lake.default.a", "k"),
        Layout("b", "lake.n.m.b", properties={**_MAPPED, **_VECTORS}, renamed="s"),
        Layout("c", "lake.default.c"),
        Layout("e", "lake.default.e", "d", properties=_VECTORS),
        IDS,
    ),
)
"""Databases that programs begin with."""

VIEWS: Mapping[str, tuple[str, str]] = {
    "v": ("lake.default.v", "SELECT * FROM {a} WHERE k >= 1"),
    "w": ("lake.n.w", "SELECT * FROM {c} t WHERE EXISTS (SELECT 1 FROM {b} u WHERE u.k = t.k)"),
}
"""Views by their short names: Spark's name, and the query over tables by their short names."""


def random_row(rng: random.Random, writer: str, seq: int) -> Row:
    return (*(rng.choice(values) for values in DOMAINS.values()), writer, seq)


def literal(column: str, value: Value, zone: str | None = None) -> Sql:
    """Write a value; a timestamp as local time of a zone, if one is given."""
    if value is None:
        return Sql("NULL", "NULL")
    text = str(value).replace("'", "''")
    match column:
        case "s" | "p" | "writer":
            return Sql("'" + str(value).replace("'", "\\'") + "'", f"'{text}'")
        case "c":
            return Sql(f"'{text.rstrip()}'", f"'{text}'")
        case "d":
            return Sql(f"DATE '{text}'", f"'{text}'")
        case "ts":
            if zone is None:
                return Sql(f"TIMESTAMP '{text}Z'", f"'{text}'")
            local = datetime.fromisoformat(text).replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
            return Sql(f"TIMESTAMP '{local:%Y-%m-%d %H:%M:%S}'", f"'{text}'")
        case "x":
            return Sql(f"{text}D", text)
        case "b":
            return Sql("true" if value else "false", text)
    return Sql(text, text)


def values(columns: tuple[str, ...], rows: list[Row]) -> Sql:
    """Write rows as `VALUES …`."""
    spark, lite = [], []
    for row in rows:
        cells = [literal(column, value) for column, value in zip(columns, row, strict=True)]
        typed = [
            f"named_struct('f', CAST({cell.spark} AS INT))"
            if column == "st"
            else f"CAST({cell.spark} AS {_type(column)})"
            for column, cell in zip(columns, cells, strict=True)
        ]
        spark.append(f"({', '.join(typed)})")
        lite.append(f"({', '.join(cell.lite for cell in cells)})")
    return Sql("VALUES " + ", ".join(spark), "VALUES " + ", ".join(lite))


def _type(column: str) -> str:
    return "STRING" if column == "c" else TYPES[column]


def as_file(layout: Layout, row: Row, physical: Mapping[str, str]) -> FileValues:
    """Return what a Delta log would say of a file that holds this row alone."""
    partition: dict[str, str | None] = {}
    least: dict[str, object] = {}
    nulls: dict[str, object] = {}
    for column, value in zip(layout.columns, row, strict=True):
        name = physical[column]
        if column == layout.partition:
            partition[name] = None if value is None else str(value)
            continue
        shown: object = value
        if value is not None and column == "ts":
            shown = str(value).replace(" ", "T") + ".000Z"
        if column == "st":
            field = physical["st.f"]
            nulls[name] = {field: int(value is None)}
            if value is not None:
                least[name] = {field: value}
            continue
        if column != "b" and value is not None:  # Delta keeps no bounds of booleans
            least[name] = shown
        nulls[name] = int(value is None)
    stats = {"numRecords": 1, "minValues": least, "maxValues": least, "nullCount": nulls}
    return FileValues(partition, json.dumps(stats))
