"""What of sqlglot's trees is read: a node that says more than that is not understood."""

from __future__ import annotations

import pytest
from sqlglot import exp, parse_one

from lockstep.delta.pruning.trees import is_read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1 AND NOT `b` IN ('x', -5) OR s.c BETWEEN 1 AND DATE '2024-01-01'", True),
        ("a LIKE 'x%' AND b IS NOT NULL AND startswith(c, X'00') AND d <=> NULL AND e = 5L", True),
        ("f(a, b => 1) = 1", True),  # not understood, whatever it says
        ("a NOT LIKE 'x%'", False),
        ("a = 1 AND (b = 2 OR NOT c NOT LIKE 'x%')", False),
        ("a BETWEEN SYMMETRIC 2 AND 1", False),
        ("a IN (SELECT 1)", False),
    ],
)
def test_what_is_read_of_a_tree(text: str, expected: bool) -> None:
    assert is_read(parse_one(text, into=exp.Condition, read="spark")) is expected


def test_an_argument_that_nobody_knows_is_not_passed_over() -> None:
    tree = parse_one("a IN (1) AND b = 2", into=exp.Condition, read="spark")
    assert is_read(tree)
    tree.expression.set("turned_round", True)
    assert not is_read(tree)
