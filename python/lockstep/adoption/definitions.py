"""Which views and SQL functions of a schema of Spark's session catalog a lake makes as well, with its tables. Pure.

A text goes with the tables if it means the same in the lake: each table, view and function that it names is one of the
schema's that the lake is to have, and the name, looked for where the lake is to have them, means that one. All else
stays where it is, and has a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from lockstep.adoption.adopt import Found
from lockstep.adoption.schemas import ADOPTED, SESSION_CATALOG, Sorted, adopted_from
from lockstep.errors import InvalidError, UndefinedError
from lockstep.timeline.entry import Name, Namespace, ViewDefinition
from lockstep.timeline.functions import FunctionDefinition, as_view, check_properties, is_stored_as, stored_as
from lockstep.transactions.ddl import check_size

NO_FUNCTION = "42883"
"""The SQLSTATE of a function that there is not, as Spark says it."""


@dataclass(frozen=True, slots=True)
class Named:
    """A name in a text.

    Attributes:
        written: its parts, as the text has them.
        meaning: the whole name that this is where the text was made.
    """

    written: Sequence[str]
    meaning: Sequence[str]


@dataclass(frozen=True, slots=True)
class Defined:
    """A view or a function, as the session catalog tells it.

    Attributes:
        name: its last part.
        is_function: whether it is a function; a view may have the same name.
        view: what it says, if it is a view that can be looked at.
        function: the same of a SQL function.
        problem: what keeps it from being a lake's, whatever it names; None if nothing does.
        reads: the tables and views that it names.
        calls: the functions that it names and that are not Spark's own.
    """

    name: str
    is_function: bool = False
    view: ViewDefinition | None = None
    function: FunctionDefinition | None = None
    problem: str | None = None
    reads: Sequence[Named] = ()
    calls: Sequence[Named] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """From where to where a schema is taken.

    Attributes:
        schema: its name in the session catalog.
        catalog: what the session calls the lake.
        namespace: where the lake is to have what the schema has.
        same: what two names have in common that are one to the session: its spelling, or that without its case.
    """

    schema: str
    catalog: str
    namespace: Namespace
    same: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _There:
    """What the lake is to have in the namespace, as `Move.same` has names: tables with views, and functions."""

    relations: frozenset[str]
    functions: frozenset[str]


def with_definitions(found: Sorted, listed: Iterable[Defined], move: Move, taken: Collection[str]) -> Sorted:
    """Part the views and functions of a schema, too: those that mean the same in the lake from the others.

    Args:
        found: what else is listed in it, and its views, with a reason that they stay.
        taken: the last parts of the names of what the lake has in the namespace already.
    """
    ordered = sorted(listed, key=lambda each: (each.name, each.is_function))
    tables = [each.name.table for each in found.wanted]
    used = {move.same(name) for name in (*tables, *taken)}
    reasons = {_kept_as(each): reason for each in ordered if (reason := _alone(each, move, used)) is not None}
    while True:
        going = [each for each in ordered if _kept_as(each) not in reasons]
        there = _there(tables, going, move)
        more = {_kept_as(each): reason for each in going if (reason := _together(each, move, there)) is not None}
        if not more:
            break
        reasons |= more  # and what names one of these stays as well
    views = {each.name for each in ordered if not each.is_function}
    left = [each for each in found.left if each.name.table not in views]
    left += [Found(_name(last, move), "", reason=reason) for (last, _), reason in reasons.items()]
    made = [(_name(_kept_as(each)[0], move), _moved(each, move)) for each in going]
    return Sorted(found.wanted, sorted(left, key=lambda each: each.name), made)


@dataclass(frozen=True, slots=True)
class Held:
    """What the lake has in the namespace already, by the last parts of the names.

    Attributes:
        tables: its tables.
        same: those of them that are the schema's of the same name.
        views: its views, and functions as such.
    """

    tables: Collection[str]
    same: Collection[str]
    views: Mapping[str, ViewDefinition]

    @property
    def names(self) -> list[str]:
        """All of the names."""
        return [*self.tables, *self.views]


def one_of(last: str, *, is_function: bool, listed: Sequence[Defined], move: Move, held: Held) -> Sorted:
    """Return a view or a function of a schema as what a lake makes, or as what stays, with the reason.

    What its text names has to be in the lake by now: the schema's table, or what the view, or function, there would be.

    Raises:
        UndefinedError (42P01, 42883): there is none.
    """
    kind = "function" if is_function else "view"
    found = [each for each in listed if each.is_function == is_function and move.same(each.name) == move.same(last)]
    if not found:
        raise UndefinedError(
            f"no {kind} {adopted_from(move.schema, last)}, or none that a lake could have before Spark 4.2. "
            "Nothing was made",
            sqlstate=NO_FUNCTION if is_function else None,
        )
    each = found[0]
    kept = {move.same(name): definition for name, definition in held.views.items()}
    going = [
        other
        for other in listed
        if other.problem is None and kept.get(move.same(_kept_as(other)[0])) == _moved(other, move)
    ]
    used = {move.same(name) for name in held.names}
    name = _name(_kept_as(each)[0], move)
    reason = _alone(each, move, used) or _together(each, move, _there(held.same, going, move))
    if reason is not None:
        return Sorted([], [Found(name, "", reason=reason)])
    return Sorted([], [], [(name, _moved(each, move))])


def _there(tables: Iterable[str], going: Sequence[Defined], move: Move) -> _There:
    views = [each.name for each in going if not each.is_function]
    return _There(
        frozenset(move.same(name) for name in (*tables, *views)),
        frozenset(move.same(each.name) for each in going if each.is_function),
    )


def _kept_as(each: Defined) -> tuple[str, bool]:
    """Return the last part of the name under which a lake keeps it, and whether it is a function's."""
    return (stored_as(each.name) if each.is_function else each.name, each.is_function)


def _name(last: str, move: Move) -> Name:
    return Name(namespace=move.namespace, table=last)


def _moved(each: Defined, move: Move) -> ViewDefinition:
    """Return a definition as if it had been made in the lake's namespace."""
    if each.function is not None:
        return structs.replace(as_view(each.function), catalog=move.catalog, namespace=[*move.namespace])
    assert each.view is not None, "what says nothing has a problem"
    properties = {**each.view.properties, ADOPTED: adopted_from(move.schema, each.name)}
    return structs.replace(each.view, catalog=move.catalog, namespace=[*move.namespace], properties=properties)


def _alone(each: Defined, move: Move, used: Collection[str]) -> str | None:
    """Return why something stays, whatever other definition is taken; None if nothing keeps it.

    Args:
        used: the names that tables have, or get, or that the lake has given already, as `Move.same` has them.
    """
    if each.problem is not None:
        return f"it {each.problem}"
    if not each.is_function and is_stored_as(each.name):
        return "its name is one under which a lake keeps a function: ALTER VIEW … RENAME TO another name first"
    last, _ = _kept_as(each)
    if move.same(last) in used:
        return "the lake has, or gets, something of that name already: DROP that first, or leave this where it is"
    name = _name(last, move)
    try:
        if each.view is not None:
            check_properties(name, each.view)
        check_size(name, _moved(each, move))
    except InvalidError as error:
        return error.message
    return None


def _together(each: Defined, move: Move, there: _There) -> str | None:
    """Return why something stays where the lake is to have `there`; None if each of its names means one of these."""
    reasons = (
        *(_differs(named, "reads", move, there.relations) for named in each.reads),
        *(_differs(named, "calls", move, there.functions) for named in each.calls),
    )
    return next((reason for reason in reasons if reason is not None), None)


def _differs(named: Named, verb: str, move: Move, there: Collection[str]) -> str | None:
    """Return why a name would mean something else in the lake; None if it means the same."""
    meaning, written = ".".join(named.meaning), ".".join(named.written)
    if [move.same(part) for part in named.meaning[:-1]] != [SESSION_CATALOG, move.same(move.schema)]:
        return f"it {verb} {meaning}, which is not of this schema: make it in the lake, with the lake's names"
    if move.same(named.meaning[-1]) not in there:
        return f"it {verb} {meaning}, which stays in the metastore: make it in the lake, without that"
    space = named.written[:-1]
    if space and [*map(move.same, space)] != [*map(move.same, move.namespace)]:
        new = ".".join((move.catalog, *move.namespace, named.meaning[-1]))
        return f"it says {written}, which is not the lake's {new}: make it in the lake, with that name"
    return None
