"""Which texts are read as Spark reads them: what sqlglot takes and Spark does not is not among them."""

from __future__ import annotations

import pytest

from lockstep.tables.spark_texts import check_expression, checked_select
from lockstep.tables.spark_types import UnjudgedError
from tests.support.generated_columns import EXPRESSIONS as OF_COLUMNS
from tests.support.view_queries import EXPRESSIONS, NO_SPARK, QUERIES


def test_what_people_write_is_read() -> None:
    for query in [*QUERIES.values(), *(f"SELECT {text} AS c FROM t" for text in EXPRESSIONS)]:
        assert checked_select(query) in query
    for expression in OF_COLUMNS:
        check_expression(expression)


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("-- a\nSELECT id FROM t", "SELECT id FROM t"),
        ("/* a */ SELECT /* b */ id FROM t -- c", "SELECT /* b */ id FROM t"),
        (" SELECT id FROM t\n", "SELECT id FROM t"),
    ],
)
def test_comments_around_a_query_are_not_kept(query: str, kept: str) -> None:
    assert checked_select(query) == kept


UNREAD = [
    *NO_SPARK,
    # Spark takes these, and the two do not agree of each, or it depends on what a session has set.
    "SELECT 'it''s' AS c FROM t",
    "SELECT 'it' 's' AS c FROM t",
    'SELECT x = "a" "b" AS c FROM t',
    "SELECT 'a\\'b' AS c FROM t",
    "SELECT '${name}' AS c FROM t",
    "SELECT id FROM t -- ${name}",
    "SELECT r'a' AS c FROM t",
    "SELECT X'1F' AS c FROM t",
    "SELECT DATE('2020-01-01') AS c FROM t",
    "SELECT TIMESTAMP '2020-01-01' AS c FROM t",
    "SELECT id::INT AS c FROM t",
    "SELECT ! o AS c FROM t",
    "SELECT i = 1 = o AS c FROM t",
    "SELECT NOT i IS NULL IS NULL AS c FROM t",
    "SELECT i BETWEEN 1 AND 2 AND 3 = 3 = o AS c FROM t",
    "SELECT x LIKE 'a' ESCAPE '/' AS c FROM t",
    "SELECT x LIKE ANY ('a', 'b') AS c FROM t",
    "SELECT i <=> 1 AS c FROM t",
    "SELECT 1L AS c FROM t",
    "SELECT 1e3 AS c FROM t",
    "SELECT 1. AS c FROM t",
    "SELECT 1BD AS c FROM t",
    "SELECT current_user AS c FROM t",
    "SELECT user AS c FROM t",
    "SELECT /*+ BROADCAST(t) */ id FROM t",
    "SELECT /* a /* b */ c */ id FROM t",
    "SELECT id -- a\\\n FROM t",
    "SELECT id -- a\r FROM t",
    "SELECT id FROM t limit",
    "SELECT ALL id FROM t",
    "SELECT id FROM t;",
    "SELECT " + "(" * 65 + "id" + ")" * 65 + " AS c FROM t",
]


def test_what_is_not_certain_is_not_read() -> None:
    read = []
    for query in UNREAD:
        try:
            read.append(checked_select(query))
        except UnjudgedError:
            continue
    assert not read


def test_what_is_not_read_is_named() -> None:
    with pytest.raises(UnjudgedError, match=r"^has TEXT\) at character 19, where it is not certain what Spark reads$"):
        checked_select("SELECT CAST(id AS TEXT) AS c FROM t")
    with pytest.raises(UnjudgedError, match=r"^has an end, "):
        checked_select("SELECT id FROM t WHERE")


def test_generated_columns_are_read_more_narrowly() -> None:
    for text in ('x || "a"', "x || 'it''s'", "upper(x)", "count(i)", "x || '${a}'", "id + 1 extra", "CAST(i AS TEXT)"):
        with pytest.raises(UnjudgedError):
            check_expression(text)
