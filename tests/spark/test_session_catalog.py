"""A catalog of ours in the place of Spark's own is refused, wherever it was set: some statements would go past it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.support.sessions import CATALOG

SETTING, OURS = "spark.sql.catalog.spark_catalog", "lockstep.spark.LockstepCatalog"
DELTAS = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

STATEMENTS: dict[str, Callable[[Any], Any]] = {
    "a query": lambda spark: spark.sql("SELECT 1").collect(),
    "a transaction": lambda spark: spark.sql("BEGIN"),
    "a table of two parts": lambda spark: spark.sql("CREATE TABLE default.two_parts (id BIGINT) USING delta"),
    "a view of two parts": lambda spark: spark.sql("CREATE VIEW default.two_parts AS SELECT 1 AS id"),
    "a table of the lake": lambda spark: spark.sql(f"CREATE TABLE {CATALOG}.default.three_parts (id BIGINT)"),
    "a frame that is written": lambda spark: spark.range(1).write.saveAsTable("default.two_parts"),
    "a frame that is read": lambda spark: spark.table("default.two_parts").collect(),
    "what is listed": lambda spark: spark.sql("SHOW TABLES IN default").collect(),
}

APPLICATION = f"""
import sys, lockstep
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config(map=lockstep.conf(catalog="lake", root=sys.argv[1]))
builder.config("{SETTING}", "{OURS}").config("spark.ui.enabled", "false").getOrCreate()
print("STARTED")
"""


@pytest.fixture
def astray(spark: Any) -> Any:
    """Return a session whose own catalog was set to ours, past all statements."""
    spark.conf.set(SETTING, OURS)
    yield spark
    spark.conf.set(SETTING, DELTAS)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_session_that_has_it_runs_nothing(astray: Any, statement: str) -> None:
    with pytest.raises(PySparkException, match=f"cannot be {re.escape(OURS)}") as error:
        STATEMENTS[statement](astray)
    assert error.value.getSqlState() == "F0000"
    astray.sql(f"SET {SETTING} = {DELTAS}")
    for catalog in (CATALOG, "spark_catalog"):
        names = {row.tableName for row in astray.sql(f"SHOW TABLES IN {catalog}.default").collect()}
        assert not {"two_parts", "three_parts"} & names


def test_it_is_taken_back_by_a_statement(astray: Any) -> None:
    astray.sql(f"RESET {SETTING}")
    assert astray.sql("SELECT 1 AS one").collect()[0].one == 1


def test_it_is_not_set_by_a_statement(spark: Any) -> None:
    before = spark.conf.get(SETTING)
    with pytest.raises(PySparkException, match="session-names") as error:
        spark.sql(f"SET {SETTING} = {OURS}")
    assert error.value.getSqlState() == "F0000"
    assert spark.conf.get(SETTING) == before
    assert spark.sql("SELECT 1 AS one").collect()[0].one == 1


@pytest.mark.slow
def test_an_application_that_has_it_does_not_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", APPLICATION, str(tmp_path / "lake")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "STARTED" in done.stdout) == (1, False), done.stderr[-4000:]
    assert f"{SETTING} cannot be {OURS}" in done.stderr
