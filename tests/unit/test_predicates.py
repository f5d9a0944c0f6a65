"""Whether a file's rows may satisfy a condition: a "no" is a proof, so every doubt is a "yes"."""

from __future__ import annotations

import json
import math
import operator
import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lockstep.delta import conditions, predicates
from lockstep.delta.conditions import FALSE, NULL, TRUE, outcomes
from lockstep.delta.predicates import FileValues, may_both_match, may_match
from lockstep.delta.statistics import possible


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


def test_of_many_files_only_those_around_the_value_match() -> None:
    files = [statistics(low, low + 9) for low in range(0, 1000, 10)]
    assert [files.index(file) for file in files if may_match("((c = 555) AND (c IS NOT NULL))", file)] == [55]


def test_long_chains_of_both_operators_stay_cheap() -> None:
    """What a condition becomes as an OR of ANDs is bounded, or 30 ORs would be 2 to the 30 branches."""
    branches = conditions._branches(predicates._compiled(" AND ".join(f"(a{n} OR b{n})" for n in range(30))))
    assert len(branches) <= 16


@given(st.text(alphabet=string.printable + "é\U0001f600", max_size=40))
@settings(max_examples=150, deadline=None)
def test_no_text_is_an_error(text: str) -> None:
    may_match(text, TENS)
    may_both_match(text, text)


# --- the same against rows --------------------------------------------------------------------------------------------

Row = dict[str, Any]
LONG = "c" * 31
POOLS: dict[str, list[Any]] = {
    "id": [-3, 0, 1, 2, 7],
    "part": [1, 2, 3],
    "name": ["", "a", "ab", "abc", "b%", "b_", LONG, LONG + "\U0001f600x", LONG + "cc\U0001f600", LONG + "cd"],
    "day": [date(2024, 1, day) for day in (1, 2, 15)],
    "at": [datetime(2024, 1, 1, 0, 0, 0, micros, UTC) for micros in (0, 1, 999, 1000, 123456)],
    "price": [Decimal("-1.50"), Decimal("0.00"), Decimal("2.25")],
    "score": [float("-inf"), -0.5, 0.0, 0.1, 3.5, float("inf"), float("nan")],
    "flag": [False, True],
}
rows = st.fixed_dictionaries({column: st.one_of(st.none(), st.sampled_from(pool)) for column, pool in POOLS.items()})


@dataclass(frozen=True)
class Written:
    """A predicate as SQL, and as what it gives of a row: True, False or None."""

    sql: str
    of: Callable[[Row], bool | None]


def rendered(value: Any) -> str:
    """Write a literal as Catalyst does."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            particular = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value))
            return f"CAST('{particular}' AS DOUBLE)" if particular else f"{value}D"
        case Decimal():
            return f"{value}BD"
        case datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
        case date():
            return f"DATE '{value}'"
        case str():
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "NULL"


def ordered(value: Any) -> Any:
    """Return what Spark's order of a value is Python's order of."""
    if isinstance(value, float):
        return (True, 0.0) if math.isnan(value) else (False, value)
    return value


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRROR = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compare(left: Any, sign: str, right: Any) -> bool | None:
    return None if left is None or right is None else OPERATORS[sign](ordered(left), ordered(right))


def both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def inverse(value: bool | None) -> bool | None:
    return None if value is None else not value


def either(left: bool | None, right: bool | None) -> bool | None:
    return inverse(both(inverse(left), inverse(right)))


def literals(column: str) -> st.SearchStrategy[Any]:
    return st.one_of(st.sampled_from(POOLS[column]), st.none())


@st.composite
def comparisons(draw: st.DrawFn) -> Written:
    column = draw(st.sampled_from(list(POOLS)))
    sign, value = draw(st.sampled_from(list(OPERATORS))), draw(literals(column))
    if draw(st.booleans()):
        return Written(f"({column} {sign} {rendered(value)})", lambda row: compare(row[column], sign, value))
    return Written(f"({rendered(value)} {MIRROR[sign]} {column})", lambda row: compare(row[column], sign, value))


@st.composite
def null_tests(draw: st.DrawFn) -> Written:
    column = draw(st.sampled_from(list(POOLS)))
    value = draw(literals(column))
    return draw(
        st.sampled_from(
            [
                Written(f"({column} IS NULL)", lambda row: row[column] is None),
                Written(f"({column} IS NOT NULL)", lambda row: row[column] is not None),
                Written(
                    f"({column} <=> {rendered(value)})",
                    lambda row: ordered(row[column]) == ordered(value),
                ),
            ]
        )
    )


@st.composite
def memberships(draw: st.DrawFn) -> Written:
    column = draw(st.sampled_from(list(POOLS)))
    values = draw(st.lists(literals(column), min_size=1, max_size=4))

    def of(row: Row) -> bool | None:
        found: bool | None = False
        for value in values:
            found = either(found, compare(row[column], "=", value))
        return found

    return Written(f"({column} IN ({', '.join(map(rendered, values))}))", of)


@st.composite
def ranges(draw: st.DrawFn) -> Written:
    column = draw(st.sampled_from(list(POOLS)))
    low, high = draw(literals(column)), draw(literals(column))
    return Written(
        f"({column} BETWEEN {rendered(low)} AND {rendered(high)})",
        lambda row: both(compare(row[column], ">=", low), compare(row[column], "<=", high)),
    )


TEXT_TESTS: list[Written] = [
    Written("startswith(name, 'a')", lambda row: row["name"] and row["name"].startswith("a")),
    Written("endswith(name, 'b')", lambda row: row["name"] and row["name"].endswith("b")),
    Written("contains(name, 'b')", lambda row: row["name"] and "b" in row["name"]),
    Written("name LIKE 'ab%'", lambda row: row["name"] and row["name"].startswith("ab")),
    Written("name LIKE 'ab'", lambda row: row["name"] and row["name"] == "ab"),
    Written("name LIKE 'ab_'", lambda row: row["name"] and row["name"] == "abc"),
    Written(r"name LIKE 'b\\%'", lambda row: row["name"] and row["name"] == "b%"),
    Written(r"name LIKE 'b\\_%'", lambda row: row["name"] and row["name"].startswith("b_")),
    Written(f"name LIKE '{LONG}_%'", lambda row: row["name"] and row["name"].startswith(LONG) and row["name"] != LONG),
    Written("flag", lambda row: row["flag"]),
    Written("true", lambda row: True),
    Written("NULL", lambda row: None),
    Written("(length(name) = 2)", lambda row: None if row["name"] is None else len(row["name"]) == 2),
    Written("(id = part)", lambda row: compare(row["id"], "=", row["part"])),
]
"""No pattern here matches the empty string, so `and` gives what SQL does: null of null, and false of empty."""


def joined(parts: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        parts.map(lambda a: Written(f"(NOT {a.sql})", lambda row: inverse(truth(a.of(row))))),
        pairs.map(
            lambda p: Written(
                f"({p[0].sql} AND {p[1].sql})", lambda row: both(truth(p[0].of(row)), truth(p[1].of(row)))
            )
        ),
        pairs.map(
            lambda p: Written(
                f"({p[0].sql} OR {p[1].sql})", lambda row: either(truth(p[0].of(row)), truth(p[1].of(row)))
            )
        ),
    )


def truth(value: Any) -> bool | None:
    return None if value is None else bool(value)


written = st.recursive(
    st.one_of(comparisons(), null_tests(), memberships(), ranges(), st.sampled_from(TEXT_TESTS)),
    joined,
    max_leaves=6,
)


# --- a writer of statistics -------------------------------------------------------------------------------------------


def cut(text: str, mark: str) -> str:
    """Cut a string off at 32 UTF-16 units, as Delta's older writers do: through a character, if it comes so."""
    units = text.encode("utf-16-le")
    return text if len(units) <= 64 else units[:64].decode("utf-16-le", errors="replace").replace("\ufffd", "?") + mark


def bound(value: Any, mark: str) -> Any:
    """Write a bound as Delta does: `mark` is what a string that was cut ends in."""
    match value:
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03}Z"
        case date():
            return value.isoformat()
        case str():
            return cut(value, mark)
        case Decimal():
            return float(value)
        case float() if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
    return value


def written_statistics(table: list[Row], *, part: Any, wide: bool, left_out: set[str]) -> FileValues:
    """Write what a log says of a file with these rows, some of it left out."""
    body: dict[str, Any] = {
        "numRecords": len(table),
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
        "tightBounds": not wide,
    }
    for column in POOLS.keys() - {"part"}:
        values = [row[column] for row in table if row[column] is not None]
        numbers = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
        nulls = len(table) - len(values)
        body["nullCount"][column] = nulls
        if numbers and column != "flag":
            body["minValues"][column] = bound(min(numbers), "")
            body["maxValues"][column] = bound(max(numbers), "\ufffd")
    for name in left_out:
        where, _, column = name.partition(".")
        body[where].pop(column, None)
    return FileValues({"part": None if part is None else str(part)}, json.dumps(body))


omissions = st.sets(
    st.sampled_from([f"{where}.{column}" for where in ("minValues", "maxValues", "nullCount") for column in POOLS]),
    max_size=2,
)


@given(
    st.lists(rows, min_size=1, max_size=3),
    st.lists(rows, max_size=1),
    literals("part"),
    written,
    omissions,
)
@settings(max_examples=150, deadline=None)
def test_a_file_with_a_row_that_satisfies_a_condition_may_match(
    live: list[Row], deleted: list[Row], part: Any, predicate: Written, left_out: set[str]
) -> None:
    table = [{**row, "part": part} for row in live + deleted]
    file = written_statistics(table, part=part, wide=bool(deleted), left_out=left_out)
    satisfied = any(predicate.of(row) for row in table[: len(live)])
    judged = may_match(predicate.sql, file)
    event(f"satisfied {satisfied}, judged {judged}")
    assert judged or not satisfied, predicate.sql


@given(st.lists(rows, min_size=1, max_size=4), written, written)
@settings(max_examples=120, deadline=None)
def test_conditions_that_one_row_satisfies_may_both_match(table: list[Row], one: Written, other: Written) -> None:
    satisfied = any(one.of(row) and other.of(row) for row in table)
    judged = may_both_match(one.sql, other.sql)
    event(f"satisfied {satisfied}, judged {judged}")
    assert judged or not satisfied, (one.sql, other.sql)
