"""What a predicate is recorded as: rows of Spark's condition are never fewer than those of the predicate."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.delta.pruning.predicates import FileValues, may_match
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.tables.conditions import checked, condition, condition_of_keys
from lockstep.tables.queries import evaluate
from lockstep.tables.statistics import statistics

TYPES = {"id": "long", "Name": "string", "day": "date", "x": "double", "ts": "timestamp", "ok": "boolean"}


@pytest.mark.parametrize(
    ("predicate", "said"),
    [
        ("id = 5", "(`id` = 5)"),
        ("5 > ID", "(`id` < 5)"),
        ("id IN (1, -2)", "(`id` IN (1, -2))"),
        ("id BETWEEN 1 AND 3 AND x > 1.5", "(`id` BETWEEN 1 AND 3)"),
        ("name = 'it''s \\'", "(`Name` = 'it\\'s \\\\')"),
        ("day >= DATE '2024-01-31' OR day IS NULL", "((`day` >= DATE '2024-01-31') OR (`day` IS NULL))"),
        ("NOT (id = 1 OR name IS NOT NULL)", "(NOT ((`id` = 1) OR (NOT (`Name` IS NULL))))"),
        ("id <> 1", "(`id` != 1)"),
        ("NOT (id = 1 AND x > 2)", None),
        ("id = 1 OR x > 2", None),
        ("id = 1.5", None),
        ("id = '5'", None),
        ("name = 5", None),
        ("id + 1 = 2", None),
        ("x = 1", None),
        ("ts > '2024-01-01'", None),
        ("upper(name) = 'A'", None),
        ("t.id = 1", None),
        ("id = id", None),
        (None, None),
    ],
)
def test_conditions(predicate: str | None, said: str | None) -> None:
    assert condition(predicate, TYPES) == said


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_of_thousands_of_conditions_in_a_row_it_is_not_asked_which_rows_they_are_about(word: str) -> None:
    predicate = f" {word} ".join(f"id <> {number}" for number in range(3000))
    assert condition(checked(predicate), TYPES) is None


@pytest.mark.parametrize("predicate", ["", "id =", "id = 1; DROP TABLE t", "SELECT 1 FROM t"])
def test_what_is_no_predicate(predicate: str) -> None:
    with pytest.raises(InvalidError):
        checked(predicate)


def test_a_query_in_a_predicate_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a query in it"):
        checked("id IN (SELECT id FROM other)")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (pa.table({"id": [3, 1, None, 3]}), "(`id` IN (1, 3))"),
        (pa.table({"id": pa.array([None], pa.int64())}), "false"),
        (pa.table({"id": range(200)}), "(`id` BETWEEN 0 AND 199)"),
        (pa.table({"x": [1.5]}), None),
        (pa.table({"x": [1.5], "Name": ["a"]}), "(`Name` IN ('a'))"),
    ],
)
def test_conditions_of_keys(keys: pa.Table, said: str | None) -> None:
    assert condition_of_keys(keys, TYPES) == said


PARTS = st.sampled_from([
    "id = 1", "id < 0", "2 >= id", "id <> 3", "id IN (0, 2)",
    "id BETWEEN -1 AND 1", "name = 'b'", "name > 'a'", "id IS NULL", "name IS NOT NULL", "id % 2 = 0",
])  # fmt: skip
PREDICATES = st.recursive(
    PARTS,
    lambda inner: (
        st.builds(lambda a, op, b: f"({a} {op} {b})", inner, st.sampled_from(["AND", "OR"]), inner)
        | inner.map(lambda a: f"(NOT {a})")
    ),
    max_leaves=5,
)


@given(
    predicate=PREDICATES,
    ids=st.lists(st.none() | st.integers(-2, 4), min_size=1, max_size=3),
    name=st.sampled_from(["", "a", "b", "c", None]),
)
def test_no_row_of_the_predicate_is_left_out(predicate: str, ids: list[int | None], name: str | None) -> None:
    rows = pa.table({"id": pa.array(ids, pa.int64()), "Name": pa.array([name] * len(ids), pa.string())})
    found = evaluate({"t": rows}, f"SELECT * FROM t WHERE {predicate}").num_rows
    said = condition(predicate, TYPES)
    if found and said is not None:
        assert may_match(said, FileValues(partition={}, stats=statistics(rows, columns=32)))
