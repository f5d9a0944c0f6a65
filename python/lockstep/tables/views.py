"""Views without Spark: a query of Spark's SQL, recorded as CREATE VIEW of a Spark session with its defaults records it.

    text       the query, as it was written
    schema     the columns that it gives, with Spark's types: judged by `lockstep.tables.select_types`, or as the caller
               says
    catalog    what Spark's sessions call the lake; names of one part are of the namespace `default`, as after USE
    configs    `spark.sql.ansi.enabled`, and UTC as the time zone, which Spark records of every view
    mode       COMPENSATION, Spark's default: a column of another type than it had then is cast to that

What a view names must be there when it is made, and so must what views among that name; none may name the view itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lockstep.arguments import check_texts, current_user
from lockstep.errors import InvalidError, UndefinedError, UnsupportedError
from lockstep.tables.conditions import SYNTAX
from lockstep.tables.layout import Layout
from lockstep.tables.queries import is_part
from lockstep.tables.schema import delta_struct
from lockstep.tables.select_types import columns_of
from lockstep.tables.spark_texts import checked_select
from lockstep.tables.spark_types import UnjudgedError, Value
from lockstep.timeline.entry import Name, Namespace, ViewDefinition, folded
from lockstep.timeline.fold import DEFAULT_NAMESPACE
from lockstep.timeline.functions import is_function, said
from lockstep.transactions.ddl import spelled
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlglot import exp

CONFIGS: Mapping[str, str] = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}

_MODE = "COMPENSATION"
_FIXED_MODES = frozenset({_MODE, "BINDING"})
"""How views are recorded that go on giving the types that they gave."""

RECURSIVE = "42P17"
"""PostgreSQL's invalid_object_definition, of what refers to itself."""

WRONG_SCHEMA = "42804"
WRONG_KIND = "42809"
"""PostgreSQL's wrong_object_type."""

_NO_NAMESPACES = frozenset({"spark_catalog", "global_temp", "session", "system", "builtin"})
"""What Spark takes for something else than a namespace where a name begins with it."""

_OF_COLUMNS = frozenset({"comment"})
_MAPPING = "delta.columnMapping."
_RESERVED = frozenset(
    {"comment", "collation", "external", "is_managed_location", "location", "owner", "provider", "table_type"}
)
_RESERVED_BEGIN = ("view.", "lockstep.", "option.")


class Views:
    """The views that a transaction makes: what their texts name, and which columns they give."""

    def __init__(self, tx: Transaction, layout_of: Callable[[Name], Layout], catalog: str) -> None:
        """Look at a transaction's tables and views.

        Args:
            layout_of: returns the layout of a table, and notes that its columns were asked for.
            catalog: what Spark's sessions call the lake.
        """
        self._tx = tx
        self._layout_of = layout_of
        self._catalog = catalog
        self._sound: set[Name] = set()

    def definition(
        self, name: Name, query: str, schema: pa.Schema | None, properties: Mapping[str, str]
    ) -> ViewDefinition:
        """Return what is recorded of a view.

        Args:
            schema: the columns that the query gives, for one that is not judged here.
            properties: of the view; its comment is one.

        Raises:
            UnsupportedError: which columns it gives is not certain, and `schema` does not say it.
            InvalidError: no query (42601), a `schema` that says other columns than the query gives (42804), a view that
                reads itself (42P17).
            UndefinedError (42P01): it names what is not there.
        """
        if not self._catalog.strip():
            raise InvalidError(f"view {name}: catalog is empty, expected what Spark's sessions call the lake")
        text = query.strip().removesuffix(";").rstrip()
        if "${" in text:  # which Spark replaces by what the session has set that makes a view, and here nobody would
            raise UnsupportedError(f"the query of view {name} has a variable (${{…}}) in it; nothing was made")
        tree = _parsed(text, name)
        self._check_names(tree, self._name, name, [name])
        given = None if schema is None else delta_struct(schema)["fields"]
        try:
            fields, text = self._judged(tree), checked_select(text)
        except UnjudgedError as unjudged:
            if given is None:
                raise UnsupportedError(
                    f"view {name} cannot be made without Spark as it stands: its query {unjudged}. Nothing was made; "
                    "say which columns the query gives (schema=), or make it in Spark with Lockstep"
                ) from unjudged
            _check_named(tree, [field["name"] for field in given], name)
            fields = given
        if given is not None and [_bare(field) for field in given] != [_bare(field) for field in fields]:
            raise InvalidError(
                f"view {name}: schema says {_shown(given)}, and its query gives {_shown(fields)}; nothing was made",
                sqlstate=WRONG_SCHEMA,
            )
        owner = {"owner": user} if (user := current_user()) else {}
        return ViewDefinition(
            text=text,
            schema=msgspec.json.encode({"type": "struct", "fields": fields}).decode(),
            catalog=self._catalog,
            namespace=list(DEFAULT_NAMESPACE),
            configs=dict(CONFIGS),
            mode=_MODE,
            query_columns=[field["name"] for field in fields],
            properties={**owner, **properties, "table_type": "VIEW"},
        )

    def _judged(self, tree: exp.Expr) -> list[dict[str, Any]]:
        from sqlglot import exp

        if not isinstance(tree, exp.Select):
            raise UnjudgedError("is not one SELECT")
        try:
            columns = columns_of(tree, lambda table: self._columns(self._name(table)))
        except RecursionError:
            raise UnjudgedError("has expressions that are too long to be judged") from None
        return [
            {"name": name, "type": value.type, "nullable": value.nullable, "metadata": dict(value.metadata)}
            for name, value in columns
        ]

    def _columns(self, name: Name) -> dict[str, Value]:
        """Return the columns of a table or a view, as Spark's queries get them."""
        view = self._tx.names.views.get(name)
        if view is None:
            fields = list(self._layout_of(name).fields)
        else:
            if view.definition.mode not in _FIXED_MODES:
                raise UnjudgedError(f"reads the view {name}, whose columns follow its query ({view.definition.mode})")
            fields = msgspec.json.decode(view.definition.schema)["fields"]
        return {field["name"]: _value(field, name) for field in fields}

    def _name(self, table: exp.Table, namespace: Namespace = DEFAULT_NAMESPACE, *, is_current: bool = True) -> Name:
        """Return what a name in a view's text means.

        Args:
            namespace: which was current for it.
            is_current: whether the lake's catalog was.
        """
        parts = [part.name for part in table.parts]
        if parts[0] == self._catalog and len(parts) > 2:
            return self._spelled(Name(namespace=tuple(parts[1:-1]), table=parts[-1]))
        is_taken = parts[0] == self._catalog or (len(parts) > 1 and parts[0].lower() in _NO_NAMESPACES)
        if is_taken or not is_current:
            raise UnsupportedError(
                f"the name {'.'.join(parts)} in a view is not judged here, for Spark may look for it in another "
                f"catalog than {self._catalog}: write {self._catalog}.<namespace>.<name>; nothing was made"
            )
        return self._spelled(Name(namespace=tuple(parts[:-1]) or namespace, table=parts[-1]))

    def _spelled(self, name: Name) -> Name:
        """Return how a name is stored, whose case does not count by Spark's defaults (`spark.sql.caseSensitive`)."""
        return spelled(name, self._tx.names)

    def _check(self, name: Name, new: Name, path: list[Name]) -> None:
        """Raise unless a name is a table, or a view all of whose names are, without the one that is made."""
        is_there = name in self._tx.names.tables or name in self._tx.names.views
        if name == new or (folded(name) == folded(new) and not is_there) or name in path[1:]:
            way = " > ".join(str(each) for each in [*path, name])
            raise InvalidError(f"view {new} would read itself: {way}; nothing was made", sqlstate=RECURSIVE)
        if name in self._sound:
            return
        view = self._tx.names.views.get(name)
        if view is None or is_function(view):
            if not is_there or view is not None:
                raise UndefinedError(f"view {new} names {name}, and there is no such table or view; nothing was made")
            return
        self._tx.read_view(name)
        definition = view.definition
        namespace, is_current = tuple(definition.namespace), definition.catalog == self._catalog
        tree = _parsed(definition.text, name)
        self._check_names(tree, lambda table: self._name(table, namespace, is_current=is_current), new, [*path, name])
        self._sound.add(name)

    def _check_names(self, tree: exp.Expr, name_of: Callable[[exp.Table], Name], new: Name, path: list[Name]) -> None:
        """Check what a query names, but for parts of the query itself (WITH)."""
        for table in _tables(tree):
            self._check(name_of(table), new, path)


def refuse_function(tx: Transaction, name: Name) -> None:
    """Raise if what has the name of a view, and is kept as one, is a function.

    Raises:
        InvalidError (42809): it is one.
    """
    view = tx.names.views.get(name)
    if view is not None and is_function(view):
        raise InvalidError(f"{said(name)} is no view: CREATE and DROP FUNCTION are Spark's", sqlstate=WRONG_KIND)


def check_properties(name: Name, properties: Mapping[str, str]) -> None:
    """Raise unless a view may have these properties.

    Raises:
        InvalidError: a key that Spark, or Lockstep, keeps for itself; or no texts.
    """
    check_texts(properties, "properties")
    for key in properties:
        if not key.strip() or key.lower() in _RESERVED or key.lower().startswith(_RESERVED_BEGIN):
            raise InvalidError(
                f"the property {key!r:.100} of view {name} is none of yours, for Spark or Lockstep keeps it for "
                "itself (comment= says a comment); nothing was made"
            )


def _value(field: Mapping[str, Any], name: Name) -> Value:
    metadata = {key: value for key, value in field["metadata"].items() if not key.startswith(_MAPPING)}
    if unknown := metadata.keys() - _OF_COLUMNS:
        raise UnjudgedError(f"reads {name}, of whose column {field['name']} more is said ({min(unknown)})")
    return Value(_plain(field["type"], f"{name}, of whose column {field['name']}"), field["nullable"], metadata)


def _plain(type_: Any, what: str) -> Any:
    """Return a type without what column mapping says of fields of structs."""
    if isinstance(type_, str):
        return type_
    found = {key: _plain(part, what) if key in _PARTS else part for key, part in type_.items()}
    if type_["type"] == "struct":
        found["fields"] = [_plain_field(field, what) for field in type_["fields"]]
    return found


_PARTS = ("elementType", "keyType", "valueType")


def _plain_field(field: Mapping[str, Any], what: str) -> dict[str, Any]:
    metadata = {key: value for key, value in field["metadata"].items() if not key.startswith(_MAPPING)}
    if metadata:
        raise UnjudgedError(f"reads {what} more is said within ({min(metadata)})")
    return {**field, "type": _plain(field["type"], what), "metadata": {}}


def _parsed(text: str, name: Name) -> exp.Query:
    from sqlglot import exp, parse
    from sqlglot.errors import SqlglotError

    try:
        trees = parse(text, read="spark")
    except (SqlglotError, RecursionError, ValueError, LookupError) as error:  # it stumbles over some texts
        raise UnsupportedError(
            f"the query of view {name} is not understood here as Spark's SQL, and nothing was made: {error}"
        ) from error
    if len(trees) != 1 or not isinstance(tree := trees[0], exp.Query) or isinstance(tree, exp.Subquery):
        raise InvalidError(
            f"view {name} is to be one query: SELECT … (got {text[:100]!r}); nothing was made", sqlstate=SYNTAX
        )
    if tree.find(exp.Parameter, exp.Placeholder, exp.SessionParameter, exp.Into):
        raise UnsupportedError(f"the query of view {name} has a parameter in it; nothing was made")
    return tree


def _tables(tree: exp.Expr) -> Iterator[exp.Table]:
    """Yield where a query names tables and views, and no part of the query itself."""
    from sqlglot import exp

    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            raise UnsupportedError(
                f"{table.sql('spark'):.100} in a view is asked in Spark, which knows what it reads: make the view there"
            )
        if any(table.args.get(key) for key in ("version", "when", "changes")):
            raise UnsupportedError(f"{table.sql('spark'):.100}: a view of an older version is made in Spark")
        if table.db or not is_part(table):
            yield table


def _check_named(tree: exp.Query, names: list[str], view: Name) -> None:
    """Raise unless the columns of a query have these names, as it says itself."""
    found = _names_of(tree)
    if "*" in found or found != names or "" in found:
        raise InvalidError(
            f"view {view}: schema has the columns {', '.join(names)}, and its query says {', '.join(found)}: give each "
            "its name there, with AS; nothing was made",
            sqlstate=WRONG_SCHEMA,
        )


def _names_of(tree: exp.Query) -> list[str]:
    """Return what Spark calls the columns of a query; an empty text where it has no name for one but what it says."""
    from sqlglot import exp

    sources = {each.alias_or_name.lower() for each in tree.find_all(exp.Table, exp.Subquery, exp.UDTF)}
    return [_name_of(each.unnest(), sources) for each in tree.selects]


def _name_of(node: exp.Expr, sources: Collection[str]) -> str:
    from sqlglot import exp

    if isinstance(node, exp.Cast):  # to Spark it has the name of a column, and not that of a field
        cast = node.this.unnest()
        is_column = isinstance(cast, exp.Column) and (not cast.table or cast.table.lower() in sources)
        return cast.name if is_column else ""
    is_field = isinstance(node, exp.Dot) and not node.find(exp.Func, exp.Bracket, exp.Subquery)
    is_text = isinstance(node, exp.Literal) and node.is_string
    has_name = isinstance(node, exp.Alias | exp.Column | exp.Star) or is_field or is_text
    return node.output_name if has_name else ""


def _bare(field: Mapping[str, Any]) -> tuple[str, Any]:
    return field["name"], _without_nulls(field["type"])


def _without_nulls(type_: Any) -> Any:
    if isinstance(type_, str):
        return type_
    kept = {key: _without_nulls(type_[key]) for key in _PARTS if key in type_}
    fields = [_bare(field) for field in type_.get("fields", ())]
    return type_["type"], sorted(kept.items(), key=lambda item: item[0]), fields


def _shown(fields: list[dict[str, Any]]) -> str:
    return ", ".join(f"{field['name']} {field['type']!s:.50}" for field in fields)
