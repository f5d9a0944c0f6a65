"""A tag is read by what it keeps itself, after clean-ups of logs from outside that know no tags."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.exports.deep import verify_deep
from lockstep.timeline import fence
from tests.spark.test_kept import CHECKED, age, data, folder, let_expire, rows, versions

pytestmark = pytest.mark.long

TAGGED = [(1, "a"), (3, "a"), (4, "b")]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has read the timeline before an entry went: there is nobody to wait for."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)


@pytest.fixture
def vacuuming(spark: Any) -> Iterator[Any]:
    """Return a session that may delete what is a moment old."""
    spark.conf.set(CHECKED, "false")
    yield spark
    spark.conf.unset(CHECKED)


def make(spark: Any, **properties: str) -> None:
    """Make a table whose tag needs a checkpoint, commits and a deletion vector."""
    said = {"checkpointInterval": "3", "enableDeletionVectors": "true", **properties}
    listed = ", ".join(f"'delta.{name}' = '{value}'" for name, value in said.items())
    spark.sql(f"CREATE TABLE t (id INT, p STRING) TBLPROPERTIES ({listed})")
    spark.sql("INSERT INTO t SELECT /*+ REPARTITION(1) */ * FROM VALUES (1, 'a'), (2, 'b'), (3, 'a') AS v(id, p)")
    spark.sql("INSERT INTO t VALUES (4, 'b')")
    spark.sql("DELETE FROM t WHERE id = 2")
    spark.sql("CREATE TAG good")
    assert rows(spark, "SELECT * FROM t") == TAGGED


def clean_up(spark: Any, path: Path) -> None:
    """Write on as a plain Delta writer whose clean-up takes what is older than its checkpoints."""
    for number in range(100, 108):
        age(path / "_delta_log")
        frame = spark.createDataFrame([(number, "z")], "id INT, p STRING")
        frame.write.format("delta").mode("append").save(str(path))
    assert versions(path / "_delta_log")[0] > 4, "of the tag's version the log tells no more"
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.mark.parametrize("to", ["2", "4", "6"], ids=["cleaned up", "the tag's", "there"])
def test_changes_of_versions_that_a_clean_up_took_are_not_told(vacuuming: Any, root: Path, to: str) -> None:
    spark = vacuuming
    make(spark)
    clean_up(spark, folder(root))
    with pytest.raises(PySparkException, match=r"its log file is gone: Delta cleans up logs") as error:
        rows(spark, f"SELECT * FROM t WITH (startingSystemVersion = 1, endingSystemVersion = {to})")
    assert error.value.getSqlState() == "58P01"


FEATURES = {"checkpointPolicy": "v2", "enableInCommitTimestamps": "true", "columnMapping.mode": "name"}


@pytest.mark.parametrize("properties", [{}, pytest.param(FEATURES, marks=pytest.mark.deep)], ids=["plain", "features"])
def test_a_tag_is_read_after_a_plain_clean_up(vacuuming: Any, root: Path, properties: dict[str, str]) -> None:
    spark = vacuuming
    make(spark, **properties)
    path = folder(root)
    clean_up(spark, path)
    everything = rows(spark, "SELECT * FROM t")
    assert len(everything) == 11
    assert rows(spark, "SELECT * FROM t FOR SYSTEM_VERSION AS OF 'good'") == TAGGED
    assert rows(spark, "SELECT count(*) FROM t FOR SYSTEM_VERSION AS OF 'good' WHERE id > 1") == [(2,)]
    joined = "SELECT t.id FROM t JOIN t FOR SYSTEM_VERSION AS OF 'good' AS old ON t.id = old.id"
    assert rows(spark, joined) == [(id_,) for id_, _ in TAGGED]
    spark.sql("BEGIN")
    spark.sql("INSERT INTO t VALUES (9, 'new')")
    assert rows(spark, "SELECT * FROM t FOR SYSTEM_VERSION AS OF 'good'") == TAGGED
    spark.sql("ROLLBACK")
    spark.sql("BEGIN READ ONLY AS OF TAG 'good'")
    assert rows(spark, "SELECT * FROM t") == TAGGED
    spark.sql("COMMIT")
    with lockstep.at(spark, "good"):
        assert sorted(tuple(row) for row in spark.table("t").collect()) == TAGGED
    files = spark.sql("SELECT path FROM lake.system.files FOR SYSTEM_VERSION AS OF 'good'").collect()
    assert {Path(row.path).name for row in files} <= {Path(each).name for each in data(path)}
    assert len(files) == 2
    then = lockstep.open(str(root)).at("good")["t"]
    assert sorted(zip(*then.to_arrow().to_pydict().values(), strict=True)) == TAGGED
    assert sorted(then.polars().collect().rows()) == TAGGED
    assert lockstep.open(str(root)).at("good").sql("SELECT count(*) AS n FROM t")["n"].to_pylist() == [3]
    catalog = TransactionalCatalog.open(str(root))
    found = verify_deep(catalog.lake.storage, catalog.timeline)
    assert {(each.problem, each.needed_by) for each in found} == {("unreadable", "")}, "versions that no tag keeps"
    let_expire(root)
    spark.sql("VACUUM t RETAIN 0 HOURS")
    assert rows(spark, "SELECT * FROM t FOR SYSTEM_VERSION AS OF 'good'") == TAGGED
    spark.sql("RESTORE DATABASE lake TO TAG good")
    assert rows(spark, "SELECT * FROM t") == TAGGED
    spark.sql("INSERT INTO t VALUES (5, 'c')")
    assert len(rows(spark, "SELECT * FROM t")) == 4


@pytest.mark.deep
def test_a_log_goes_that_a_kept_tag_alone_would_need(spark: Any, root: Path) -> None:
    """Delta's own clean-up through Lockstep takes it, and the tag is read all the same."""
    make(spark)
    path = folder(root)
    for number in range(100, 108):
        if number == 104:
            let_expire(root)
        age(path / "_delta_log")
        spark.sql(f"INSERT INTO t VALUES ({number}, 'z')")
    assert versions(path / "_delta_log")[0] > 4
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert rows(spark, "SELECT * FROM t FOR SYSTEM_VERSION AS OF 'good'") == TAGGED
    spark.sql("ALTER TABLE t RENAME TO u")
    assert rows(spark, "SELECT * FROM t FOR SYSTEM_VERSION AS OF 'good'") == TAGGED
    spark.sql("DROP TABLE u")
    spark.sql("UNDROP TABLE u")
    assert rows(spark, "SELECT * FROM t FOR SYSTEM_VERSION AS OF 'good'") == TAGGED
    spark.sql("CREATE TABLE c SHALLOW CLONE u")
    spark.sql("CALL lake.system.restore(tag => 'good', tables => array('t'))")
    assert rows(spark, "SELECT * FROM t") == TAGGED
