"""A statement that waits for another transaction keeps nobody from ending its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from lockstep.commit.announce import FOLDER
from tests.support.gate import wait_until


def test_a_transaction_whose_statement_waits_is_rolled_back_at_once(spark: Any, other: Any, root: Path) -> None:
    for session in (spark, other):
        session.conf.set("spark.sql.catalog.early", "lockstep.spark.LockstepCatalog")
        session.conf.set("spark.sql.catalog.early.root", str(root))
        session.conf.set("spark.sql.catalog.early.create", "true")
        session.conf.set("spark.sql.catalog.early.resolution", "wait-die")
        session.conf.set("spark.sql.catalog.early.lock-timeout", "60s")
        session.sql("USE early")
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    for session in (spark, other):
        session.sql("BEGIN")
    other.sql("UPDATE t SET id = 2")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(spark.sql, "UPDATE t SET id = 3")
        wait_until(
            lambda: waiting.done() or len(list((root / FOLDER).glob("*/*.json"))) > 1, "the statement does not wait"
        )
        spark.sql("ROLLBACK")
        with pytest.raises(PySparkException, match="rolled back while this statement waited"):
            waiting.result(timeout=60)
    spark.sql("BEGIN")
    spark.sql("ROLLBACK")
    other.sql("COMMIT")
    assert [row.id for row in spark.table("t").collect()] == [2]
