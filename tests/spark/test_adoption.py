"""Adopting tables that plain Spark made, with whatever features: the same rows by name and by path.

The plain side is this Spark too, by tables' paths: that is Delta with none of Lockstep's files or logs in between.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException

import lockstep
from lockstep.timeline.entry import Name
from tests.support.sessions import CATALOG

pytestmark = pytest.mark.long

MADE: Mapping[str, tuple[str, ...]] = {
    "many": (
        (
            "CREATE TABLE {t} (id BIGINT, v BIGINT, p STRING, gone INT) USING delta PARTITIONED BY (p) TBLPROPERTIES ("
            "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', "
            "'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true', "
            "'delta.columnMapping.mode' = 'name', 'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '2')"
        ),
        "INSERT INTO {t} (id, v, p) VALUES (1, 1, 'a'), (2, 2, 'a'), (3, 3, 'b')",
        "ALTER TABLE {t} RENAME COLUMN v TO amount",
        "ALTER TABLE {t} RENAME COLUMN amount TO v",
        "ALTER TABLE {t} DROP COLUMN gone",
        "DELETE FROM {t} WHERE id = 2",
        "INSERT INTO {t} (id, v, p) VALUES (4, 4, 'b')",
    ),
    "clustered": (
        (
            "CREATE TABLE {t} (id BIGINT NOT NULL, v BIGINT DEFAULT 7) USING delta CLUSTER BY (id) TBLPROPERTIES ("
            "'delta.feature.allowColumnDefaults' = 'supported', 'delta.enableTypeWidening' = 'true', "
            "'delta.enableDeletionVectors' = 'false')"
        ),
        "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)",
        "INSERT INTO {t} (id, v) VALUES (1, 1), (2, 2)",
        "OPTIMIZE {t}",
    ),
    "checkpoints": (
        (
            "CREATE TABLE {t} (id BIGINT, v BIGINT) USING delta TBLPROPERTIES ('delta.checkpointInterval' = '2', "
            "'delta.enableDeletionVectors' = 'false')"
        ),
        *(f"INSERT INTO {{t}} VALUES ({n}, {n})" for n in (1, 2, 3)),
    ),
    "widened": (
        "CREATE TABLE {t} (id INT, v INT) USING delta TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "INSERT INTO {t} VALUES (1, 1), (2, 2)",
        "ALTER TABLE {t} ALTER COLUMN v TYPE BIGINT",
        "INSERT INTO {t} VALUES (3, 3000000000)",
    ),
    "json": (
        (
            "CREATE TABLE {t} (id BIGINT, v BIGINT) USING delta TBLPROPERTIES ('delta.checkpointInterval' = '2', "
            "'delta.checkpointPolicy' = 'v2')"
        ),
        *(f"INSERT INTO {{t}} VALUES ({n}, {n})" for n in (1, 2, 3)),
    ),
}
"""How plain Spark makes each table, whose columns id and v are what the test writes."""

SETTINGS = {
    "checkpoints": {"spark.databricks.delta.checkpoint.partSize": "1"},
    "json": {"spark.databricks.delta.checkpointV2.topLevelFileFormat": "json"},
}
"""What is set while a table is made."""

ALL = (*MADE, "computed", "clone")
FEW = ("many", "clustered", "computed")
"""These have the features; the others are for `make test-deep`: all take a minute."""


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture(params=[pytest.param(FEW, id="few"), pytest.param(ALL, id="all", marks=pytest.mark.deep)])
def paths(request: pytest.FixtureRequest, spark: Any, warehouse: Path) -> dict[str, str]:
    """Return, by table, what plain Spark calls the tables that it made."""
    from delta.tables import DeltaTable as Builder
    from delta.tables import IdentityGenerator

    found = {name: f"spark_catalog.delta.`{warehouse}/{name}`" for name in request.param}
    for name in (name for name in MADE if name in found):
        for setting in SETTINGS.get(name, {}).items():
            spark.conf.set(*setting)
        for statement in MADE[name]:
            spark.sql(statement.format(t=found[name]))
        for key in SETTINGS.get(name, {}):
            spark.conf.unset(key)
    spark.sql("USE spark_catalog")  # the builder's table is of the current catalog
    (
        Builder.create(spark)
        .location(str(warehouse / "computed"))
        .addColumn("n", "BIGINT", generatedAlwaysAs=IdentityGenerator())
        .addColumn("id", "BIGINT")
        .addColumn("v", "BIGINT")
        .addColumn("twice", "BIGINT", generatedAlwaysAs="id * 2")
        .execute()
    )
    spark.sql(f"USE {CATALOG}")
    spark.sql(f"INSERT INTO {found['computed']} (id, v) VALUES (1, 1), (2, 2)")
    kinds = {"checkpoints": "*.checkpoint.*.*.parquet", "json": "*.checkpoint.*.json"}
    for name in kinds.keys() & found:
        assert [*(warehouse / name / "_delta_log").glob(kinds[name])], f"{name}: that is why it is here"
    if "clone" in found:
        spark.sql(f"CREATE TABLE {found['clone']} SHALLOW CLONE {found['many']}")
    return found


def rows(spark: Any, table: str, suffix: str = "") -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark.sql(f"SELECT * FROM {table} {suffix}").collect()))


def written(spark: Any, table: str, n: int) -> None:
    """Change a table by an INSERT and an UPDATE."""
    spark.sql(f"INSERT INTO {table} (id, v) VALUES ({n}, {n})")
    spark.sql(f"UPDATE {table} SET v = v + 100 WHERE id IN (1, {n})")


def test_tables_of_all_features_are_the_same_by_name_and_by_path(
    spark: Any, paths: dict[str, str], warehouse: Path
) -> None:
    before = {name: rows(spark, path) for name, path in paths.items()}
    old = paths.keys() & {"many", "checkpoints"}
    first = {name: rows(spark, paths[name], "VERSION AS OF 1") for name in old}
    names = {name: f"{CATALOG}.warehouse.{name}" for name in paths}
    [*made] = spark.sql(f"CALL {CATALOG}.system.adopt(folder => '{warehouse}', namespace => 'warehouse')").collect()
    assert {(row.table, row.refused, row.database_version) for row in made} == {(name, None, 1) for name in paths}
    assert {name: rows(spark, table) for name, table in names.items()} == before
    assert {name: rows(spark, names[name], "VERSION AS OF 1") for name in first} == first

    spark.sql("BEGIN")
    for table in names.values():
        written(spark, table, 10)
    seen = {name: rows(spark, table) for name, table in names.items()}
    spark.sql("COMMIT")
    assert all(seen[name] != before[name] for name in names)
    assert {name: rows(spark, path) for name, path in paths.items()} == seen

    for path in paths.values():
        written(spark, path, 20)
    seen = {name: rows(spark, path) for name, path in paths.items()}
    assert {name: rows(spark, table) for name, table in names.items()} == seen


def test_parquet_becomes_a_table_by_deltas_convert_and_then_the_lakes(spark: Any, warehouse: Path) -> None:
    spark.sql("SELECT id, id AS v, id % 2 AS p FROM range(4)").write.partitionBy("p").parquet(str(warehouse / "old"))
    spark.sql(f"CONVERT TO DELTA parquet.`{warehouse}/old` PARTITIONED BY (p BIGINT)")
    spark.sql(f"CALL {CATALOG}.system.adopt('old', '{warehouse}/old')").collect()
    spark.sql("BEGIN")
    spark.sql(f"DELETE FROM {CATALOG}.default.old WHERE p = 1 AND id < 3")
    spark.sql(f"INSERT INTO {CATALOG}.default.old VALUES (4, 40, 0)")
    spark.sql("COMMIT")
    left = [(0, 0, 0), (2, 2, 0), (3, 3, 1), (4, 40, 0)]
    assert rows(spark, f"{CATALOG}.default.old") == left
    assert rows(spark, f"spark_catalog.delta.`{warehouse}/old`") == left


def test_vacuum_and_optimize_of_an_adopted_table_leave_what_versions_need(
    spark: Any, warehouse: Path, root: Path
) -> None:
    path = f"spark_catalog.delta.`{warehouse}/t`"
    spark.sql(f"CREATE TABLE {path} (id BIGINT) USING delta")
    for n in (1, 2, 3):
        spark.sql(f"INSERT INTO {path} VALUES ({n})")
    spark.sql(f"CALL {CATALOG}.system.adopt('t', '{warehouse}/t')").collect()
    then = lockstep.TransactionalCatalog.open(str(root)).timeline.head.version
    spark.sql(f"OPTIMIZE {CATALOG}.default.t")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM {CATALOG}.default.t RETAIN 0 HOURS")
    assert rows(spark, f"{CATALOG}.default.t", f"FOR SYSTEM_VERSION AS OF {then}") == [(1,), (2,), (3,)]
    assert rows(spark, path) == [(1,), (2,), (3,)]
    spark.sql(f"DROP TABLE {CATALOG}.default.t")
    assert rows(spark, path) == [(1,), (2,), (3,)]


def test_delta_rs_beside_it_and_a_read_by_its_path_in_a_transaction(
    spark: Any, connect: Callable[[], Any], warehouse: Path, root: Path
) -> None:
    write_deltalake(str(warehouse / "t"), pa.table({"id": pa.array([1], pa.int64())}))
    table = f"{CATALOG}.default.t"
    spark.sql("BEGIN")
    spark.sql(f"CALL {CATALOG}.system.adopt('t', '{warehouse}/t')").collect()
    write_deltalake(str(warehouse / "t"), pa.table({"id": pa.array([2], pa.int64())}), mode="append")
    assert rows(spark, table) == [(1,)]
    spark.sql("COMMIT")
    assert rows(connect(), table) == rows(spark, table) == [(1,), (2,)]
    spark.sql(f"INSERT INTO {table} VALUES (3)")
    DeltaTable(str(warehouse / "t")).delete("id = 1")
    assert rows(spark, table) == [(2,), (3,)]
    name = Name(namespace=("default",), table="t")
    assert lockstep.TransactionalCatalog.open(str(root)).database().tables[name].version == 3

    spark.sql("BEGIN")
    with pytest.raises(Exception, match=r"is of table default\.t: by its path"):
        spark.sql(f"SELECT * FROM spark_catalog.delta.`{warehouse}/t`").collect()
    spark.sql("ROLLBACK")


def test_a_folder_that_was_deleted_and_made_anew_is_adopted_anew(spark: Any, warehouse: Path) -> None:
    """By the driver that knew the table which was there, too."""
    folder, table = warehouse / "t", f"{CATALOG}.default.t"
    for first, versions in ((1, 3), (10, 1), (20, 5)):
        for n in range(first, first + versions):
            write_deltalake(str(folder), pa.table({"id": pa.array([n], pa.int64())}), mode="append")
        spark.sql(f"CALL {CATALOG}.system.adopt(table => 'default.t', location => '{folder}')")
        assert rows(spark, table) == [(n,) for n in range(first, first + versions)]
        shutil.rmtree(folder)
        with pytest.raises(PySparkException) as refused:
            rows(spark, table)
        assert refused.value.getSqlState() == "58030"
        spark.sql(f"DROP TABLE {table}")


def test_another_table_in_the_folder_of_one_that_was_adopted_is_refused(spark: Any, warehouse: Path) -> None:
    folder, table = warehouse / "t", f"{CATALOG}.default.t"
    for name, n in (("t", 1), ("other", 2)):
        write_deltalake(str(warehouse / name), pa.table({"id": pa.array([n], pa.int64())}))
    spark.sql(f"CALL {CATALOG}.system.adopt(table => 'default.t', location => '{folder}')")
    assert rows(spark, table) == [(1,)]
    folder.rename(warehouse / "kept")
    (warehouse / "other").rename(folder)
    with pytest.raises(PySparkException, match="another table lies in this folder now") as refused:
        rows(spark, table)
    assert refused.value.getSqlState() == "40002"


def test_what_a_location_says_of_columns_and_of_the_table_is_compared_and_not_dropped(
    spark: Any, warehouse: Path
) -> None:
    spark.sql(
        f"CREATE TABLE spark_catalog.delta.`{warehouse}/t` (id BIGINT COMMENT 'the id', v BIGINT DEFAULT 7) "
        "USING delta COMMENT 'all of it' TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    start = f"CREATE TABLE {CATALOG}.default.t"
    for said, expected in {
        "(id BIGINT, v BIGINT DEFAULT 8) USING delta": "default",
        "(id BIGINT DEFAULT 1, v BIGINT) USING delta": "default",
        "(id BIGINT COMMENT 'another', v BIGINT) USING delta": "comment",
        "(id BIGINT, v BIGINT COMMENT 'the v') USING delta": "comment",
        "USING delta COMMENT 'some of it'": "comment",
    }.items():
        with pytest.raises(PySparkException, match=expected) as refused:
            spark.sql(f"{start} {said} LOCATION '{warehouse}/t'")
        assert (refused.value.getSqlState(), said) == ("22023", said)
    filled = " AS SELECT 1 AS id"
    for clause in ("''", "' '", "'relative path'", f"''{filled}", f"' '{filled}", f"'relative path'{filled}"):
        with pytest.raises(PySparkException, match=r"LOCATION|is a relative path") as refused:
            spark.sql(f"{start} USING delta LOCATION {clause}")
        assert refused.value.getSqlState() == "22023", clause
    same = "(id BIGINT COMMENT 'the id', v BIGINT DEFAULT 7) USING delta COMMENT 'all of it'"
    spark.sql(f"{start} {same} LOCATION '{warehouse}/t'")
    spark.sql(f"DROP TABLE {CATALOG}.default.t")
    spark.sql(f"{start} (id BIGINT, v BIGINT) USING delta LOCATION '{warehouse}/t'")
    spark.sql(f"INSERT INTO {CATALOG}.default.t (id) VALUES (1)")
    assert [tuple(row) for row in spark.sql(f"SELECT id, v FROM {CATALOG}.default.t").collect()] == [(1, 7)]


def test_dataframes_and_builders_make_tables_where_they_are_told(spark: Any, warehouse: Path) -> None:
    from delta.tables import DeltaTable as Builder

    def made(name: str) -> Any:
        return Builder.create(spark).tableName(f"{CATALOG}.default.{name}").addColumn("id", "BIGINT")

    writer = spark.range(3).write.format("delta").option("path", str(warehouse / "saved"))
    spark.sql("BEGIN")
    writer.saveAsTable(f"{CATALOG}.default.saved")
    made("built").location(str(warehouse / "built")).execute()
    spark.sql("ROLLBACK")
    assert not [path for path in warehouse.rglob("*") if path.is_file()]
    writer.saveAsTable(f"{CATALOG}.default.saved")
    writer.mode("append").saveAsTable(f"{CATALOG}.default.saved")
    made("built").location(str(warehouse / "built")).execute()
    spark.sql(f"INSERT INTO {CATALOG}.default.built VALUES (7)")
    assert rows(spark, f"spark_catalog.delta.`{warehouse}/saved`") == [(0,), (0,), (1,), (1,), (2,), (2,)]
    assert rows(spark, f"spark_catalog.delta.`{warehouse}/built`") == [(7,)]
    with pytest.raises(PySparkException, match="what replaces a table stays where it is") as refused:
        writer.mode("overwrite").option("path", str(warehouse / "other")).saveAsTable(f"{CATALOG}.default.saved")
    assert refused.value.getSqlState() == "42613"
    assert not (warehouse / "other").exists()


def test_what_hadoop_marks_for_a_log_is_not_in_the_way_of_a_new_table(spark: Any, warehouse: Path) -> None:
    """In an object store a ROLLBACK leaves that behind; other folders are refused by Delta, as ever."""

    def make(name: str) -> None:
        spark.sql(f"CREATE TABLE {CATALOG}.default.{name} (id BIGINT) USING delta LOCATION '{warehouse}/{name}'")

    for name in ("alone", "within"):
        (warehouse / name / "_delta_log" / "_staged_commits").mkdir(parents=True)
    make("alone")
    spark.sql("BEGIN")
    make("within")
    spark.sql("COMMIT")
    assert rows(spark, f"{CATALOG}.default.alone") == rows(spark, f"{CATALOG}.default.within") == []
    (warehouse / "other" / "_delta_log").mkdir(parents=True)
    (warehouse / "other" / "day=1").mkdir()
    with pytest.raises(PySparkException, match="not empty"):
        make("other")


def test_files_of_every_kind_that_a_transaction_wrote_elsewhere_go_with_it(spark: Any, warehouse: Path) -> None:
    """Partitions, deletion vectors and change data; what another writer has put beside them stays."""
    table, folder = f"{CATALOG}.default.t", warehouse / "t"
    properties = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"
    spark.sql("BEGIN")
    spark.sql(
        f"CREATE TABLE {table} USING delta PARTITIONED BY (p) LOCATION '{folder}' TBLPROPERTIES ({properties}) "
        "AS SELECT id, id % 2 AS p FROM range(0, 100, 1, 1)"
    )
    spark.sql(f"DELETE FROM {table} WHERE id < 30")
    spark.sql(f"UPDATE {table} SET id = -id WHERE id > 90")
    assert list(folder.rglob("*.bin"))
    assert list(folder.rglob("_change_data/**/*.parquet"))
    (folder / "p=1" / "theirs.parquet").write_bytes(b"")
    spark.sql("ROLLBACK")
    assert [str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))] == ["p=1", "p=1/theirs.parquet"]
    with pytest.raises(PySparkException, match="the folder is not empty") as refused:
        spark.sql(f"CREATE TABLE {table} USING delta LOCATION '{folder}' AS SELECT 1 AS id")
    assert refused.value.getSqlState() == "22023"
