"""`BEGIN ATOMIC … END` on real Spark, beside what other threads of its session do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

from lockstep.spark.bridge import is_open
from tests.support.cancelling import first_job_met

pytestmark = pytest.mark.long


@pytest.fixture
def tables(spark: Any) -> Any:
    for name in ("a", "b"):
        spark.sql(f"CREATE TABLE {name} AS SELECT 1 AS id")
    return spark


def ids(spark: Any, name: str) -> list[int]:
    return [row.id for row in spark.sql(f"SELECT id FROM lake.default.{name} ORDER BY id").collect()]


@pytest.mark.parametrize("fails", [False, True])
def test_what_other_threads_of_its_session_do_is_no_part_of_it(tables: Any, fails: bool) -> None:
    """What was answered to them stands, though the block fails, and they see nothing of it before it is committed."""
    spark, seen = tables, []
    block = (
        "BEGIN ATOMIC INSERT INTO a VALUES (2); INSERT INTO a SELECT max(id) + 1 FROM a WHERE id < 9; "
        f"SELECT {'raise_error(id)' if fails else 'id'} FROM a; END"
    )

    def meanwhile() -> None:
        spark.sql("INSERT INTO lake.default.b VALUES (2)")
        spark.sql("BEGIN")
        spark.sql("INSERT INTO lake.default.b VALUES (3)")
        seen.append((is_open(spark), ids(spark, "a"), ids(spark, "b")))
        spark.sql("COMMIT")

    raised = None
    with first_job_met(spark, meanwhile):
        try:
            spark.sql(block)
        except PySparkException as error:
            raised = error
    assert (raised is not None) == fails
    assert seen == [(True, [1], [1, 2, 3])]
    assert not is_open(spark)
    assert ids(spark, "b") == [1, 2, 3]
    assert ids(spark, "a") == ([1] if fails else [1, 2, 3])


def test_one_in_an_open_transaction_is_refused_and_leaves_it_as_it_is(tables: Any) -> None:
    spark = tables
    spark.sql("BEGIN")
    spark.sql("INSERT INTO a VALUES (2)")
    with pytest.raises(PySparkException) as caught:
        spark.sql("BEGIN ATOMIC INSERT INTO a VALUES (3); END")
    assert caught.value.getSqlState() == "25001"
    assert is_open(spark)
    spark.sql("COMMIT")
    assert ids(spark, "a") == [1, 2]
