"""ALTER TABLE without Spark: columns, properties, comments and constraints of a table in a transaction.

tx["sales.orders"].alter.add_columns(pa.schema([("note", pa.string())]))
tx["sales.orders"].alter.add_constraint({"positive": "amount > 0"})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from lockstep.arguments import check_texts, list_of_names, takes
from lockstep.errors import InvalidError
from lockstep.lake.lake import Lake
from lockstep.tables.checks import check_rows
from lockstep.tables.commits import Operation
from lockstep.tables.evolving import (
    with_columns,
    with_comment,
    with_constraint,
    with_description,
    with_name,
    with_properties,
    without_columns,
    without_constraint,
)
from lockstep.tables.layout import Layout
from lockstep.tables.statement import writes
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.tables.table import TransactionTable

NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


class Alteration:
    """What may be changed of a table; each call is one statement, and is called as deltalake's `alter` calls it."""

    def __init__(self, table: TransactionTable) -> None:
        """Change nothing yet."""
        self._table = table

    @property
    def core(self) -> Transaction:
        """The transaction's own record of what it did."""
        return self._table.core

    @property
    def lake(self) -> Lake:
        """The lake that it is in."""
        return self._table.lake

    @writes
    @takes(columns=pa.Schema | pa.Field | Iterable)
    def add_columns(self, columns: pa.Schema | pa.Field | Iterable[pa.Field]) -> None:
        """Add columns at the table's end; rows that are there are null in them.

        Raises:
            UndefinedError, UnsupportedError: as `TransactionTable.append`; a type that Delta has not.
            InvalidError: a column that is there (42701), is NOT NULL, or cannot be one.
        """
        fields = [columns] if isinstance(columns, pa.Field) else list(columns)
        if wrong := [each for each in fields if not isinstance(each, pa.Field)]:
            raise InvalidError(
                f"columns has {wrong[0]!r:.100}, of type {type(wrong[0]).__name__}: expected Arrow's fields"
            )
        schema = pa.schema(fields)
        names = ", ".join(schema.names)
        self._change(
            "ADD COLUMNS",
            f"add columns {names}",
            lambda layout: with_columns(layout, schema),
            parameters={"columns": names},
        )

    @writes
    @takes(column=str, new_name=str)
    def rename_column(self, column: str, new_name: str) -> None:
        """Give a column another name, in a table whose columns are mapped by name (`delta.columnMapping.mode`).

        Raises:
            InvalidError: no such column (42703), a name that is taken (42701) or cannot be one.
            UnsupportedError: columns are not mapped; a constraint speaks of the column.
        """
        parameters = {"oldColumnPath": column, "newColumnPath": new_name}
        text = f"rename column {column} to {new_name}"
        self._change("RENAME COLUMN", text, lambda layout: with_name(layout, column, new_name), parameters=parameters)

    @writes
    @takes(columns=str | Iterable)
    def drop_columns(self, columns: str | Iterable[str]) -> None:
        """Drop columns, in a table whose columns are mapped by name; its files stay as they are.

        Raises:
            InvalidError: no such column (42703), one that the table is partitioned by, or all of them.
            UnsupportedError: columns are not mapped; a constraint speaks of a column.
        """
        gone = [columns] if isinstance(columns, str) else list_of_names(columns, "columns")
        said = {"columns": msgspec.json.encode(gone, enc_hook=str).decode()}
        text = f"drop columns {', '.join(gone)}"
        self._change("DROP COLUMNS", text, lambda layout: without_columns(layout, gone), parameters=said)

    @writes
    @takes(properties=Mapping)
    def set_table_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table: any of your own, and those of Delta's that are known here.

        Raises:
            UnsupportedError: another of Delta's own.
            InvalidError: what is none of Delta's or Lockstep's, or a value that the property does not take (22023).
        """
        said = msgspec.json.encode(dict(properties), enc_hook=str).decode()
        change = f"set properties {', '.join(map(str, properties))}"
        self._change(
            "SET TBLPROPERTIES",
            change,
            lambda layout: with_properties(layout, properties),
            parameters={"properties": said},
        )

    @writes
    @takes(names=Iterable)
    def unset_table_properties(self, names: Iterable[str]) -> None:
        """Unset properties of the table; one that is not there is passed over.

        Raises:
            UnsupportedError: one of Delta's own that is not known here.
        """
        gone = [names] if isinstance(names, str) else list_of_names(names, "names")
        change = f"unset properties {', '.join(gone)}"
        self._change("UNSET TBLPROPERTIES", change, lambda layout: with_properties(layout, {}, gone))

    @writes
    @takes(text=str | None)
    def set_table_description(self, text: str | None) -> None:
        """Set the table's comment; None takes it away."""
        self._change("SET TBLPROPERTIES", "set its comment", lambda layout: with_description(layout, text))

    @writes
    @takes(column=str, text=str | None)
    def set_column_comment(self, column: str, text: str | None) -> None:
        """Set the comment of a column; None takes it away.

        Raises:
            InvalidError (42703): no such column.
        """
        self._change("CHANGE COLUMN", f"comment on {column}", lambda layout: with_comment(layout, column, text))

    @writes
    @takes(constraints=Mapping)
    def add_constraint(self, constraints: Mapping[str, str]) -> None:
        """Add CHECK constraints, by name a condition of Spark's SQL; as in Delta, one that is null does not hold.

        Raises:
            UnsupportedError: a condition that DuckDB may not judge as Spark does.
            DuplicateError (42710): there is one of that name. InvalidError (23514): a row does not keep it.
        """
        check_texts(constraints, "constraints")

        def change(layout: Layout) -> Layout:
            for name, condition in constraints.items():
                layout = with_constraint(layout, name, condition)
            return layout

        said = msgspec.json.encode(dict(constraints), enc_hook=str).decode()
        text = f"add constraints {', '.join(constraints)}"
        self._change("ADD CONSTRAINT", text, change, check=True, parameters={"constraints": said})

    @writes
    @takes(name=str)
    def drop_constraint(self, name: str) -> None:
        """Drop a CHECK constraint.

        Raises:
            UndefinedError (42704): there is none of that name.
        """
        text = f"drop constraint {name}"
        self._change(
            "DROP CONSTRAINT", text, lambda layout: without_constraint(layout, name), parameters={"name": name}
        )

    def _change(
        self,
        operation: str,
        text: str,
        change: Callable[[Layout], Layout],
        *,
        check: bool = False,
        parameters: Mapping[str, str] = NO_PARAMETERS,
    ) -> None:
        table, files = self._table.open_to_append()
        after = change(files.layout)
        after.check_writable(only_appends=True)
        if check:
            check_rows(self._table.find(table, files, None).rows, after)
        said = Operation(operation, f"alter {files.layout.name}: {text}", parameters)
        self._table.evolve(table, files.layout, after, said)
