"""What operations mean: functions from the facts of a small database to facts and answers, without files or logs.

The database is that of `tests.support.operation`: table s.a of rows (id, p, v), table s.b, view s.v, and the empty
namespace n.
By these functions, and by no conflict rule of anybody, `serial` tells whether two concurrent operations have a serial
order: one after the other gives the facts, and the answers, that both give when each sees the database as it began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tests.support.orders import find_order

Fact: TypeAlias = tuple[Any, ...]
State: TypeAlias = frozenset[Fact]
Outcome: TypeAlias = tuple[State, Any]
"""The facts after an operation, and what it answered: the rows that it found, where it looked."""
Run: TypeAlias = Callable[[State], Outcome]


class CannotRunError(Exception):
    """An operation cannot run in this state: a name, a namespace or a constraint is in the way."""


PART = {"x1": "x", "x2": "x", "y1": "y"}
IDS = {"x1": (1, 2), "x2": (3, 4), "y1": (21, 22)}

START: State = frozenset(
    {("namespace", "s"), ("namespace", "n"), ("table", "A", "s.a"), ("table", "B", "s.b"), ("row", "B", 1, "x", 0)}
    | {("view", "s.v", "0")}
    | {("columns", "A", "id p v"), ("columns", "B", "id p v"), ("identity", "A", 100)}
    | {("row", "A", id, PART[path], 0) for path, ids in IDS.items() for id in ids}
)


# --- what two operations mean together --------------------------------------------------------------------------------


def serial(mine: Run, winner: Run) -> bool:
    """Tell whether one after the other, in some order, gives the facts and the answers of both on one snapshot."""
    (seen, answer), (theirs, told) = mine(START), winner(START)
    together = _tidy((theirs - (START - seen)) | (seen - START))

    def run(unit: tuple[Run, Any], state: State) -> State | None:
        operation, its_answer = unit
        try:
            after, found = operation(state)
        except CannotRunError:
            return None
        return after if found == its_answer else None

    both = [(winner, told), (mine, answer)]
    return find_order(both, START, run, lambda after: _tidy(after) == together) is not None


def _tidy(state: State) -> State:
    """Leave out what is said of tables that are not there."""
    there = {fact[1] for fact in state if fact[0] == "table"}
    return frozenset(fact for fact in state if fact[0] in ("namespace", "table", "view") or fact[1] in there)


# --- what one means ---------------------------------------------------------------------------------------------------


def find(state: State, name: str) -> str:
    """Return the id of the table of this name."""
    found = [fact[1] for fact in state if fact[0] == "table" and fact[2] == name]
    if len(found) != 1:
        raise CannotRunError(name)
    return str(found[0])


def is_taken(state: State, name: str) -> bool:
    """Tell whether a table or a view has this name."""
    return any((fact[0] == "table" and fact[2] == name) or fact[:2] == ("view", name) for fact in state)


def definition(state: State, name: str) -> str:
    """Return what the view of this name says."""
    found = [fact[2] for fact in state if fact[:2] == ("view", name)]
    if len(found) != 1:
        raise CannotRunError(name)
    return str(found[0])


def rows(state: State, table: str) -> set[Fact]:
    return {fact for fact in state if fact[:2] == ("row", table)}


def with_row(state: State, table: str, id: int, part: str, v: int) -> State:
    if ("columns", table, "id p v") not in state or (v < 0 and ("check", table) in state):
        raise CannotRunError("the row does not fit the table")
    return state | {("row", table, id, part, v)}


def inserting(name: str, id: int, part: str = "x", v: int = 0) -> Run:
    return lambda state: (with_row(state, find(state, name), id, part, v), None)


def updating(id: int, by: int | None = 1, otherwise: int | None = None) -> Run:
    """UPDATE one row, DELETE it (`by` None), or insert a row where there is none (MERGE)."""

    def run(state: State) -> Outcome:
        table = find(state, "s.a")
        found = {row for row in rows(state, table) if row[2] == id}
        after = state - found
        for _, _, _, part, v in found if by is not None else ():
            after = with_row(after, table, id, part, v + (by or 0))
        if otherwise is not None and not found:
            after = with_row(after, table, id, "x", otherwise)
        return after, frozenset(found)

    return run


def overwriting(id: int, part: str | None = None) -> Run:
    """Replace the rows of a partition, or all, by one row; that finds nothing out."""

    def run(state: State) -> Outcome:
        table = find(state, "s.a")
        gone = {row for row in rows(state, table) if part in (None, row[3])}
        return with_row(state - gone, table, id, part or "x", 0), None

    return run


def saying(kind: str, value: str, *, instead: bool = False) -> Run:
    """Add a fact about s.a, in the place of those of its kind if asked."""

    def run(state: State) -> Outcome:
        table = find(state, "s.a")
        gone = {fact for fact in state if instead and fact[:2] == (kind, table)}
        return (state - gone) | {(kind, table, value)}, None

    return run
