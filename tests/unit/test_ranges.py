"""Sets of values as ranges: the short cuts for sets that are nowhere near each other come to what the long way does."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from lockstep.delta.pruning.ranges import (
    EVERYTHING,
    NOTHING,
    Cut,
    Range,
    Ranges,
    above,
    below,
    complement,
    intersect,
    overlap,
    points,
    union,
)

VALUES = st.integers(0, 8)
ENDS = st.booleans()
SETS = st.recursive(
    st.one_of(
        st.builds(points, st.lists(VALUES, max_size=5)),
        st.builds(lambda value, inclusive: below(value, inclusive=inclusive), VALUES, ENDS),
        st.builds(lambda value, inclusive: above(value, inclusive=inclusive), VALUES, ENDS),
        st.sampled_from([EVERYTHING, NOTHING]),
    ),
    lambda sets: st.one_of(st.builds(union, sets, sets), st.builds(complement, sets)),
    max_leaves=4,
)


def before(lower: Cut | None, upper: Cut | None) -> bool:
    return lower is None or upper is None or lower < upper


def by_pairs(one: Ranges, other: Ranges) -> Ranges:
    """Return what both sets have, of each pair of their ranges."""
    found = []
    for a in one:
        for b in other:
            lowers = [cut for cut in (a.lower, b.lower) if cut is not None]
            uppers = [cut for cut in (a.upper, b.upper) if cut is not None]
            lower, upper = max(lowers, default=None), min(uppers, default=None)
            if before(lower, upper):
                found.append(Range(lower, upper))
    return tuple(found)


@given(SETS, SETS)
@example(points([1, 3]), points([2]))
@example(points([2]), points([1, 3]))
@example(below(3, inclusive=True), above(3, inclusive=True))
def test_what_both_have_is_what_their_ranges_have(one: Ranges, other: Ranges) -> None:
    assert intersect(one, other) == by_pairs(one, other)
    assert overlap(one, other) == bool(by_pairs(one, other))


@given(SETS, SETS, VALUES)
def test_a_value_is_in_both_if_it_is_in_each(one: Ranges, other: Ranges, value: int) -> None:
    is_in = [bool(by_pairs(each, points([value]))) for each in (one, other, intersect(one, other))]
    assert is_in[2] == (is_in[0] and is_in[1])
