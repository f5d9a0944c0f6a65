"""The search for a serial order, with units whose orders anybody can count."""

from __future__ import annotations

import pytest

from tests.support.orders import TooManyError, find_order


def sees(unit: tuple[str, str], state: str) -> str | None:
    """A unit runs after the units that it names, in any order, and no other."""
    name, before = unit
    return state + name if set(before) == set(state) else None


def test_an_order_is_found_wherever_it_begins() -> None:
    units = [("c", "ab"), ("b", "a"), ("a", "")]
    assert find_order(units, "", sees) == units[::-1]


def test_units_that_must_each_come_first_have_none() -> None:
    assert find_order([("a", ""), ("b", "")], "", sees) is None
    assert find_order([("a", "b"), ("b", "a")], "", sees) is None


def test_the_end_must_be_the_one_that_was_seen() -> None:
    def append(unit: str, state: str) -> str:
        return state + unit

    assert find_order("ab", "", append) == ["a", "b"]
    assert find_order("ab", "", append, lambda state: state == "ba") == ["b", "a"]
    assert find_order("ab", "", append, lambda state: state == "aa") is None


def test_a_search_that_is_too_long_says_so() -> None:
    with pytest.raises(TooManyError):
        find_order(range(9), frozenset[int](), lambda unit, state: state | {unit}, lambda _: False, at_most=100)
