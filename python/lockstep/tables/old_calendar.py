"""Files in which Spark wrote days by the calendar of before 1582: what they say is some days off to all but Spark.

Spark before 3.0 counted days in the Julian calendar up to 4 October 1582, as newer ones do where
`spark.sql.parquet.datetimeRebaseModeInWrite` or `int96RebaseModeInWrite` is `LEGACY`. Which one it was, a file's footer
says, in keys that Spark alone reads (`DataSourceUtils.datetimeRebaseSpec` of Spark 4). A row that is copied to another
file without them would be of another day for good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.tables.conform import parts

VERSION = b"org.apache.spark.version"
MARKS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")

NEW_SINCE = (3, 1)
"""Spark 3.0 still wrote times of 96 bits by the old calendar."""

FIRST_DAY = (date(1582, 10, 15) - date(1970, 1, 1)).days
"""The first day that both calendars have in common."""

FIRST_MICROS = (date(1900, 1, 1) - date(1970, 1, 1)).days * 24 * 60 * 60 * 10**6
"""Before it Spark counts times of day otherwise, too: by time zones as they were."""


def is_by_old_calendar(footer: Mapping[bytes, bytes]) -> bool:
    """Tell whether a file's footer says that days in it may be of the old calendar; of no writer, that they are not."""
    if any(mark in footer for mark in MARKS):
        return True
    version = re.match(rb"(\d+)\.(\d+)", footer.get(VERSION, b""))
    return version is not None and (int(version[1]), int(version[2])) < NEW_SINCE


def has_old_days(array: pa.Array) -> bool:
    """Tell whether an array has dates or times, in whatever depth, of which the two calendars say different things."""
    return any(map(_is_old, parts(array)))


def _is_old(array: pa.Array) -> bool:
    if pa.types.is_date32(array.type):
        first, number = FIRST_DAY, pa.int32()
    elif pa.types.is_timestamp(array.type):
        array, first, number = array.cast(pa.timestamp("us", array.type.tz), safe=False), FIRST_MICROS, pa.int64()
    else:
        return False
    least = pc.min(array.view(number)).as_py()
    return least is not None and least < first
