"""One writer with Spark, a process of its own, which imports Lockstep only where it is to write through it.

python -m tests.beside.spark_writer KIND WAREHOUSE JOURNAL SEED SECONDS SETTINGS

    spark        transactions through Lockstep: a row into all tables, one taken back from all, or one changed in all
    plain-spark  Delta without Lockstep, by paths: the same of one table, or its OPTIMIZE

SETTINGS is a JSON object of the settings of the Spark session.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.beside.journal import SHARED, TRACKED, Journal

TABLES = (*SHARED, *TRACKED)
ROOT = "root"
"""What is among the settings of a session through Lockstep: where the lake is."""


def changes(tables: list[str], id: str, taken: str | None, *, anew: bool) -> list[str]:
    """Return the statements that add a row to tables, take one back from them, or put a new one in its place."""
    if taken is None:
        return [f"INSERT INTO {table} VALUES ('{id}')" for table in tables]
    if anew:
        return [f"UPDATE {table} SET id = '{id}' WHERE id = '{taken}'" for table in tables]
    return [f"DELETE FROM {table} WHERE id = '{taken}'" for table in tables]


def through_lockstep(spark: Any, journal: Journal, ids: Iterator[str], chance: random.Random) -> Iterator[None]:
    """Do the same to all tables in one transaction."""
    from pyspark.errors import PySparkException

    mine: list[str] = []
    for id in ids:
        taken = mine.pop(chance.randrange(len(mine))) if mine and chance.random() < 0.4 else None
        anew = chance.random() < 0.5
        adds = taken is None or anew
        journal.say(id=id, tables=TABLES, takes_back=taken, adds=adds)
        try:
            spark.sql("BEGIN")
            for statement in changes([f"lake.default.{table}" for table in TABLES], id, taken, anew=anew):
                spark.sql(statement)
            spark.sql("COMMIT")
            journal.say(id=id, answer="done")
            mine += [id] if adds else []
        except PySparkException as error:
            journal.say(id=id, answer="unknown" if error.getSqlState() == "40003" else "refused", why=str(error)[:300])
            rolled_back(spark)
        yield


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
    from pyspark.errors import PySparkException

    mine: dict[str, list[str]] = {table: [] for table in TABLES}
    for id in ids:
        table = chance.choice(TABLES)
        path = f"delta.`{warehouse / table}`"
        taken, adds, kind = None, True, chance.random()
        if table in TRACKED and kind < 0.15:
            adds, statements = False, [f"OPTIMIZE {path}"]
        else:
            if mine[table] and kind < 0.5:
                taken = mine[table].pop(chance.randrange(len(mine[table])))
            anew = chance.random() < 0.5
            adds, statements = taken is None or anew, changes([path], id, taken, anew=anew)
        journal.say(id=id, tables=[table], takes_back=taken, adds=adds)
        try:
            for statement in statements:
                spark.sql(statement)
            journal.say(id=id, answer="done")
            mine[table] += [id] if adds else []
        except PySparkException as error:
            is_refused = "DELTA_CONCURRENT" in str(error)
            journal.say(id=id, answer="refused" if is_refused else "unknown", why=str(error)[:300])
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
    said, chance = Journal(Path(journal)), random.Random(seed)
    ids = (f"{seed}-{n}" for n in range(1_000_000))
    kinds: dict[str, Callable[[], Iterator[None]]] = {
        "spark": lambda: through_lockstep(spark, said, ids, chance),
        "plain-spark": lambda: plainly(spark, Path(warehouse), said, ids, chance),
    }
    for _ in kinds[kind]():
        if time.monotonic() > end:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
