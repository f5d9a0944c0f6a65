"""A driver of plain Delta on S3, with Delta's own log store: a process of its own, which has never loaded Lockstep.

python -m tests.support.s3_writer <settings>    a line of JSON in, a line of JSON out, until its input ends

{"sql": "INSERT …", "conf": {"fs.s3a.…": "…"}}    {"thrown": []}, or the classes of what was thrown, the outermost first

The settings are a JSON object: those of `tests.support.plain.plain_settings`, and where the store is.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.support.child import Parent
from tests.support.plain import check_plain, plain_spark


def main(settings: str) -> None:
    """Answer requests until there are no more."""
    parent = Parent()
    spark = plain_spark(json.loads(settings))
    for asked in parent.requests():
        for name, value in asked.get("conf", {}).items():
            spark.conf.set(name, value)
        parent.say({"thrown": thrown_by(spark, asked["sql"])})
        check_plain()


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
