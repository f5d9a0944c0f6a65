"""Views that Python makes: Spark records the same of the same query, and reads them."""

from __future__ import annotations

import json
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.tables.opened import OpenLake
from lockstep.tables.spark_texts import checked_select
from lockstep.tables.spark_types import UnjudgedError
from lockstep.timeline.entry import ViewDefinition
from tests.support.lakes import named
from tests.support.sparks import since
from tests.support.view_queries import COLUMNS, EXPRESSIONS, NO_SPARK, QUERIES

pytestmark = [pytest.mark.long, since("4.2", "views in catalogs")]


@pytest.fixture
def lake(spark: Any, root: Path) -> OpenLake:
    """The session's lake with two tables of all types, opened without Spark."""
    spark.sql("CREATE NAMESPACE lake.sales")
    lake = lockstep.open(str(root))
    with lake.transaction() as tx:
        tx.create("t", COLUMNS).append(
            {
                "id": [1, 2],
                "i": [7, None],
                "b": [1, 2],
                "e": [Decimal(1), Decimal(2)],
                "y": [date(2026, 3, 2)] * 2,
                "x": ["a", "b"],
            }
        )
        tx.create("sales.u", COLUMNS, properties={"delta.columnMapping.mode": "name"})
        tx["sales.u"].alter.set_column_comment("id", "which one")
    return lake


def said(definition: ViewDefinition) -> dict[str, Any]:
    """Return what a view says, without what only the session that made it knows."""
    properties = {key: text for key, text in definition.properties.items() if key != "owner"}
    found = {name: getattr(definition, name) for name in ("text", "catalog", "namespace", "mode", "query_columns")}
    return {**found, "schema": json.loads(definition.schema), "properties": properties}


def test_spark_records_the_same_of_each_query(spark: Any, lake: OpenLake) -> None:
    expressions = {f"v{number}": f"SELECT {text} AS c FROM t" for number, text in enumerate(EXPRESSIONS)}
    queries = {**expressions, **QUERIES}
    with lake.transaction() as tx:
        for name, query in queries.items():
            tx.create_view(name, query)
    of_python = {name: lake.catalog.database().views[named(name)].definition for name in queries}
    spark.sql("USE lake")
    spark.sql("BEGIN")
    for name, query in queries.items():
        spark.sql(f"CREATE OR REPLACE VIEW {name} AS {query}")
    spark.sql("COMMIT")
    database = lockstep.open(lake.catalog.lake.storage.url).catalog.database()
    of_spark = {name: database.views[named(name)].definition for name in queries}
    assert {name: said(each) for name, each in of_python.items()} == {
        name: said(each) for name, each in of_spark.items()
    }
    for name in queries:
        assert of_python[name].configs.keys() <= of_spark[name].configs.keys()
        assert of_python[name].configs["spark.sql.ansi.enabled"] == of_spark[name].configs["spark.sql.ansi.enabled"]


def test_spark_reads_views_of_python_and_changes_them(spark: Any, lake: OpenLake) -> None:
    schema = pa.schema([("next", pa.date32()), ("n", pa.int64())])
    with lake.transaction() as tx:
        tx.create_view("grouped", QUERIES["grouped"], comment="by Python", properties={"team": "ada"})
        tx.create_view("sales.of_a_view", "SELECT n, m FROM default.grouped WHERE n >= 1")
        tx.create_view("said", "SELECT date_add(y, 1) AS next, count(*) AS n FROM t GROUP BY y", schema=schema)
        tx.create_view("gone", "SELECT id FROM t")
        tx.drop_view("gone")
    spark.sql("SET TIME ZONE 'America/Los_Angeles'")
    assert sorted(map(tuple, spark.sql("SELECT n, m FROM lake.sales.of_a_view").collect())) == [(1, 2), (2, 2)]
    assert [tuple(row) for row in spark.table("lake.default.said").collect()] == [(date(2026, 3, 3), 2)]
    shown = {row.col_name: row.data_type for row in spark.sql("DESCRIBE EXTENDED lake.default.grouped").collect()}
    assert shown["Comment"] == "by Python"
    assert "SELECT x, sum(id) AS n" in spark.sql("SHOW CREATE TABLE lake.default.grouped").first()[0]
    assert {row[1] for row in spark.sql("SHOW VIEWS IN lake.default").collect()} == {"grouped", "said"}
    spark.sql("ALTER VIEW lake.default.said AS SELECT id FROM lake.default.t")
    spark.sql("CREATE VIEW lake.default.on_top AS SELECT m FROM lake.sales.of_a_view")
    with lake.transaction() as tx:
        tx["t"].append({"id": [3], "b": [1], "e": [Decimal(1)], "y": [date(2026, 3, 3)], "x": ["a"]})
        tx.create_view("twice", "SELECT lake.default.said.id FROM said", schema=pa.schema([("id", pa.int64())]))
        tx.create_view("thrice", "SELECT m + 1 AS more FROM on_top")
    assert sorted(row.more for row in spark.sql("SELECT more FROM lake.default.thrice").collect()) == [3, 4]
    assert spark.table("lake.default.twice").count() == 3


def is_read(spark: Any, query: str) -> bool:
    """Tell whether Spark takes a query."""
    try:
        spark.sql(query)
    except PySparkException:
        return False
    return True


def test_spark_takes_none_of_what_is_refused_as_not_its_own(spark: Any, lake: OpenLake) -> None:
    spark.sql("USE lake")
    assert not [query for query in NO_SPARK if is_read(spark, query)]


OF_A_WORD = (
    "SELECT {} FROM t",
    "SELECT t.{} FROM t",
    "SELECT id + {} AS c FROM t",
    "SELECT id {} FROM t",
    "SELECT id AS {} FROM t",
    "SELECT id FROM {}",
    "SELECT id FROM {}.t",
    "SELECT id FROM t {}",
    "SELECT id FROM t AS {}",
    "SELECT {}.id FROM t",
    "SELECT id FROM t GROUP BY {}",
)


def test_words_of_sparks_grammar_are_names_where_they_are_read_as_names(spark: Any) -> None:
    """Where a bare word is taken for a name, Spark's parser has the same plan as of that name in backticks."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    words = {row.keyword.lower() for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()}
    words -= {"true", "false", "null"}  # which are read as literals
    texts = {form.format(word): form.format(f"`{word}`") for word in words for form in OF_A_WORD}
    read = {text: quoted for text, quoted in texts.items() if is_certain(text)}
    assert len(read) > 3000, "most words are names"
    assert not [text for text, quoted in read.items() if plan(parser, text) != plan(parser, quoted)]


def is_certain(text: str) -> bool:
    """Tell whether a query is read without Spark."""
    try:
        checked_select(text)
    except UnjudgedError:
        return False
    return True


def plan(parser: Any, text: str) -> str:
    """Return what Spark's parser makes of a query, or how it refuses it."""
    try:
        return re.sub(r"#\d+", "", parser.parsePlan(text).toString())
    except PySparkException as error:
        return f"{text}: {error}"
