"""Whether a file's rows may satisfy a condition: a "no" is a proof, so every doubt is a "yes"."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.delta.pruning import predicates
from lockstep.delta.pruning.conditions import FALSE, NULL, TRUE, outcomes
from lockstep.delta.pruning.file_bounds import possible
from lockstep.delta.pruning.predicates import FileValues, may_both_match, may_match


def statistics(
    low: Any = None, high: Any = None, nulls: int | None = 0, *, records: int = 10, **more: Any
) -> FileValues:
    """Make a file whose column `c` has these statistics; None is left out."""
    body: dict[str, Any] = {"numRecords": records, **more}
    for key, value in {"minValues": low, "maxValues": high, "nullCount": nulls}.items():
        if value is not None:
            body[key] = {"c": value}
    return FileValues({}, json.dumps(body))


def raw(low: str, high: str) -> FileValues:
    """Make a file whose column `c` has bounds written exactly so; Python would write some numbers otherwise."""
    return FileValues({}, f'{{"numRecords": 10, "minValues": {{"c": {low}}}, "maxValues": {{"c": {high}}}}}')


def partition(text: str | None) -> FileValues:
    return FileValues({"c": text}, '{"numRecords": 10}')


TENS = statistics(10, 19)
SOME_NULLS = statistics(10, 19, 3)
ALL_NULL = statistics(None, None, 10)
DAYS = statistics("2024-01-01", "2024-01-31")
INSTANTS = statistics("2024-01-01T00:00:00.000Z", "2024-01-31T12:00:00.123Z")
WALLS = statistics("2024-01-01T00:00:00.000", "2024-01-31T12:00:00.123")
NAMES = statistics("bob", "eve")
PRICES = raw("1.25", "9.75")
HALVES = raw("-0.5", "2.5")

JUDGED = {
    # operators, on integers
    "equal-inside": ("(c = 15)", TENS, True),
    "equal-at-min": ("(c = 10)", TENS, True),
    "equal-at-max": ("(c = 19)", TENS, True),
    "equal-below": ("(c = 9)", TENS, False),
    "equal-above": ("(c = 20)", TENS, False),
    "equal-literal-left": ("(20 = c)", TENS, False),
    "less-than-min": ("(c < 10)", TENS, False),
    "less-than-above-min": ("(c < 11)", TENS, True),
    "at-most-min": ("(c <= 10)", TENS, True),
    "at-most-below-min": ("(c <= 9)", TENS, False),
    "greater-than-max": ("(c > 19)", TENS, False),
    "greater-than-below-max": ("(c > 18)", TENS, True),
    "at-least-max": ("(c >= 19)", TENS, True),
    "at-least-above-max": ("(c >= 20)", TENS, False),
    "greater-literal-left": ("(10 > c)", TENS, False),
    "at-least-literal-left": ("(10 >= c)", TENS, True),
    "less-literal-left": ("(19 < c)", TENS, False),
    "at-most-literal-left": ("(19 <= c)", TENS, True),
    "not-equal": ("(NOT (c = 15))", TENS, True),
    "not-equal-of-a-single-value": ("(c <> 7)", statistics(7, 7), False),
    "not-equal-bang": ("(c != 7)", statistics(7, 7), False),
    "null-safe-equal-outside": ("(c <=> 9)", TENS, False),
    "null-safe-equal-inside": ("(c <=> 12)", TENS, True),
    "between-outside": ("c BETWEEN 20 AND 30", TENS, False),
    "between-inside": ("c BETWEEN 19 AND 30", TENS, True),
    "between-symmetric-is-unknown": ("c BETWEEN SYMMETRIC 15 AND 5", TENS, True),
    "not-between": ("c NOT BETWEEN 10 AND 19", TENS, False),
    "in-outside": ("(c IN (1, 2, 25))", TENS, False),
    "in-inside": ("(c IN (1, 2, 15))", TENS, True),
    "not-in": ("(NOT (c IN (7, 8)))", statistics(7, 7), False),
    "in-a-query-is-unknown": ("(c IN (SELECT 99))", TENS, True),
    "in-long-outside": (f"(c IN ({', '.join(map(str, range(100, 500)))}))", TENS, False),
    "in-long-around": (f"(c IN ({', '.join(map(str, range(-200, 10)))}, 20))", TENS, True),
    "not-in-long": (f"(NOT (c IN ({', '.join(map(str, range(500)))})))", TENS, True),
    "in-of-kinds-is-unknown": ("(c IN (1, 'a'))", TENS, True),
    "in-of-floating-kinds-is-unknown": ("(c IN (99.0D, CAST('98.0' AS FLOAT)))", raw("0.5", "1.5"), True),
    "in-of-an-expression-is-unknown": ("(c IN (1, d))", TENS, True),
    "in-of-nothing-is-unknown": ("c IN ()", TENS, True),
    # logic
    "and-one-false": ("((c >= 10) AND (c > 19))", TENS, False),
    "and-unknown": ("((c >= 10) AND f(c))", TENS, True),
    "and-unknown-with-false": ("(f(c) AND (c > 19))", TENS, False),
    "or-both-false": ("((c < 10) OR (c > 19))", TENS, False),
    "or-one-may": ("((c < 10) OR (c > 18))", TENS, True),
    "or-unknown": ("((c < 10) OR f(c))", TENS, True),
    "not-true-everywhere": ("(NOT (c >= 10))", TENS, False),
    "not-of-and": ("(NOT ((c >= 10) AND (c <= 19)))", TENS, False),
    "not-of-or": ("(NOT ((c >= 10) OR f(c)))", TENS, False),
    "not-not": ("(NOT (NOT (c > 19)))", TENS, False),
    "no-parentheses": ("c > 19 AND c = 10 OR NOT c < 20", TENS, False),
    "true": ("true", TENS, True),
    "false": ("false", TENS, False),
    "null": ("NULL", TENS, False),
    "not-null": ("(NOT NULL)", TENS, False),
    "null-or": ("(NULL OR (c = 10))", TENS, True),
    "false-or-null": ("(false OR CAST(NULL AS BOOLEAN))", TENS, True),  # a cast is no condition that is understood
    # nulls
    "is-null-of-none": ("(c IS NULL)", TENS, False),
    "is-null-of-some": ("(c IS NULL)", SOME_NULLS, True),
    "is-null-of-all": ("(c IS NULL)", ALL_NULL, True),
    "is-null-uncounted": ("(c IS NULL)", statistics(10, 19, None), True),
    "is-not-null-of-none": ("(c IS NOT NULL)", TENS, True),
    "is-not-null-of-some": ("(c IS NOT NULL)", SOME_NULLS, True),
    "is-not-null-of-all": ("(c IS NOT NULL)", ALL_NULL, False),
    "is-null-of-all-in-no-rows": ("(c IS NOT NULL)", statistics(None, None, 0, records=0), True),
    "not-is-null-of-all": ("(NOT (c IS NULL))", ALL_NULL, False),
    "comparison-of-all-null": ("(c = 10)", ALL_NULL, False),
    "not-comparison-of-all-null": ("(NOT (c = 10))", ALL_NULL, False),
    "all-null-bounds-carry-nothing": ("(c = 10)", statistics(10, 10, 10), False),
    "null-safe-equal-of-all-null": ("(c <=> 10)", ALL_NULL, False),
    "not-null-safe-equal-of-all-null": ("(NOT (c <=> 10))", ALL_NULL, True),
    "not-null-safe-equal-of-one-value": ("(NOT (c <=> 7))", statistics(7, 7), False),
    "not-null-safe-equal-of-one-value-and-null": ("(NOT (c <=> 7))", statistics(7, 7, 1), True),
    "null-safe-equal-null-of-none": ("(c <=> NULL)", TENS, False),
    "null-safe-equal-null-of-some": ("(c <=> NULL)", SOME_NULLS, True),
    "equal-null": ("(c = NULL)", SOME_NULLS, False),
    "not-equal-null": ("(NOT (c = CAST(NULL AS INT)))", SOME_NULLS, False),
    "between-null": ("c BETWEEN NULL AND 30", TENS, False),
    "not-between-null": ("c NOT BETWEEN NULL AND 5", TENS, True),
    "in-null": ("(c IN (NULL))", SOME_NULLS, False),
    "in-with-null": ("(c IN (15, NULL))", TENS, True),
    "not-in-with-null": ("(NOT (c IN (5, NULL)))", TENS, False),
    "like-null": ("c LIKE NULL", NAMES, False),
    "in-the-middle-count-if-wide": ("(c IS NULL)", statistics(10, 19, 3, tightBounds=False), True),
    "no-null-if-wide": ("(c IS NULL)", statistics(10, 19, 0, tightBounds=False), False),
    "all-null-if-wide": ("(c IS NOT NULL)", statistics(10, 19, 10, tightBounds=False), False),
    "bounds-if-wide": ("(c = 20)", statistics(10, 19, 3, tightBounds=False), False),
    # literals of integers and decimals
    "tinyint": ("(c > 100Y)", TENS, False),
    "least-tinyint": ("(c = -128Y)", TENS, False),
    "smallint": ("(c = 20S)", TENS, False),
    "bigint": ("(c = 20L)", TENS, False),
    "bigint-inside": ("(c = 12L)", TENS, True),
    "negative": ("(c < -5)", TENS, False),
    "negative-inside": ("(c = -15)", statistics(-20, -10), True),
    "least-bigint": ("(c = -9223372036854775808L)", TENS, False),
    "cast-integer": ("(c = CAST(20 AS BIGINT))", TENS, False),
    "cast-that-overflows-is-unknown": ("(c = CAST(266 AS TINYINT))", TENS, True),
    "cast-that-overflows-below-a-minus": ("(c = (- CAST(-128 AS TINYINT)))", TENS, True),
    "minus-of-least-tinyint-is-unknown": ("(c = (- -128Y))", TENS, True),
    "cast-of-text-to-integer-is-unknown": ("(c = CAST('20' AS INT))", TENS, True),
    "decimal-suffix": ("(c > 9.76BD)", PRICES, False),
    "decimal-suffix-inside": ("(c > 9.7BD)", PRICES, True),
    "negative-decimal": ("(c <= -1.50BD)", PRICES, False),
    "decimal-with-exponent": ("(c < 1E-8BD)", PRICES, False),
    "large-decimal": ("(c = 99999999999999999999BD)", PRICES, False),
    "cast-decimal": ("(c > CAST('10.5' AS DECIMAL(10,2)))", PRICES, False),
    "cast-decimal-of-integer": ("(c > CAST(10 AS DECIMAL(10,2)))", PRICES, False),
    "cast-decimal-that-rounds-is-unknown": ("(c > CAST('9.96' AS DECIMAL(10,1)))", PRICES, True),
    "cast-decimal-that-overflows-is-unknown": ("(c > CAST('123.4' AS DECIMAL(3,1)))", PRICES, True),
    "cast-decimal-without-scale": ("(c > CAST('10' AS DECIMAL))", PRICES, False),
    "plain-decimal": ("(c > 10.5)", PRICES, False),
    "decimal-against-integers": ("(c > 19.5BD)", TENS, False),
    "decimal-written-by-way-of-a-double": (
        "(c = 0.30000000000000000001BD)",
        raw("0.1", "0.3"),
        True,
    ),
    "integer-beyond-64-bits": (
        "(c > 99999999999999999999BD)",
        raw("99999999999999999990", "99999999999999999999"),
        False,
    ),
    "absurd-exponent": ("(c = 5)", raw("1e999999", "1e9999999"), True),
    "impossible-exponent": ("(c = 5)", raw("6", "1e99999999999999999999"), True),
    # floating point: NaN is above everything, and bounds need not tell of it
    "double-equal-above": ("(c = 3.0D)", HALVES, False),
    "double-equal-below": ("(c = -1.0D)", HALVES, False),
    "double-less": ("(c < -0.6D)", HALVES, False),
    "double-greater-may-be-nan": ("(c > 1.0E10D)", HALVES, True),
    "double-at-least-may-be-nan": ("(c >= CAST('Infinity' AS DOUBLE))", HALVES, True),
    "double-not-less-may-be-nan": ("(NOT (c < 3.0D))", HALVES, True),
    "double-nan": ("(c = CAST('NaN' AS DOUBLE))", HALVES, True),
    "double-infinity": ("(c = CAST('Infinity' AS DOUBLE))", HALVES, False),
    "double-negative-infinity": ("(c = CAST('-Infinity' AS DOUBLE))", HALVES, False),
    "double-exponent": ("(c = 1e3)", HALVES, False),
    "double-at-max": ("(c = 2.5D)", HALVES, True),
    "double-of-integer-stats": ("(c = 20.5D)", TENS, False),
    "double-cast-of-integer": ("(c = CAST(3 AS DOUBLE))", HALVES, False),
    "double-that-was-a-float": ("(c = 0.10000000149011612D)", raw("0.0", "0.1"), True),
    "double-nan-as-max": ("(c = 99.5D)", statistics(0.5, "NaN"), True),
    "double-boolean-bounds-are-not-used": ("(c = 5.0D)", statistics(low=False, high=False), True),
    "double-huge-bounds": ("(c = 5.0D)", raw("1e308", "1e400"), False),
    "double-bounds-beyond-doubles": ("(c = 5.0D)", raw("1e399", "1e400"), True),
    "negative-zero": ("(c = -0.0D)", raw("0.0", "1.0"), True),
    "float": ("(c = CAST('2.6' AS FLOAT))", HALVES, False),
    "float-at-max-in-other-digits": ("(c = CAST('0.1' AS FLOAT))", raw("0.0", "0.1"), True),
    "float-greater-may-be-nan": ("(c > CAST('1.0E10' AS FLOAT))", HALVES, True),
    "float-suffix": ("(c = 2.75F)", HALVES, False),
    "float-beyond-floats-is-unknown": ("(c = CAST('1.0E39' AS FLOAT))", HALVES, True),
    "float-of-many-digits-is-unknown": ("(c = CAST('77.7777777777777777' AS FLOAT))", HALVES, True),
    # strings
    "string-below": ("(c = 'alice')", NAMES, False),
    "string-above": ("(c > 'eve')", NAMES, False),
    "string-inside": ("(c = 'carol')", NAMES, True),
    "string-quote": (r"(c = 'it\'s')", NAMES, False),
    "string-backslash": (r"(c = 'a\\b')", NAMES, False),
    "string-ends-in-backslash": (r"((c = 'c\\') AND (c > 'zed'))", NAMES, False),
    "string-other-escape-is-unknown": (r"(c = '\141')", NAMES, True),
    "string-newline": ("(c = 'z\r\nz')", NAMES, False),
    "string-with-semicolon-and-dashes": ("(c = 'z; -- z')", NAMES, False),
    "string-in-two-parts-is-unknown": ("(c = 'z' 'z')", NAMES, True),
    "string-empty": ("(c = '')", NAMES, False),
    "string-order-is-that-of-utf-8": ("(c = '\U0001f600')", statistics("a", "\uff5e"), False),
    "string-collated-is-unknown": ("(c = 'ZED' collate UTF8_LCASE)", NAMES, True),
    "string-collated-column-is-unknown": ("(COLLATE(c, UTF8_LCASE) = 'zed')", NAMES, True),
    "string-collated-in-is-unknown": ("(c IN ('ZED' collate UTF8_LCASE))", NAMES, True),
    "string-cast-is-unknown": ("(c = CAST('zed' AS STRING))", NAMES, True),
    "string-against-integers-is-unknown": ("(c = 'a')", TENS, True),
    "integer-against-strings-is-unknown": ("(c = 5)", NAMES, True),
    "truncated-max": ("(c = 'ccz')", statistics("b" * 32, "c" * 32 + "\x7f"), False),
    "truncated-max-bounds-its-prefix": ("(c >= '" + "c" * 40 + "')", statistics("b", "c" * 32 + "\ufffd"), True),
    "truncated-max-before-an-emoji": (f"(c = '{'c' * 32}\U0001f600')", statistics("b", "c" * 32 + "\ufffd"), True),
    "truncated-max-within-an-emoji": (f"(c = '{'c' * 31}\U0001f600')", statistics("b", "c" * 31 + "?\ufffd"), True),
    "truncated-max-within-an-emoji-and-other-mark": (
        f"(c = '{'c' * 31}\U0001f600')",
        statistics("b", "c" * 31 + "?\x7f"),
        True,
    ),
    "truncated-max-of-emojis": ("(c > '\U0001f601')", statistics("b", "\U0001f600" * 16 + "\U0010ffff"), False),
    "truncated-short-max": ("(c = 'cc\U0001f600')", statistics("b", "cc\ufffd"), True),
    "max-of-31": ("(c > '" + "c" * 31 + "')", statistics("b", "c" * 31), False),
    "max-that-is-only-the-mark": ("(c > 'zzz')", statistics("b", "\ufffd"), True),
    "starts-with": ("startswith(c, 'f')", NAMES, False),
    "starts-with-of-max": ("STARTSWITH(c, 'ev')", NAMES, True),
    "starts-with-empty": ("startswith(c, '')", NAMES, True),
    "not-starts-with": ("(NOT startswith(c, 'b'))", statistics("ba", "bz"), False),
    "ends-with": ("endswith(c, 'x')", NAMES, True),
    "ends-with-binary-is-unknown": ("endswith(c, X'61')", ALL_NULL, True),
    "ends-with-of-all-null": ("endswith(c, 'x')", ALL_NULL, False),
    "not-contains-of-all-null": ("(NOT contains(c, 'x'))", ALL_NULL, False),
    "contains": ("contains(c, 'x')", NAMES, True),
    "not-contains": ("(NOT contains(c, 'x'))", NAMES, True),
    "like-prefix": ("c LIKE 'f%'", NAMES, False),
    "like-prefix-inside": ("c LIKE 'c%'", NAMES, True),
    "not-like-prefix": ("(NOT c LIKE 'b%')", statistics("ba", "bz"), False),
    "like-prefix-and-more": ("c LIKE 'f%x_'", NAMES, False),
    "not-like-prefix-and-more": ("(NOT c LIKE 'b%x')", statistics("ba", "bz"), True),
    "like-one-wildcard": ("c LIKE '_z'", NAMES, True),
    "like-one-more": ("c LIKE 'f_'", NAMES, False),
    "like-without-wildcard": ("c LIKE 'zed'", NAMES, False),
    "not-like-without-wildcard": ("(NOT c LIKE 'b')", statistics("b", "b"), False),
    "like-escaped-wildcard": (r"c LIKE 'e\\%%'", statistics("e%a", "e%b"), True),
    "like-escaped-wildcard-outside": (r"c LIKE 'e\\_%'", statistics("ea", "eb"), False),
    "like-bad-escape-is-unknown": (r"c LIKE 'z\\z'", NAMES, True),
    "like-other-escape-is-unknown": ("c LIKE 'z#%' ESCAPE '#'", NAMES, True),
    "like-any-is-unknown": ("c LIKE ANY ('x', 'y')", NAMES, True),
    "like-column-is-unknown": ("c LIKE d", NAMES, True),
    "not-like-in-one-is-unknown": ("c NOT LIKE 'z%'", NAMES, True),
    "not-like-in-one-beside-another": ("(c NOT LIKE 'z%' AND c > 'zz')", NAMES, True),
    "like-compared-is-unknown": ("(c LIKE 'z%' = false)", NAMES, True),
    "rlike-is-unknown": ("c RLIKE 'z'", NAMES, True),
    # dates and times
    "date-before": ("(c < DATE '2024-01-01')", DAYS, False),
    "date-at-min": ("(c <= DATE '2024-01-01')", DAYS, True),
    "date-after": ("(c > DATE '2024-01-31')", DAYS, False),
    "date-cast": ("(c > CAST('2024-01-31' AS DATE))", DAYS, False),
    "date-beyond-9999-is-unknown": ("(c > DATE '+10000-01-01')", DAYS, True),
    "date-that-is-none-is-unknown": ("(c = DATE '2024-02-30')", DAYS, True),
    "date-stats-beyond-9999": ("(c > DATE '2024-01-31')", statistics("2024-01-01", "+10000-01-01"), True),
    "date-stats-in-another-form": ("(c = DATE '2025-01-31')", statistics("20240101", "20240131"), True),
    "timestamp-before": ("(c < TIMESTAMP '2023-12-31 23:59:59')", INSTANTS, False),
    "timestamp-after": ("(c > TIMESTAMP '2024-01-31 12:00:00.2')", INSTANTS, False),
    "timestamp-within-the-last-millisecond": ("(c = TIMESTAMP '2024-01-31 12:00:00.123456')", INSTANTS, True),
    "timestamp-a-millisecond-on": ("(c = TIMESTAMP '2024-01-31 12:00:00.124001')", INSTANTS, False),
    "timestamp-ltz": ("(c > TIMESTAMP_LTZ '2024-02-01 00:00:00')", INSTANTS, False),
    "timestamp-stats-with-offset": (
        "(c = TIMESTAMP '2024-01-01 03:00:00')",
        statistics("2024-01-01T00:00:00.000+02:00", "2024-01-01T04:00:00.000+02:00"),
        False,
    ),
    "timestamp-stats-without-offset": ("(c > TIMESTAMP '2025-01-01 00:00:00')", WALLS, True),
    # times before clocks had whole hours: Spark leaves the seconds of an offset out
    "timestamp-of-local-mean-time": (
        "(c = TIMESTAMP '1889-12-31 23:06:32')",  # midnight in Berlin, +00:53:28
        statistics("1890-01-01T00:00:00.000+00:53", "1890-01-01T00:00:00.000+00:53"),
        True,
    ),
    "timestamp-of-local-mean-time-in-the-west": (
        "(c = TIMESTAMP '1972-01-01 00:44:30')",  # midnight in Monrovia, -00:44:30
        statistics("1972-01-01T00:00:00.000-00:44", "1972-01-01T00:00:00.000-00:44"),
        True,
    ),
    "timestamp-a-minute-beside-local-mean-time": (
        "(c = TIMESTAMP '1972-01-01 00:46:01')",
        statistics("1972-01-01T00:00:00.000-00:44", "1972-01-01T00:00:00.000-00:44"),
        False,
    ),
    "timestamp-of-the-first-year": (
        "(c = TIMESTAMP '0001-01-01 00:00:00')",
        statistics("0001-01-01T00:00:00.000+00:53", "0001-01-01T00:00:00.000+00:53"),
        True,
    ),
    "date-that-the-old-calendar-leaves-out": ("(c = DATE '1582-10-05')", statistics("1582-10-15", "1582-10-15"), True),
    "date-before-those": ("(c = DATE '1582-10-04')", statistics("1582-10-15", "1582-10-15"), False),
    "timestamp-of-the-old-formatter": (  # of java.util, which before 1900 knows no local mean time
        "(c = TIMESTAMP '1850-01-01 07:52:58')",
        statistics("1850-01-01T00:00:00.000-08:00", "1850-01-01T00:00:00.000-08:00"),
        True,
    ),
    "timestamp-a-month-beside-the-old-formatter": (
        "(c = TIMESTAMP '1850-02-01 00:00:00')",
        statistics("1850-01-01T00:00:00.000-08:00", "1850-01-01T00:00:00.000-08:00"),
        False,
    ),
    "timestamp-cast-of-text-is-unknown": ("(c > CAST('2025-01-01 00:00:00' AS TIMESTAMP))", INSTANTS, True),
    "timestamp-try-cast-is-unknown": ("(c > try_cast('2025-01-01 00:00:00' AS TIMESTAMP))", INSTANTS, True),
    "timestamp-function-is-unknown": ("(c > timestamp('2025-01-01 00:00:00'))", INSTANTS, True),
    "timestamp-with-zone-is-unknown": ("(c > TIMESTAMP '2025-01-01 00:00:00Z')", INSTANTS, True),
    "ntz-after": ("(c > TIMESTAMP_NTZ '2024-01-31 12:00:00.2')", WALLS, False),
    "ntz-inside": ("(c = TIMESTAMP_NTZ '2024-01-31 12:00:00.123456')", WALLS, True),
    "ntz-cast": ("(c > CAST('2025-01-01 00:00:00' AS TIMESTAMP_NTZ))", WALLS, False),
    "ntz-stats-with-offset": ("(c > TIMESTAMP_NTZ '2025-01-01 00:00:00')", INSTANTS, True),
    "ntz-stats-of-a-former-date": ("(c > TIMESTAMP_NTZ '2024-02-01 00:00:00')", DAYS, False),
    "time-is-unknown": ("(c = TIME '01:02:03')", DAYS, True),
    "interval-is-unknown": ("(c = INTERVAL '1' DAY)", DAYS, True),
    # booleans and binaries, of which statistics count only nulls
    "boolean-column": ("c", statistics(None, None, 0), True),
    "boolean-column-all-null": ("c", ALL_NULL, False),
    "not-boolean-column-all-null": ("(NOT c)", ALL_NULL, False),
    "boolean-bounds-are-not-used": ("c", statistics(low=False, high=False), True),
    "boolean-is-no-integer": ("(c = 5)", statistics(low=False, high=False), True),
    "binary": ("(c = X'1F')", statistics("zz", "zz"), True),
    "binary-all-null": ("(c = X'1F')", ALL_NULL, False),
    "binary-odd-is-unknown": ("(c = X'1')", ALL_NULL, True),
    # statistics that say less
    "no-max": ("(c > 100)", statistics(10, None), True),
    "no-max-below-min": ("(c < 10)", statistics(10, None), False),
    "no-min": ("(c < 5)", statistics(None, 19), True),
    "no-bounds": ("(c < 5)", statistics(), True),
    "bounds-contradict": ("(c = 15)", statistics(19, 10), True),
    "no-statistics": ("(c = 5)", FileValues({}, None), True),
    "empty-statistics": ("(c = 5)", FileValues({}, ""), True),
    "broken-statistics": ("(c = 5)", FileValues({}, '{"numRecords": '), True),
    "statistics-of-other-form": ("(c = 5)", FileValues({}, '{"minValues": [7]}'), True),
    "half-a-character-in-statistics": ("(c = 5)", FileValues({}, '{"minValues": {"c": 7, "d": "\\ud83d"}}'), True),
    "column-not-in-statistics": ("(d IS NULL)", TENS, True),
    "null-count-of-other-form": (
        "(c IS NULL)",
        FileValues({}, '{"numRecords": 1, "nullCount": {"c": {"d": 0}}}'),
        True,
    ),
    # partition values are exact
    "partition-integer": ("(c = 5)", partition("5"), True),
    "partition-other-integer": ("(c = 5)", partition("6"), False),
    "partition-not-equal": ("(NOT (c = 5))", partition("5"), False),
    "partition-decimal-of-other-scale": ("(c = 1.5BD)", partition("1.50"), True),
    "partition-other-decimal": ("(c = 1.5BD)", partition("1.51"), False),
    "partition-null": ("(c IS NULL)", partition(None), True),
    "partition-null-is-no-value": ("(c = 5)", partition(None), False),
    "partition-empty-is-null": ("(c IS NOT NULL)", partition(""), False),
    "partition-empty-is-no-string": ("(c = '')", partition(""), False),
    "partition-is-not-null": ("(c IS NULL)", partition("5"), False),
    "partition-string": ("(c = 'a')", partition("b"), False),
    "partition-string-like": ("c LIKE 'a%'", partition("abc"), True),
    "partition-date": ("(c >= DATE '2024-01-01')", partition("2023-12-31"), False),
    "partition-date-in-another-form": ("(c >= DATE '2024-01-01')", partition("2023-12-1"), True),
    "partition-boolean": ("c", partition("false"), False),
    "partition-boolean-true": ("(c = true)", partition("true"), True),
    "partition-boolean-not": ("(NOT c)", partition("true"), False),
    "partition-boolean-in-another-form": ("c", partition("FALSE"), True),
    "partition-timestamp-utc": (
        "(c = TIMESTAMP '2024-01-01 00:00:00')",
        partition("2024-01-01T00:00:00.000001Z"),
        False,
    ),
    "partition-timestamp-same": (
        "(c = TIMESTAMP '2024-01-01 00:00:00.1')",
        partition("2024-01-01T00:00:00.100000Z"),
        True,
    ),
    "partition-timestamp-of-unknown-zone": (
        "(c > TIMESTAMP '2030-01-01 00:00:00')",
        partition("2024-01-01 00:00:00"),
        True,
    ),
    "partition-timestamp-with-offset": (
        "(c > TIMESTAMP '2030-01-01 00:00:00')",
        partition("2024-01-01T00:00:00+02:00"),
        True,
    ),
    "partition-ntz": ("(c > TIMESTAMP_NTZ '2030-01-01 00:00:00')", partition("2024-01-01 00:00:00.123456"), False),
    "partition-double": ("(c = 1.0D)", partition("1.5"), False),
    "partition-double-same": ("(c = 1.5D)", partition("1.5"), True),
    "partition-nan": ("(c = 1.0D)", partition("NaN"), True),
    "partition-binary-is-unknown": ("(c = X'1F')", partition("a"), True),
    "partition-that-is-no-number": ("(c = 5)", partition("abc"), True),
    # decimals without a fraction, as delta-rs writes their bounds: through a double, and no further than 64 bits go
    "integer-through-a-double": (
        "(c = 1234567890123456789BD)",
        raw("1234567890123456768", "1234567890123456768"),
        True,
    ),
    "integer-below-a-double": ("(c = -1234567890123456789BD)", raw("-1234567890123456768", "1"), True),
    "integer-well-above-a-double": ("(c = 1234567890123499999BD)", raw("1", "1234567890123456768"), False),
    "integer-above-64-bits": ("(c = 12345678901234567890BD)", raw("5", "9223372036854775807"), True),
    "integer-beside-those-cut-to-64-bits": ("(c = 9223372036854775809BD)", raw("5", "9223372036854775808"), False),
    "integer-below-64-bits": ("(c = -12345678901234567890BD)", raw("-9223372036854775808", "5"), True),
    "integer-on-the-other-side": ("(c = 4)", raw("5", "9223372036854775807"), False),
    "integer-that-a-double-holds": ("(c = 9007199254740993)", raw("1", "9007199254740992"), False),
    # columns
    "quoted": ("(`my col` = 1)", FileValues({"my col": "2"}, None), False),
    "quoted-dot": ("(`a.b` = 1)", FileValues({"a.b": "2"}, None), False),
    "quoted-backquote": ("(`a``b` = 1)", FileValues({"a`b": "2"}, None), False),
    "quoted-keyword": ("(`null` IS NULL)", FileValues({"null": "2"}, None), False),
    "other-case-is-unknown": ("(C = 20)", TENS, True),
    "nested": ("(s.f = 1)", FileValues({}, '{"minValues": {"s": {"f": 2}}}'), False),
    "nested-inside": ("(s.f = 3)", FileValues({}, '{"minValues": {"s": {"f": 2}}}'), True),
    "nested-quoted": ("(`s`.`f g` = 1)", FileValues({}, '{"minValues": {"s": {"f g": 2}}}'), False),
    "nested-deep": ("(a.b.c.d.e.f = 1)", FileValues({}, '{"minValues": {"a":{"b":{"c":{"d":{"e":{"f":2}}}}}}}'), False),
    "nested-null": ("(s.f IS NULL)", FileValues({}, '{"numRecords": 2, "nullCount": {"s": {"f": 0}}}'), False),
    "nested-beside-a-partition-column": ("(c.f = 1)", partition("2"), True),
    "struct-itself": ("(s IS NULL)", FileValues({}, '{"numRecords": 2, "nullCount": {"s": {"f": 0}}}'), True),
    # a column that is called as an operator is, and so stands without backquotes
    "not-as-a-column": ("((not AND (c = 15)) OR (d = 1))", FileValues({"c": "15", "d": "2"}, None), True),
    "not-as-a-column-with-is": ("(not IS NOT NULL)", FileValues({"IS": "1"}, None), True),
    "two-columns": ("(c = d)", TENS, True),
    "column-in-an-expression": ("((c + 1) = 5)", TENS, True),
    "column-below-a-minus": ("((- c) = 5)", TENS, True),
    "column-in-a-cast": ("(CAST(c AS STRING) = '5')", NAMES, True),
    "element": ("(c[0] = 5)", TENS, True),
    "comparison-compared": ("((c = 99) <=> false)", TENS, True),
    "is-true-is-unknown": ("((c = 99) IS FALSE)", TENS, True),
    "is-null-of-a-comparison": ("((c = 99) IS NULL)", TENS, True),
    "case": ("CASE WHEN (c = 99) THEN false ELSE true END", TENS, True),
    # texts that are none
    "empty": ("", TENS, True),
    "blank": (" \n", TENS, True),
    "unbalanced": ("((c = 99)", TENS, True),
    "two-conditions": ("(c = 99), (c = 98)", TENS, True),
    "two-statements": ("(c = 99); (c = 98)", TENS, True),
    "a-query": ("SELECT c = 99", TENS, True),
    "a-string": ("'false'", TENS, True),
    "a-number": ("0", TENS, True),
    "unfinished-string": ("(c = '99", TENS, True),
    "placeholder": ("(c = :x)", TENS, True),
    "longest": ("(c = 99)".ljust(16 * 1024), TENS, False),
    "too-long": ("(c = 99)".ljust(16 * 1024 + 1), TENS, True),
    "too-deep": ("(NOT " * 2000 + "(c = 10)" + ")" * 2000, TENS, True),
    "too-deep-in-nots": ("NOT " * 34 + "(c = 99)", TENS, True),
    "deep-in-nots": ("NOT " * 30 + "(c = 99)", TENS, False),
    "long-chain": (" AND ".join(["(c >= 10)"] * 500 + ["(c = 99)"]), TENS, False),
    "chain-to-the-left": ("(" * 20 + "(c = 99)" + " AND (c >= 10))" * 20, TENS, False),
}


@pytest.mark.parametrize(("predicate", "file", "expected"), JUDGED.values(), ids=JUDGED)
def test_a_file_may_match_unless_none_of_its_rows_can(predicate: str, file: FileValues, expected: bool) -> None:
    assert may_match(predicate, file) is expected


OUTCOMES = {
    "compared": ("(c = 15)", TENS, TRUE | FALSE),
    "compared-with-nulls": ("(c = 15)", SOME_NULLS, TRUE | FALSE | NULL),
    "true-of-all": ("(c < 20)", TENS, TRUE),
    "false-of-all": ("(c > 20)", TENS, FALSE),
    "null-of-all": ("(c > 20)", ALL_NULL, NULL),
    "null-and-false": ("((c > 20) AND false)", ALL_NULL, FALSE),
    "null-and-true": ("((c > 20) AND true)", ALL_NULL, NULL),
    "null-or-true": ("((c > 20) OR true)", ALL_NULL, TRUE),
    "null-or-false": ("((c > 20) OR false)", ALL_NULL, NULL),
    "null-safe": ("(c <=> 7)", statistics(7, 7, 1), TRUE | FALSE),
    "is-null": ("(c IS NULL)", SOME_NULLS, TRUE | FALSE),
    "in-with-null": ("(c IN (15, NULL))", TENS, TRUE | NULL),
    "not-in-with-null": ("(NOT (c IN (15, NULL)))", TENS, FALSE | NULL),
    "unknown": ("f(c)", TENS, TRUE | FALSE | NULL),
}


@pytest.mark.parametrize(("predicate", "file", "expected"), OUTCOMES.values(), ids=OUTCOMES)
def test_the_outcomes_are_those_that_rows_may_give(predicate: str, file: FileValues, expected: int) -> None:
    assert outcomes(predicates._compiled(predicate), lambda column, kind: possible(file, column, kind)) == expected


def test_of_many_files_only_those_around_the_value_match() -> None:
    files = [statistics(low, low + 9) for low in range(0, 1000, 10)]
    assert [files.index(file) for file in files if may_match("((c = 555) AND (c IS NOT NULL))", file)] == [55]


@given(st.text(alphabet=string.printable + "é\U0001f600", max_size=40))
@settings(max_examples=150, deadline=None)
def test_no_text_is_an_error(text: str) -> None:
    may_match(text, TENS)
    may_both_match(text, text)
