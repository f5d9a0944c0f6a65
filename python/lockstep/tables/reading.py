"""Rows from the data files of a table, each with the place that it has there.

Files are read whole from the store, and decoded as far as columns are asked for. A column that a file does not have
came later, and is null in it; one that the table is partitioned by stands in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lockstep.delta.combine.collapse import is_inside
from lockstep.delta.combine.deletion_vectors import RowSet, decode
from lockstep.errors import CorruptTimelineError, UnsupportedError
from lockstep.storage import Storage
from lockstep.tables.layout import RESERVED, Layout
from lockstep.tables.mapping import physical_name
from lockstep.tables.old_calendar import has_old_days, is_by_old_calendar
from lockstep.tables.partitions import array_of
from lockstep.tables.widening import widened
from lockstep.workers import Threads

FILE = f"{RESERVED}_file"
"""The column that says of which of the files a row is, by its number among those read."""

ROW = f"{RESERVED}_row"
"""The column that says where in its file a row is, from 0, deleted ones counted."""

ID, CAME_WITH = f"{RESERVED}_id", f"{RESERVED}_came_with"
"""The columns that say a row's id, and which table version it came with."""

AT_A_TIME = 4
"""So many files are fetched side by side: each is in memory whole until its columns are decoded."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where a table's files lie.

    Attributes:
        storage: the lake's.
        location: the table's folder, relative to the root.
        layout: what its rows are.
    """

    storage: Storage
    location: str
    layout: Layout

    def read(
        self, adds: Sequence[Mapping[str, Any]], columns: Iterable[str] | None = None, *, with_ids: bool = False
    ) -> pa.Table:
        """Return the rows of files, with their places in the columns `FILE` and `ROW`; deleted ones are left out.

        Args:
            adds: the `add` of each file; `FILE` counts them.
            columns: the table's that are wanted; all, in its order, by default.
            with_ids: whether the columns `ID` and `CAME_WITH` are wanted, too, which rows of all these files have.

        Raises:
            UnsupportedError: a file outside of the table's folder, or of a type that is read in Spark alone, or with
                days of the old calendar.
            CorruptTimelineError: a file that is gone, or is no such Parquet file.
        """
        every = self.layout.schema
        schema = every if columns is None else pa.schema([every.field(name) for name in columns])
        places = [pa.field(FILE, pa.int32()), pa.field(ROW, pa.int64())]
        if with_ids:
            places += [pa.field(ID, pa.int64()), pa.field(CAME_WITH, pa.int64())]
        if len(adds) < 2:
            tables = [self._read_file(number, add, schema, with_ids) for number, add in enumerate(adds)]
        else:
            with Threads(min(AT_A_TIME, len(adds)), thread_name_prefix="lockstep-files") as pool:
                asked = (range(len(adds)), adds, repeat(schema), repeat(with_ids))
                tables = list(pool.map(self._read_file, *asked))
        whole = pa.schema([*schema, *places])
        return pa.concat_tables(tables) if tables else whole.empty_table()

    def deleted(self, add: Mapping[str, Any]) -> RowSet:
        """Return the rows that a file's deletion vector takes out of it."""
        vector = add.get("deletionVector")
        return decode(vector, self.storage.get, location=self.location, root=self.storage.url)

    def _read_file(self, number: int, add: Mapping[str, Any], schema: pa.Schema, with_ids: bool) -> pa.Table:
        file = self._open(add["path"])
        partition = add.get("partitionValues") or {}
        physical = {
            field["name"]: physical_name(field, is_mapped=self.layout.is_mapped) for field in self.layout.fields
        }
        stored = [physical[name] for name in schema.names if physical[name] not in partition]
        stored += self.layout.row_id_columns if with_ids else ()
        try:
            rows = self._columns(file, stored)
            count = file.metadata.num_rows
            fields = {field["name"]: field for field in self.layout.fields}
            self._check_calendar(add["path"], file, rows)
            there = dict(zip(rows.column_names, rows.columns, strict=True))
            columns = [
                pa.chunked_array([array_of(partition[physical[field.name]], field.type, count)])
                if physical[field.name] in partition
                else _column(there.get(physical[field.name]), fields[field.name], field, self.layout, count)
                for field in schema
            ]
            ids = self._ids(rows, add, count) if with_ids else {}
        except pa.ArrowException as error:
            raise CorruptTimelineError(
                f"{self.location}/{unquote(add['path'])}: expected the columns {schema}: {error}"
            ) from error
        columns += [
            pa.chunked_array([pa.repeat(pa.scalar(number, pa.int32()), count)]),
            pa.chunked_array([pa.arange(0, count)]),
        ]
        table = pa.Table.from_arrays(columns, schema=pa.schema([*schema, (FILE, pa.int32()), (ROW, pa.int64())]))
        for name, values in ids.items():
            table = table.append_column(pa.field(name, pa.int64()), values)
        gone = self.deleted(add)
        if not gone:
            return table
        return table.filter(pc.invert(pc.is_in(table.column(ROW), value_set=pa.array(gone, pa.int64()))))

    def _columns(self, file: pq.ParquetFile, stored: Sequence[str]) -> pa.Table:
        """Return those of some columns that a file has, by the names that are asked for."""
        own = _own_names(stored, file.schema_arrow.names, self.layout)
        rows = file.read(columns=list(own.values()), use_threads=True)
        # By the name of one column Arrow reads others, too: `a.b` is also a field of `a`.
        return rows.select(list(own.values())).rename_columns(list(own))

    def _check_calendar(self, path: str, file: pq.ParquetFile, rows: pa.Table) -> None:
        if is_by_old_calendar(file.metadata.metadata or {}) and any(
            has_old_days(chunk) for column in rows.columns for chunk in column.chunks
        ):
            raise UnsupportedError(
                f"{self.location}/{unquote(path)} has dates before 15 October 1582, or times before 1900, that Spark "
                f"wrote by the old calendar: only Spark knows which days those are. Use table {self.layout.name} in "
                "Spark, or have it write these rows anew there, with spark.sql.parquet.datetimeRebaseModeInWrite and "
                "spark.sql.parquet.int96RebaseModeInWrite = CORRECTED"
            )

    def _ids(self, rows: pa.Table, add: Mapping[str, Any], count: int) -> dict[str, pa.ChunkedArray]:
        """Return the ids of a file's rows, and the versions that they came with, as readers have them."""
        first, version = add["baseRowId"], pa.scalar(add["defaultRowCommitVersion"], pa.int64())
        given = (pa.arange(first, first + count), pa.repeat(version, count))
        found = {}
        for wanted, name, values in zip((ID, CAME_WITH), self.layout.row_id_columns, given, strict=True):
            own = pa.chunked_array([values])
            found[wanted] = pc.coalesce(rows.column(name), own) if name in rows.column_names else own
        return found

    def check_inside(self, path: str) -> None:
        """Raise unless a file's path in the log is one below the table's folder.

        Raises:
            UnsupportedError: it is not.
        """
        if not is_inside(path):
            raise UnsupportedError(
                f"table {self.layout.name} has the file {path[:200]}, outside of its folder (a shallow clone, or of a "
                "partial export): read it in Spark, or at a version (lake.at)"
            )

    def _open(self, path: str) -> pq.ParquetFile:
        self.check_inside(path)
        where = f"{self.location}/{unquote(path)}"
        if (data := self.storage.get(where)) is None:
            raise CorruptTimelineError(f"{where} is gone: expected a data file of table {self.layout.name}")
        try:
            return pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us")
        except pa.ArrowException as error:
            raise CorruptTimelineError(
                f"{where}: expected a data file of table {self.layout.name}, which is Parquet: {error}"
            ) from error


def _own_names(stored: Iterable[str], there: Sequence[str], layout: Layout) -> dict[str, str]:
    """Return what a file, or a struct in it, calls some fields, of those that it has.

    In another case than the log's a name is still that of the field to Spark, as in a folder of Parquet files that
    became a table. Were it none here, the field would be null, and be written so wherever rows are copied.

    Raises:
        UnsupportedError: two names in it differ in case alone, and none is the field's.
    """
    folded: dict[str, list[str]] = {}
    for name in there:
        folded.setdefault(name.lower(), []).append(name)
    own = {}
    for name in stored:
        found = [name] if name in there else folded.get(name.lower(), [])
        if len(found) > 1:
            raise UnsupportedError(
                f"table {layout.name} has a file with the columns {', '.join(found)}: nobody knows which is {name}"
            )
        if found:
            own[name] = found[0]
    return own


def _column(
    stored: pa.ChunkedArray | None, field: Mapping[str, Any], wanted: pa.Field, layout: Layout, rows: int
) -> pa.ChunkedArray:
    if stored is None:
        return pa.chunked_array([pa.nulls(rows, wanted.type)])
    chunks = [_as_logged(chunk, field["type"], wanted.type, layout) for chunk in stored.chunks]
    return pa.chunked_array(chunks, type=wanted.type)


def _with_offsets(array: pa.Array) -> pa.Array:
    """Return lists that lie one behind the other; those of one length, and views, Arrow's writer keeps as such.

    Arrow's own cast of views makes lists that end beyond their values.
    """
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return array
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(array), 0).cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, pc.list_flatten(array), mask=pc.is_null(array))


def _as_logged(array: pa.Array, type_: Any, wanted: pa.DataType, layout: Layout) -> pa.Array:
    """Return an array of a file as its column's type: fields of structs by their names in files, missing ones null."""
    if array.type == wanted:
        return array
    if pa.types.is_struct(wanted):
        given = {array.type.field(i).name: child for i, child in enumerate(array.flatten())}
        fields = [wanted.field(i) for i in range(wanted.num_fields)]
        names = [physical_name(part, is_mapped=layout.is_mapped) for part in type_["fields"]]
        own = _own_names(names, list(given), layout)
        children = [
            _as_logged(given[own[name]], part["type"], field.type, layout)
            if name in own
            else pa.nulls(len(array), field.type)
            for name, part, field in zip(names, type_["fields"], fields, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(array))
    if pa.types.is_list(wanted):
        array = _with_offsets(array)
        values = _as_logged(array.values, type_["elementType"], wanted.value_type, layout)
        return pa.ListArray.from_arrays(array.offsets, values, type=wanted, mask=pc.is_null(array))
    if pa.types.is_map(wanted):
        keys = _as_logged(array.keys, type_["keyType"], wanted.key_type, layout)
        items = _as_logged(array.items, type_["valueType"], wanted.item_type, layout)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=wanted, mask=pc.is_null(array))
    return widened(array, wanted)
