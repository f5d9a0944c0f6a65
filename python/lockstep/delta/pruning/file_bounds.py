"""What a log says of a data file's rows, as the values that a column of them may have.

Two sources (Protocol, "Partition Value Serialization" and "Per-file Statistics"): partition values are exact, minimum
and maximum are bounds. Neither says what type a column has. The caller does, by the `Kind` of what it compares the
column with, and what cannot be read as that kind is unknown. Every doubt widens the answer, for whoever concludes from
it that a file has no such row must be right:

- Bounds hold for wide statistics too (`tightBounds` false). A `nullCount` is used only where it is 0 or `numRecords`,
  the two values that mean the same in both.
- No count, no bound, no column in the statistics: nothing is known. A column that came later has a default.
- Floating-point bounds say nothing of NaN (some writers leave it out), and a float widened to a double keeps the bounds
  that were written as the shortest text of the float.
- Decimal bounds may have gone through a double, as some writers have it. delta-rs writes those without a fraction as
  integers of 64 bits: the greatest and the least of these stand for all that is beyond them (`stands_for_more`).
- Timestamps are cut to milliseconds. Of offsets from UTC Spark leaves the seconds out, which those of local mean time
  had, the last until 1972. With `spark.sql.legacy.timeParserPolicy=LEGACY` it writes the offsets that java.util has for
  the time before 1900, up to a day others, and the days that the old calendar leaves out as the day after them.
- A partition value that is a timestamp without `Z` is in the time zone of an unknown writer.

Whether a file may hold a row that satisfies a condition is decided from this in `lockstep.delta.pruning.predicates`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from lockstep.caches import MIB, remembered
from lockstep.delta.pruning.ranges import EVERYTHING, NOTHING, Cut, Kind, Range, Ranges, points, starting_with

Path: TypeAlias = tuple[str, ...]
"""A column by its physical name, a field of a struct by the names on the way to it."""

NAN = (True, 0.0)
"""The value of kind FLOAT or DOUBLE above all numbers, equal to itself."""


@dataclass(frozen=True, slots=True)
class FileValues:
    """What a log says of a data file's rows.

    Attributes:
        partition: `partitionValues` of its add or remove: text by physical column name, None or "" for null.
        stats: the `stats` of its add, a JSON object as text; None if there are none.
    """

    partition: Mapping[str, str | None]
    stats: str | None


class Possible(NamedTuple):
    """What a column may be in some row: null, and which values."""

    null: bool
    values: Ranges


UNKNOWN = Possible(null=True, values=EVERYTHING)


def possible(file: FileValues, column: Path, kind: Kind | None) -> Possible:
    """Return what a column may be in the rows of a file, deleted or not.

    Args:
        file: the file.
        column: of a table that the file is or was in.
        kind: of the column's type; None if only null or not null matters.
    """
    if len(column) == 1 and column[0] in file.partition:
        return _of_partition(file.partition[column[0]], kind)
    if file.stats is None or (stats := _decoded(file.stats)) is None:
        return UNKNOWN
    nulls = _at(stats.nullCount, column)
    if type(nulls) is int and nulls == stats.numRecords and nulls > 0:
        return Possible(null=True, values=NOTHING)
    values = EVERYTHING if kind is None else _between(kind, _at(stats.minValues, column), _at(stats.maxValues, column))
    return Possible(null=type(nulls) is not int or nulls != 0, values=values)


def _of_partition(text: str | None, kind: Kind | None) -> Possible:
    is_long = text is not None and len(text) > _SHORT
    return (_read_partition if is_long else _short_partition)(text, kind)


def _read_partition(text: str | None, kind: Kind | None) -> Possible:
    if not text:
        return Possible(null=True, values=NOTHING)
    if kind is None:
        return Possible(null=False, values=EVERYTHING)
    if kind in _FLOATING:
        number = read_number(text)
        return UNKNOWN if number is None else Possible(null=False, values=_between(kind, number, number))
    value = _PARTITION_VALUES[kind](text)
    return UNKNOWN if value is None else Possible(null=False, values=points([value]))


_short_partition = lru_cache(maxsize=4096)(_read_partition)
_SHORT = 256
"""Longer partition values are not remembered, so that the number of those that are bounds their bytes."""


# --- statistics -------------------------------------------------------------------------------------------------------


class _Stats(msgspec.Struct):
    numRecords: int | None = None
    minValues: dict[str, Any] | None = None
    maxValues: dict[str, Any] | None = None
    nullCount: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Stats, float_hook=Decimal).decode


@remembered(16 * MIB, 10)
def _decoded(stats: str) -> _Stats | None:
    """Return statistics decoded, None if they cannot be: a file with broken ones is still a file."""
    try:
        return _decode(stats)
    except (ValueError, ArithmeticError, RecursionError):  # msgspec's errors are ValueErrors, Decimal's arithmetic ones
        return None


def _at(values: dict[str, Any] | None, column: Path) -> Any:
    """Return what stands at a column, None if nothing does."""
    value: Any = values
    for name in column:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _between(kind: Kind, low: Any, high: Any) -> Ranges:
    """Return the values that two bounds allow, as they stand in the statistics or None; both inclusive."""
    lower, upper = _BOUNDS[kind](low, high) if kind in _BOUNDS else (None, None)
    if lower is not None and upper is not None and lower >= upper:
        return EVERYTHING  # contradictory bounds say nothing
    if kind in _FLOATING and upper is not None:
        return Range(lower, upper), *points([NAN])
    return (Range(lower, upper),)


_Bounds: TypeAlias = tuple[Cut | None, Cut | None]

_FLOATING = frozenset({Kind.FLOAT, Kind.DOUBLE})
_FLOAT_SLACK = 2.0**-21
"""Relative; more than four times the rounding error of a 32-bit float."""
_FLOAT_SLACK_NEAR_ZERO = 2.0**-146
_DECIMAL_SLACK = Decimal("1e-15")
"""Relative; more than four times the rounding error of a double."""
_GREATEST_EXPONENT = 400
_CUT_UNITS = 32
"""UTF-16 units to which Delta cuts a string (its default)."""
_EXACT = 2**53
"""No integer up to here is changed by a double."""
_GREATEST_INTEGER = 2**63 - 1
_LEAST_INTEGER = -(2**63)
_MILLISECOND = 1000
"""In microseconds."""
_MINUTE = 60_000 * _MILLISECOND
_LEFT_OUT_DAYS = 10
_FIRST_NEW_DAY = date(1582, 10, 15).toordinal()
_OLD_CALENDAR = (_LEFT_OUT_DAYS + 2) * 24 * 60 * _MINUTE
_WHOLE_MINUTES_SINCE = (date(1973, 1, 1) - date(1970, 1, 1)) // timedelta(microseconds=1)
_SAME_OFFSETS_SINCE = (date(1901, 1, 1) - date(1970, 1, 1)) // timedelta(microseconds=1)


def _floats(low: Any, high: Any) -> _Bounds:
    lowest, highest = _float(low), _float(high)
    return (
        None if lowest is None else ((False, lowest - _float_slack(lowest)), False),
        None if highest is None else ((False, highest + _float_slack(highest)), True),
    )


def _float(value: Any) -> float | None:
    if type(value) not in (int, Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _float_slack(value: float) -> float:
    return abs(value) * _FLOAT_SLACK + _FLOAT_SLACK_NEAR_ZERO


def _numbers(low: Any, high: Any) -> _Bounds:
    least = None if low == _LEAST_INTEGER else _number(low, -_DECIMAL_SLACK)
    greatest = None if high == _GREATEST_INTEGER else _number(high, _DECIMAL_SLACK)
    return None if least is None else (least, False), None if greatest is None else (greatest, True)


def stands_for_more(value: Any) -> bool:
    """Tell whether a bound may have been cut to 64 bits, so that it says nothing of what is beyond it."""
    return type(value) is int and value in (_LEAST_INTEGER, _GREATEST_INTEGER)


def _number(value: Any, slack: Decimal) -> int | Decimal | None:
    if type(value) is int:
        if not _EXACT < abs(value) <= _GREATEST_INTEGER:
            return value
        value = Decimal(value)
    if type(value) is not Decimal or abs(value.adjusted()) > _GREATEST_EXPONENT:
        return None
    return value + abs(value) * slack


def _strings(low: Any, high: Any) -> _Bounds:
    return (
        (low, False) if isinstance(low, str) else None,
        _greatest_string(high) if isinstance(high, str) else None,
    )


def _greatest_string(high: str) -> Cut | None:
    """Return the cut above all strings of which this is the maximum, whole or cut off.

    A maximum that was cut off ends in a character that is to be above what was cut. U+FFFD, which Delta took once, is
    not above characters beyond U+FFFF, and a cut through one of those leaves half a character that is written as
    another. So of a maximum that may have been cut, only what was certainly before the cut counts.
    """
    if high.endswith("\ufffd"):
        high = high.rstrip("\ufffd")
    elif len(high.encode("utf-16-le")) // 2 < _CUT_UNITS:
        return high, True
    prefix = high.encode("utf-16-le")[: 2 * (_CUT_UNITS - 1)].decode("utf-16-le", errors="ignore")
    return starting_with(prefix)[0].upper


def _dates(low: Any, high: Any) -> _Bounds:
    first, last = read_date(low), read_date(high)
    if first is not None and 0 <= _FIRST_NEW_DAY - first <= _LEFT_OUT_DAYS:
        first = _FIRST_NEW_DAY - _LEFT_OUT_DAYS
    return None if first is None else (first, False), None if last is None else (last, True)


def _timestamps(low: Any, high: Any) -> _Bounds:
    return _instants(low, high, zoned=True)


def _timestamps_ntz(low: Any, high: Any) -> _Bounds:
    return _instants(low, high, zoned=False)


def _instants(low: Any, high: Any, *, zoned: bool) -> _Bounds:
    first, last = read_timestamp(low, zoned=zoned), read_timestamp(high, zoned=zoned)
    return (
        None if first is None else (first - _instant_slack(first, zoned=zoned), False),
        None if last is None else (last + _instant_slack(last, zoned=zoned), True),
    )


def _instant_slack(moment: int, *, zoned: bool) -> int:
    """Return how far from its text a timestamp may be, in microseconds; the two years have some months to spare."""
    if not zoned or moment >= _WHOLE_MINUTES_SINCE:
        return _MILLISECOND
    return _MINUTE if moment >= _SAME_OFFSETS_SINCE else _OLD_CALENDAR


_BOUNDS: Mapping[Kind, Callable[[Any, Any], _Bounds]] = {
    Kind.NUMBER: _numbers,
    Kind.FLOAT: _floats,
    Kind.DOUBLE: _floats,
    Kind.STRING: _strings,
    Kind.DATE: _dates,
    Kind.TIMESTAMP: _timestamps,
    Kind.TIMESTAMP_NTZ: _timestamps_ntz,
}
"""By kind: the cuts around two bounds. Kinds that are not here have no bounds in Delta's statistics."""


# --- texts ------------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{0,400})?([eE][+-]?[0-9]{1,4})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9:]{5,8})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def read_number(text: str) -> Decimal | None:
    """Return the finite number that a text writes out, None if it writes none."""
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def read_date(text: Any) -> int | None:
    """Return the day of a text such as 2024-01-31 (0001-01-01 is 1), None if it is no such text."""
    if not isinstance(text, str) or not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text).toordinal()
    except ValueError:  # no such day
        return None


def read_timestamp(text: Any, *, zoned: bool) -> int | None:
    """Return the microseconds since 1970 of a text such as 2024-01-31 23:59:59.123456, None if it is no such text.

    A date alone is its midnight: a column may have been a date before its type was widened.

    Args:
        text: ISO 8601, with a blank or a T in the middle.
        zoned: whether an offset (or Z) must stand at its end, or must not.
    """
    if not isinstance(text, str) or not _TIMESTAMP.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # no such day or time
        return None
    if (moment.tzinfo is not None) != zoned:
        return None
    return ((moment if zoned else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _partition_timestamp(text: str) -> int | None:
    return read_timestamp(text, zoned=True) if text.endswith("Z") else None


def _partition_timestamp_ntz(text: str) -> int | None:
    return read_timestamp(text, zoned=False)


def _unreadable(text: str) -> None:
    """Give up on a binary value: its escapes are not specified well enough."""


_PARTITION_VALUES: Mapping[Kind, Callable[[str], Any]] = {
    Kind.NUMBER: read_number,
    Kind.STRING: str,
    Kind.DATE: read_date,
    Kind.TIMESTAMP: _partition_timestamp,
    Kind.TIMESTAMP_NTZ: _partition_timestamp_ntz,
    Kind.BOOLEAN: {"true": True, "false": False}.get,
    Kind.BINARY: _unreadable,
}
