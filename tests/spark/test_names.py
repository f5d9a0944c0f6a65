"""How long names may be: what is too long is refused as a name, never as a file of the store."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException


@pytest.mark.parametrize("letter", ["n", "表"])
def test_names_of_255_characters_work_and_longer_ones_are_refused(letter: str, spark: Any) -> None:
    longest, longer = letter * 255, letter * 256
    spark.sql(f"CREATE NAMESPACE `{longest}`")
    name = f"`{longest}`.`{longest}`"
    spark.sql(f"CREATE TABLE {name} AS SELECT 1 AS id")
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {name} VALUES (2)")
    spark.sql(f"CREATE TABLE `{longest[1:]}` (id INT)")
    spark.sql("COMMIT")
    assert spark.table(name).count() == 2
    refused = [
        f"CREATE TABLE `{longer}` (id INT)",
        f"CREATE TABLE `{longer}` AS SELECT 1 AS id",
        f"CREATE NAMESPACE `{longer}`",
        f"ALTER TABLE {name} RENAME TO `{longest}`.`{longer}`",
    ]
    for statement in refused:
        with pytest.raises(PySparkException, match="at most 255 fit") as caught:
            spark.sql(statement)
        assert caught.value.getSqlState() == "42622"
