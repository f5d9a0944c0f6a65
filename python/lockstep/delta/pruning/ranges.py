"""Sets of values of one kind, as ranges between cuts.

A *cut* lies between two values: `(v, False)` just before v, `(v, True)` just after it. A range is what lies between its
lower and its upper cut, so open and closed ends, points and complements need no cases of their own:

    = 5     (5, False) … (5, True)
    > 5     (5, True)  … None
    <> 5    None … (5, False)   and   (5, True) … None

None is the end of the line, in its direction. Values are taken as dense: nothing lies between 9 and 10, but the range
between them is not called empty. That is the safe side for whoever asks whether two sets may have a value in common.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import Enum
from typing import Any, NamedTuple, TypeAlias


class Kind(Enum):
    """What can be compared with what; the comment says what a value is in Python, ordered as Spark orders it."""

    NUMBER = "integers and decimals"  # int or Decimal
    FLOAT = "float"  # (whether it is NaN, the number as a Python float), since Spark puts NaN above all else
    DOUBLE = "double"  # the same
    STRING = "string, UTF8_BINARY"  # str: code points are ordered as their UTF-8 bytes are
    DATE = "date"  # int, days
    TIMESTAMP = "timestamp"  # int, microseconds since 1970 UTC
    TIMESTAMP_NTZ = "timestamp_ntz"  # int, microseconds since 1970 on the wall clock
    BOOLEAN = "boolean"  # bool
    BINARY = "binary"  # bytes


Cut: TypeAlias = tuple[Any, bool]


class Range(NamedTuple):
    """The values between two cuts; the lower one comes before the upper one."""

    lower: Cut | None
    upper: Cut | None


Ranges: TypeAlias = tuple[Range, ...]
"""A set of values: ranges in rising order that have nothing in common."""

EVERYTHING: Ranges = (Range(None, None),)
NOTHING: Ranges = ()


def points(values: Iterable[Any]) -> Ranges:
    """Return the set of these values of one kind, given in any order."""
    ranges: list[Range] = []
    for value in sorted(values):
        if not ranges or ranges[-1].lower != (value, False):
            ranges.append(Range((value, False), (value, True)))
    return tuple(ranges)


def below(value: Any, *, inclusive: bool) -> Ranges:
    """Return all values less than this one, or equal to it."""
    return (Range(None, (value, inclusive)),)


def above(value: Any, *, inclusive: bool) -> Ranges:
    """Return all values greater than this one, or equal to it."""
    return (Range((value, not inclusive), None),)


def starting_with(prefix: str) -> Ranges:
    """Return all strings that start with a prefix."""
    after = _after_all_with(prefix)
    return (Range((prefix, False), None if after is None else (after, False)),)


def _after_all_with(prefix: str) -> str | None:
    """Return a string above all that start with a prefix and below or equal to all others above, None without one."""
    stem = prefix.rstrip(chr(sys.maxunicode))
    if not stem:
        return None
    return stem[:-1] + chr(ord(stem[-1]) + 1)


def complement(ranges: Ranges) -> Ranges:
    """Return all values that are not in a set."""
    gaps = []
    lower: Cut | None = None
    for index, each in enumerate(ranges):
        if each.lower is not None and (index == 0 or each.lower != lower):
            gaps.append(Range(lower, each.lower))
        lower = each.upper
        if lower is None:
            return tuple(gaps)
    gaps.append(Range(lower, None))
    return tuple(gaps)


def overlap(one: Ranges, other: Ranges) -> bool:
    """Return whether two sets of one kind may have a value in common."""
    if not _meet(one, other):
        return False
    return len(one) == len(other) == 1 or any(
        _before(a.lower, b.upper) and _before(b.lower, a.upper) for a in one for b in other
    )


def union(one: Ranges, other: Ranges) -> Ranges:
    """Return the values that are in one of two sets of one kind, or in both."""
    return complement(intersect(complement(one), complement(other)))


def intersect(one: Ranges, other: Ranges) -> Ranges:
    """Return the values that are in both of two sets of one kind."""
    if not _meet(one, other):
        return NOTHING
    ranges = []
    i = j = 0
    while i < len(one) and j < len(other):
        a, b = one[i], other[j]
        lower = a.lower if b.lower is None or (a.lower is not None and a.lower > b.lower) else b.lower
        a_ends_first = b.upper is None or (a.upper is not None and a.upper < b.upper)
        upper = a.upper if a_ends_first else b.upper
        if _before(lower, upper):
            ranges.append(Range(lower, upper))
        if a_ends_first:
            i += 1
        else:
            j += 1
    return tuple(ranges)


def _meet(one: Ranges, other: Ranges) -> bool:
    """Return whether neither of two sets ends before the other begins: most files are nowhere near what was read."""
    return bool(one and other) and _before(one[0].lower, other[-1].upper) and _before(other[0].lower, one[-1].upper)


def _before(lower: Cut | None, upper: Cut | None) -> bool:
    return lower is None or upper is None or lower < upper
