"""VACUUM where a plain writer's clean-up took the beginning of a table's log that versions need which stay."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.errors import PySparkException

from lockstep.catalog import TransactionalCatalog
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import vacuum
from tests.spark.test_kept import age, data, folder, rows, vacuuming, versions  # noqa: F401
from tests.support.adopting import adopted, plain_table
from tests.support.retained import Ticking

pytestmark = pytest.mark.long

DAY = timedelta(days=1)
AT_ONCE = Retention(age=timedelta(), last=1, grace=timedelta(), orphan_age=timedelta(hours=1))


def append_plainly(spark: Any, path: Path, *numbers: int) -> None:
    """Append rows as a plain Delta writer does, who cleans the log up: all in it is forty days old each time."""
    for number in numbers:
        age(path / "_delta_log")
        frame = spark.createDataFrame([(number,)], "id INT").coalesce(1)
        frame.write.format("delta").mode("append").save(str(path))


def litter(path: Path) -> Path:
    """Leave a file from long ago that no version names."""
    stray = path / "stray.parquet"
    stray.write_bytes(b"nobody's")
    os.utime(stray, (1, 1))
    return stray


def kept_whole(root: Path) -> set[Path]:
    """Return of which folders the command line would delete nothing."""
    return {root / each for each in vacuum(TransactionalCatalog.open(str(root)).lake, AT_ONCE, dry_run=True).kept_whole}


def refused(spark: Any, table: str, words: str) -> str:
    """See that VACUUM of a table is refused in these words, and return what it says."""
    with pytest.raises(PySparkException, match=words) as error:
        spark.sql(f"VACUUM {table} RETAIN 0 HOURS")
    assert error.value.getSqlState() == "58P01"
    return str(error.value)


def do_as_it_says(spark: Any, message: str) -> None:
    """Let expire what a message says."""
    said = re.search(r"CALL \S+(\.system\.expire_snapshots\(older_than => .*, retain_last => \d+\))", message)
    assert said is not None
    [row] = spark.sql(f"CALL lake{said[1]}").collect()
    assert row.expired_versions > 0


@pytest.fixture
def cut(vacuuming: Any, root: Path) -> Any:  # noqa: F811
    """Return a session on a lake with a table t whose log has lost its beginning, and u, whose log is whole."""
    spark = vacuuming
    spark.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    spark.sql("CREATE TABLE u AS SELECT 1 AS id")
    append_plainly(spark, folder(root), *range(7))
    assert rows(spark, "SELECT * FROM t") == [(number,) for number in range(7)]
    assert versions(folder(root) / "_delta_log")[0] > 1
    return spark


def test_of_that_table_nothing_goes_and_others_are_vacuumed(cut: Any, root: Path) -> None:
    cut.sql("INSERT OVERWRITE u VALUES (2)")
    of_u, stray = data(folder(root, "u")), litter(folder(root, "u"))
    litter(folder(root))
    of_t = data(folder(root))
    assert kept_whole(root) == {folder(root)}
    cut.sql("VACUUM u RETAIN 0 HOURS")
    assert not stray.exists()
    assert data(folder(root, "u")) == of_u, "versions that have these can be read"
    said = refused(cut, "t", r"nothing was deleted: the log of table default\.t .* commit 0 is gone")
    assert data(folder(root)) == of_t
    do_as_it_says(cut, said)
    cut.sql("VACUUM t RETAIN 0 HOURS")
    assert of_t - data(folder(root)) == {"stray.parquet"}
    assert rows(cut, "SELECT * FROM t") == [(number,) for number in range(7)]


def test_nor_of_one_whose_files_such_a_table_shares(cut: Any, root: Path) -> None:
    """What a shallow clone shared in a version that its log has lost nobody can tell."""
    cut.sql("CREATE TABLE clone SHALLOW CLONE u TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    append_plainly(cut, folder(root, "clone"), *range(5))
    cut.sql("CREATE TABLE v AS SELECT 1 AS id")
    assert versions(folder(root, "clone") / "_delta_log")[0] > 0
    strays = [litter(folder(root, name)) for name in ("u", "v")]
    assert kept_whole(root) == {folder(root, name) for name in ("t", "u", "clone")}
    said = refused(cut, "u", r"nothing was deleted of \S+: the log of default/clone-.* shares files of this one")
    cut.sql("VACUUM v RETAIN 0 HOURS")
    assert [stray.exists() for stray in strays] == [True, False]
    do_as_it_says(cut, said)
    cut.sql("VACUUM u RETAIN 0 HOURS")
    assert not strays[0].exists()
    assert rows(cut, "SELECT * FROM clone") == sorted([(1,), *((number,) for number in range(5))])


def test_with_the_defaults_it_goes_on_once_what_the_message_says_has_expired(
    connect: Callable[..., Any], root: Path, tmp_path: Path
) -> None:
    """Plain Delta keeps the log of thirty days of sixty; the lake keeps its newest hundred versions."""
    clock, place = Ticking(datetime.now(UTC) - 60 * DAY), plain_table(tmp_path / "t", 0)
    catalog = TransactionalCatalog.open(str(root), create=True, clock=clock)
    adopted(catalog, "t", place)
    for number in range(1, 29):
        clock.now += 2 * DAY
        plain_table(place, number)
        for path in (place / "_delta_log").glob(f"{number:020}.*"):
            os.utime(path, (clock.now.timestamp(),) * 2)
        if number in {10, 20}:
            deltalake.DeltaTable(str(place)).create_checkpoint()
            for path in (place / "_delta_log").glob(f"{number:020}.*"):
                os.utime(path, (clock.now.timestamp(),) * 2)
        catalog.lake.newest()
    first = place / "_delta_log" / f"{0:020}.json"
    os.utime(first, (time.time() - 60 * DAY.total_seconds(),) * 2)
    spark = connect()
    for number in (29, 30):
        spark.createDataFrame([(number,)], "id BIGINT").write.format("delta").mode("append").save(str(place))
    everything = [(number,) for number in range(31)]
    assert rows(spark, "SELECT * FROM t") == everything
    assert versions(place / "_delta_log")[0] == 10, "what came before is older than thirty days"
    spark.sql("CREATE TABLE u AS SELECT 1 AS id")
    strays = [litter(place), litter(folder(root, "u"))]
    spark.sql("VACUUM u")
    with pytest.raises(PySparkException, match=r"commit 0 is gone") as error:
        spark.sql("VACUUM t")
    [row] = spark.sql("CALL lake.system.expire_snapshots()").collect()
    assert row.expired_versions == 0, "they are among the newest hundred"
    assert [stray.exists() for stray in strays] == [True, False]
    do_as_it_says(spark, str(error.value))
    spark.sql("VACUUM t")
    assert not strays[0].exists()
    assert rows(spark, "SELECT * FROM t") == everything
