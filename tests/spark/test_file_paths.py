"""Where a row's file lies, as queries tell it: the real path, and changes still find their files by Delta's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.errors import AnalysisException

ROWS = "SELECT id, v FROM t ORDER BY id"


@pytest.fixture(
    params=[pytest.param(False, id="whole files", marks=pytest.mark.deep), pytest.param(True, id="deletion vectors")]
)
def spark(request: pytest.FixtureRequest, spark: Any) -> Any:
    spark.sql(
        "CREATE TABLE t (id INT, v INT) USING delta "
        f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(request.param).lower()}')"
    )
    spark.sql("INSERT INTO t SELECT /*+ COALESCE(1) */ id, 0 FROM range(6)")
    spark.sql("INSERT INTO t VALUES (10, 0)")
    return spark


def files(spark: Any, query: str) -> set[str]:
    found = {row[0] for row in spark.sql(query).collect()}
    for path in found:
        assert path.startswith("file:///"), path
        assert Path(unquote(urlsplit(path).path)).is_file(), path
    return found


def changed(spark: Any) -> list[tuple[int, int]]:
    """Change rows by each kind of statement that finds files by their paths; return what should be there then."""
    spark.sql("DELETE FROM t WHERE id = 1")
    spark.sql("UPDATE t SET v = v + 1 WHERE id IN (2, 10)")
    spark.sql(
        "MERGE INTO t USING (SELECT 3 AS id UNION ALL SELECT 20) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = 7 WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, 9)"
    )
    return [(0, 0), (2, 1), (3, 7), (4, 0), (5, 0), (10, 1), (20, 9)]


def test_queries_give_the_real_path_of_a_file(spark: Any) -> None:
    by_metadata = files(spark, "SELECT _metadata.file_path FROM t")
    assert len(by_metadata) == 2
    assert files(spark, "SELECT input_file_name() FROM t") == by_metadata
    assert files(spark, "SELECT path FROM (SELECT _metadata.file_path AS path, id FROM t) WHERE id < 6") < by_metadata
    [last] = files(spark, "SELECT _metadata.file_path FROM t WHERE id = 10")
    assert spark.sql(f"SELECT id FROM t WHERE _metadata.file_path = '{last}'").collect() == [(10,)]
    counts = spark.sql("SELECT input_file_name() AS path, count(*) FROM t GROUP BY 1 ORDER BY 2").collect()
    assert [count for _, count in counts] == [1, 6]
    assert {row[0] for row in spark.table("t").select("_metadata.file_path").collect()} == by_metadata


def test_in_a_transaction_too_and_changes_find_their_files(spark: Any) -> None:
    before = files(spark, "SELECT _metadata.file_path FROM t")
    spark.sql("BEGIN")
    assert files(spark, "SELECT _metadata.file_path FROM t") == before, "of the snapshot"
    expected = changed(spark)
    assert [tuple(row) for row in spark.sql(ROWS).collect()] == expected
    own = files(spark, "SELECT _metadata.file_path FROM t")
    assert own - before, "of the transaction's own files"
    assert files(spark, "SELECT input_file_name() FROM t") == own
    spark.sql("COMMIT")
    assert files(spark, "SELECT _metadata.file_path FROM t") == own, "they are the same afterwards"


def test_changes_outside_a_transaction_find_their_files(spark: Any) -> None:
    expected = changed(spark)
    assert [tuple(row) for row in spark.sql(ROWS).collect()] == expected


def test_changes_by_the_path_of_a_file_are_refused_as_by_plain_delta(spark: Any) -> None:
    """They must not look for a path that no file of Delta's has, and so change nothing without a word."""
    [last] = files(spark, "SELECT _metadata.file_path FROM t WHERE id = 10")
    with pytest.raises(AnalysisException, match="_metadata"):
        spark.sql(f"DELETE FROM t WHERE _metadata.file_path = '{last}'")
    assert spark.table("t").count() == 7
