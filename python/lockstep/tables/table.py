"""One table of a transaction: its rows as the transaction sees them, and the statements that change them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from lockstep.arguments import list_of_names, takes
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.lake.lake import Lake
from lockstep.tables.altering import Alteration
from lockstep.tables.changes import INDEX, Candidates, Placed, TakenOut, Told, candidates, removed, take_out, together
from lockstep.tables.checks import CHECK_VIOLATION, check_generated, check_rows, taken, with_defaults, with_generated
from lockstep.tables.commits import Operation, now_ms, stage
from lockstep.tables.conditions import checked, condition
from lockstep.tables.conform import NO_COLUMN, arrow_table
from lockstep.tables.evolving import difference, with_columns, with_marks
from lockstep.tables.identity import with_values as with_identities
from lockstep.tables.layout import RESERVED, Layout
from lockstep.tables.queries import (
    check_column_names,
    check_not_reserved,
    check_one_value_a_row,
    check_struct_fields,
    evaluate,
)
from lockstep.tables.reading import FILE, ROW, Files
from lockstep.tables.row_ids import PRESERVED, RowIds
from lockstep.tables.schema import duckdb_type
from lockstep.tables.state import States
from lockstep.tables.statement import reads, writes
from lockstep.tables.writing import FileWriter
from lockstep.timeline.entry import Name, Table
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    import polars as pl

    from lockstep.tables.merging import Merge

SchemaMode: TypeAlias = Literal["merge"] | None
"""What becomes of columns that rows have and a table has not: it gets them; without, the rows are refused."""

NOTHING: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Scope:
    """What a transaction works in: the catalog, the transaction itself, what tables' logs come to."""

    catalog: TransactionalCatalog
    tx: Transaction
    states: States


class TransactionTable:
    """A table as a transaction sees it. Predicates and expressions are DuckDB's SQL, over the table's columns."""

    def __init__(self, scope: Scope, name: Name) -> None:
        """Stand for a table; that it is there shows when it is used."""
        self._scope = scope
        self.name = name

    def __repr__(self) -> str:
        return f"<lockstep table {self.name} in transaction {self._scope.tx.id}>"

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def core(self) -> Transaction:
        """The transaction's own record of what it did."""
        return self._scope.tx

    @property
    def lake(self) -> Lake:
        """The lake that it is in."""
        return self._scope.catalog.lake

    @property
    @reads
    def schema(self) -> pa.Schema:
        """Its columns, as an Arrow schema. This counts as a read of the columns.

        Raises:
            UndefinedError: there is no such table.
            UnsupportedError: it has a type that only Spark can read.
        """
        table = self._scope.catalog.table(self._scope.tx, self.name)
        self._scope.tx.read_columns(table)
        return self._scope.states.layout(self._scope.tx, table).schema

    @reads
    @takes(columns=Iterable | None, where=str | None)
    def to_arrow(self, columns: Iterable[str] | None = None, *, where: str | None = None) -> pa.Table:
        """Return its rows, with the transaction's own writes. This counts as a read of these rows.

        Args:
            columns: which columns, in this order; all by default.
            where: a predicate for the rows to return; all by default.

        Raises:
            UndefinedError: there is no such table.
            InvalidError: a column that it does not have, or a predicate that DuckDB refuses.
            UnsupportedError: only Spark can read it.
        """
        table, files = self._open()
        files.layout.check_readable()
        known = files.layout.types
        names = list(known) if columns is None else list_of_names(columns, "columns")
        if unknown := [name for name in names if name not in known]:
            raise InvalidError(f"table {self.name} has no column {unknown[0]!r}", sqlstate=NO_COLUMN)
        snapshot = self._scope.states.snapshot(self._scope.tx, table)
        if where is None:
            self._scope.tx.read(table)
            return files.read(list(snapshot.files.values()), names).drop_columns([FILE, ROW])
        found = self._find(table, files, checked(where, columns=files.layout.types))
        return found.take(found.matching(where)).select(names)

    def polars(self, columns: Iterable[str] | None = None, *, where: str | None = None) -> pl.DataFrame:
        """Return its rows as a Polars frame, see `to_arrow`."""
        import polars as pl

        frame = pl.from_arrow(self.to_arrow(columns, where=where))
        assert isinstance(frame, pl.DataFrame), "a table makes a frame"
        return frame

    # --- changing -----------------------------------------------------------------------------------------------------

    @writes
    def append(self, data: Any, *, schema_mode: SchemaMode = None) -> int:
        """Add rows, and return how many.

        Args:
            data: the rows, see `lockstep.tables.conform`. Columns are matched by name; columns that are left out get
                their defaults, or null.
            schema_mode: "merge" adds columns to the table that only the rows have.

        Raises:
            UndefinedError: there is no such table.
            InvalidError: rows that the table does not accept; nothing was written.
            UnsupportedError: a table that only Spark can write; nothing was written.
        """
        table, files = self.open_to_append()
        changes, files, rows = self._taken(files, data, schema_mode)
        operation = Operation(
            "WRITE",
            f"append {self.name}",
            {"mode": "Append", "partitionBy": "[]"},
            {"numOutputRows": rows.num_rows},
            True,
        )
        self._write(table, files, operation, actions=changes, rows=[Placed(rows)])
        return int(rows.num_rows)

    @writes
    @takes(where=str | None)
    def overwrite(self, data: Any, where: str | None = None, *, schema_mode: SchemaMode = None) -> int:
        """Replace all rows, or those for which a predicate is true, by new rows, and return the number of new rows.

        Args:
            data: as for `append`. If there is a predicate, it must be true for each new row.
            schema_mode: as for `append`.

        Raises:
            UndefinedError, UnsupportedError: as for `append`.
            InvalidError: as for `append`; or a new row for which the predicate is not true (23514).
        """
        table, files = self._open_to_write(only_appends=False, changes_rows=False)
        changes, files, rows = self._taken(files, data, schema_mode)
        now = now_ms(self._scope.catalog)
        told: Told | None = None
        kept: Placed | None = None
        vectors: Mapping[str, bytes] = NOTHING
        if where is None:  # the files that go and come say all of it
            snapshot = self._scope.states.snapshot(self._scope.tx, table)
            self._scope.tx.read(table)
            actions: list[Action] = [{"remove": removed(add, now)} for add in snapshot.files.values()]
        else:
            query = (
                f"SELECT count(*) AS n FROM target WHERE ({checked(where, columns=files.layout.types)}\n) IS NOT TRUE"
            )
            if others := evaluate({"target": rows}, query).column("n")[0].as_py():
                raise InvalidError(f"{others} of the rows are not what is replaced ({where})", sqlstate=CHECK_VIOLATION)
            files.layout.check_readable()
            found = self._find(table, files, where)
            gone = found.matching(where)
            out = self._take_out(found, gone)
            actions, kept, vectors = out.actions, out.kept, out.vectors

            def told() -> list[tuple[str, pa.Table]]:
                return [("delete", found.take(gone)), ("insert", rows)]

        parameters = {"mode": "Overwrite", "partitionBy": "[]", **({} if where is None else {"predicate": where})}
        metrics = {"numOutputRows": rows.num_rows}
        operation = Operation("WRITE", f"overwrite {self.name}{_where(where)}", parameters, metrics)
        done = [*changes, *actions]
        self._write(table, files, operation, actions=done, rows=[Placed(rows)], kept=kept, vectors=vectors, told=told)
        return int(rows.num_rows)

    @writes
    @takes(where=str | None)
    def delete(self, where: str | None = None) -> int:
        """Delete the rows for which a predicate is true, or all rows without one, and return how many.

        Raises:
            UndefinedError, UnsupportedError: as for `append`.
            InvalidError: DuckDB refuses the predicate.
        """
        table, files = self.open_to_change(changes_rows=False)
        found = self._find(table, files, None if where is None else checked(where, columns=files.layout.types))
        gone = found.rows.column(INDEX) if where is None else found.matching(where)

        def operation(removed_files: int, copied: int) -> Operation:
            metrics = {"numDeletedRows": len(gone), "numRemovedFiles": removed_files, "numCopiedRows": copied}
            return Operation("DELETE", f"delete {self.name}{_where(where)}", {"predicate": _listed(where)}, metrics)

        self.replace(table, found, gone, [], operation, told=lambda: [("delete", found.take(gone))])
        return len(gone)

    @writes
    @takes(values=Mapping, where=str | None)
    def update(self, values: Mapping[str, str], where: str | None = None) -> int:
        """Set columns of the rows for which a predicate is true, or of all rows, and return the number of rows.

        Args:
            values: an expression for each column, over the row as it was. Its result is cast to the column's type.

        Raises:
            UndefinedError, UnsupportedError: as for `append`.
            InvalidError: no such column, an expression that DuckDB refuses, or a value that the column does not accept.
        """
        table, files = self.open_to_change()
        check_columns(values, files.layout, files.layout.types)
        found = self._find(table, files, None if where is None else checked(where, columns=files.layout.types))
        updated = _updated(found, values, where)
        gone = updated.column(INDEX)
        rows = with_values(found.take(gone), updated, files.layout)
        text = f"update {self.name} set {', '.join(f'{name} = {values[name]}' for name in values)}{_where(where)}"

        def operation(removed_files: int, copied: int) -> Operation:
            metrics = {"numUpdatedRows": len(gone), "numRemovedFiles": removed_files, "numCopiedRows": copied}
            return Operation("UPDATE", text, {"predicate": _listed(where)}, metrics)

        def told() -> list[tuple[str, pa.Table]]:
            return [("update_preimage", found.take(gone)), ("update_postimage", rows)]

        self.replace(table, found, gone, [found.placed(rows, gone, changed=True)], operation, told=told)
        return len(gone)

    @writes
    @takes(on=str | Sequence)
    def merge(self, source: Any, on: str | Sequence[str]) -> Merge:
        """Begin a merge: add its clauses, then call `execute`, see `lockstep.tables.merging`.

        Args:
            source: rows, as for `append`, but with any columns.
            on: the name of a column that both have, several such names, or a condition over `target` and `source`.

        Raises:
            InvalidError: rows with two columns of one name (42804), or with one of Lockstep's own (42939).
        """
        from lockstep.tables.merging import Merge

        rows = arrow_table(source)
        check_column_names(rows.column_names, "the rows that are merged")
        check_not_reserved(rows.column_names, "the rows that are merged have a column")
        return Merge(self, rows, on)

    # --- for merging, too ---------------------------------------------------------------------------------------------

    def open_to_change(self, *, changes_rows: bool = True) -> tuple[Table, Files]:
        """Return the table, and where its files lie, if rows of it may be changed, and moved to other files."""
        table, files = self._open_to_write(only_appends=False, changes_rows=changes_rows)
        files.layout.check_readable()
        return table, files

    def find(self, table: Table, files: Files, rows_condition: str | None) -> Candidates:
        """Read what a condition of Spark's may be about, and note that it was read."""
        self._scope.tx.read(table, rows_condition)
        snapshot = self._scope.states.snapshot(self._scope.tx, table)
        return candidates(files, snapshot, rows_condition)

    def replace(
        self,
        table: Table,
        found: Candidates,
        gone: pa.ChunkedArray,
        rows: Sequence[Placed],
        operation: Callable[[int, int], Operation],
        *,
        told: Told,
    ) -> None:
        """Take rows out, and put others in, as one statement.

        Args:
            operation: what it was, given how many files were removed and how many rows were copied.
            told: what readers of changes are told of it.
        """
        out = self._take_out(found, gone)
        said = operation(out.removed_files, out.kept.rows.num_rows)
        self._write(
            table, found.files, said, actions=out.actions, rows=rows, kept=out.kept, vectors=out.vectors, told=told
        )

    def evolve(self, table: Table, before: Layout, after: Layout, operation: Operation) -> None:
        """Stage a change of the table's columns or properties; none is no commit."""
        if actions := difference(before, after):
            self._stage(table, after, actions, operation)

    def open_to_append(self) -> tuple[Table, Files]:
        """Return the table, and where its files lie, if rows may be added."""
        return self._open_to_write(only_appends=True)

    @property
    def alter(self) -> Alteration:
        """Changes of the table itself: see `lockstep.tables.altering`."""
        return Alteration(self)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _open(self) -> tuple[Table, Files]:
        if self.name in self._scope.tx.names.views:
            raise UnsupportedError(f"{self.name} is a view, whose text is Spark's SQL: ask its tables, or ask in Spark")
        table = self._scope.catalog.table(self._scope.tx, self.name)
        layout = self._scope.states.layout(self._scope.tx, table)
        return table, Files(self._scope.catalog.lake.storage, table.location, layout)

    def _open_to_write(self, *, only_appends: bool, changes_rows: bool = False) -> tuple[Table, Files]:
        table, files = self._open()
        files.layout.check_writable(only_appends=only_appends, changes_rows=changes_rows)
        return table, files

    def _take_out(self, found: Candidates, gone: pa.ChunkedArray) -> TakenOut:
        out = take_out(found, gone, now_ms=now_ms(self._scope.catalog))
        found.files.layout.check_row_ids(action["add"] for action in out.actions if "add" in action)
        return out

    def _taken(self, files: Files, data: Any, schema_mode: SchemaMode) -> tuple[list[Action], Files, pa.Table]:
        """Return rows as the table takes them, with the actions that give it their columns, and its files then."""
        if schema_mode not in (None, "merge"):
            raise InvalidError(f'schema_mode {schema_mode!r:.100}: expected "merge", or None')
        given = arrow_table(data)
        layout = files.layout
        if schema_mode == "merge" and (new := [field for field in given.schema if field.name not in layout.types]):
            layout = with_columns(layout, pa.schema(field.with_nullable(True) for field in new))
            layout.check_writable(only_appends=True)
        given, marks = with_identities(given, layout.fields, layout.name)
        layout = with_marks(layout, marks)
        rows = taken(with_generated(with_defaults(given, layout), layout), layout)
        return difference(files.layout, layout), replace(files, layout=layout), rows

    def _find(self, table: Table, files: Files, predicate: str | None) -> Candidates:
        physical = None if files.layout.is_mapped else condition(predicate, files.layout.types)
        return self.find(table, files, physical)

    def _write(
        self,
        table: Table,
        files: Files,
        operation: Operation,
        *,
        actions: Sequence[Action],
        rows: Sequence[Placed],
        kept: Placed | None = None,
        vectors: Mapping[str, bytes] = NOTHING,
        told: Told | None = None,
    ) -> None:
        """Write rows, those of other files that are kept, and what is told of them, and stage it; nothing is no commit.

        Args:
            vectors: the files of deletion vectors that the actions name, and that are still to be written, by path.
            told: what readers of changes are told; None where files that come and go say it.
        """
        if rows:
            whole = pa.concat_tables([each.rows for each in rows])
            check_rows(whole, files.layout)
            check_generated(whole, files.layout)
        catalog, tx = self._scope.catalog, self._scope.tx
        version = tx.next_version(table.location)
        ids = self._row_ids(table, files.layout)
        writer = FileWriter(catalog.lake.storage, table.location, files.layout, now_ms=now_ms(catalog), ids=ids)
        try:
            parts = [each for each in (kept, *rows) if each is not None]
            placed = together(parts, files.layout.schema.empty_table())
            for path, content in vectors.items():
                catalog.lake.storage.put_once(path, content)
            writer.write(placed.rows, placed.ids)
            if told is not None and files.layout.has_feed and actions:
                for kind, changed in told():
                    writer.write_changes(kind, changed)
            tx.written_vectors |= vectors.keys()
            if actions or writer.actions:
                added = sum(1 for action in writer.actions if "add" in action)
                metrics = {"numAddedFiles": added, "numFiles": added, **operation.metrics}
                said = replace(operation, metrics={**metrics, "numOutputBytes": writer.bytes})
                domain = [] if ids is None else ids.domain()
                self._stage(table, files.layout, [*domain, *actions, *writer.actions], said)
        except BaseException:
            if version not in tx.staged.get(table.id, ()):  # else what undoes the statement finds them by its commit
                catalog.lake.delete([], [*writer.paths, *vectors])
            raise

    def _row_ids(self, table: Table, layout: Layout) -> RowIds | None:
        if not layout.gives_row_ids:
            return None
        return RowIds(layout.domains or {}, self._scope.tx.next_version(table.location))

    def _stage(self, table: Table, layout: Layout, actions: Sequence[Action], operation: Operation) -> None:
        tx = self._scope.tx
        after = self._scope.states.commit_time(tx, table) if layout.has_commit_times else None
        if layout.keeps_row_ids:
            operation = replace(operation, tags=PRESERVED)
        stage(self._scope.catalog, tx, table.location, actions, operation, after_ms=after)


def check_columns(values: Mapping[str, str], layout: Layout, named: Collection[str]) -> None:
    """Raise unless expressions are given for columns that a table has.

    Args:
        named: the columns that they may name.

    Raises:
        InvalidError: no expression at all, a column that it has not (42703), or what is no expression (42601).
        UnsupportedError: an expression with a query in it.
    """
    if not values:
        raise InvalidError(f"nothing is to be set in table {layout.name}: give an expression for a column of it")
    for name, text in values.items():
        if name not in layout.types:
            raise InvalidError(f"table {layout.name} has no column {name!r}", sqlstate=NO_COLUMN)
        if not isinstance(text, str):
            raise InvalidError(f"column {name} is set to {text!r:.100}: give an expression of DuckDB's SQL, as a text")
        checked(text, f"what column {name} is set to", named)


def _updated(found: Candidates, values: Mapping[str, str], where: str | None) -> pa.Table:
    """Return the rows that are updated, by their `INDEX`, with the columns that are set."""
    types = found.files.layout.types
    # Under other names than the columns', which a predicate could take for what is set.
    sets = [
        f"CAST(({text}\n) AS {duckdb_type(types[name])}) AS {RESERVED}_value_{number}"
        for number, (name, text) in enumerate(values.items())
    ]
    rows = found.rows.drop_columns([FILE, ROW])
    check_one_value_a_row({"target": rows}, "target", values.values())
    schema = found.files.layout.schema
    check_struct_fields(
        {"target": rows},
        "target",
        ((schema.field(name), text) for name, text in values.items()),
        found.files.layout.name,
    )
    if where is not None:
        rows = rows.take(found.matching(where))
    answer = evaluate({"target": rows}, f"SELECT {INDEX}, {', '.join(sets)} FROM target")
    if answer.num_rows != rows.num_rows:
        raise InvalidError(
            f"{rows.num_rows} rows of table {found.files.layout.name} are to be updated, and what they are set to "
            f"comes to {answer.num_rows}; nothing was written. An expression has one value for each row"
        )
    return answer.rename_columns([INDEX, *values])


def with_values(rows: pa.Table, values: pa.Table, layout: Layout) -> pa.Table:
    """Return rows with some columns replaced by those of the same name, as the table takes them.

    Generated columns that are not among them follow from the others.
    """
    set_ = dict(zip(values.column_names, values.columns, strict=True))
    columns = [set_.get(name, column) for name, column in zip(rows.column_names, rows.columns, strict=True)]
    fields = [pa.field(field.name, set_[field.name].type) if field.name in set_ else field for field in rows.schema]
    rows = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    rows = rows.drop_columns([name for name in layout.generated if name not in set_])
    return taken(with_generated(rows, layout), layout)


def _where(predicate: str | None) -> str:
    return "" if predicate is None else f" where {predicate}"


def _listed(predicate: str | None) -> str:
    """Return a predicate as Delta's history has it: a list of texts, as JSON."""
    import msgspec

    return msgspec.json.encode([] if predicate is None else [predicate]).decode()
