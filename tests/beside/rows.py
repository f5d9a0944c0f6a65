"""The rows that all writers write, and what a table says that it has, as delta-rs reads it."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

import pyarrow as pa
from deltalake import DeltaTable

from tests.beside.journal import SET

SCHEMA = pa.schema([("id", pa.string()), ("was", pa.string())])

CHANGES = ("delete", "update", "merge", "merge anew", "overwrite")
"""What is done about a row: all but the first put another in its place."""

Rows: TypeAlias = Counter[tuple[str, str | None]]
"""How often there is which row: its id, and the id of the one whose place it took."""


def row(id: str, was: str | None = None) -> pa.Table:
    """Return a row, which took the place of another or not."""
    return pa.table({"id": [id], "was": [was]}, schema=SCHEMA)


def counted(found: pa.Table) -> Rows:
    """Count rows."""
    return Counter(zip(found["id"].to_pylist(), found["was"].to_pylist(), strict=True))


def rows_of(table: DeltaTable) -> Rows:
    """Return the rows of a table, without those that deletion vectors say are gone."""
    return counted(pa.table(table.scan(["id", "was"])))


def set_of(table: DeltaTable) -> Rows:
    """Return what writers have set of a table, each as a row."""
    columns = (field.name for field in table.schema().fields)
    names = [
        *(name.partition(".") for name in table.metadata().configuration),
        *(name.partition("_") for name in columns),
    ]
    return Counter((id, None) for begin, _, id in names if begin == SET)


def property_of(id: str) -> str:
    """Return the name of the property that an operation sets."""
    return f"{SET}.{id}"


def column_of(id: str) -> str:
    """Return the name of the column that an operation adds."""
    return f"{SET}_{id}"


def gone_of(table: DeltaTable) -> dict[str, set[int]]:
    """Return by the names of files which of their rows, counted from 0, deletion vectors say are gone."""
    vectors = pa.table(table.deletion_vectors()).to_pylist()
    return {
        each["filepath"].rpartition("/")[2]: {place for place, kept in enumerate(each["selection_vector"]) if not kept}
        for each in vectors
    }
