"""Spark's other analyzer, which skips the rules of extensions, is refused while it could matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.support.sparks import is_before

ENABLED = "spark.sql.analyzer.singlePassResolver.enabled"
DUAL = "spark.sql.analyzer.singlePassResolver.dualRunWithLegacy"
TENTATIVELY = "spark.sql.analyzer.singlePassResolver.enabledTentatively"


@pytest.fixture(params=[ENABLED, DUAL] if is_before("4.1") else [ENABLED, DUAL, TENTATIVELY])
def setting(spark: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a setting with which Spark may use it; that of dual runs always does."""
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    if not is_before("4.1"):
        spark.conf.set("spark.sql.analyzer.singlePassResolver.dualRunSampleRate", "1.0")
    name: str = request.param
    yield name
    spark.conf.unset(name)


def refused(session: Any, sql: str, setting: str) -> bool:
    with pytest.raises(PySparkException) as caught:
        session.sql(sql).collect()
    return caught.value.getSqlState() == "0A000" and f"Set {setting} to false" in str(caught.value)


def test_tables_are_read_and_written_by_sparks_own_analyzer_alone(spark: Any, setting: str) -> None:
    spark.conf.set(setting, "true")
    assert refused(spark, "SELECT * FROM t", setting)
    with pytest.raises(PySparkException, match="0A000"):
        spark.table("t").collect()
    if setting != ENABLED:  # which does not know these statements
        assert refused(spark, "INSERT INTO t VALUES (2)", setting)
        assert refused(spark, "BEGIN", setting)
        assert spark.sql("SELECT 1").collect() == [(1,)], "what is no table of ours is Spark's own business"
    spark.conf.set(setting, "false")
    assert spark.sql("SELECT * FROM t").collect() == [(1,)]
