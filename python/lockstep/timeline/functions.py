"""SQL functions of a catalog, which the timeline keeps among its views: isolated, restored and read as these are.

A function `f` is the view `f()`, a name that nobody gives a view by accident, and its definition says what it is under
the key `PROPERTY`. So the format of the timeline is the same, and a Lockstep from before there were functions sees a
view that it cannot query: the text of one is no query, or has columns that no table has.
"""

from __future__ import annotations

import msgspec

from lockstep.errors import CorruptTimelineError, InvalidError, UnsupportedError
from lockstep.timeline.entry import Name, Value, View, ViewDefinition

PROPERTY = "lockstep.function"
"""Under this key among the properties of a view's definition a function keeps what no view has."""

COMMENT = "comment"
"""Under this one Spark keeps the comment of a view."""

_PARENTHESES = "()"


class FunctionDefinition(Value, frozen=True):
    """What a SQL function says, and all that gives its body a meaning; Spark's to interpret (its SQLFunction).

    `body` is an expression, or a query if `is_query`: of one value, or of a table if `is_table`. `parameters` and
    `returns` are Spark's JSON of a struct: of the parameters with their defaults, None if it was made without a list of
    them; of the table's columns, or of one field, which has the type of the result. `catalog` and `namespace` were
    current when the function was made, and names in the body are looked for there. `configs` were the SQL settings: the
    body is analyzed with them.
    """

    body: str
    is_query: bool
    parameters: str | None
    returns: str
    is_table: bool
    is_deterministic: bool
    comment: str | None
    collation: str | None
    catalog: str
    namespace: list[str]
    configs: dict[str, str]


class _OfFunction(Value, frozen=True):
    """What a function has, and a view has not."""

    is_query: bool = False
    is_table: bool = False
    parameters: str | None = None
    is_deterministic: bool = True
    collation: str | None = None


_decoder = msgspec.json.Decoder(_OfFunction)


def stored_as(function: str) -> str:
    """Return the last part of the name under which a function is kept."""
    return function + _PARENTHESES


def is_stored_as(name: str) -> bool:
    """Tell whether the last part of a name is one under which a function may be kept."""
    return name.endswith(_PARENTHESES)


def check_properties(name: Name, view: ViewDefinition) -> None:
    """Raise InvalidError if a view that is to be made has the property by which functions are told from views."""
    if PROPERTY in view.properties:
        raise InvalidError(
            f"view {name} cannot have the property {PROPERTY}, by which functions are told from views: leave it out"
        )


def called(name: Name) -> str:
    """Return what a function is called whose name is kept like this, without its namespace."""
    return name.table.removesuffix(_PARENTHESES)


def shown(name: Name) -> str:
    """Return the whole name of a function whose name is kept like this."""
    return str(name).removesuffix(_PARENTHESES)


def said(name: Name) -> str:
    """Return how a message names what is kept as a view: as a view, or as the function that it is."""
    return f"function {shown(name)}" if is_stored_as(name.table) else f"view {name}"


def is_function(view: View) -> bool:
    """Tell whether what is kept as a view is a function."""
    return is_stored_as(view.name.table) and PROPERTY in view.definition.properties


def as_view(function: FunctionDefinition) -> ViewDefinition:
    """Return a function as the timeline keeps it."""
    own = _OfFunction(
        is_query=function.is_query,
        is_table=function.is_table,
        parameters=function.parameters,
        is_deterministic=function.is_deterministic,
        collation=function.collation,
    )
    comment = {} if function.comment is None else {COMMENT: function.comment}
    return ViewDefinition(
        text=function.body,
        schema=function.returns,
        catalog=function.catalog,
        namespace=function.namespace,
        configs=function.configs,
        properties={PROPERTY: msgspec.json.encode(own).decode(), **comment},
    )


def as_function(view: View) -> FunctionDefinition:
    """Return what a function says that is kept as a view.

    Raises:
        UnsupportedError: a newer Lockstep made it, and it says what this one does not know.
        CorruptTimelineError: it is damaged.
    """
    definition = view.definition
    try:
        own = _decoder.decode(definition.properties[PROPERTY])
    except msgspec.ValidationError as error:
        raise UnsupportedError(
            f"{said(view.name)} says what this Lockstep does not know ({error}), so nothing was done: use the Lockstep "
            "that made it, or a newer one"
        ) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise CorruptTimelineError(f"{said(view.name)} is damaged in the timeline: {error}") from None
    return FunctionDefinition(
        body=definition.text,
        is_query=own.is_query,
        is_table=own.is_table,
        parameters=own.parameters,
        returns=definition.schema,
        is_deterministic=own.is_deterministic,
        comment=definition.properties.get(COMMENT),
        collation=own.collation,
        catalog=definition.catalog or "",
        namespace=definition.namespace,
        configs=definition.configs,
    )
