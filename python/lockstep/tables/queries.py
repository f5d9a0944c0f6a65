"""DuckDB over rows that are in memory: predicates of statements, and queries of tables of a lake.

It reads nothing but what it is given: no files, no variables of the caller. So a query reads tables of the lake, whose
reads are recorded, and relations that were named as such.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from lockstep.arguments import check_text
from lockstep.errors import InvalidError, UndefinedError, UnsupportedError
from lockstep.tables.conditions import SYNTAX
from lockstep.tables.conform import NO_COLUMN, OUT_OF_RANGE, WRONG_TYPE, arrow_table, check_fields
from lockstep.tables.interrupting import interrupted, stoppable, was_stopped
from lockstep.tables.layout import RESERVED
from lockstep.tables.schema import quoted
from lockstep.timeline.entry import Name
from lockstep.timeline.fold import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from sqlglot import exp

AMBIGUOUS = "42702"
"""PostgreSQL's ambiguous_column, as Lockstep says of tables, too."""

RESERVED_NAME = "42939"
"""PostgreSQL's reserved_name."""

NO_FUNCTION = "42883"
"""PostgreSQL's undefined_function."""

_NO_FUNCTION = re.compile(r"Catalog Error: [A-Za-z ]*Function with name ")

_DATABASE = "memory"
"""What DuckDB calls its database in `connected`."""

_WHOLE_NAMES = frozenset({(_DATABASE, "temp"), (_DATABASE, "system"), (_DATABASE, _DATABASE)})
"""How namespaces are named that are called as a database of DuckDB's: by the schema alone it does not know which."""


@contextmanager
def connected() -> Iterator[DuckDBPyConnection]:
    """Connect to a DuckDB of its own, in memory, that reaches nothing outside; its times are in UTC.

    What it computes may be interrupted, see `lockstep.tables.interrupting`.
    """
    import duckdb

    with as_ours():
        connection = duckdb.connect(":memory:", config={"enable_external_access": "false"})
        connection.execute("SET python_enable_replacements = false")
        connection.execute("SET TimeZone = 'UTC'")
    try:
        with interrupted(connection):
            yield connection
    finally:
        connection.close()


def evaluate(relations: Mapping[str, pa.Table], query: str) -> pa.Table:
    """Return the answer to a query over rows in memory.

    Args:
        relations: by name, what the query may read.

    Raises:
        InvalidError: DuckDB refuses the query, or a value in it.
    """
    with connected() as connection:
        for name, table in relations.items():
            _register_rows(connection, name, table)
        return answer(connection, query)


def _register_rows(connection: DuckDBPyConnection, name: str, rows: Any) -> None:
    """Register rows by a name.

    Raises:
        InvalidError, UnsupportedError: DuckDB does not take them, as rows without columns, or half floats (0A000).
    """
    with as_ours():
        connection.register(name, rows)


def check_one_value_a_row(relations: Mapping[str, pa.Table], tables: str, expressions: Iterable[str]) -> None:
    """Raise unless expressions have one value for each row, whatever functions they are made of.

    DuckDB takes nothing else in a WHERE: no aggregates, no windows, and nothing that makes rows or loses them.

    Args:
        relations: by name, what the expressions may read; their rows do not matter.
        tables: what stands after FROM.

    Raises:
        InvalidError: DuckDB refuses one of them.
    """
    empty = {name: table.slice(0, 0) for name, table in relations.items()}
    conditions = " OR ".join(f"(({text}\n) IS NULL)" for text in expressions)
    if conditions:
        evaluate(empty, f"SELECT 1 FROM {tables} WHERE {conditions}")


def check_struct_fields(
    relations: Mapping[str, pa.Table], tables: str, values: Iterable[tuple[pa.Field, str]], table: str
) -> None:
    """Raise unless structs that columns are set to have fields of the columns alone, see `conform.check_fields`.

    Args:
        relations, tables: as in `check_one_value_a_row`.
        values: a column, and the expression that it is set to.
        table: its name, for messages.

    Raises:
        InvalidError: one has another (42703); DuckDB refuses an expression.
    """
    nested = [(field, text) for field, text in values if pa.types.is_nested(field.type)]
    if not nested:
        return
    empty = {name: rows.slice(0, 0) for name, rows in relations.items()}
    asked = ", ".join(f"({text}\n) AS {RESERVED}_value_{number}" for number, (_, text) in enumerate(nested))
    given = evaluate(empty, f"SELECT {asked} FROM {tables}").schema.types
    for type_, (field, _) in zip(given, nested, strict=True):
        check_fields(type_, field.type, f"column {field.name} of table {table}")


def answer(connection: DuckDBPyConnection, query: str) -> pa.Table:
    """Return the answer to a query on a connection.

    Raises:
        InvalidError: DuckDB refuses the query, or a value in it.
    """
    with as_ours():
        return stoppable(connection, lambda: connection.sql(query).to_arrow_table())


@contextmanager
def as_ours() -> Iterator[None]:
    """Raise what DuckDB refuses in the block as Lockstep's error, with DuckDB's words.

    Raises:
        KeyboardInterrupt: that came while DuckDB asked for rows.
        MemoryError: there is too little memory, as where Arrow finds that out.
        InvalidError: it refuses anything else.
    """
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        if was_stopped(error):
            raise KeyboardInterrupt from error
        if isinstance(error, duckdb.OutOfMemoryException):
            raise MemoryError(f"DuckDB: {error}") from error
        raise _refusal(error) from error


def _refusal(error: Exception) -> InvalidError:
    import duckdb

    states: dict[type[Exception], str] = {
        duckdb.ParserException: SYNTAX,
        duckdb.CatalogException: "42P01",
        duckdb.BinderException: NO_COLUMN,
        duckdb.OutOfRangeException: OUT_OF_RANGE,
        duckdb.ConversionException: "22018",
    }
    if isinstance(error, duckdb.NotImplementedException):
        return UnsupportedError(f"DuckDB: {error}")
    kind = UndefinedError if isinstance(error, duckdb.CatalogException) else InvalidError
    state = NO_FUNCTION if _NO_FUNCTION.match(str(error)) else states.get(type(error), "22023")
    return kind(f"DuckDB: {error}", sqlstate=state)


def check_query(query: str) -> None:
    """Raise unless a text is one query.

    Raises:
        InvalidError (42601): it is no statement, or several.
        UnsupportedError: a statement that changes something.
    """
    import duckdb

    with as_ours(), connected() as connection:
        statements = connection.extract_statements(query)
    if len(statements) != 1:
        raise InvalidError(f"{len(statements)} statements: give one query", sqlstate=SYNTAX)
    if statements[0].type != duckdb.StatementType.SELECT:
        raise UnsupportedError(
            "only a query: rows are changed by tx[name].append, overwrite, delete, update and merge, and tables are "
            "made by tx.create"
        )


def check_column_names(names: Iterable[str], what: str) -> None:
    """Raise unless columns have names that DuckDB tells apart: it ignores case, and would rename the second.

    Args:
        what: has the columns, for messages.

    Raises:
        InvalidError (42804): two are one.
    """
    seen: dict[str, str] = {}
    for name in names:
        check_text(name, f"{what} have a column whose name")
        if (other := seen.get(name.casefold())) is not None:
            raise InvalidError(
                f"{what} have the columns {other!r} and {name!r}, which are one name to DuckDB, which ignores case: "
                "rename one, or leave it out",
                sqlstate=WRONG_TYPE,
            )
        seen[name.casefold()] = name


def check_not_reserved(names: Iterable[str], what: str) -> None:
    """Raise InvalidError (42939) if one of some names is Lockstep's own, in whatever case."""
    if name := next((name for name in names if name.casefold().startswith(RESERVED)), None):
        raise InvalidError(f"{what}: {name!r}, and {RESERVED}… is Lockstep's own", sqlstate=RESERVED_NAME)


def given_relation(data: Any, name: str) -> Any:
    """Return rows that a caller names in a query as DuckDB registers them.

    Those of a dataset, and of Arrow's own readers, are not read yet.

    Raises:
        InvalidError: what is no rows, see `arrow_table`; or two columns of one name (42804).
    """
    if data is None or isinstance(data, Mapping | list | tuple) or _is_of_others(data):
        data = arrow_table(data)
    if hasattr(data, "collect_schema"):  # of Polars, where `schema` of a lazy frame would warn
        names = data.collect_schema().names()
    elif isinstance(schema := getattr(data, "projected_schema", getattr(data, "schema", None)), pa.Schema):
        names = schema.names
    else:  # of pandas
        names = [str(column) for column in getattr(data, "columns", ())]
    check_column_names(names, f"the rows that the query calls {name}")
    return data


def _is_of_others(data: Any) -> bool:
    """Tell whether rows are of a library that is not known here, and that gives them by Arrow's interface.

    It may give them once alone, and DuckDB asks as often as the query names them; and it says no names of columns.
    """
    if isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader) or hasattr(data, "collect_schema"):
        return False
    is_pandas = type(data).__module__.partition(".")[0] == "pandas"
    return not is_pandas and hasattr(data, "__arrow_c_stream__")


def run_query(query: str, read: Callable[[Name], Any], relations: Mapping[str, Any]) -> pa.Table:
    """Return the answer to a query over tables of a lake.

    Args:
        read: returns what DuckDB can register of a table; asked once for each that the query names.
        relations: by name, what else the query may read; such a name hides a table's that is named without a namespace.

    Raises:
        InvalidError (42702): names of two tables, or of two relations, are one to DuckDB.
        InvalidError, UnsupportedError: see `check_query`, `given_relation` and `evaluate`.
        LockstepError: as `read` says.
    """
    check_query(query)
    hidden = _check_relation_names(relations)
    with connected() as connection:
        for alias, relation in relations.items():
            _register_rows(connection, alias, given_relation(relation, alias))
        found: dict[Name, Any] = {}
        for name, named in tables_in(query).items():
            if named.is_bare and name.table.casefold() in hidden:
                continue
            with suppress(*() if named.is_sure else (UndefinedError,)):
                found[name] = read(name)
                _refuse_hidden(name, hidden)
        refuse_two_of_one_name(found, "ask for them in a query each")
        for number, (name, data) in enumerate(found.items()):
            register(connection, name, data, f"{RESERVED}_{number}")
        return answer(connection, query)


def _check_relation_names(names: Iterable[str]) -> set[str]:
    """Return the names of relations as DuckDB compares them.

    Raises:
        InvalidError: two are one (42702), or one is Lockstep's own (42939).
    """
    for name in names:
        check_text(name, "a name of rows that are given")
    check_not_reserved(names, "rows are given by the name")
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.casefold(), name)) != name:
            raise InvalidError(
                f"rows are given by the names {other!r} and {name!r}, which are one to DuckDB, which ignores case",
                sqlstate=AMBIGUOUS,
            )
    return {*seen}


def _refuse_hidden(name: Name, hidden: Collection[str]) -> None:
    """Raise InvalidError (42702) for a table of the namespace `main`, where relations of a query are to DuckDB."""
    if ".".join(name.namespace).casefold() == "main" and name.table.casefold() in hidden:
        raise InvalidError(
            f"table {name} has one name in DuckDB with rows that are given by the name {name.table}: give them by "
            "another",
            sqlstate=AMBIGUOUS,
        )


def refuse_two_of_one_name(names: Iterable[Name], instead: str) -> None:
    """Raise unless DuckDB tells names of tables apart: it ignores case, and takes a namespace's parts for one name.

    Args:
        instead: what to do about it.

    Raises:
        InvalidError (42702): two are one.
    """
    seen: dict[tuple[str, str], Name] = {}
    for name in names:
        schema = ".".join(name.namespace).casefold()
        schemas = ("main", schema) if schema == "default" else (schema,)
        others = [seen.setdefault((each, name.table.casefold()), name) for each in schemas]
        if other := next((each for each in others if each != name), None):
            raise InvalidError(
                f"tables {other} and {name} of namespaces {other.namespace} and {name.namespace} have one name in "
                f"DuckDB: {instead}",
                sqlstate=AMBIGUOUS,
            )


class Named(NamedTuple):
    """How a query names a table.

    Attributes:
        is_bare: without a namespace wherever it does.
        is_sure: whether it must be a table; else DuckDB may take it for a part of the query (WITH).
    """

    is_bare: bool
    is_sure: bool


def tables_in(query: str) -> dict[Name, Named]:
    """Return the tables that a query names.

    What is not found here DuckDB does not find either, so no table is read without a word.

    Raises:
        UnsupportedError: a query that is not understood.
        InvalidError: a name of more parts than DuckDB has for a schema and a table.
    """
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one(query, read="duckdb")
    except (SqlglotError, RecursionError, ValueError, LookupError) as error:  # it stumbles over some texts
        raise UnsupportedError(
            f"which tables this query names is not understood: write it in other words ({error})"
        ) from error
    parts = {each.alias.lower() for each in tree.find_all(exp.CTE)}
    names: dict[Name, Named] = {}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue  # a function
        if not table.db and is_part(table):
            continue
        if table.catalog and (table.catalog.lower(), table.db.lower()) not in _WHOLE_NAMES:
            raise InvalidError(
                f"{table.sql('duckdb')}: write a namespace of several parts in one pair of quotes, "
                f'"{table.catalog}.{table.db}".{table.name}'
            )
        namespace = tuple(table.db.split(".")) if table.db else DEFAULT_NAMESPACE
        name, is_bare = Name(namespace=namespace, table=table.name), not table.db
        is_sure = not is_bare or table.name.lower() not in parts
        before = names.get(name, Named(is_bare, is_sure))
        names[name] = Named(before.is_bare and is_bare, before.is_sure or is_sure)
    return names


def is_part(table: exp.Table) -> bool:
    """Tell whether a name is of a part of a query (WITH) that is known where it stands: of those before it."""
    from sqlglot import exp

    node: exp.Expr = table
    while (parent := node.parent) is not None:
        known: list[exp.Expr] = []
        if isinstance(parent, exp.With):
            at = next(number for number, each in enumerate(parent.expressions) if each is node)
            known = parent.expressions[: at + 1 if parent.args.get("recursive") else at]
        elif (with_ := parent.args.get("with_")) is not None and with_ is not node:
            known = with_.expressions
        if table.name.lower() in (each.alias.lower() for each in known):
            return True
        node = parent
    return False


def register(connection: DuckDBPyConnection, name: Name, data: Any, alias: str) -> None:
    """Make a table of a lake a view of a connection, in the schema that its namespace is.

    Args:
        alias: under which name the data itself is registered; no other may have it.

    Raises:
        InvalidError: DuckDB refuses it, as where it has something else of that name.
    """
    with as_ours():
        connection.register(alias, data)
        # By its whole name: there is a database `temp`, too, and somebody's own may be called as a schema.
        [[database]] = connection.execute("SELECT current_database()").fetchall()
        schemas = [".".join(name.namespace), *(["main"] if name.namespace == DEFAULT_NAMESPACE else [])]
        for schema in (f"{quoted(database)}.{quoted(each)}" for each in schemas):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            connection.execute(f"CREATE OR REPLACE VIEW {schema}.{quoted(name.table)} AS SELECT * FROM {quoted(alias)}")
