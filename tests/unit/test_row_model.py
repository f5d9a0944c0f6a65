"""What the model of rows says of properties beside rows: both stay, and they have no order."""

from __future__ import annotations

import pytest

from tests.support.row_model import ModelTransaction, State, TableState, WrongResultError, explain
from tests.support.rows import Row

START: State = {"A": TableState("a")}
ROW = Row(1, 1, 1)


def alters(version: int, key: str) -> ModelTransaction:
    tx = ModelTransaction(1, START, version=version)
    tx.alter("A", key, "v")
    return tx


def adds(version: int) -> ModelTransaction:
    tx = ModelTransaction(1, START, version=version)
    tx.change("A", new=[ROW])
    return tx


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(alters(2, "k"), adds(3), id="the property first"),
        pytest.param(adds(2), alters(3, "k"), id="the row first"),
    ],
)
def test_a_property_and_a_row_are_both_there(first: ModelTransaction, second: ModelTransaction) -> None:
    result = second.applied_to(first.applied_to(START))
    assert result == {"A": TableState("a", frozenset({ROW}), {"k": "v"})}
    create = ModelTransaction(0, {}, version=1)
    create.create("A", START["A"])
    explain([create, first, second], result)


def test_a_property_has_no_order_with_rows_that_came_later() -> None:
    """The second did not see the first one's row, so it comes first."""
    first, second = alters(2, "k"), ModelTransaction(1, START, version=3)
    first.change("A", new=[ROW])
    second.select("A", None)
    second.change("A", new=[Row(2, 2, 2)])
    create = ModelTransaction(0, {}, version=1)
    create.create("A", START["A"])
    explain([create, first, second], second.applied_to(first.applied_to(START)))


def test_of_two_changes_of_properties_one_would_be_lost() -> None:
    with pytest.raises(WrongResultError, match="changed twice"):
        alters(3, "l").applied_to(alters(2, "k").applied_to(START))
