"""Is there a serial order? The question of definition: some order of units in which each, run alone, does what it did.

It needs what units mean as functions of a state: `meaning` has that of pairs of operations, `judge` of statements on
real Spark. Where nobody knows what they mean, `history` infers the dependencies from what was read; and `row_model`
runs the one order that its dependencies leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

State = TypeVar("State")
Unit = TypeVar("Unit")


class TooManyError(Exception):
    """No order was found in as many tries as were allowed."""


def find_order(
    units: Sequence[Unit],
    start: State,
    run: Callable[[Unit, State], State | None],
    is_end: Callable[[State], bool] = lambda _: True,
    at_most: int = 1_000,
) -> list[Unit] | None:
    """Return the first serial order, those that begin like `units` first; None if there is none.

    Args:
        units: what was done; the order in which they are tried.
        start: what was there before all of them.
        run: gives the state after a unit that does in a state what it did; None if it does something else there. What
            it leaves must depend on the units before it, not on their order.
        is_end: whether the state after all of them is the one that they left.
        at_most: so many sets of units are looked at.

    Raises:
        TooManyError: there are more.
    """
    looked: set[frozenset[int]] = set()

    def after(state: State, done: frozenset[int]) -> list[Unit] | None:
        if len(done) == len(units):
            return [] if is_end(state) else None
        if done in looked:
            return None
        looked.add(done)
        if len(looked) > at_most:
            raise TooManyError
        for number, unit in enumerate(units):
            if number in done or (then := run(unit, state)) is None:
                continue
            if (found := after(then, done | {number})) is not None:
                return [unit, *found]
        return None

    return after(start, frozenset())
