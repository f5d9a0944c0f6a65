"""The Spark without Lockstep of `tests.bench.warehouse`: it makes the tables, and writes and reads them by their names.

    python -m tests.bench.warehouse_side SETTINGS

A request is a list: the name of what is to be done, and what it is to be done with.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.beside.journal import Journal
from tests.beside.spark_writer import statement
from tests.support.child import Parent
from tests.support.plain import check_plain, plain_spark

SCHEMA = "shop"
ROWS = 2
"""Of each file that the tables begin with: the fewest of which a deletion vector can leave some."""

WRITTEN = "w"
"""What the ids of rows begin with that were written since; those that the tables began with sort before."""

KINDS = {
    "partitioned": "PARTITIONED BY (day)",
    "vectors": "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "feed": "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    "plain": "",
}
"""The kinds of tables, and what makes each."""


class Side:
    """What this process is asked for."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._stop = threading.Event()
        self._writer: threading.Thread | None = None
        self._error: BaseException | None = None
        self.works: dict[str, Callable[..., object]] = {
            "make": self.make,
            "start": self.start,
            "stop": self.stop,
            "rows": self.rows,
            "counts": self.counts,
        }

    def make(self, tables: Sequence[str], files: int) -> dict[str, int]:
        """Make tables of so many small files each; return how many rows they have."""
        self._spark.sql(f"CREATE SCHEMA {SCHEMA}")
        self._spark.conf.set("spark.sql.files.maxRecordsPerFile", str(ROWS))
        rows = dict.fromkeys(tables, files * ROWS)
        for number, table in enumerate(tables):
            kind = [*KINDS][number % len(KINDS)]
            self._spark.sql(f"CREATE TABLE {SCHEMA}.{table} (id STRING, was STRING, day INT) USING delta {KINDS[kind]}")
            made = f"SELECT format_string('b%08d', id), NULL, CAST(id DIV {ROWS} % 10 AS INT)"
            self._spark.sql(f"INSERT INTO {SCHEMA}.{table} {made} FROM range(0, {rows[table]}, 1, 2)")
            if kind == "vectors":
                self._spark.sql(f"DELETE FROM {SCHEMA}.{table} WHERE id = 'b{0:08d}'")
                rows[table] -= 1
        self._spark.conf.unset("spark.sql.files.maxRecordsPerFile")
        return rows

    def start(self, tables: Sequence[str], journal: str) -> None:
        """Begin to write some tables, until `stop`."""
        self._writer = threading.Thread(target=self._write, args=(tables, Path(journal)), daemon=True)
        self._writer.start()

    def stop(self) -> None:
        """Have the writing end."""
        self._stop.set()
        assert self._writer is not None
        self._writer.join()
        self.check()

    def rows(self, tables: Sequence[str]) -> dict[str, list[list[str | None]]]:
        """Return what was written to some tables."""
        return {table: [[*row] for row in self._spark.sql(written(f"{SCHEMA}.{table}")).collect()] for table in tables}

    def counts(self, tables: Sequence[str]) -> dict[str, int]:
        """Return how many rows tables have."""
        return {table: self._spark.sql(f"SELECT count(*) FROM {SCHEMA}.{table}").collect()[0][0] for table in tables}

    def check(self) -> None:
        """Raise what the writing failed with, if it did."""
        if self._error is not None:
            raise self._error

    def _write(self, tables: Sequence[str], path: Path) -> None:
        journal, chance = Journal(path, "plain"), random.Random(len(tables))
        mine: dict[str, list[str]] = {table: [] for table in tables}
        try:
            for number in range(1_000_000):
                if self._stop.is_set():
                    return
                table, id = chance.choice(tables), f"{WRITTEN}p{number}"
                left = mine[table]
                taken = left.pop(chance.randrange(len(left))) if left and chance.random() < 0.5 else None
                kind = "insert" if taken is None else chance.choice(("update", "merge", "delete"))
                journal.begin(id, kind, [table], takes_back=taken, adds=kind != "delete")
                if self._is_done(journal, id, statement(kind, f"{SCHEMA}.{table}", id, taken)) and kind != "delete":
                    left.append(id)
        except Exception as error:  # noqa: BLE001 - the next request raises it
            self._error = error

    def _is_done(self, journal: Journal, id: str, text: str) -> bool:
        """Run one statement; that another was first is no failure, and everything else is one."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            self._spark.sql(text)
        except (PySparkException, Py4JJavaError) as error:  # PySpark leaves Delta's own conflicts to Py4J
            if "DELTA_CONCURRENT" not in str(error):
                raise
            journal.end(id, "refused", error)
            return False
        journal.end(id, "done")
        return True


def written(table: str) -> str:
    """Return the query of the rows that were written to a table since it was made."""
    return f"SELECT id, was FROM {table} WHERE id >= '{WRITTEN}'"


def main(settings: str) -> None:
    """Do what is asked for until the input ends."""
    parent = Parent()
    side = Side(plain_spark(json.loads(settings)))
    parent.say("ready")
    for name, *given in parent.requests():
        answer = side.works[name](*given)
        side.check()
        check_plain()
        parent.say(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
