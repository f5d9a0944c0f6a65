"""The change feeds of tables as Spark without Lockstep reads them, in a process of its own.

python -m tests.beside.spark_feed WAREHOUSE OUTPUT SETTINGS TABLE…

OUTPUT gets a JSON object of the changes of each table: id, was, kind. Spark finds those, too, of which vectors alone
tell; delta-rs wants change files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(warehouse: str, output: str, settings: str, *tables: str) -> None:
    from tests.support.plain import plain_spark

    spark = plain_spark(json.loads(settings))
    found = {}
    for table in tables:
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        changes = feed.load(str(Path(warehouse) / table)).select("id", "was", "_change_type").collect()
        found[table] = [[*change] for change in changes]
    Path(output).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
