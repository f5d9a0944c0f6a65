"""Data files from rows: Parquet as Spark reads it, under names that nobody else has, and the `add` of each."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lockstep.delta.actions import Action
from lockstep.errors import UnsupportedError
from lockstep.storage import Storage
from lockstep.tables.layout import Layout
from lockstep.tables.mapping import physical, physical_name
from lockstep.tables.partitions import folder, logged, parted
from lockstep.tables.row_ids import RowIds
from lockstep.tables.statistics import Bounds, bounds_in, has_nan, statistics
from lockstep.workers import Workers

FILE_BYTES = 256 * 2**20
"""So many bytes of rows in memory make one file; as Parquet they are a fraction of it."""

SHARED_BYTES = 16 * 2**20
"""From twice as much on, threads share rows out among themselves, so that each makes a file of no less than this."""

WRITERS = min(os.cpu_count() or 1, 4)
"""So many files are encoded and written at a time."""

SAMPLED_ROWS = 10_000
"""So many rows tell whether a column's texts repeat themselves."""

CHANGE_TYPE = "_change_type"
"""The column that says what became of a row, in files for readers of changes."""

_CHUNK_BYTES = 8 * 2**20

NewId = Callable[[], str]


def new_file_id() -> str:
    """Return what no other file's name has in it."""
    return str(uuid.uuid4())


class FileWriter:
    """Writes the data files of one statement.

    Attributes:
        paths: of the files, relative to the lake's root; also of one whose write failed.
        actions: an `add` for each, a `cdc` for those of changes.
        bytes: how large all of them are.
    """

    def __init__(
        self,
        storage: Storage,
        location: str,
        layout: Layout,
        *,
        now_ms: int,
        ids: RowIds | None = None,
        new_id: NewId = new_file_id,
    ) -> None:
        """Write into a table's folder.

        Args:
            location: the folder, relative to the lake's root.
            now_ms: what the files are said to be written at, in ms since 1970.
            ids: what gives the rows of each file their ids; None where the table has none.
        """
        self._storage = storage
        self._location = location
        self._layout = layout
        self._now_ms = now_ms
        self._ids = ids
        self._new_id = new_id
        self.paths: list[str] = []
        self.actions: list[Action] = []
        self.bytes = 0

    def write(self, rows: pa.Table, kept_ids: pa.Table | None = None) -> None:
        """Write rows that have the table's columns, see `lockstep.tables.conform`; none are no file.

        Args:
            kept_ids: row by row, the id that it keeps and the version that it came with, where it does; None where none
                of them does.

        Raises:
            InvalidError: of more partitions than one statement may write.
            UnsupportedError: values that Arrow's Parquet writer does not take.
            UnavailableError: the store failed.
        """
        rows, partitioned_by = self._stored(rows)
        if kept_ids is not None:
            for name, column in zip(self._layout.row_id_columns, kept_ids.columns, strict=True):
                rows = rows.append_column(pa.field(name, pa.int64()), column)
        parts = parted(rows, partitioned_by)
        pieces = [(values, piece) for values, part in parts for piece in _pieces(part)]
        numbered = enumerate(pieces, len(self.actions))
        written = list(Workers(WRITERS, "lockstep-files").map(lambda each: self._write(each[0], *each[1]), numbered))
        for (action, _), (_, piece) in zip(written, pieces, strict=True):
            ids = self._ids
            self.actions.append(action if ids is None else {"add": ids.given(action["add"], piece.num_rows)})
        self.bytes += sum(size for _, size in written)

    def write_changes(self, kind: str, rows: pa.Table) -> None:
        """Write rows that a commit deletes, inserts or updates, for readers of changes (Protocol, "Add CDC File").

        Args:
            kind: `delete`, `insert`, `update_preimage` or `update_postimage`.
            rows: as for `write`.

        Raises:
            InvalidError, UnsupportedError, UnavailableError: as `write`.
        """
        stored, partitioned_by = self._stored(rows)
        told = stored.append_column(CHANGE_TYPE, pa.repeat(kind, rows.num_rows))
        for values, part in parted(told, partitioned_by):
            for piece in _pieces(part):
                # Without folders of partitions: some readers of changes do not decode what such a path has encoded.
                name = f"_change_data/cdc-{len(self.actions):05d}-{self._new_id()}.c000.snappy.parquet"
                size, _ = self._put(name, piece)
                said = {"path": name, "partitionValues": values, "size": size, "dataChange": False}
                self.actions.append({"cdc": said})

    def _stored(self, rows: pa.Table) -> tuple[pa.Table, tuple[str, ...]]:
        """Return rows with the names that columns have in files, and by which of those the table is partitioned."""
        if not self._layout.is_mapped:
            return rows, self._layout.partitioned_by
        fields = {field["name"]: field for field in self._layout.fields}
        names = (physical_name(fields[name], is_mapped=True) for name in self._layout.partitioned_by)
        with self._refusing():
            return physical(rows, fields), tuple(names)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Raise what Arrow does not write as Lockstep's error."""
        try:
            yield
        except pa.ArrowException as error:
            raise UnsupportedError(
                f"Arrow's Parquet writer does not take these rows of table {self._layout.name}: {error}. Nothing was "
                "written; see that they have the types and the NOT NULL fields of the table"
            ) from error

    def _write(self, number: int, values: dict[str, str | None], rows: pa.Table) -> tuple[Action, int]:
        name = f"{folder(values)}part-{number:05d}-{self._new_id()}-c000.snappy.parquet"
        size, bounds = self._put(name, rows)
        ids = [column for column in self._layout.row_id_columns if column in rows.column_names]
        add: dict[str, Any] = {
            "path": logged(name),
            "partitionValues": values,
            "size": size,
            "modificationTime": self._now_ms,
            "dataChange": True,
            "stats": statistics(rows.drop_columns(ids), columns=self._layout.indexed, known=bounds),
        }
        return {"add": add}, size

    def _put(self, name: str, rows: pa.Table) -> tuple[int, Mapping[str, Bounds]]:
        """Write a file, and return how many bytes it has, and between which values it says that columns lie."""
        path = f"{self._location}/{name}"
        with self._refusing():
            data, bounds = _parquet(rows)
        self.paths.append(path)
        self._storage.put_chunks(path, _chunks(data))
        return len(data), bounds


def _parquet(rows: pa.Table) -> tuple[memoryview, Mapping[str, Bounds]]:
    """Return rows as a Parquet file, and between which values it says that columns lie."""
    sink = pa.BufferOutputStream()
    bounded = _bounded(rows)
    # Without Arrow's own schema in it: readers are to go by Parquet's types, which are what the log says.
    pq.write_table(
        rows,
        sink,
        compression="snappy",
        version="2.6",
        store_schema=False,
        use_dictionary=[name for name in rows.column_names if _repeats(rows.column(name))],
        write_statistics=bounded,
    )
    data = sink.getvalue()
    return memoryview(data), bounds_in(pq.read_metadata(pa.BufferReader(data)), rows.schema, bounded)


def _repeats(column: pa.ChunkedArray) -> bool:
    """Tell whether a column has texts of which many are alike, going by the first ones: a dictionary makes it small."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return False
    sample = column.slice(0, SAMPLED_ROWS)
    return bool(2 * pc.count_distinct(sample, mode="all").as_py() <= len(sample))


def _bounded(rows: pa.Table) -> list[str]:
    """Return the columns whose bounds may stand in the file itself.

    Arrow leaves NaN out of them, and Spark, to which NaN is greater than all numbers, would leave out the rows. To
    Arrow `a.b` is the field `b` of a column `a`, too.
    """
    columns = ((name, rows.column(name)) for name in rows.column_names if "." not in name)
    flat = ((name, column) for name, column in columns if not pa.types.is_nested(column.type))
    return [name for name, column in flat if not has_nan(column)]


def _chunks(data: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(data), _CHUNK_BYTES):
        yield data[start : start + _CHUNK_BYTES]


def _pieces(rows: pa.Table) -> Iterator[pa.Table]:
    """Part rows so that each part makes a file of a size that readers can share out."""
    if not rows.num_rows:
        return
    files = max(-(-rows.nbytes // FILE_BYTES), min(rows.nbytes // SHARED_BYTES, WRITERS), 1)
    step = -(-rows.num_rows // files)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)
