"""What a session on real Spark says and writes holds no key, and a root that can only be read is read."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tests.support.sessions import new_session

SECRET = "planted-SECRET-key"
CATALOG = "spark.sql.catalog.guarded"


def all_files(root: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file())


@pytest.fixture
def guarded(spark: Any, tmp_path: Path) -> Any:
    """A session with a second catalog, whose store is told a key."""
    spark.conf.set(CATALOG, "lockstep.spark.LockstepCatalog")
    spark.conf.set(f"{CATALOG}.root", str(tmp_path / "guarded"))
    spark.conf.set(f"{CATALOG}.create", "true")
    spark.conf.set(f"{CATALOG}.fsync-data", "true")
    spark.conf.set(f"{CATALOG}.store.secret_access_key", SECRET)
    return spark


def test_a_key_of_a_store_is_in_nothing_that_is_said_or_written(
    guarded: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in files, errors, plans, listings, logs, nor in what Spark's UI is made of."""
    caplog.set_level(logging.DEBUG)
    said: list[str] = []

    def ask(sql: str) -> None:
        try:
            frame = guarded.sql(sql)
            said.extend(map(str, frame.collect()))
            said.append(frame._jdf.queryExecution().toString())
        except PySparkException as error:
            said.append(str(error))

    ask("CREATE TABLE guarded.default.t AS SELECT 1 AS id")
    ask("USE guarded")
    for sql in (
        "BEGIN",
        "INSERT INTO t VALUES (2)",
        "UPDATE t SET id = 3 WHERE id = 2",
        "SELECT nothing FROM t",
        "COMMIT",
        "EXPLAIN EXTENDED SELECT * FROM t",
        "DESCRIBE EXTENDED t",
        "SHOW CREATE TABLE t",
        "DESCRIBE HISTORY t",
        "SELECT * FROM guarded.system.settings",
        "SELECT * FROM guarded.system.history",
        "CALL guarded.system.nothing()",
        "SELECT * FROM t FOR SYSTEM_VERSION AS OF 99",
    ):
        ask(sql)
    store = guarded._jsparkSession.sharedState().statusStore()
    executions = store.executionsList()
    for number in range(executions.size()):
        execution = executions.apply(number)
        said += [execution.physicalPlanDescription(), execution.details(), execution.description()]
    everything = "\n".join(said) + caplog.text
    assert "(redacted)" in everything, "the setting is listed, and its value is not"
    assert len(executions_texts := [text for text in said if text]) > 20, executions_texts
    assert SECRET not in everything
    assert SECRET.encode() not in all_files(tmp_path)
    assert b"UPDATE t SET id = 3" in all_files(tmp_path), "what is looked through is what was written"


def test_an_option_that_is_misspelt_is_refused_without_its_value(spark: Any) -> None:
    """It may be a key under the wrong name."""
    spark.conf.set(f"{CATALOG}s3", "lockstep.spark.LockstepCatalog")
    spark.conf.set(f"{CATALOG}s3.root", "s3://bucket/lake")
    spark.conf.set(f"{CATALOG}s3.store.conditional_put", SECRET)
    with pytest.raises(PySparkException) as caught:
        spark.sql("SELECT * FROM guardeds3.default.t").collect()
    assert "22023" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.fixture
def mounted(spark: Any, root: Path, tmp_path: Path) -> Iterator[Path]:
    """The test's lake, with a table in it, mounted once more to be read only."""
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("INSERT INTO t VALUES (2)")
    place = tmp_path / "mounted"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "--bind", root, place], check=False).returncode != 0:
        pytest.skip("only root may mount a folder to be read, and not in every container")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_root_that_is_mounted_to_be_read_is_read_and_refuses_writes(
    spark_session: Any, mounted: Path, root: Path
) -> None:
    """Statements on their own and in transactions: 25006, and no file is made by any of them."""
    before = all_files(root)
    reader = new_session(spark_session, mounted)

    def refused(sql: str) -> None:
        with pytest.raises(PySparkException) as caught:
            reader.sql(sql).collect()
        assert caught.value.getSqlState() == "25006", caught.value
        assert "may only read the lake" in str(caught.value)

    assert sorted(row.id for row in reader.table("t").collect()) == [1, 2]
    assert [row.id for row in reader.sql("SELECT * FROM t FOR SYSTEM_VERSION AS OF 1").collect()] == [1]
    for sql in (
        "INSERT INTO t VALUES (3)",
        "DELETE FROM t WHERE id = 1",
        "CREATE TABLE u AS SELECT 1 AS id",
        "DROP TABLE t",
        "CREATE TAG now",
    ):
        refused(sql)
    reader.sql("BEGIN")
    assert reader.sql("SELECT count(*) AS n FROM t").first().n == 2
    refused("UPDATE t SET id = 4")
    reader.sql("ROLLBACK")
    assert all_files(root) == before
