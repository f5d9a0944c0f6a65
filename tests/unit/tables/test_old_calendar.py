"""Which files have days of the calendar that was before 1582, as `tests/spark` shows with files of Spark's."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from lockstep.tables.old_calendar import MARKS, VERSION, has_old_days, is_by_old_calendar


@pytest.mark.parametrize(
    ("footer", "is_old"),
    [
        ({}, False),
        ({b"writer": b"another"}, False),
        ({VERSION: b"4.2.0"}, False),
        ({VERSION: b"3.1.0"}, False),
        ({VERSION: b"3.0.3"}, True),
        ({VERSION: b"2.4.8"}, True),
        ({VERSION: b"4.2.0", MARKS[0]: b""}, True),
        ({VERSION: b"4.2.0", MARKS[1]: b""}, True),
        ({VERSION: b"one"}, False),
    ],
)
def test_a_footer_tells(footer: dict[bytes, bytes], is_old: bool) -> None:
    assert is_by_old_calendar(footer) == is_old


DAY, BEFORE = dt.date(1582, 10, 15), dt.date(1582, 10, 14)
TIME, EARLIER = dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(1899, 12, 31, 23, 59, 59, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("type_", "new", "old"),
    [
        (pa.date32(), DAY, BEFORE),
        (pa.timestamp("us", "UTC"), TIME, EARLIER),
        (pa.timestamp("ns", "UTC"), TIME, EARLIER),
        (pa.timestamp("us"), TIME.replace(tzinfo=None), EARLIER.replace(tzinfo=None)),
        (pa.struct([("d", pa.date32())]), {"d": DAY}, {"d": BEFORE}),
        (pa.list_(pa.list_(pa.date32())), [[DAY]], [[], [DAY, BEFORE]]),
        (pa.map_(pa.date32(), pa.int32()), [(DAY, 1)], [(BEFORE, 1)]),
        (pa.map_(pa.int32(), pa.date32()), [(1, DAY)], [(1, BEFORE)]),
    ],
)
def test_days_are_old_in_whatever_depth(type_: pa.DataType, new: Any, old: Any) -> None:
    assert not has_old_days(pa.array([new, None], type_))
    assert has_old_days(pa.array([new, None, old], type_))
    assert not has_old_days(pa.array([old, new, None], type_)[1:])


def test_numbers_and_texts_are_no_days() -> None:
    assert not has_old_days(pa.array([-(2**62)]))
    assert not has_old_days(pa.array(["1500-01-01"]))
