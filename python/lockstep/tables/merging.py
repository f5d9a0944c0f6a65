"""MERGE without Spark.

    tx["totals"].merge(updates, on="day").when_matched_update_all().when_not_matched_insert_all().execute()

Clauses are asked in the order in which they were given; for each row the first whose condition is true says what is
done with it. Conditions and expressions are DuckDB's SQL, over `target.<column>` and `source.<column>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.arguments import takes
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.lake.lake import Lake
from lockstep.tables.changes import INDEX, Candidates, Placed
from lockstep.tables.checks import default_of, taken, with_generated
from lockstep.tables.commits import Operation
from lockstep.tables.conditions import checked, condition_of_keys
from lockstep.tables.conform import NO_COLUMN, conform, nullable
from lockstep.tables.layout import RESERVED, Layout
from lockstep.tables.queries import check_one_value_a_row, check_struct_fields, evaluate
from lockstep.tables.reading import FILE, ROW
from lockstep.tables.schema import duckdb_type, quoted
from lockstep.tables.statement import writes
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.tables.table import TransactionTable

CARDINALITY = "21000"
"""PostgreSQL's cardinality_violation."""

CLAUSE = f"{RESERVED}_clause"

When: TypeAlias = Literal["matched", "not matched", "not matched by source"]


@dataclass(frozen=True, slots=True)
class Clause:
    """What is done with rows of one kind.

    Attributes:
        condition: of the rows; None for all.
        values: by column, an expression; None to delete the row, empty for the source's columns of the same names.
    """

    when: When
    condition: str | None
    values: Mapping[str, str] | None


class Merged(NamedTuple):
    """How many rows of the table a merge inserted, updated and deleted."""

    inserted: int
    updated: int
    deleted: int


class Merge:
    """A merge to which clauses are added; nothing is done before `execute`."""

    def __init__(self, table: TransactionTable, source: pa.Table, on: str | Sequence[str]) -> None:
        """Begin with what tells which rows match."""
        self._table = table
        self._source = source
        self._on = on
        self._clauses: list[Clause] = []

    @takes(values=Mapping, condition=str | None)
    def when_matched_update(self, values: Mapping[str, str], condition: str | None = None) -> Self:
        """Set columns of rows that match."""
        return self._add("matched", condition, values)

    @takes(condition=str | None)
    def when_matched_update_all(self, condition: str | None = None) -> Self:
        """Set all columns of rows that match to the source's columns of the same names, which must exist.

        As in `append`, these have the columns' types, or types that say the same: nothing is cast as expressions are.
        """
        return self._add("matched", condition, {})

    @takes(condition=str | None)
    def when_matched_delete(self, condition: str | None = None) -> Self:
        """Delete rows that match."""
        return self._add("matched", condition, None)

    @takes(values=Mapping, condition=str | None)
    def when_not_matched_insert(self, values: Mapping[str, str], condition: str | None = None) -> Self:
        """Insert a row for each source row that matches no row. A column that is left out gets its default, or null."""
        return self._add("not matched", condition, values)

    @takes(condition=str | None)
    def when_not_matched_insert_all(self, condition: str | None = None) -> Self:
        """Insert each source row that matches no row, with all columns of the table, which have their types."""
        return self._add("not matched", condition, {})

    @takes(values=Mapping, condition=str | None)
    def when_not_matched_by_source_update(self, values: Mapping[str, str], condition: str | None = None) -> Self:
        """Set columns of rows that no source row matches."""
        return self._add("not matched by source", condition, values)

    @takes(condition=str | None)
    def when_not_matched_by_source_delete(self, condition: str | None = None) -> Self:
        """Delete rows that no source row matches."""
        return self._add("not matched by source", condition, None)

    @property
    def core(self) -> Transaction:
        """The transaction's own record of what it did."""
        return self._table.core

    @property
    def lake(self) -> Lake:
        """The lake that it is in."""
        return self._table.lake

    @writes
    def execute(self) -> Merged:
        """Execute the merge, as one statement.

        Raises:
            UndefinedError, UnsupportedError: see `TransactionTable.append`.
            InvalidError: no clause, a clause after one that takes all rows, a column that does not exist, an expression
                that DuckDB refuses, a value that a column does not accept; two source rows that change one row (21000).
        """
        table, files = self._table.open_to_change()
        layout = files.layout
        clauses = {when: self._checked(when, layout) for when in ("matched", "not matched", "not matched by source")}
        if not self._clauses:
            raise InvalidError(f"nothing is to be done with the rows that are merged into {layout.name}: say a clause")
        source = _with_types(self._source, layout) if any(map(_is_all, self._clauses)) else self._source
        keys = [self._on] if isinstance(self._on, str) and self._on in source.column_names else self._on
        join = _join(keys, source, layout)
        by_key = (
            None
            if isinstance(keys, str) or clauses["not matched by source"] or layout.is_mapped
            else _keys(keys, source, layout)
        )
        found = self._table.find(table, files, by_key)
        plan = _Plan(found, source, join, layout)
        changed = plan.changed(clauses["matched"], by_source=False)
        _check_once(changed, clauses["matched"], layout)
        orphaned = plan.changed(clauses["not matched by source"], by_source=True)
        inserted = plan.inserted(clauses["not matched"])
        parts = [
            plan.outcome(changed, clauses["matched"]),
            plan.outcome(orphaned, clauses["not matched by source"]),
        ]
        gone = pc.unique(
            pa.chunked_array([*changed.column(INDEX).chunks, *orphaned.column(INDEX).chunks], type=pa.int64())
        )
        updated = sum(part.rows.num_rows for part in parts)
        result = Merged(inserted.num_rows, updated, len(gone) - updated)

        def operation(removed_files: int, copied: int) -> Operation:
            metrics = {
                "numSourceRows": source.num_rows,
                "numTargetRowsInserted": result.inserted,
                "numTargetRowsUpdated": result.updated,
                "numTargetRowsDeleted": result.deleted,
                "numTargetRowsCopied": copied,
                "numTargetFilesRemoved": removed_files,
            }
            return Operation("MERGE", f"merge {layout.name} on {join}", {"predicate": join}, metrics)

        def told() -> list[tuple[str, pa.Table]]:
            chunks = [
                *plan.updated(changed, clauses["matched"]).column(INDEX).chunks,
                *plan.updated(orphaned, clauses["not matched by source"]).column(INDEX).chunks,
            ]
            before = pa.chunked_array(chunks, type=pa.int64())
            deleted = gone.filter(pc.invert(pc.is_in(gone, value_set=before.combine_chunks())))
            return [
                ("delete", found.take(pa.chunked_array([deleted]))),
                ("update_preimage", found.take(before)),
                *(("update_postimage", part.rows) for part in parts),
                ("insert", inserted),
            ]

        self._table.replace(table, found, pa.chunked_array([gone]), [*parts, Placed(inserted)], operation, told=told)
        return result

    def _add(self, when: When, condition: str | None, values: Mapping[str, str] | None) -> Self:
        self._clauses.append(Clause(when, condition, values))
        return self

    def _checked(self, when: When, layout: Layout) -> list[Clause]:
        from lockstep.tables.table import check_columns

        clauses = [clause for clause in self._clauses if clause.when == when]
        if any(clause.condition is None for clause in clauses[:-1]):
            raise InvalidError(f"of the clauses for rows {when}, one without a condition takes all that come after it")
        of_target = () if when == "not matched" else layout.types
        of_source = () if when == "not matched by source" else self._source.column_names
        named = [*of_target, *of_source]
        for clause in clauses:
            if clause.condition is not None:
                checked(clause.condition, f"the condition of a clause for rows {when}", named)
            if clause.values:
                check_columns(clause.values, layout, named)
        spelled = [_spelled_out(clause, self._source, layout) for clause in clauses]
        _check_generated(spelled, layout)
        return spelled


def _is_all(clause: Clause) -> bool:
    """Tell whether a clause sets all columns to the source's of the same names."""
    return clause.values is not None and not clause.values


def _with_types(source: pa.Table, layout: Layout) -> pa.Table:
    """Return rows whose columns have the types of the table's of the same names; none of them must be there yet.

    Raises:
        InvalidError: a value of another type (42804), or that has no room (22003), see `conform`.
    """
    given = {*source.column_names}
    fields = [nullable(field) for field in layout.schema if field.name in given]
    columns = conform(source.select([field.name for field in fields]), pa.schema(fields), layout.name)
    typed = dict(zip(columns.column_names, columns.columns, strict=True))
    types = {field.name: field for field in fields}
    return pa.Table.from_arrays(
        [typed.get(name, column) for name, column in zip(source.column_names, source.columns, strict=True)],
        schema=pa.schema([types.get(field.name, field) for field in source.schema]),
    )


def _spelled_out(clause: Clause, source: pa.Table, layout: Layout) -> Clause:
    """Return a clause whose expressions are all written down."""
    if not _is_all(clause):
        return clause
    given, generated = {*source.column_names}, layout.generated
    wanted = [name for name in layout.types if name in given or name not in generated]
    if missing := [name for name in wanted if name not in given]:
        raise InvalidError(
            f"the rows that are merged have no column {missing[0]!r}, which table {layout.name} has: say which to set",
            sqlstate=NO_COLUMN,
        )
    return Clause(clause.when, clause.condition, {name: f"source.{quoted(name)}" for name in wanted})


def _check_generated(clauses: Sequence[Clause], layout: Layout) -> None:
    """Raise if one clause sets a generated column that another leaves to follow from the others."""
    setting = [clause.values for clause in clauses if clause.values]
    for name in layout.generated:
        if 0 < sum(name in values for values in setting) < len(setting):
            raise UnsupportedError(
                f"column {name} of table {layout.name} is generated, and some of the clauses for the same rows set it: "
                "set it in each of them, or in none. Nothing was written"
            )


def _join(on: str | Sequence[str], source: pa.Table, layout: Layout) -> str:
    """Return the condition by which a row of the source matches one of the table."""
    if isinstance(on, str):
        return f"({checked(on, 'what rows are merged on', [*layout.types, *source.column_names])}\n)"
    for name in on:
        if name not in source.column_names or name not in layout.types:
            raise InvalidError(f"rows are merged on {name!r}, which is not a column of both sides", sqlstate=NO_COLUMN)
    if not on:
        raise InvalidError("rows are merged on no column: name one")
    return " AND ".join(f"target.{quoted(name)} = source.{quoted(name)}" for name in on)


def _keys(on: Sequence[str], source: pa.Table, layout: Layout) -> str | None:
    """Return the condition of Spark's that rows satisfy which a row of the source may match."""
    schema = pa.schema([layout.schema.field(name).with_nullable(True) for name in on])
    return condition_of_keys(conform(source.select(list(on)), schema, layout.name), layout.types)


class _Plan:
    """The rows on both sides of a merge, and what clauses come to over them."""

    def __init__(self, found: Candidates, source: pa.Table, join: str, layout: Layout) -> None:
        self._found = found
        self._relations = {"target": found.rows.drop_columns([FILE, ROW]), "source": source}
        self._join = join
        self._layout = layout

    def changed(self, clauses: Sequence[Clause], *, by_source: bool) -> pa.Table:
        """Return which rows of the table a clause takes: `INDEX`, `CLAUSE`, and columns `value_<n>` that it sets.

        Args:
            by_source: whether they are those that no row of the source matches.
        """
        tables = self._unmatched("target", "source") if by_source else f"target JOIN source ON ({self._join})"
        names = self._set(clauses)
        values = self._values(clauses, names, [f"target.{quoted(name)}" for name in names])
        columns = [f"target.{INDEX} AS {INDEX}", *values]
        return self._select(clauses, columns, tables)

    def _unmatched(self, side: str, other: str) -> str:
        """Return, as what stands after FROM, the rows of one side that match none of the other.

        By a join, for that looks for names on both sides first: in a subquery of one, its column of the other's name,
        a struct, would hide the other.
        """
        return f"(SELECT * FROM {side} ANTI JOIN {other} ON ({self._join})) AS {side}"

    def inserted(self, clauses: Sequence[Clause]) -> pa.Table:
        """Return the rows that clauses insert, as the table takes them."""
        if not clauses:
            return self._layout.schema.empty_table()
        needed = [name for name in self._layout.types if any(name not in (each.values or ()) for each in clauses)]
        # In the one query that gives the rows, so that all times of the statement are one.
        defaults = {name: sql for name in needed if (sql := default_of(self._layout, name)) is not None}
        names = list(dict.fromkeys([*self._set(clauses), *defaults]))
        others = [defaults.get(name, "NULL") for name in names]
        rows = self._select(clauses, self._values(clauses, names, others), self._unmatched("source", "target"))
        return taken(with_generated(rows.drop_columns([CLAUSE]).rename_columns(names), self._layout), self._layout)

    @staticmethod
    def updated(changed: pa.Table, clauses: Sequence[Clause]) -> pa.Table:
        """Return those of `changed` that are updated, and not deleted."""
        updates = [number for number, clause in enumerate(clauses) if clause.values is not None]
        return changed.filter(pc.is_in(changed.column(CLAUSE), value_set=pa.array(updates, pa.int32())))

    def outcome(self, changed: pa.Table, clauses: Sequence[Clause]) -> Placed:
        """Return the rows that updates come to, as the table takes them; what is deleted is left out."""
        from lockstep.tables.table import with_values

        rows = self.updated(changed, clauses)
        values = rows.drop_columns([INDEX, CLAUSE]).rename_columns(self._set(clauses))
        indexes = rows.column(INDEX)
        updated = with_values(self._found.take(indexes), values, self._layout)
        return self._found.placed(updated, indexes, changed=True)

    @staticmethod
    def _set(clauses: Sequence[Clause]) -> list[str]:
        return list(dict.fromkeys(name for clause in clauses for name in clause.values or ()))

    def _values(self, clauses: Sequence[Clause], names: Sequence[str], others: Sequence[str]) -> list[str]:
        """Return what columns are set to.

        Args:
            others: of each column, what it is where a clause leaves it alone.
        """
        columns = []
        for number, (name, other) in enumerate(zip(names, others, strict=True)):
            cases = [
                f"WHEN {at} THEN CAST(({clause.values[name]}\n) AS {duckdb_type(self._layout.types[name])})"
                for at, clause in enumerate(clauses)
                if clause.values and name in clause.values
            ]
            value = f"CASE {CLAUSE} {' '.join(cases)} ELSE {other} END" if cases else other
            columns.append(f"{value} AS {RESERVED}_value_{number}")
        return columns

    def _select(self, clauses: Sequence[Clause], columns: Sequence[str], tables: str) -> pa.Table:
        cases = [f"WHEN ({clause.condition or 'true'}\n) THEN {number}" for number, clause in enumerate(clauses)]
        which = f"CASE {' '.join(cases)} ELSE -1 END" if cases else "-1"
        texts = [text for clause in clauses for text in (clause.condition, *(clause.values or {}).values()) if text]
        check_one_value_a_row(self._relations, tables, texts)
        fields = self._layout.schema
        sets = [(fields.field(name), text) for each in clauses for name, text in (each.values or {}).items()]
        check_struct_fields(self._relations, tables, sets, self._layout.name)
        asked = ", ".join([f"CAST({which} AS INTEGER) AS {CLAUSE}", *columns])
        inner = f"SELECT {asked} FROM {tables} WHERE {'true' if clauses else 'false'}"
        return evaluate(self._relations, f"SELECT * FROM ({inner}) WHERE {CLAUSE} >= 0")


def _check_once(changed: pa.Table, clauses: Sequence[Clause], layout: Layout) -> None:
    """Raise if two rows of the source change one row, unless all that they can do is delete it."""
    only_deletes = len(clauses) == 1 and clauses[0].condition is None and clauses[0].values is None
    if not only_deletes and len(pc.unique(changed.column(INDEX))) < changed.num_rows:
        raise InvalidError(
            f"two rows of those that are merged change one row of table {layout.name}: make them one first",
            sqlstate=CARDINALITY,
        )
