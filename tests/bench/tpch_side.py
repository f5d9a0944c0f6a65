"""One side of `make bench-tpch`: `python -m tests.bench.tpch_side {lockstep | plain} FOLDER SETTINGS DATA`.

A request is a round, `{"queries": [...], "refreshes": [[...], ...]}`: two sessions work at the same time, one through
the queries, the other through the refreshes, each of which is one transaction where there are transactions. The answer
is how many milliseconds each of the two sessions took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.bench.side import Side, start
from tests.support.child import Parent
from tests.support.plain import check_plain

TABLES = ("customer", "orders", "lineitem")


class Streams:
    """The tables, and a session for each of the two streams."""

    def __init__(self, spark: Any, side: Side, data: str) -> None:
        self._is_lockstep = side == "lockstep"
        self._queries, self._refreshes = spark.newSession(), spark.newSession()
        for session in (spark, self._queries, self._refreshes):
            session.sql(f"USE {'lake' if self._is_lockstep else 'spark_catalog'}")
        spark.sql("CREATE NAMESPACE tpch")
        for session in (spark, self._queries, self._refreshes):
            session.sql("USE tpch")
        for table in TABLES:
            spark.read.parquet(f"{data}/{table}.parquet").createOrReplaceTempView("source")
            spark.sql(f"CREATE TABLE {table} USING delta AS SELECT * FROM source")
        for table in TABLES:  # the refreshes read what was generated, under other names
            self._refreshes.read.parquet(f"{data}/{table}.parquet").createOrReplaceTempView(f"generated_{table}")

    def round(self, queries: Sequence[str], refreshes: Sequence[Sequence[str]]) -> dict[str, float]:
        """Run both streams at the same time."""
        transactions = [["BEGIN", *each, "COMMIT"] if self._is_lockstep else each for each in refreshes]
        with ThreadPoolExecutor(2) as pool:
            running = pool.submit(_run, self._queries, queries)
            refreshing = pool.submit(_run, self._refreshes, [text for each in transactions for text in each])
            return {"queries": running.result(), "refreshes": refreshing.result()}


def _run(session: Any, statements: Iterable[str]) -> float:
    began = time.perf_counter()
    for statement in statements:
        session.sql(statement).collect()
    return (time.perf_counter() - began) * 1000


def main(side: Side, folder: str, settings: str, data: str) -> None:
    """Do what is asked for until the input ends."""
    parent = Parent()
    streams = Streams(start(side, folder, json.loads(settings)), side, data)
    parent.say("ready")
    for request in parent.requests():
        spent = streams.round(request["queries"], request["refreshes"])
        if side == "plain":
            check_plain()
        parent.say(spent)


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type] # what they are, `tests.bench.tpch` says
