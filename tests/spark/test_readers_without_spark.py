"""The guide's table of what each can do, held against tables that Spark made: every cell is tried."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lockstep
from lockstep.errors import ReadOnlyError, UndefinedError, UnsupportedError
from lockstep.tables.opened import OpenLake
from tests.support.markdown import table_of

GUIDE = (Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
CELLS = table_of(GUIDE, "a table with")
NOT_MADE = {"catalogManaged"}
"""Rows of tables that Spark does not make in a lake; tests/unit/tables/test_guide.py has them."""

MAPPED = "'delta.columnMapping.mode' = '{}'"
RENAMED = ("INSERT INTO {t} VALUES (1, 'a')", "ALTER TABLE {t} RENAME COLUMN v TO w")
FILLED = ("INSERT INTO {t} (id) VALUES (1), (2)",)
MADE: dict[str, tuple[str, ...]] = {
    "partitions": (
        (
            "CREATE TABLE {t} (id BIGINT NOT NULL, day DATE, ntz TIMESTAMP_NTZ, ts TIMESTAMP, st STRUCT<a: INT>, ls "
            "ARRAY<DOUBLE>, m MAP<STRING, DECIMAL(5,2)>) PARTITIONED BY (day)"
        ),
        (
            "INSERT INTO {t} VALUES (1, DATE '2024-01-01', TIMESTAMP_NTZ '9999-12-31 23:59:59.999999', TIMESTAMP "
            "'1600-01-01 00:00:00.000001 UTC', named_struct('a', 1), array(double('NaN'), -0.0D), map('k', 0.01)), "
            "(2, NULL, NULL, NULL, NULL, NULL, NULL)"
        ),
    ),
    "deletion vectors": (
        "CREATE TABLE {t} TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') AS SELECT id FROM range(0, 9, 1, 1)",
        "DELETE FROM {t} WHERE id > 1",
    ),
    "appends alone": ("CREATE TABLE {t} TBLPROPERTIES ('delta.appendOnly' = 'true') AS SELECT 1L AS id",),
    "a change data feed": (
        "CREATE TABLE {t} TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true') AS SELECT 1L AS id",
        "UPDATE {t} SET id = 2",
    ),
    "CHECK constraints that compare": (
        "CREATE TABLE {t} AS SELECT 1L AS id",
        "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id > 0)",
    ),
    "other CHECK constraints": (
        "CREATE TABLE {t} AS SELECT 1L AS id",
        "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id % 100 < 50)",
    ),
    "defaults of columns": (
        (
            "CREATE TABLE {t} (id BIGINT, v STRING DEFAULT 'x') TBLPROPERTIES "
            "('delta.feature.allowColumnDefaults' = 'supported')"
        ),
        *FILLED,
    ),
    "in-commit timestamps": (
        "CREATE TABLE {t} TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true') AS SELECT 1L AS id",
    ),
    "checkpoints of version 2": (
        "CREATE TABLE {t} (id BIGINT) TBLPROPERTIES ('delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = 1)",
        "INSERT INTO {t} VALUES (2)",
    ),
    "identity columns": ("CREATE TABLE {t} (id BIGINT, g BIGINT GENERATED ALWAYS AS IDENTITY)", *FILLED),
    "generated columns of": ("CREATE TABLE {t} (id BIGINT, g BIGINT GENERATED ALWAYS AS (id + 1))", *FILLED),
    "other generated columns": ("CREATE TABLE {t} (id BIGINT, g BIGINT GENERATED ALWAYS AS (id % 2))", *FILLED),
    "column mapping by name": (
        f"CREATE TABLE {{t}} (id BIGINT, v STRING) TBLPROPERTIES ({MAPPED.format('name')})",
        *RENAMED,
    ),
    "column mapping by id": (
        f"CREATE TABLE {{t}} (id BIGINT, v STRING) TBLPROPERTIES ({MAPPED.format('id')})",
        *RENAMED,
    ),
    "clustering": ("CREATE TABLE {t} (id BIGINT) CLUSTER BY (id)", *FILLED),
    "row tracking": (
        "CREATE TABLE {t} TBLPROPERTIES ('delta.enableRowTracking' = 'true') AS SELECT 1L AS id",
        "UPDATE {t} SET id = 2",
    ),
    "Iceberg compatibility": (
        (
            f"CREATE TABLE {{t}} TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true', {MAPPED.format('name')}) AS "
            "SELECT 1L AS id"
        ),
    ),
    "CHAR, VARCHAR": (
        "CREATE TABLE {t} (id BIGINT, c CHAR(3), v VARCHAR(3))",
        "INSERT INTO {t} VALUES (1, 'c', 'v')",
    ),
    "widened types": (
        "CREATE TABLE {t} (id INT) TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        *FILLED,
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
    ),
    "a check of who vacuums": (
        "CREATE TABLE {t} TBLPROPERTIES ('delta.feature.vacuumProtocolCheck' = 'supported') AS SELECT 1L AS id",
    ),
    "protected checkpoints": (
        "CREATE TABLE {t} TBLPROPERTIES ('delta.feature.checkpointProtection' = 'supported') AS SELECT 1L AS id",
    ),
    "VOID columns": ("CREATE TABLE {t} (id BIGINT, v VOID)", "INSERT INTO {t} (id) VALUES (1)"),
    "variants": ("CREATE TABLE {t} AS SELECT 1L AS id, parse_json('{{\"a\": 1}}') AS v",),
    "a shallow clone": ("CREATE TABLE {t} SHALLOW CLONE lake.py.in_commit_timestamps",),
    "views": ("CREATE VIEW {t} AS SELECT 1L AS id",),
}
"""By the words that a row of the guide begins with: how Spark makes such a table."""

VALUES = (
    dt.date(2024, 1, 1),
    dt.datetime.fromisoformat("9999-12-31 23:59:59.999999"),
    dt.datetime(1600, 1, 1, 0, 0, 0, 1, dt.UTC),
    (1,),
    ("nan", "-0.0"),
    (("k", Decimal("0.01")),),
)
"""Of the first row of the first table: what files of Spark's have in ways of their own."""


@pytest.fixture
def lake(spark: Any, root: Path) -> OpenLake:
    """The session's lake, opened without Spark."""
    spark.sql("CREATE NAMESPACE lake.py")
    return lockstep.open(str(root))


def name_of(words: str) -> str:
    """Return the name of the table of a row of the guide."""
    return re.sub("[^a-z]+", "_", words.lower())


def by_duckdb(lake: OpenLake, name: str) -> pa.Table:
    connection = duckdb.connect()
    lake.at().duckdb(connection, [f"py.{name}"])
    return connection.sql(f"FROM py.{name}").to_arrow_table()


READERS: dict[str, Callable[[OpenLake, str], pa.Table]] = {
    "Arrow": lambda lake, name: lake.at()[f"py.{name}"].to_arrow(),
    "DuckDB": by_duckdb,
    "Polars": lambda lake, name: lake.at()[f"py.{name}"].polars().collect().to_arrow(),
}


def by_id(table: pa.Table) -> list[Any]:
    return [comparable(row) for row in sorted(table.to_pylist(), key=lambda row: row["id"])]


def comparable(value: Any) -> Any:
    """Return a value as all readers say it: NaN equals itself, and a map is a list of pairs."""
    if isinstance(value, dict):
        return tuple(map(comparable, value.values()))
    if isinstance(value, list | tuple):
        return tuple(map(comparable, value))
    return repr(value) if isinstance(value, float) else value


def read_by(reader: str, lake: OpenLake, name: str) -> list[Any] | None:
    """Return the rows that a reader has; None where it refuses them by name."""
    try:
        return by_id(READERS[reader](lake, name))
    except (UnsupportedError, UndefinedError):
        return None


def in_transaction(lake: OpenLake, name: str) -> list[Any] | None:
    with lake.transaction(read_only=True) as tx:
        try:
            return by_id(tx[f"py.{name}"].to_arrow())
        except (UnsupportedError, UndefinedError):
            return None


class UndoneError(Exception):
    """What a transaction did was a trial."""


def takes(lake: OpenLake, name: str, write: Callable[[Any], object]) -> bool:
    """Tell whether a write of a table is not refused; it is rolled back."""
    try:
        with lake.transaction() as tx:
            write(tx[f"py.{name}"])
            raise UndoneError
    except UndoneError:
        return True
    except (UnsupportedError, UndefinedError, ReadOnlyError):
        return False


def written(lake: OpenLake, name: str) -> str:
    """Return what of a table's rows may be written, in the guide's words."""
    if not takes(lake, name, lambda table: table.append({"id": [9]})):
        return "no"
    return "yes" if takes(lake, name, lambda table: table.update({"id": "id"}, "id = 1")) else "appends"


@pytest.mark.deep
def test_every_cell_of_the_guide_is_what_tables_of_spark_are(spark: Any, lake: OpenLake) -> None:
    assert set(MADE) == {words for words in MADE if sum(row.startswith(words) for row in CELLS) == 1}
    assert len(CELLS) == len(MADE) + len(NOT_MADE), "a row that nobody tries"
    for words, statements in MADE.items():
        for statement in statements:
            spark.sql(statement.format(t=f"lake.py.{name_of(words)}"))
    for words in MADE:
        name, [cells] = name_of(words), [cells for row, cells in CELLS.items() if row.startswith(words)]
        wanted = sorted(row[0] for row in spark.sql(f"SELECT id FROM lake.py.{name}").collect())
        found = {reader: read_by(reader, lake, name) for reader in READERS}
        found["is read in a transaction"] = in_transaction(lake, name)
        rows = [each for each in found.values() if each is not None]
        for column, each in found.items():
            assert cells[column].split(",")[0] == ("no" if each is None else "yes"), (words, column)
        for each in rows:
            assert [row[0] for row in each] == wanted, words
            assert each == rows[0], words
        assert cells["is written"].split(",")[0] == written(lake, name), words
    first = read_by("DuckDB", lake, name_of("partitions"))
    assert first is not None
    assert first[0][1:] == VALUES
