"""Which times of a table deltalake may read wrong.

Spark writes a TIMESTAMP as INT96 by default: a day, and nanoseconds of it. deltalake (1.6) takes that for nanoseconds
since 1970, which have room for the years 1677 to 2262 alone: a time outside of those comes back as another one, and
nobody says so. The log's statistics tell how far times reach. Where they do not tell, or tell of such a time, that
column is not deltalake's to read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.tables.mapping import is_mapped_by, physical_name

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FIRST, _LAST = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1678, 2262))
"""A year's part within what nanoseconds have room for: statistics are rounded."""


def uncertain(table: DeltaTable) -> frozenset[str]:
    """Return the columns of a table of which some file may have a time that deltalake reads wrong."""
    metadata = table.metadata()
    is_mapped = is_mapped_by(metadata.configuration)
    fields = msgspec.json.decode(table.schema().to_json())["fields"]
    in_files = [field for field in fields if field["name"] not in metadata.partition_columns]
    timed = {field["name"]: paths for field in in_files if (paths := list(_times([field], is_mapped)))}
    if not timed:
        return frozenset()
    files = pa.table(table.get_add_actions(flatten=True))
    return frozenset(
        name for name, paths in timed.items() if not all(path is not None and _is_within(files, path) for path in paths)
    )


def _times(fields: list[Mapping[str, Any]], is_mapped: bool, within: str = "") -> Iterator[str | None]:
    """Yield where the log has statistics of each time; None of one within an array or a map, which has none."""
    for field in fields:
        path, type_ = f"{within}{physical_name(field, is_mapped=is_mapped)}", field["type"]
        if type_ == "timestamp":
            yield path
        elif isinstance(type_, dict) and type_["type"] == "struct":
            yield from _times(type_["fields"], is_mapped, f"{path}.")
        elif isinstance(type_, dict) and '"timestamp"' in msgspec.json.encode(type_).decode():
            yield None


def _is_within(files: pa.Table, path: str) -> bool:
    least, greatest, nulls = (_column(files, f"{kind}.{path}") for kind in ("min", "max", "null_count"))
    rows = _column(files, "num_records")
    bounded = pc.and_kleene(
        pc.greater_equal(least, pa.scalar(_FIRST, least.type)), pc.less(greatest, pa.scalar(_LAST, greatest.type))
    )
    sure = pc.or_kleene(bounded, pc.equal(nulls, rows))
    return bool(pc.all(pc.fill_null(sure, False)).as_py()) or not files.num_rows


def _column(files: pa.Table, name: str) -> Any:
    is_time = name.startswith(("min.", "max."))
    type_ = pa.timestamp("us", "UTC") if is_time else pa.int64()
    if files.column_names.count(name) != 1:  # two where a column `a.b` is beside a struct `a` with a field `b`
        return pa.nulls(files.num_rows, type_)
    return files.column(name).cast(type_)
