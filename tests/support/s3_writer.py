"""A driver of plain Delta on S3: a process of its own, which has never loaded Lockstep, but for its log store.

python -m tests.support.s3_writer <settings>    a line of JSON in, lines of JSON out, until its input ends

{"sql": "INSERT …"}                      {"thrown": []}, or the classes of what was thrown, the outermost first
{"append": "s3a://…", "ids": [1, 2], "threads": 2}
                                         {"id": 2, "thrown": []} for each row, in any order, which is inserted alone;
                                         then {"appended": true}
{…, "conf": {"fs.s3a.…": "…"}}           the same; what is set holds for this request

The settings are a JSON object: those of `tests.support.plain.plain_settings`, the log store, and where S3 is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.child import Parent
from tests.support.plain import check_plain, plain_spark


def main(settings: str) -> None:
    """Answer requests until there are no more."""
    parent = Parent()
    spark = plain_spark(json.loads(settings), has_jar=True)
    for asked in parent.requests():
        conf = asked.get("conf", {})
        for name, value in conf.items():
            spark.conf.set(name, value)
        if "append" in asked:
            append(parent, spark, asked["append"], asked["ids"], asked["threads"])
        else:
            parent.say({"thrown": thrown_by(spark, asked["sql"])})
        for name in conf:
            spark.conf.unset(name)
        check_plain()


def append(parent: Parent, spark: Any, table: str, ids: Iterable[int], threads: int) -> None:
    """Insert rows into a table, each with a commit of its own, and tell of each as soon as it is acknowledged."""

    def insert(id: int) -> None:
        parent.say({"id": id, "thrown": thrown_by(spark, f"INSERT INTO delta.`{table}` VALUES ({id})")})

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(insert, ids))
    parent.say({"appended": True})


def thrown_by(spark: Any, sql: str) -> list[str]:
    """Run a statement, and return the classes of what it threw, and of its causes."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        spark.sql(sql).collect()
    except Py4JJavaError as error:
        return _classes(error.java_exception)
    except PySparkException as error:
        return _classes(getattr(error, "_origin", None)) or [str(error)]
    return []


def _classes(thrown: Any) -> list[str]:
    found = []
    while thrown is not None:
        found.append(f"{thrown.getClass().getName()}: {str(thrown.getMessage())[:200]}")
        thrown = thrown.getCause()
    return found


if __name__ == "__main__":
    main(sys.argv[1])
