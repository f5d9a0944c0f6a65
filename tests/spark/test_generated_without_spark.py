"""Generated columns that Python computes: Spark computes the same, and takes what Python wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lockstep
from lockstep.tables.opened import OpenLake
from tests.support.generated_columns import EXPRESSIONS, edges

SPARK_TYPES = {"long": "BIGINT", "integer": "INT", "short": "SMALLINT", "byte": "TINYINT"}
BASE = "id BIGINT, i INT, s SMALLINT, b TINYINT, x STRING, y DATE, n TIMESTAMP_NTZ, z TIMESTAMP, g DOUBLE"


def test_spark_computes_the_same_at_the_edges(spark: Any, root: Path) -> None:
    """As Spark's own rows, and by its `<=>` of what Python wrote; in any time zone of the session."""
    columns = {f"c{number}": text for number, text in enumerate(EXPRESSIONS)}
    generated = ", ".join(
        f"{name} {SPARK_TYPES.get(EXPRESSIONS[text], EXPRESSIONS[text].upper())} GENERATED ALWAYS AS ({text})"
        for name, text in columns.items()
    )
    spark.sql("CREATE NAMESPACE lake.py")
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    spark.sql(f"CREATE TABLE lake.py.t ({BASE}, {generated})")
    lake: OpenLake = lockstep.open(str(root))
    with lake.transaction() as tx:
        assert tx["py.t"].append(edges()) == 10
        assert tx["py.t"].update({"i": "5"}, "id = 9") == 1
    for zone in ("America/Los_Angeles", "Asia/Tokyo"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        wrong = [f"count_if(NOT ({name} <=> ({text}))) AS {name}" for name, text in columns.items()]
        counted = spark.sql(f"SELECT count(*) AS n, {', '.join(wrong)} FROM lake.py.t").first().asDict()
        assert counted.pop("n") == 10
        assert {columns[name]: count for name, count in counted.items() if count} == {}
    base = "id, i, s, b, x, y, n, z, g"
    spark.sql(f"INSERT INTO lake.py.t ({base}) SELECT {base} FROM lake.py.t")
    twice = spark.sql("SELECT count(*) AS n FROM lake.py.t GROUP BY ALL").collect()
    assert spark.sql("SELECT DISTINCT * FROM lake.py.t").count() == 10, "Spark's rows are Python's"
    assert [row.n for row in twice] == [20]
