"""A condition over the columns of one table, judged over sets of rows.

SQL's logic has three values. Over a set of rows a condition may take several of them, so its *outcomes* are a set:
which of true, false and null it may give on some row. Parts are taken as independent of one another, which may only add
outcomes. What cannot be judged has all three.

    Constant       the same outcomes on any row
    Comparison     one column against literals: the values that may make it true, those that may make it false, null
    Conjunction    AND
    Disjunction    OR

NOT needs no node: `negated` pushes it down to the comparisons, which Kleene's logic allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from lockstep.delta.pruning.file_bounds import Path, Possible
from lockstep.delta.pruning.ranges import EVERYTHING, Kind, Ranges, intersect, overlap, union

TRUE, FALSE, NULL = 1, 2, 4
ANY_OUTCOME = TRUE | FALSE | NULL


@dataclass(frozen=True, slots=True)
class Constant:
    """A condition with these outcomes, whatever the row."""

    outcomes: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with literals.

    Attributes:
        column: which one.
        kind: of the values in the two sets; None if only null or not null matters.
        true_in: the values that may make it true; no other does.
        false_in: the values that may make it false; no other does. The two may overlap where it is not known better.
        on_null: the outcome if the column is null.
    """

    column: Path
    kind: Kind | None
    true_in: Ranges
    false_in: Ranges
    on_null: int


@dataclass(frozen=True, slots=True)
class Conjunction:
    """True where all parts are; at least one part."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    """True where any part is; at least one part."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Constant | Comparison | Conjunction | Disjunction
Knowledge: TypeAlias = Callable[[Path, Kind | None], Possible]
"""What each column may be, among the rows in question."""

UNKNOWN = Constant(ANY_OUTCOME)

_NOT = tuple((o & TRUE) << 1 | (o & FALSE) >> 1 | o & NULL for o in range(8))


def negated(condition: Condition) -> Condition:
    """Return NOT of a condition."""
    match condition:
        case Constant(outcomes):
            return Constant(_NOT[outcomes])
        case Comparison(column, kind, true_in, false_in, on_null):
            return Comparison(column, kind, false_in, true_in, _NOT[on_null])
        case Conjunction(parts):
            return Disjunction(tuple(map(negated, parts)))
        case Disjunction(parts):
            return Conjunction(tuple(map(negated, parts)))


def united(many: Iterable[Condition]) -> Condition:
    """Return a condition that is true of a row where one of these is; of no condition, of no row.

    The comparisons of one column are one, so that many are judged at the cost of few.
    """
    comparisons: dict[tuple[Path, Kind | None], Comparison] = {}
    parts: list[Condition] = []
    for each in many:
        if not isinstance(each, Comparison):
            parts.append(each)
            continue
        key = each.column, each.kind
        comparison = comparisons.get(key)
        comparisons[key] = each if comparison is None else _either(comparison, each)
    parts += comparisons.values()
    return parts[0] if len(parts) == 1 else Disjunction((Constant(FALSE), *parts))


def _either(one: Comparison, other: Comparison) -> Comparison:
    """Return OR of two comparisons of one column and kind, which may be called false where it is not."""
    true_in = union(one.true_in, other.true_in)
    return Comparison(one.column, one.kind, true_in, EVERYTHING, _OR[one.on_null][other.on_null])


# --- judged over rows -------------------------------------------------------------------------------------------------


def _both(one: int, other: int) -> int:
    """Return the outcomes of AND, of two sets of outcomes."""
    null = (one & NULL and other & (TRUE | NULL)) or (other & NULL and one & (TRUE | NULL))
    return one & other & TRUE | (one | other) & FALSE | (NULL if null else 0)


_AND = tuple(tuple(_both(one, other) for other in range(8)) for one in range(8))
_OR = tuple(tuple(_NOT[_both(_NOT[one], _NOT[other])] for other in range(8)) for one in range(8))


def outcomes(condition: Condition, knowledge: Knowledge) -> int:
    """Return which of TRUE, FALSE and NULL a condition may give on some row."""
    match condition:
        case Comparison(column, kind, true_in, false_in, on_null):
            may_be = knowledge(column, kind)
            result = on_null if may_be.null else 0
            if overlap(may_be.values, true_in):
                result |= TRUE
            return result | FALSE if overlap(may_be.values, false_in) else result
        case Constant(result):
            return result
        case Conjunction(parts):
            return reduce(lambda one, other: _AND[one][other], (outcomes(part, knowledge) for part in parts))
        case Disjunction(parts):
            return reduce(lambda one, other: _OR[one][other], (outcomes(part, knowledge) for part in parts))


# --- judged against each other ----------------------------------------------------------------------------------------

_BRANCHES_AT_MOST = 16
"""Of a condition as an OR of ANDs; what would make more of them stays one part that is judged as a whole."""


def may_both_be_true(one: Condition, other: Condition) -> bool:
    """Return whether one row may satisfy both conditions; false only if surely none does."""
    return any(_satisfiable(a + b) for a in _branches(one) for b in _branches(other))


def _branches(condition: Condition) -> tuple[tuple[Condition, ...], ...]:
    """Return a condition as branches of which a row satisfies one, by satisfying all parts of it."""
    match condition:
        case Disjunction(parts):
            branches = tuple(branch for part in parts for branch in _branches(part))
            return branches if len(branches) <= _BRANCHES_AT_MOST else ((condition,),)
        case Conjunction(parts):
            branches = ((),)
            for part in parts:
                inner = _branches(part)
                if len(branches) * len(inner) > _BRANCHES_AT_MOST:
                    inner = ((part,),)
                branches = tuple(before + after for before in branches for after in inner)
            return branches
        case _:
            return ((condition,),)


def _satisfiable(parts: tuple[Condition, ...]) -> bool:
    """Return whether one row may satisfy all parts."""
    rows = _Rows(part for part in parts if isinstance(part, Comparison))
    return all(outcomes(part, rows.possible) & TRUE for part in parts)


class _Rows:
    """What the columns of a row may be that satisfies some comparisons."""

    def __init__(self, comparisons: Iterable[Comparison]) -> None:
        self._null: dict[Path, bool] = {}
        self._values: dict[tuple[Path, Kind | None], Ranges] = {}
        for comparison in comparisons:
            self._take(comparison)

    def _take(self, comparison: Comparison) -> None:
        key = comparison.column, comparison.kind
        self._null[comparison.column] = self._null.get(comparison.column, True) and bool(comparison.on_null & TRUE)
        self._values[key] = intersect(self._values.get(key, EVERYTHING), comparison.true_in)

    def possible(self, column: Path, kind: Kind | None) -> Possible:
        return Possible(null=self._null.get(column, True), values=self._values.get((column, kind), EVERYTHING))
