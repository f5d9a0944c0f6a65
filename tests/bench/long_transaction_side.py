"""The driver of `make bench-long-transaction`: `python -m tests.bench.long_transaction_side FOLDER SETTINGS`.

Requests are `begin`, `commit of another`, which another session makes, and `read`, in the transaction of the first. A
read is answered with its milliseconds and the number of Spark's jobs that it ran.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tests.bench.side import ROWS, start
from tests.support.child import Parent

READ = "SELECT part, count(*), max(text) FROM read_often GROUP BY part"


class Driver:
    """A session with a transaction, and another one."""

    def __init__(self, spark: Any) -> None:
        self._inside, self._others = spark, spark.newSession()
        for session in (spark, self._others):
            session.sql("USE lake")
        spark.sql("CREATE NAMESPACE bench")
        for session in (spark, self._others):
            session.sql("USE bench")
        rows = f"SELECT id, id % 100 AS part, CAST(id AS STRING) AS text FROM range({ROWS})"
        spark.sql(f"CREATE TABLE read_often USING delta AS {rows}")
        self._reads = 0
        self._rows: list[Any] | None = None

    def begin(self) -> None:
        self._inside.sql("BEGIN")

    def commit_of_another(self) -> None:
        self._others.sql("INSERT INTO read_often VALUES (1, 1, 'one')")

    def read(self) -> tuple[float, int]:
        """Read the table in the transaction, whose rows never change."""
        self._reads += 1
        group, context = f"read {self._reads}", self._inside.sparkContext
        context.setJobGroup(group, READ)
        began = time.perf_counter()
        rows = self._inside.sql(READ).collect()
        spent = (time.perf_counter() - began) * 1000
        rows.sort()
        self._rows = self._rows or rows
        assert rows == self._rows, "a transaction sees no commits of others"
        return spent, len(context.statusTracker().getJobIdsForGroup(group))


def main(folder: str, settings: str) -> None:
    """Do what is asked for until the input ends."""
    parent = Parent()
    driver = Driver(start("lockstep", folder, json.loads(settings)))
    parent.say("ready")
    asked = {"begin": driver.begin, "commit of another": driver.commit_of_another, "read": driver.read}
    for request in parent.requests():
        parent.say(asked[request]())


if __name__ == "__main__":
    main(*sys.argv[1:])
