"""What few file values may say of many: never less than the files themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.delta.pruning.covers import MAX_COVERS, covers
from lockstep.delta.pruning.predicates import FileValues, may_any_both_match, may_any_match, may_both_match, may_match
from lockstep.delta.pruning.ranges import EVERYTHING, NOTHING, Ranges, above, below, complement, points, union


def file(low: Any = None, high: Any = None, *, part: str | None = "x", nulls: Any = 0, records: int = 9) -> FileValues:
    stats = {"numRecords": records, "minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": nulls}}
    return FileValues({"p": part}, json.dumps(stats))


BARE = FileValues({"p": "x"}, None)


@pytest.mark.parametrize(
    ("files", "predicate", "expected"),
    [
        pytest.param([file(1, 5), file(7, 9)], "(c = 10)", False, id="outside"),
        pytest.param([file(1, 5), file(7, 9)], "(c = 6)", True, id="between the files"),
        pytest.param([file(1, 5), file(7, 9)], "(c IS NULL)", False, id="no nulls"),
        pytest.param([file(1, 5), file(7, 9, nulls=1)], "(c IS NULL)", True, id="nulls in one"),
        pytest.param([file(1, 5), file(7, 9, nulls=None)], "(c IS NULL)", True, id="nulls unknown in one"),
        pytest.param([file(1, 5), file(nulls=9)], "(c = 6)", False, id="one is all null, which bounds nothing"),
        pytest.param([file(1, 5), file(nulls=9)], "(c IS NULL)", True, id="but null"),
        pytest.param([file(nulls=9), file(nulls=9)], "(c = 6)", True, id="all are all null"),
        pytest.param([file(1, 5), file()], "(c = 10)", True, id="one without bounds"),
        pytest.param([file(1, 5), BARE], "(c = 10)", True, id="one without statistics"),
        pytest.param([file(1, 5), FileValues({"p": "x"}, "{")], "(c = 10)", True, id="one with broken ones"),
        pytest.param([file(1, 5), file(9, 7)], "(c = 10)", True, id="one that contradicts itself"),
        pytest.param([file(1, 5), file(True, True)], "(c = 10)", True, id="booleans are no integers"),
        pytest.param([file(1, 2**63 - 1), file(1, 2**70)], "(c > 1e30BD)", True, id="a maximum cut to 64 bits"),
        pytest.param([file(-(2**63), 5), file(-(2**70), 5)], "(c < -1e30BD)", True, id="a minimum cut to 64 bits"),
        pytest.param([file(1, 2**69), file(1, 2**70)], "(c > 1e30BD)", False, id="maxima beyond 64 bits"),
        pytest.param([file(1, 5), file(1.5, 2.5)], "(c = 10)", True, id="nor are floats"),
        pytest.param([file(1, 5), file("1", "5")], "(c = 10)", True, id="nor texts"),
        pytest.param([file("a", "b"), file("c", "d")], "(c = 'z')", True, id="texts of no known form"),
        pytest.param(
            [file("2026-01-01", "2026-01-31"), file("2026-03-01", "2026-03-31")],
            "(c = DATE '2026-04-01')", False, id="dates",
        ),
        pytest.param(
            [file("2026-01-01", "2026-01-31"), file("2026-03-01T00:00:00.000Z", "2026-03-31T00:00:00.000Z")],
            "(c = DATE '2026-04-01')", True, id="dates and times",
        ),
        pytest.param(
            [file("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z")] * 2,
            "(c > TIMESTAMP '2026-02-01 00:00:00')", False, id="times",
        ),
        pytest.param(
            [file("2026-01-01T00:00:00.000+09:00", "2026-01-01T00:00:00.000+09:00")] * 2,
            "(c > TIMESTAMP '2026-02-01 00:00:00')", True, id="times of another form",
        ),
        pytest.param([BARE, FileValues({"p": "y"}, None)], "(p = 'z')", False, id="partitions"),
        pytest.param([BARE, FileValues({"p": "y"}, None)], "(p = 'y')", True, id="one of the partitions"),
        pytest.param([BARE, FileValues({"p": None}, None)], "(p IS NULL)", True, id="the null partition"),
        pytest.param([file(1, 5), file(7, 9, part="y")], "((p = 'y') AND (c = 1))", False, id="each by itself"),
        pytest.param([file(1, 5), FileValues({}, None)], "(p = 'z')", True, id="a file without its partition"),
    ],
)  # fmt: skip
def test_covers(files: list[FileValues], predicate: str, expected: bool) -> None:
    assert all(any(may_match(predicate, cover) for cover in level) for level in covers(files)) is expected


def test_one_file_or_none_has_no_cover() -> None:
    assert covers([]) == ()
    assert covers([file(1, 5)]) == ()


@pytest.mark.parametrize(("count", "expected"), [(MAX_COVERS, [1, MAX_COVERS]), (MAX_COVERS + 1, [1])])
def test_there_are_few(count: int, expected: list[int]) -> None:
    found = covers([file(n, n, part=str(n)) for n in range(count)])
    assert [len(level) for level in found] == expected
    for level in found:
        assert not any(may_match("(c > 100)", cover) for cover in level)
        assert any(may_match("(p = '3')", cover) for cover in level)


values = st.one_of(
    st.none(),
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.0, True, "NaN", "a", "10", "2026-01-02", "2026-01-03", "2026-01-02T00:00:00.000Z"]),
)
nulls = st.sampled_from([None, 0, 1, 9])
files = st.lists(st.builds(file, values, values, part=st.sampled_from(["x", "y", None]), nulls=nulls), max_size=4)
literals = st.sampled_from(
    ["-4", "0", "2", "1.5D", "'a'", "'10'", "DATE '2026-01-02'", "TIMESTAMP '2026-01-02 00:00:00'"]
)
comparisons = st.builds("(c {} {})".format, st.sampled_from(["=", "<", ">=", "<=>"]), literals)
predicates = st.one_of(
    comparisons,
    st.sampled_from(["(c IS NULL)", "(c IS NOT NULL)", "(p = 'y')", "(NOT (c = 2))", "(NOT (c <=> 2))"]),
    st.builds("({} AND (p = 'x'))".format, comparisons),
)


@given(files, predicates)
def test_what_no_cover_may_hold_no_file_may(many: list[FileValues], predicate: str) -> None:
    if any(may_match(predicate, file) for file in many):
        assert all(any(may_match(predicate, cover) for cover in level) for level in covers(many))


# --- few predicates for many ------------------------------------------------------------------------------------------


@given(st.frozensets(predicates, max_size=4), st.builds(file, values, values, nulls=nulls))
def test_one_of_many_predicates_matches_where_one_of_them_does(many: frozenset[str], of: FileValues) -> None:
    assert may_any_match(many, of) is any(may_match(predicate, of) for predicate in many)


@given(st.frozensets(predicates, max_size=4), predicates)
def test_one_row_may_satisfy_many_and_another_if_it_may_one_of_them(many: frozenset[str], other: str) -> None:
    if any(may_both_match(one, other) for one in many):
        assert may_any_both_match(many, other)


def test_many_points_are_one_comparison() -> None:
    many = frozenset(f"(c = {n})" for n in range(0, 64, 2))
    assert may_any_match(many, file(4, 4))
    assert not may_any_match(many, file(5, 5))
    assert not may_any_match(many, file(63, 90))
    assert may_any_both_match(many, "(c >= 62)")
    assert not may_any_both_match(many, "(c > 62)")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param(NOTHING, points([1]), points([1]), id="nothing"),
        pytest.param(EVERYTHING, points([1]), EVERYTHING, id="everything"),
        pytest.param(points([3, 1]), points([2]), points([1, 2, 3]), id="points"),
        pytest.param(below(1, inclusive=True), above(1, inclusive=False), EVERYTHING, id="two halves"),
        pytest.param(
            below(1, inclusive=False), above(1, inclusive=False), complement(points([1])), id="all but one value"
        ),
        pytest.param(below(5, inclusive=True), points([4, 6]), (*below(5, inclusive=True), *points([6])), id="inside"),
    ],
)  # fmt: skip
def test_union(one: Ranges, other: Ranges, expected: Ranges) -> None:
    assert union(one, other) == union(other, one) == expected
