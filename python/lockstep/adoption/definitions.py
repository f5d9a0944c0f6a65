"""Which views and SQL functions of a schema of Spark's session catalog a lake makes as well, with its tables. Pure.

A text goes with the tables if it means the same in the lake: each table, view and function that it names is one of the
schema's that the lake is to have, and the name, looked for where the lake is to have them, means that one. All else
stays where it is, and has a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from lockstep.adoption.adopt import Found
from lockstep.adoption.schemas import SESSION_CATALOG, Sorted
from lockstep.errors import InvalidError
from lockstep.timeline.entry import Name, Namespace, ViewDefinition
from lockstep.timeline.functions import FunctionDefinition, as_view
from lockstep.transactions.ddl import check_size

_PARENTHESES = "()"


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
        name: its last part; of a function with `()` behind it.
        view: what it says, if it is a view that can be looked at.
        function: the same of a SQL function.
        problem: what keeps it from being a lake's, whatever it names; None if nothing does.
        reads: the tables and views that it names.
        calls: the functions that it names and that are not Spark's own.
    """

    name: str
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


def with_definitions(found: Sorted, listed: Iterable[Defined], move: Move, taken: Collection[str]) -> Sorted:
    """Part the views and functions of a schema, too: those that mean the same in the lake from the others.

    Args:
        found: what else is listed in it, and its views, with a reason that they stay.
        taken: the last parts of the names of what the lake has in the namespace already.
    """
    by_name = {each.name: each for each in sorted(listed, key=lambda each: each.name)}
    reasons = {name: reason for name, each in by_name.items() if (reason := _alone(each, move, taken)) is not None}
    tables = [each.name.table for each in found.wanted]
    while True:
        there = {move.same(name) for name in (*tables, *(by_name.keys() - reasons.keys()))}
        more = {
            name: reason
            for name, each in by_name.items()
            if name not in reasons and (reason := _together(each, move, there)) is not None
        }
        if not more:
            break
        reasons |= more  # and what names one of these stays as well
    left = [each for each in found.left if each.name.table not in by_name]
    left += [Found(_name(name, move), "", reason=reason) for name, reason in reasons.items()]
    views = [(_name(name, move), _moved(each, move)) for name, each in by_name.items() if name not in reasons]
    return Sorted(found.wanted, sorted(left, key=lambda each: each.name), views)


def _name(last: str, move: Move) -> Name:
    return Name(namespace=move.namespace, table=last)


def _moved(each: Defined, move: Move) -> ViewDefinition:
    """Return a definition as if it had been made in the lake's namespace."""
    definition = each.view if each.function is None else as_view(each.function)
    assert definition is not None, "what says nothing has a problem"
    return structs.replace(definition, catalog=move.catalog, namespace=[*move.namespace])


def _alone(each: Defined, move: Move, taken: Collection[str]) -> str | None:
    """Return why something stays, whatever else is taken; None if nothing keeps it."""
    if each.problem is not None:
        return f"it {each.problem}"
    if move.same(each.name) in {move.same(name) for name in taken}:
        return "the lake has something of that name already: DROP that first, or leave this where it is"
    try:
        check_size(_name(each.name, move), _moved(each, move))
    except InvalidError as error:
        return error.message
    return None


def _together(each: Defined, move: Move, there: Collection[str]) -> str | None:
    """Return why something stays where the lake is to have `there`; None if each of its names means one of these."""
    reasons = (
        *(_differs(named, named.meaning[-1], "reads", move, there) for named in each.reads),
        *(_differs(named, named.meaning[-1] + _PARENTHESES, "calls", move, there) for named in each.calls),
    )
    return next((reason for reason in reasons if reason is not None), None)


def _differs(named: Named, last: str, verb: str, move: Move, there: Collection[str]) -> str | None:
    """Return why a name would mean something else in the lake; None if it means the same."""
    meaning, written = ".".join(named.meaning), ".".join(named.written)
    if [move.same(part) for part in named.meaning[:-1]] != [SESSION_CATALOG, move.same(move.schema)]:
        return f"it {verb} {meaning}, which is not of this schema: make it in the lake, with the lake's names"
    if move.same(last) not in there:
        return f"it {verb} {meaning}, which stays in the metastore: make it in the lake, without that"
    space = named.written[:-1]
    if space and [*map(move.same, space)] != [*map(move.same, move.namespace)]:
        new = ".".join((move.catalog, *move.namespace, named.meaning[-1]))
        return f"it says {written}, which is not the lake's {new}: make it in the lake, with that name"
    return None
