"""Whether one row may satisfy two conditions: a "no" is a proof, so every doubt is a "yes"."""

from __future__ import annotations

import pytest

from lockstep.delta.pruning import conditions, predicates
from lockstep.delta.pruning.predicates import may_both_match

BOTH = {
    "same": ("(id = 5)", "(id = 5)", True),
    "other-value": ("(id = 5)", "(id = 7)", False),
    "other-column": ("(a = 1)", "(b = 2)", True),
    "range-and-value": ("(id > 10)", "(id = 11)", True),
    "range-and-between": ("(id > 10)", "id BETWEEN 1 AND 9", False),
    "ranges-that-touch": ("(id > 10)", "(id <= 10)", False),
    "ranges-that-share-an-end": ("(id >= 10)", "(id <= 10)", True),
    "in-and-value": ("(id IN (1, 2))", "(id = 3)", False),
    "in-and-in": ("(id IN (1, 2))", "(id IN (2, 3))", True),
    "in-with-null": ("(id IN (1, NULL))", "(id = 2)", False),
    "value-and-not": ("(id = 5)", "(NOT (id = 5))", False),
    "value-and-other-not": ("(id = 5)", "(id <> 6)", True),
    "null-and-value": ("(id IS NULL)", "(id = 5)", False),
    "null-and-not-null": ("(id IS NULL)", "(id IS NOT NULL)", False),
    "null-and-not-value": ("(id IS NULL)", "(NOT (id = 5))", False),
    "null-and-not-null-safe": ("(id IS NULL)", "(NOT (id <=> 5))", True),
    "null-and-null-safe-null": ("(id IS NULL)", "(id <=> NULL)", True),
    "value-and-null-safe": ("(id = 5)", "(id <=> 6)", False),
    "not-null-safe-twice": ("(NOT (id <=> 5))", "(id = 5)", False),
    "equal-null": ("(id = NULL)", "true", False),
    "false": ("false", "true", False),
    "true": ("true", "(id = 1)", True),
    "alone-impossible": ("((id = 1) AND (id = 2))", "true", False),
    "one-column-of-two": ("((a = 1) AND (b = 1))", "((a = 1) AND (b = 2))", False),
    "or-no-branch": ("((id = 1) OR (id = 2))", "(id = 3)", False),
    "or-one-branch": ("((id = 1) OR (id = 3))", "(id = 3)", True),
    "or-of-ands": (
        "(((a = 1) AND (b = 1)) OR ((a = 2) AND (b = 2)))",
        "((a = 1) AND (b = 2))",
        False,
    ),
    "or-in-and": ("(((id = 1) OR (id = 2)) AND (b = 1))", "(id = 3)", False),
    "or-of-too-many": (" OR ".join(f"((id = {n}) AND (a = 1))" for n in range(40)), "(id = 50)", False),
    "or-of-too-many-with-one": (" OR ".join(f"((id = {n}) AND (a = 1))" for n in range(40)), "(id = 5)", True),
    "and-of-too-many-ors": (
        " AND ".join(f"((a{n} = 1) OR (a{n} = 2))" for n in range(30)),
        "(a29 = 3)",
        False,
    ),
    "not-and": ("(NOT ((a = 1) AND (b = 1)))", "((a = 1) AND (b = 1))", False),
    "not-or": ("(NOT ((a = 1) OR (b = 1)))", "(b = 1)", False),
    "strings": ("(name = 'ada')", "(name = 'bob')", False),
    "string-and-prefix": ("(name = 'ada')", "name LIKE 'b%'", False),
    "string-and-its-prefix": ("(name = 'ada')", "startswith(name, 'ad')", True),
    "prefixes": ("name LIKE 'ab%c'", "name LIKE 'ac%'", False),
    "not-like-more": ("(NOT name LIKE 'ab%c')", "(name = 'abc')", True),
    "last-of-the-alphabet": ("startswith(name, '\U0010ffff')", "(name = '\U0010ffff!')", True),
    "last-of-the-alphabet-after-another": ("startswith(name, 'a\U0010ffff')", "(name = 'b')", False),
    "before-the-surrogates": ("startswith(name, '\ud7ff')", "(name = '\ue000')", False),
    "dates": ("(d < DATE '2024-01-01')", "(d = DATE '2024-01-01')", False),
    "timestamps": ("(t = TIMESTAMP '2024-01-01 00:00:00')", "(t = TIMESTAMP '2024-01-01 00:00:01')", False),
    "booleans": ("b", "(NOT b)", False),
    "boolean-and-equal": ("b", "(b = true)", True),
    "binaries": ("(x = X'1F')", "(x = X'1E')", False),
    "decimal-and-integer": ("(p = 1.0BD)", "(p = 1)", True),
    "doubles": ("(p = 1.0D)", "(p = 2.0D)", False),
    "double-nan-is-greatest": ("(p = CAST('NaN' AS DOUBLE))", "(p > CAST('Infinity' AS DOUBLE))", True),
    "double-nan-is-not-less": ("(p = CAST('NaN' AS DOUBLE))", "(p < CAST('Infinity' AS DOUBLE))", False),
    "double-nan-equals-itself": ("(p = CAST('NaN' AS DOUBLE))", "(p = CAST('NaN' AS DOUBLE))", True),
    "double-negative-zero": ("(p = -0.0D)", "(p = 0.0D)", True),
    "kinds-that-differ": ("(p = 1)", "(p = 'a')", True),
    "kinds-that-differ-with-null": ("(p = 1)", "((p = 'a') AND (p IS NULL))", False),
    "nested": ("(s.f = 1)", "(s.f = 2)", False),
    "nested-and-dotted": ("(s.f = 1)", "(`s.f` = 2)", True),
    "unknown-function": ("(f(id) = 1)", "(id = 2)", True),
    "unknown-and-known": ("(f(id) AND (id = 1))", "(id = 2)", False),
    "unparsable": ("((", "(id = 1)", True),
    "empty": ("", "(id = 1)", True),
    "nothing-between-integers-is-not-seen": ("(id > 9)", "(id < 10)", True),
}


@pytest.mark.parametrize(("one", "other", "expected"), BOTH.values(), ids=BOTH)
def test_two_conditions_may_both_match_unless_no_row_satisfies_both(one: str, other: str, expected: bool) -> None:
    assert may_both_match(one, other) is expected
    assert may_both_match(other, one) is expected


def test_long_chains_of_both_operators_stay_cheap() -> None:
    """What a condition becomes as an OR of ANDs is bounded, or 30 ORs would be 2 to the 30 branches."""
    branches = conditions._branches(predicates._compiled(" AND ".join(f"(a{n} OR b{n})" for n in range(30))))
    assert len(branches) <= 16
