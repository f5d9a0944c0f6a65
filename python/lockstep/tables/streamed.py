"""Rows of a table that are read anew for each query of DuckDB or Polars, batch by batch, and of its columns alone.

Both take an Arrow dataset, and ask it for the columns that a query needs. Arrow's own datasets open Parquet files
themselves, and leave out what a file's statistics seem to say. Where files alone do not say which rows there are
(deletion vectors, mapped columns), or statistics may say it wrongly (NaN is in none, and -0.0 is 0.0), a table is given
as `Rows` instead: its batches come from the reader that reads whole tables, and what a query filters by is asked of
each row that it gives. Files are left out by partition values alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from lockstep.delta.combine.collapse import is_inside
from lockstep.errors import UnsupportedError
from lockstep.tables.mapping import is_mapped_by, physical_name
from lockstep.tables.partitions import array_of
from lockstep.tables.reading import AT_A_TIME, Files
from lockstep.tables.schema import arrow_field, quoted
from lockstep.workers import Threads

if TYPE_CHECKING:
    from deltalake import DeltaTable

Read = Callable[[Sequence[str], "pc.Expression | None"], pa.RecordBatchReader]
"""Begins to read some columns, in this order; without rows of which an expression is true it may leave out others."""

_NO_FILE = "these rows are read by scanner() alone"
_BY_FILES = frozenset({"timestampNtz"})
"""Features of which who reads files alone need not know; deltalake makes a dataset of files with no others."""
_BOUNDED = frozenset({"string", "long", "integer", "short", "byte", "date", "boolean"})
"""Types of which a file's bounds are certainly right: NaN is in none, and times of old (INT96) have none."""
_MOST_VALUES = 20
"""Of so many values DataFusion leaves files out by a list; of more by their range."""


class Scan:
    """One scan of rows: what DuckDB and Polars ask a scanner of Arrow's for.

    Arrow's own reads ahead by itself, as much as a gigabyte; this one reads a batch where it is asked for one.
    """

    def __init__(self, reader: pa.RecordBatchReader, columns: list[str], filter: pc.Expression | None) -> None:
        """Scan what a reader gives.

        Args:
            columns: which of the reader's are wanted, in this order.
            filter: of which rows; it may be about all columns of the reader.
        """
        self._reader, self._columns, self._filter = reader, columns, filter

    def to_reader(self) -> pa.RecordBatchReader:
        """Return a stream of the rows."""
        if self._filter is None and self._reader.schema.names == self._columns:
            return self._reader
        schema = pa.schema([self._reader.schema.field(name) for name in self._columns])
        return pa.RecordBatchReader.from_batches(schema, self._filtered())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return iter(self.to_reader())

    def to_table(self) -> pa.Table:
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows; no batch is read that has none of them."""
        reader = self.to_reader()
        found: list[pa.RecordBatch] = []
        left = num_rows
        while left > 0 and (batch := next(reader, None)) is not None:
            found.append(batch.slice(0, left))
            left -= found[-1].num_rows
        return pa.Table.from_batches(found, schema=reader.schema)

    def take(self, indices: pa.Array) -> pa.Table:
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        return sum(batch.num_rows for batch in self.to_reader())

    def _filtered(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            found = batch if self._filter is None else batch.filter(self._filter)
            yield found.select(self._columns)


class Rows(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """An Arrow dataset of rows that somebody else reads; each scan of it reads them anew.

    DuckDB and Polars go through `scanner` or `to_batches`. Whatever went past those would look for a file that is not
    there, and fail.

    Attributes:
        failure: what the last scan failed with that did; DuckDB passes on no more than the words of it.
    """

    def __init__(self, schema: pa.Schema, read: Read) -> None:
        """Stand for rows of which nothing has been read.

        Args:
            schema: of all columns.
            read: is called once for each scan.
        """
        parquet, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
        super().__init__([parquet.make_fragment(_NO_FILE, filesystem=nowhere)], schema, parquet, nowhere)
        self._read = read
        self.failure: Exception | None = None

    def scanner(
        self, columns: Sequence[str] | None = None, filter: pc.Expression | None = None, **_options: object
    ) -> Scan:
        """Begin a scan; of columns that neither it nor its filter asks for nothing is read.

        Args:
            columns: which, by name, in this order; all by default.
        """
        wanted = list(self.schema.names if columns is None else columns)
        return Scan(self.read(self._asked(wanted, filter), filter), wanted, filter)

    def read(self, names: Sequence[str], filter: pc.Expression | None) -> pa.RecordBatchReader:
        """Begin to read some columns, see `Read`; what that fails with is kept."""
        try:
            reader = self._read(names, filter)
        except Exception as error:
            self.failure = error
            raise
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except Exception as error:
            self.failure = error
            raise

    def _asked(self, wanted: list[str], filter: pc.Expression | None) -> list[str]:
        asked = list(wanted)
        if filter is not None:
            rest = [name for name in self.schema.names if name not in asked]
            fields = _fields_of(filter, self.schema, rest)
            asked += [name for name in rest if name in fields]
        # Rows are counted by some column; a narrow one is the least to read.
        return asked or [min(self.schema, key=_width).name]


def _width(field: pa.Field) -> int:
    return field.type.bit_width if pa.types.is_primitive(field.type) else 1 << 16


def _fields_of(expression: pc.Expression, schema: pa.Schema, among: Sequence[str]) -> set[str]:
    """Return which of some fields an expression has; Arrow does not tell, but refuses it where one is lacking."""
    if not among or _is_bound(expression, schema, without=set(among)):
        return set()
    if len(among) == 1:
        return set(among)
    half = len(among) // 2
    return _fields_of(expression, schema, among[:half]) | _fields_of(expression, schema, among[half:])


def _is_bound(expression: pc.Expression, schema: pa.Schema, without: set[str]) -> bool:
    lacking = pa.schema([field for field in schema if field.name not in without])
    try:
        ds.dataset(lacking.empty_table()).scanner(filter=expression)
    except pa.ArrowException:
        return False
    return True


# --- of deltalake, and of Lockstep's own reader -----------------------------------------------------------------------


def plain_schema(schema: str, names: Iterable[str] | None = None) -> pa.Schema:
    """Return a table's columns with the types that Lockstep has for Delta's, whatever a reader lays values out as.

    Args:
        schema: the table's, as Delta's JSON.
        names: which of them; all by default.

    Raises:
        UnsupportedError: a type that is not read without Spark.
    """
    fields = {field["name"]: field for field in msgspec.json.decode(schema)["fields"]}
    return pa.schema([arrow_field(fields[name], name) for name in (fields if names is None else names)])


def by_files(table: DeltaTable) -> Any:
    """Return a dataset of a table's files; None where Arrow would not certainly read from them what the table has."""
    features = set(table.protocol().reader_features or ())
    types = {str(getattr(field.type, "type", "")) for field in table.schema().fields}
    if table.protocol().min_reader_version == 2 or features - _BY_FILES or not types <= _BOUNDED:
        return None
    if table.metadata().partition_columns and any("" in each.values() for each in table.partitions()):
        return None  # an empty text, of another writer: in a dataset it is null, and to deltalake's scan it is not
    dataset = table.to_pyarrow_dataset()
    if not all(is_inside(fragment.path) for fragment in dataset.get_fragments()):
        return None  # a dataset looks for each file below the table's folder
    return _without_statistics(dataset, table.metadata().partition_columns)


def _without_statistics(dataset: Any, partitioned_by: Sequence[str]) -> Any:
    """Return a dataset of the same files, which says of each what its partition values are, and nothing else.

    deltalake says of each file what its statistics in the log say, too, and where one has no greatest value it says
    that values are less than null, by which Arrow leaves the file out of any filter, with its rows.
    """
    fields = [dataset.schema.field(name) for name in partitioned_by]
    fragments = []
    for fragment in dataset.get_fragments():
        known = ds.get_partition_keys(fragment.partition_expression)
        said = said_of([known[name] for name in partitioned_by], fields)
        fragments.append(
            dataset.format.make_fragment(fragment.path, filesystem=dataset.filesystem, partition_expression=said)
        )
    return ds.FileSystemDataset(fragments, dataset.schema, dataset.format, dataset.filesystem)


def of_deltalake(table: DeltaTable) -> Rows:
    """Return the rows of a table as deltalake reads them: deletion vectors, mapped columns, files elsewhere and all.

    Raises:
        UnsupportedError: a type that is not read without Spark.
        DeltaError: deltalake does not read such a table.
    """
    schema = plain_schema(table.schema().to_json())
    table.scan(columns=schema.names[:1], predicate="false")  # says whether it can, and reads no file
    partitions = Partitions(table, schema)

    def read(names: Sequence[str], filter: pc.Expression | None) -> pa.RecordBatchReader:
        stream = table.scan(columns=list(names), predicate=partitions.condition(filter))
        wanted = pa.schema([schema.field(name) for name in names])
        return pa.RecordBatchReader.from_stream(stream).cast(wanted)

    return Rows(schema, read)


def of_files(files: Files, adds: Sequence[Mapping[str, Any]]) -> Rows:
    """Return the rows of files as transactions read them, a file at a time, and some files ahead."""
    schema = files.layout.schema
    placed = _by_partitions(files, adds)

    def read(names: Sequence[str], filter: pc.Expression | None) -> pa.RecordBatchReader:
        wanted = pa.schema([schema.field(name) for name in names])
        left = adds if filter is None else [adds[number] for number in _numbers(placed, filter)]
        batches = (
            batch for table in _ahead(files, left, names) for batch in table.select(names).cast(wanted).to_batches()
        )
        return pa.RecordBatchReader.from_batches(wanted, batches)

    return Rows(schema, read)


def _ahead(files: Files, adds: Iterable[Mapping[str, Any]], names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each file, in order, while the next ones are fetched."""
    pool = Threads(AT_A_TIME, thread_name_prefix="lockstep-files")
    reads: deque[Future[pa.Table]] = deque()
    try:
        for add in adds:
            reads.append(pool.submit(files.read, [add], names))
            if len(reads) == AT_A_TIME:
                yield reads.popleft().result()
        while reads:
            yield reads.popleft().result()
    finally:  # also where nobody wants the rest
        pool.shutdown(wait=False, cancel_futures=True)


def of_both(certain: Rows, uncertain: frozenset[str], others: Callable[[], Rows]) -> Rows:
    """Return rows that one reader gives unless it is asked for some columns; then another one does.

    Args:
        uncertain: of these columns the first one may give other values.
        others: returns the rows as the other reader gives them, or raises that it does not.
    """

    def read(names: Sequence[str], filter: pc.Expression | None) -> pa.RecordBatchReader:
        rows = certain if uncertain.isdisjoint(names) else others()
        return rows.read(names, filter)

    return Rows(certain.schema, read)


def _by_partitions(files: Files, adds: Sequence[Mapping[str, Any]]) -> ds.FileSystemDataset:
    """Return a dataset that tells which of some files a row can be in, by partition values; see `_numbers`."""
    layout = files.layout
    schema = layout.schema
    names = {
        field["name"]: physical_name(field, is_mapped=layout.is_mapped)
        for field in layout.fields
        if field["name"] in layout.partitioned_by and _is_certain(schema.field(field["name"]).type)
    }
    fields = [schema.field(name) for name in names]

    def said(add: Mapping[str, Any]) -> pc.Expression:
        values = add.get("partitionValues") or {}
        try:
            known = [_value(values[stored], field) for stored, field in zip(names.values(), fields, strict=True)]
        except (KeyError, UnsupportedError):
            return ds.scalar(True)  # who reads it says what is wrong
        return said_of(known, fields)

    return _numbered([said(add) for add in adds], schema)


def _numbered(said: Iterable[pc.Expression], schema: pa.Schema) -> ds.FileSystemDataset:
    """Return a dataset of nothing but what is said of each of its parts, which are called by their numbers."""
    parquet, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
    parts = [
        parquet.make_fragment(str(number), filesystem=nowhere, partition_expression=each)
        for number, each in enumerate(said)
    ]
    return ds.FileSystemDataset(parts, schema, parquet, nowhere)


def _numbers(parts: ds.FileSystemDataset, filter: pc.Expression) -> list[int]:
    """Return the numbers of the parts in which a row can be of which a filter is true."""
    return [int(each.path) for each in parts.get_fragments(filter)]


class Partitions:
    """Which values a table's partitions have, to leave out those that no row of a query can be in."""

    def __init__(self, table: DeltaTable, schema: pa.Schema) -> None:
        """Ask a table's log for its partitions.

        Args:
            schema: the table's.
        """
        metadata = table.metadata()
        names = [] if is_mapped_by(metadata.configuration) else metadata.partition_columns
        self._names = [name for name in names if _is_certain(schema.field(name).type)]
        said = {tuple(each.get(name) for name in self._names) for each in table.partitions()} if self._names else set()
        fields = [schema.field(name) for name in self._names]
        try:
            self._values = [tuple(map(_scanned, texts, fields)) for texts in said]
        except UnsupportedError:
            self._values = []
        self._dataset = _numbered([said_of(values, fields) for values in self._values], schema)

    def condition(self, filter: pc.Expression | None) -> str | None:
        """Return what is true, in DataFusion's SQL, of all rows of which a filter can be; None if nothing is known."""
        if filter is None or not self._values:
            return None
        left = [self._values[number] for number in _numbers(self._dataset, filter)]
        if not left:
            return "false"
        terms = []
        for name, found, whole in zip(
            self._names, zip(*left, strict=True), zip(*self._values, strict=True), strict=True
        ):
            if (values := set(found)) != set(whole) and (term := _term(quoted(name), values)) is not None:
                terms.append(term)
        return " AND ".join(terms) or None


def said_of(values: Iterable[Any], fields: Iterable[pa.Field]) -> pc.Expression:
    """Return the expression that says of a file which values its rows have in some columns."""
    said = ds.scalar(True)
    for value, field in zip(values, fields, strict=True):
        column = ds.field(field.name)
        said = said & (column.is_null() if value is None else column == pa.scalar(value, field.type))
    return said


def _is_certain(type_: pa.DataType) -> bool:
    """Tell whether all readers compare values of a type alike, and read them alike from the log."""
    kinds = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_boolean)
    return any(is_kind(type_) for is_kind in kinds)


def _value(text: str | None, field: pa.Field) -> Any:
    return array_of(text, field.type, 1)[0].as_py()


def _scanned(text: str | None, field: pa.Field) -> Any:
    """Return a partition value as deltalake's scan has it: an empty text is no null there."""
    return text if pa.types.is_string(field.type) else _value(text, field)


def _term(column: str, values: set[Any]) -> str | None:
    known = [value for value in values if value is not None]
    if len(known) <= _MOST_VALUES:
        term = f"{column} IN ({', '.join(map(_literal, known))})" if known else ""
    elif isinstance(known[0], str):
        return None
    else:
        term = f"{column} BETWEEN {_literal(min(known))} AND {_literal(max(known))}"
    nulls = f"{column} IS NULL" if None in values else ""
    return f"({' OR '.join(filter(None, (term, nulls)))})"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        text = value.replace("'", "''")
        return f"'{text}'"
    return f"DATE '{value.isoformat()}'"
