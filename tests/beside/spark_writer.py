"""One writer with Spark, a process of its own, which imports Lockstep only where it is to write through it.

python -m tests.beside.spark_writer KIND WAREHOUSE JOURNAL SEED SECONDS SETTINGS

    spark        transactions through Lockstep: a row into all tables or two of them, one taken back, one changed, or
                 OPTIMIZE; and `maintain`, which compacts all tables as well
    plain-spark  Delta without Lockstep, by paths: the same of one table

SETTINGS is a JSON object of the settings of the Spark session.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.beside.journal import OWN, SHARED, STOPPED, TRACKED, Journal, compacting

TABLES = (*SHARED, *TRACKED)
ROOT = "root"
"""What is among the settings of a session through Lockstep: where the lake is."""

CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""Some of these is in what Delta says where another commit came before its own."""

CHANGES = ("delete", "update", "merge", "merge anew", "replace where")
"""What is done about a row: all but the first put another in its place."""


def statement(kind: str, table: str, id: str, taken: str | None) -> str:
    """Return the statement that adds a row to a table, takes one back, or puts a new one in its place."""
    if kind == "insert":
        return f"INSERT INTO {table} (id, was) VALUES ('{id}', NULL)"
    if kind == "delete":
        return f"DELETE FROM {table} WHERE id = '{taken}'"
    if kind == "update":
        return f"UPDATE {table} SET id = '{id}', was = id WHERE id = '{taken}'"
    if kind == "replace where":
        # Delta wants to find what it writes among what it replaces.
        return f"INSERT INTO {table} REPLACE WHERE id IN ('{taken}', '{id}') SELECT '{id}' AS id, '{taken}' AS was"
    if kind == "merge":
        rows, then = f"'{taken}' AS was, '{id}' AS id", "WHEN MATCHED THEN UPDATE SET id = s.id, was = s.was"
        return f"MERGE INTO {table} AS t USING (SELECT {rows}) AS s ON t.id = s.was {then}"
    if kind == "merge anew":
        rows = f"VALUES ('{taken}', NULL), ('{id}', '{taken}') AS v(id, was)"
        then = "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, was) VALUES (s.id, s.was)"
        return f"MERGE INTO {table} AS t USING (SELECT * FROM {rows}) AS s ON t.id = s.id {then}"
    assert kind == "optimize", kind
    return f"OPTIMIZE {table}"


def choose(count: int, chance: random.Random) -> tuple[str, int | None]:
    """Say what is done next, and about which of so many rows that this writer has left."""
    share = chance.random()
    if share < 0.12:
        return "optimize", None
    if share < 0.6 and count:
        return chance.choice(CHANGES), chance.randrange(count)
    return "insert", None


def through_lockstep(
    spark: Any, warehouse: Path, journal: Journal, ids: Iterator[str], chance: random.Random
) -> Iterator[None]:
    """Do the same to several tables in one transaction; now and then look after the lake."""
    mine: list[tuple[str, list[str]]] = []
    all_tables = [*TABLES, OWN]
    for id in ids:
        if chance.random() < 0.06:
            journal.begin(id, "maintain", (), adds=False)
            with compacting(warehouse, TABLES, alone=False):
                _answered(spark, journal, id, ["CALL lake.system.maintain()"])
            yield
            continue
        kind, which = choose(len(mine), chance)
        taken, tables = None, all_tables if chance.random() < 0.4 else chance.sample(all_tables, 2)
        if which is not None:
            taken, tables = mine.pop(which)
        adds = kind not in ("optimize", "delete")
        journal.begin(id, kind, tables, takes_back=taken, adds=adds)
        statements = [statement(kind, f"lake.default.{table}", id, taken) for table in tables]
        with compacting(warehouse, tables if kind == "optimize" else (), alone=False):
            done = _answered(spark, journal, id, ["BEGIN", *statements, "COMMIT"])
        mine += [(id, tables)] if adds and done else []
        yield


def _answered(spark: Any, journal: Journal, id: str, statements: Sequence[str]) -> bool:
    """Run statements, and say whether all were done."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    text = ""
    try:
        for text in statements:
            spark.sql(text)
    except Py4JJavaError as error:  # PySpark leaves Delta's own conflicts to Py4J
        journal.end(id, "unknown" if text == "COMMIT" else "refused", error.java_exception.toString())
        rolled_back(spark)
        return False
    except PySparkException as error:
        journal.end(id, "unknown" if error.getSqlState() == "40003" else "refused", error)
        rolled_back(spark)
        return False
    journal.end(id, "done")
    return True


def rolled_back(spark: Any) -> None:
    """End what an error left open, if anything."""
    from pyspark.errors import PySparkException

    try:
        spark.sql("ROLLBACK")
    except PySparkException as error:
        if error.getSqlState() not in ("25P01", "2D000"):  # it has ended, one way or the other
            raise


def plainly(spark: Any, warehouse: Path, journal: Journal, ids: Iterator[str], chance: random.Random) -> Iterator[None]:
    """Do it to one table, by its path."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    mine: dict[str, list[str]] = {table: [] for table in TABLES}
    for id in ids:
        table = chance.choice(TABLES)
        if (warehouse / f"{table}{STOPPED}").exists():
            time.sleep(0.1)
            yield
            continue
        kind, which = choose(len(mine[table]), chance)
        taken = None if which is None else mine[table].pop(which)
        adds = kind not in ("optimize", "delete")
        journal.begin(id, kind, [table], takes_back=taken, adds=adds)
        try:
            with compacting(warehouse, [table] if kind == "optimize" else (), alone=False):
                spark.sql(statement(kind, f"delta.`{warehouse / table}`", id, taken))
            journal.end(id, "done")
            mine[table] += [id] if adds else []
        except (PySparkException, Py4JJavaError) as error:  # PySpark leaves Delta's own conflicts to Py4J
            is_conflict = any(name in str(error) for name in CONFLICTS)
            journal.end(id, "refused" if is_conflict else "unknown", error)
        yield


def session(kind: str, settings: dict[str, str]) -> Any:
    """Start Spark."""
    if kind == "plain-spark":
        from tests.support.plain import plain_spark

        return plain_spark(settings)
    from pyspark.sql import SparkSession

    import lockstep

    builder = lockstep.configure(SparkSession.builder, root=settings.pop(ROOT), catalog="lake")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(*arguments: str) -> None:
    kind, warehouse, journal, seed, seconds, settings = arguments
    end = time.monotonic() + float(seconds)
    spark = session(kind, json.loads(settings))
    said, chance = Journal(Path(journal), kind), random.Random(seed)
    ids = (f"{seed}-{n}" for n in range(1_000_000))
    kinds: dict[str, Callable[[], Iterator[None]]] = {
        "spark": lambda: through_lockstep(spark, Path(warehouse), said, ids, chance),
        "plain-spark": lambda: plainly(spark, Path(warehouse), said, ids, chance),
    }
    for _ in kinds[kind]():
        if time.monotonic() > end:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
