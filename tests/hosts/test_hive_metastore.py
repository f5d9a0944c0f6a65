"""Adopting a schema of a Hive metastore: `spark-sql` has one of its own, in a Derby in the test's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.lake.claims import claim_path
from tests.support.adopting import ids
from tests.support.hosts import run_program, settings
from tests.support.sessions import CATALOG

# Slow: it starts a Spark of its own, and a metastore.
pytestmark = [pytest.mark.long, pytest.mark.slow]

SCRIPT = """
CREATE SCHEMA spark_catalog.shop;
USE spark_catalog.shop;
CREATE TABLE orders USING delta AS SELECT 1 AS id;
CREATE TABLE Days (id INT, day INT) USING delta PARTITIONED BY (day) LOCATION '{folder}/far away/days';
INSERT INTO days VALUES (1, 1), (2, 2);
CREATE TABLE raw USING parquet AS SELECT 1 AS id;
CREATE TABLE hives (id INT) STORED AS PARQUET;
CREATE VIEW big AS SELECT * FROM orders;
CREATE FUNCTION next(x INT) RETURNS INT RETURN x + 1;
USE {lake};
BEGIN;
CALL {lake}.system.adopt(schema => 'spark_catalog.shop', namespace => 'taken_back');
ROLLBACK;
BEGIN;
CALL {lake}.system.adopt(schema => 'spark_catalog.SHOP');
INSERT INTO {lake}.shop.days VALUES (3, 3);
COMMIT;
INSERT INTO spark_catalog.shop.days VALUES (4, 4);
SELECT 'rows', count(*) FROM {lake}.shop.days;
SELECT 'next', {lake}.shop.next(id) FROM {lake}.shop.big;
"""


def test_a_schema_of_a_hive_metastore_is_adopted(tmp_path: Path) -> None:
    """Tables that it manages, or that lie elsewhere, by Spark and by Hive; in a transaction, after one taken back.

    And a view and a function of Spark's, as the metastore keeps them.
    """
    (tmp_path / "script.sql").write_text(SCRIPT.format(folder=tmp_path, lake=CATALOG), encoding="utf-8")
    said = settings(tmp_path, tmp_path / CATALOG)
    done = run_program(tmp_path, "spark-sql", said, "-f", str(tmp_path / "script.sql"))
    assert done.returncode == 0, done.stderr
    shown = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("shop\t")]
    shop = tmp_path / "warehouse" / "shop.db"
    assert [[*row[1:4], row[4].split(":")[0].split(",")[0], row[5]] for row in shown] == [
        ["days", f"file://{tmp_path}/far away/days", "1", "NULL", "NULL"],
        ["orders", f"file://{shop}/orders", "0", "NULL", "NULL"],
        ["big", "NULL", "NULL", "NULL", "NULL"],
        ["next()", "NULL", "NULL", "NULL", "NULL"],
        ["hives", f"file:{shop}/hives", "NULL", "it is a table of hive", "NULL"],
        ["raw", f"file:{shop}/raw", "NULL", "it is a table of parquet", "NULL"],
    ]
    assert "rows\t4" in done.stdout
    assert "next\t2" in done.stdout
    assert ids(tmp_path / "far away" / "days") == [1, 2, 3, 4]
    database = TransactionalCatalog.open(str(tmp_path / CATALOG)).database()
    assert {str(name) for name in database.tables} == {"shop.days", "shop.orders"}
    assert ("taken_back",) not in database.namespaces
    for folder in (tmp_path / "far away" / "days", shop / "orders"):
        assert Path(claim_path(str(folder))).exists()
    assert not [*(shop / "raw").rglob("_lockstep")]


BY_PATH = """
SET spark.sql.hive.convertMetastoreParquet = false;
CREATE TABLE {lake}.default.t AS SELECT 1 AS id;
CREATE TABLE spark_catalog.default.whole (id INT) STORED AS PARQUET LOCATION '{folder}';
CREATE TABLE spark_catalog.default.parts (id INT) PARTITIONED BY (q INT) STORED AS PARQUET;
ALTER TABLE spark_catalog.default.parts ADD PARTITION (q = 1) LOCATION '{folder}';
BEGIN;
SELECT * FROM spark_catalog.default.{table};
"""


@pytest.mark.deep  # a Hive of its own
@pytest.mark.parametrize("table", ["whole", "parts"])
def test_what_hives_code_reads_of_a_table_of_the_lake_is_refused_in_a_transaction(tmp_path: Path, table: str) -> None:
    """It would be neither the snapshot nor judged."""
    said, script = settings(tmp_path, tmp_path / CATALOG), tmp_path / "script.sql"
    text = BY_PATH.format(folder=tmp_path / CATALOG / "default", lake=CATALOG, table=table)
    script.write_text(text, encoding="utf-8")
    done = run_program(tmp_path, "spark-sql", said, "-f", str(script))
    assert done.returncode != 0
    assert "is of table default.t: by its path" in done.stderr + done.stdout


OLD_NAMES = """
CREATE SCHEMA shop;
USE shop;
CREATE TABLE orders USING delta AS SELECT 1 AS id;
CALL {lake}.system.adopt(schema => 'spark_catalog.shop');
BEGIN;
INSERT INTO orders VALUES (2);
INSERT INTO shop.Orders SELECT id + 2 FROM spark_catalog.shop.orders;
SELECT 'seen', count(*) FROM orders;
ROLLBACK;
INSERT INTO orders VALUES (5);
CREATE TABLE made USING delta AS SELECT * FROM orders;
SHOW TABLES;
SELECT 'kept', count(*) FROM made;
DROP TABLE orders;
"""


@pytest.mark.deep  # tests/spark/test_session_names.py has it of Spark's own
def test_old_names_mean_the_lakes_tables_of_a_hive_metastores_schema(tmp_path: Path) -> None:
    said, script = settings(tmp_path, tmp_path / CATALOG), tmp_path / "script.sql"
    script.write_text(OLD_NAMES.format(lake=CATALOG), encoding="utf-8")
    said[f"spark.sql.catalog.{CATALOG}.session-names"] = "true"
    done = run_program(tmp_path, "spark-sql", said, "-f", str(script))
    assert done.returncode != 0
    assert "system.release" in done.stderr + done.stdout
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(("seen", "kept"))] == ["seen\t4", "kept\t2"], done.stderr
    assert [line.split("\t")[1] for line in lines if line.startswith("shop\t") and line.endswith("false")] == [
        "made",
        "orders",
    ]
    assert ids(tmp_path / "warehouse" / "shop.db" / "orders") == [1, 5]
    database = TransactionalCatalog.open(str(tmp_path / CATALOG)).database()
    assert {str(name) for name in database.tables} == {"shop.orders", "shop.made"}
