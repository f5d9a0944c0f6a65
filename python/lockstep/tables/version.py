"""All tables of one database version, for Arrow, DuckDB and Polars: read by `deltalake`, at their table versions.

A table is read once it is published up to that version, so that its log says it to any reader. Names are those that
tables had in that version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from lockstep.arguments import list_of_names, takes
from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import CorruptTimelineError, InvalidError, LockstepError, UnsupportedError
from lockstep.lake.kept_states import told_at
from lockstep.storage import Storage
from lockstep.storage.outside import check_reach, options_at
from lockstep.storage.urls import url_below
from lockstep.tables.by_deltalake import check_features, columns_of, open_table, options_of, refusing, scan_nothing
from lockstep.tables.conform import NO_COLUMN
from lockstep.tables.layout import RESERVED, layout_of
from lockstep.tables.lost import reason
from lockstep.tables.names import name_of
from lockstep.tables.queries import refuse_two_of_one_name, register, run_query
from lockstep.tables.reading import Files
from lockstep.tables.schema import quoted
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Table
from lockstep.transactions.lookup import find_table
from lockstep.workers import Threads

if TYPE_CHECKING:
    import polars as pl
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection


_AT_A_TIME = 8
"""So many tables are opened side by side: each takes some requests of the store, one after the other."""
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_OF_A_FILE = re.compile("reading the stream|get_next failed|IO ?Error|No such file|parquet", re.IGNORECASE)
"""What DuckDB says where Arrow could not read a file for it; where it is said of something else, a look too many."""


class LakeVersion:
    """All tables of one database version; it stays what it is, whatever is committed since.

    Attributes:
        version: the database version.
    """

    def __init__(
        self,
        storage: Storage,
        database: Database,
        options: Mapping[str, str],
        check: Callable[[list[Table]], object] | None = None,
    ) -> None:
        """Read a database version whose tables are published.

        Args:
            options: of the lake's store, as `lockstep.storage.open_storage` takes them.
            check: raises if the log of one of some tables does not say any more what this version does; None if this is
                the newest version, of which that is known.
        """
        self._storage = storage
        self._database = database
        self._options = options
        self._check = check or (lambda _: None)
        self._is_past = check is not None
        self.version = database.version

    def __repr__(self) -> str:
        return f"<lockstep database version {self.version} of {self._storage.url}>"

    def __iter__(self) -> Iterator[Name]:
        return iter(self.tables)

    @cached_property
    def tables(self) -> list[Name]:
        """The names of its tables, sorted."""
        return sorted(self._database.tables)

    def __getitem__(self, name: str | tuple[str, ...] | Name) -> VersionTable:
        """Return a table by its name in this version.

        Raises:
            UndefinedError: there is none of that name.
            ForeignCommitError, UnavailableError, CorruptTimelineError: it is set aside; or its log does not say any
                more what this version does.
            InvalidError (42501): it lies neither below the root nor in a location, and nothing else is read.
        """
        [table] = self._tables([name_of(name)])
        return table

    @takes(query=str)
    def sql(self, query: str, **relations: Any) -> pa.Table:
        """Return DuckDB's answer to a query of this version's tables.

        Args:
            relations: by name, what else the query may read: Arrow, Polars, pandas.

        Raises:
            InvalidError, UnsupportedError: what DuckDB, or a reader of a table, refuses.
            UndefinedError: there is no table of a name in it.
            CorruptTimelineError: a file that a table needs is lost, or damaged.
            UnavailableError: the store failed.
        """
        asked: dict[Name, Any] = {}

        def read(name: Name) -> Any:
            table = self[name]  # first: it may be the name of a part of the query
            asked[name] = table.relation()
            return asked[name]

        try:
            return run_query(query, read, relations)
        except InvalidError as error:
            # DuckDB reads files as it goes, and calls it bad input if it cannot; its own refusals say what they mean.
            if error.sqlstate == InvalidError.default_sqlstate:
                self._check_read(asked, error)
            raise

    def _check_read(self, asked: Mapping[Name, Any], error: InvalidError) -> None:
        """Raise what a reader of a table failed with, if that is why DuckDB refused a query.

        Args:
            asked: the relations that the query read.
            error: what DuckDB said.
        """
        failures = [failure for rows in asked.values() if (failure := getattr(rows, "failure", None)) is not None]
        own = next((failure for failure in failures if isinstance(failure, LockstepError)), None)
        if own is not None and not isinstance(own, CorruptTimelineError):
            raise own.again() from error
        if failures or _OF_A_FILE.search(error.message):
            for name in asked:
                _check_whole(self._storage, find_table(self._database, name), error)
        if own is not None:
            raise own.again() from error

    @takes(names=Iterable)
    def duckdb(self, connection: DuckDBPyConnection, names: Iterable[str | tuple[str, ...] | Name] = ()) -> None:
        """Make this version's tables views of a DuckDB connection, each in the schema that its namespace is.

        Args:
            connection: another than other threads use.
            names: which tables; all by default. Those of the namespace `default` are in the schema `main`, too.

        Raises:
            UndefinedError, UnsupportedError, InvalidError: see `__getitem__`; a table that cannot be read so; two that
                have one name there (42702), as `t` of the namespaces `("b", "c")` and `("b.c",)`.
            CorruptTimelineError: a file of a table's log is lost; DuckDB itself says which data file is.
        """
        wanted = [name_of(name) for name in names or self.tables]
        refuse_two_of_one_name(wanted, "give `names` without one of them")
        tables = self._tables(wanted)
        with Threads(_AT_A_TIME, thread_name_prefix="lockstep-tables") as pool:
            relations = list(pool.map(lambda table: table.relation(), tables))
        for name, rows in zip(wanted, relations, strict=True):
            # By the parts: `a`.`b.c` and `a.b`.`c` are written alike, and the view of one would have the other's rows.
            parts = "_".join(map(quoted, (".".join(name.namespace), name.table)))
            register(connection, name, rows, f"{RESERVED}_{self.version}_{parts}")

    def _tables(self, names: Iterable[Name]) -> list[VersionTable]:
        tables = [find_table(self._database, name) for name in names]
        self._check(tables)
        return [VersionTable(self._storage, table, self._options, is_past=self._is_past) for table in tables]


@dataclass(frozen=True, slots=True)
class Opened:
    """What the reader of transactions reads: files, and each one's `add`."""

    files: Files
    adds: Sequence[Mapping[str, Any]]


class VersionTable:
    """A table at one version, to be read.

    Attributes:
        name: in the database version that it is of.
        uri: where it lies.
        version: its table version, Delta's.
    """

    def __init__(self, storage: Storage, table: Table, options: Mapping[str, str], *, is_past: bool = False) -> None:
        """Stand for a table, which is opened when it is read.

        Args:
            is_past: whether its log may not tell of that version any more.

        Raises:
            InvalidError (42501): it lies where nothing is read, see `check_reach`.
        """
        self.name = table.name
        self.uri = url_below(storage.url, table.location)
        self.version = table.version
        self._storage = storage
        self._table = table
        self._options = options_at(storage, self.uri, options)
        self._is_past = is_past
        check_reach(storage, table.location)

    @cached_property
    def _kept(self) -> str | None:
        """The folder of what is kept of it for tags, if its own log does not tell of this version any more."""
        told = told_at(self._storage, self._table) if self._is_past else self._table.location
        return None if told == self._table.location else told

    def __repr__(self) -> str:
        return f"<lockstep table {self.name}, version {self.version} of {self.uri}>"

    def delta(self) -> DeltaTable:
        """Return it as deltalake's `DeltaTable`, at this version.

        Raises:
            UnsupportedError: deltalake does not read such a table; or the table's log does not tell of this version any
                more, which is kept for a tag elsewhere.
            CorruptTimelineError: a file that it needs is lost, or damaged.
        """
        if self._kept is not None:
            raise UnsupportedError(
                f"the log of {self.name} ({self.uri}) does not tell of version {self.version} any more. What tells "
                "of it is kept for a tag, where deltalake does not look: read it by to_arrow, duckdb, polars or sql, "
                "or in Spark"
            )
        place = self._place()
        with refusing(self._refusal):
            return open_table(place, self.version, options_of(self.uri, self._options))

    @takes(columns=Iterable | None)
    def to_arrow(self, columns: Iterable[str] | None = None) -> pa.Table:
        """Return its rows, in no order.

        Args:
            columns: which, in this order; all by default.

        Raises:
            InvalidError: a column that it has not.
            UnsupportedError: deltalake does not read such a table.
            CorruptTimelineError: a file that it needs is lost, or damaged.
        """
        from lockstep.tables.streamed import plain_schema

        names = None if columns is None else list_of_names(columns, "columns")
        reader = self._reader(names)
        known = reader.files.layout.schema.names if isinstance(reader, Opened) else columns_of(reader)
        if unknown := [name for name in names or () if name not in known]:
            raise InvalidError(
                f"table {self.name} has no column {unknown[0]!r} at version {self.version}", sqlstate=NO_COLUMN
            )
        wanted = list(dict.fromkeys(known if names is None else names))  # each is read once
        if isinstance(reader, Opened):
            return reader.files.read(reader.adds, wanted).select(wanted if names is None else names)
        read = None if names is None else wanted or known[:1]  # of no column deltalake reads no rows
        with refusing(self._refusal):
            rows = pa.RecordBatchReader.from_stream(reader.scan(columns=read)).read_all()
        rows = rows if names is None else rows.select(names)
        if not rows.num_columns:
            return rows
        return rows.cast(plain_schema(reader.schema().to_json(), rows.column_names))

    def relation(self) -> Any:
        """Return what DuckDB and Polars read: an Arrow dataset, of which a query reads the columns that it needs.

        Arrow opens the files itself where they alone say which rows there are, and where the bounds that stand in them
        are certainly right: not for deletion vectors, mapped columns, nor columns of other types than integers, texts,
        dates and booleans, nor files outside of the table's folder (a shallow clone's, or those of a partial export).
        Else it is `lockstep.tables.streamed.Rows`: what `to_arrow` reads of the columns that a query asks for, batch by
        batch, or file by file where that is the reader of transactions; if neither reads them, that query is refused.
        Files are left out by partition values alone, not by the log's statistics.

        Raises:
            UnsupportedError: deltalake does not read such a table.
            CorruptTimelineError: a file of its log is lost, or damaged.
        """
        from lockstep.tables.streamed import by_files, of_both, of_deltalake, of_files

        if self._kept is not None:
            opened = self._opened(self._kept)
            return of_files(opened.files, opened.adds)
        table = self._asked()
        if isinstance(table, Opened):
            return of_files(table.files, table.adds)
        uncertain = self._uncertain(table)
        if uncertain.issuperset(columns_of(table)):
            opened = self._opened_for_times()
            return of_files(opened.files, opened.adds)
        with refusing(self._refusal):
            rows = of_deltalake(table) if (dataset := by_files(table)) is None else dataset
        if not uncertain:
            return rows
        try:
            opened = self._opened_for_times()
        except UnsupportedError as error:
            return of_both(rows, uncertain, partial(_raise, error))
        return of_both(rows, uncertain, partial(of_files, opened.files, opened.adds))

    def polars(self) -> pl.LazyFrame:
        """Return it as a lazy frame of Polars.

        Raises:
            UnsupportedError: deltalake does not read such a table.
            CorruptTimelineError: a file of its log is lost, or damaged.
        """
        import polars as pl

        # Arrow and Polars do not compare nulls and NaN alike (to Arrow `~is_in` is true of null): Polars filters.
        return pl.scan_pyarrow_dataset(self.relation(), allow_pyarrow_filter=False)

    def _reader(self, columns: Collection[str] | None) -> DeltaTable | Opened:
        """Return who reads columns: deltalake, or where it cannot, or would read others, the reader of transactions.

        Args:
            columns: which; None for all.

        Raises:
            UnsupportedError: neither does.
            CorruptTimelineError: a file of its log is lost, or damaged.
        """
        if self._kept is not None:
            return self._opened(self._kept)
        table = self._asked()
        if isinstance(table, Opened):
            return table
        asked = columns_of(table) if columns is None else columns
        return table if self._uncertain(table).isdisjoint(asked) else self._opened_for_times()

    def _uncertain(self, table: DeltaTable) -> frozenset[str]:
        """Return its columns that deltalake may read wrong, see `lockstep.tables.times`.

        Those are all if there are any and it reads none: the reader of transactions may.
        """
        from lockstep.tables.times import uncertain

        with refusing(self._refusal):
            found = uncertain(table)
        if found:
            try:
                with refusing(self._refusal):
                    scan_nothing(table)
            except UnsupportedError:
                return frozenset(columns_of(table))
        return found

    def _asked(self) -> DeltaTable | Opened:
        """Return who is asked for its rows: deltalake, or where that does not read it, the reader of transactions.

        That is where deltalake lacks a feature, and where `_last_checkpoint` names a checkpoint that is gone, though
        commits tell of all.

        Raises:
            UnsupportedError: neither does; what deltalake said.
            CorruptTimelineError: a file of its log is lost, or damaged.
        """
        try:
            table = self.delta()
            with refusing(self._refusal):
                check_features(table)
        except UnsupportedError as refused:
            try:
                return self._opened(self._table.location)
            except UnsupportedError:
                raise refused from None
        return table

    def _opened_for_times(self) -> Opened:
        """Return its files for the reader of transactions, where deltalake may read times wrong."""
        try:
            return self._opened(self._table.location)
        except UnsupportedError as error:
            raise UnsupportedError(
                f"table {self.name} ({self.uri}) may have times outside of the years 1678 to 2261, which deltalake "
                f"takes for others where Spark wrote them; and of Lockstep's own reader: {error.message}"
            ) from error

    def _opened(self, folder: str) -> Opened:
        """Return its files for the reader of transactions, as the log in a folder tells of them.

        Raises:
            UnsupportedError: that does not read such a table, or a file outside of the table's folder.
        """
        snapshot = read_snapshot(self._storage, folder, self.version)
        layout = layout_of(str(self.name), snapshot.protocol, snapshot.metadata)
        layout.check_readable()
        files = Files(self._storage, self._table.location, layout)
        for add in snapshot.files.values():
            files.check_inside(add["path"])
        return Opened(files, [*snapshot.files.values()])

    def _place(self) -> str:
        """Return how deltalake is told where the table lies, so that it reads that folder and no other.

        It takes `%20` for a space, in paths too, and in a URL it ends the path at `#` and `?`.

        Raises:
            UnsupportedError: it would read another folder.
        """
        path = self.uri.removeprefix("file://")
        if _ESCAPE.search(path) or (path == self.uri and ("#" in path or "?" in path)):
            raise UnsupportedError(
                f"deltalake does not read table {self.name} ({self.uri}): it takes some characters of that path for "
                "others, and would look in another folder. Read it in a transaction, or in Spark"
            )
        return path

    def _refusal(self, error: BaseException) -> UnsupportedError:
        """Return that deltalake cannot read it, unless that is for a file, or for the store.

        Raises:
            CorruptTimelineError: a file that it needs is lost, or damaged.
            UnavailableError: the store failed.
        """
        _check_whole(self._storage, self._table, error)
        said = str(error).partition("\n")[0]  # behind it may be where in Rust
        return UnsupportedError(
            f"deltalake does not read version {self.version} of table {self.name} ({self.uri}): {said}. Read it in "
            "Spark"
        )


def _raise(error: UnsupportedError) -> NoReturn:
    raise error.again() from error


def _check_whole(storage: Storage, table: Table, error: BaseException) -> None:
    """Raise CorruptTimelineError, or UnavailableError, if a table cannot be read for a file, or for the store."""
    if (found := reason(storage, table, error)) is not None:
        raise found from error
