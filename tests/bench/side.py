"""One side of `make bench`: a Spark with Lockstep, or one with plain Delta alone, told what to do line by line.

    python -m tests.bench.side {lockstep | plain} FOLDER SETTINGS

A request is the name of a work, and an answer how many milliseconds it took; `contents` asks what the tables have by
then, which must be the same on all sides, else they did not do the same. The two sides are processes of their own, so
nothing of Lockstep's is loaded, cached or hooked where plain Delta is measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from tests.support.child import Parent
from tests.support.plain import check_plain, plain_spark

Side: TypeAlias = Literal["lockstep", "plain"]

ROWS = 20_000
INSERTED = tuple(f"i{number}" for number in range(5))
TABLES = ("inserted", "updated", "merged", *INSERTED)
SMALL = {"select 1": 50, "nothing": 50}
"""Works of a few milliseconds, and how often in a row each is done: alone, one would measure what the work before it
left to do (garbage, cold caches), which differs from one side to the other."""


CONTENTS = "contents"
"""What asks for the tables' contents."""


class Workload:
    """The same tables and statements on all sides; here those of plain Delta, which has no transaction around them.

    Attributes:
        CATALOG, FORMAT: where the tables are, and what they are.
        NOTHING: two statements that ask Spark for as little as can be.
    """

    CATALOG = "spark_catalog"
    FORMAT = "delta"
    NOTHING = ("SET bench.a = 1", "SET bench.a = 2")

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._round = 0
        self._sql(f"USE {self.CATALOG}")
        self._sql("CREATE NAMESPACE bench")
        self._sql("USE bench")
        for table in TABLES:
            self._sql(
                f"CREATE TABLE {table} USING {self.FORMAT} AS "
                f"SELECT id, id % 100 AS part, CAST(id AS STRING) AS text FROM range({ROWS})"
            )
        self.works: dict[str, Callable[[], None]] = {
            "transaction": self._transaction,
            "update after": self._update_after,
            "five tables": self._five_tables,
            "ten inserts": self._ten_inserts,
            "insert": lambda: self._sql("INSERT INTO inserted VALUES (1, 1, 'one')"),
            "count": lambda: self._sql("SELECT part, count(*) FROM updated GROUP BY part"),
            "join": lambda: self._sql("SELECT count(*) FROM updated u JOIN merged m ON u.id = m.id"),
            "read only": self._read_only,
            "select 1": lambda: self._sql("SELECT 1"),
            "nothing": self._nothing,
        }

    def contents(self) -> list[list[int]]:
        """Return of each table how many rows it has, and two sums over them: what all sides must have in common."""
        query = "SELECT count(*), sum(id), sum(hash(id, part, text)) FROM {}"
        return [list(self._spark.sql(query.format(table)).head()) for table in TABLES]

    def _sql(self, text: str) -> None:
        self._spark.sql(text).collect()

    def _nothing(self) -> None:
        """Begin a transaction and end it; plain Delta runs two statements that ask Spark for as little.

        Each has run when `sql` returns. What collects their empty answers is PySpark's alone, and takes longer.
        """
        for text in self.NOTHING:
            self._spark.sql(text)

    def _inside(self, *statements: str, read_only: bool = False) -> None:
        for text in statements:
            self._sql(text)

    def _transaction(self) -> None:
        self._round += 1
        n = ROWS + self._round * 1000
        self._inside(
            f"INSERT INTO inserted SELECT id, 1, 'new' FROM range({n}, {n + 100})",
            f"UPDATE updated SET text = 'u{n}' WHERE id % 1000 = {self._round % 1000}",
            f"MERGE INTO merged t USING (SELECT id FROM range({n - 50}, {n + 50})) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET text = 'm' "
            "WHEN NOT MATCHED THEN INSERT (id, part, text) VALUES (s.id, 2, 'm')",
        )

    def _update_after(self) -> None:
        self._round += 1
        self._sql(f"UPDATE updated SET text = 'a{self._round}' WHERE id % 1000 = {self._round % 1000}")

    def _five_tables(self) -> None:
        self._inside(*(f"INSERT INTO {table} VALUES (1, 1, 'one')" for table in INSERTED))

    def _ten_inserts(self) -> None:
        self._inside(*("INSERT INTO inserted VALUES (1, 1, 'one')" for _ in range(10)))

    def _read_only(self) -> None:
        counts = ("SELECT count(*) FROM updated WHERE part = 7", "SELECT count(*) FROM merged WHERE part = 7")
        self._inside(*counts, read_only=True)


class InTransactions(Workload):
    """As Lockstep runs it."""

    CATALOG = "lake"
    NOTHING = ("BEGIN", "ROLLBACK")

    def _inside(self, *statements: str, read_only: bool = False) -> None:
        super()._inside("BEGIN READ ONLY" if read_only else "BEGIN", *statements, "COMMIT")


def start(side: Side, folder: str, settings: dict[str, str]) -> Any:
    """Start a Spark as a user of this side would."""
    if side == "plain":
        spark = plain_spark(settings)
    else:
        from pyspark.sql import SparkSession

        import lockstep

        builder = SparkSession.builder
        for key, value in settings.items():
            builder = builder.config(key, value)
        spark = lockstep.configure(builder, root=f"{folder}/lake", catalog="lake").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def serve(parent: Parent, work: Workload, *, is_plain: bool) -> None:
    """Do what is asked for until the input ends; answer how many milliseconds it took, or what the tables have."""
    parent.say("ready")
    for name in parent.requests():
        if name == CONTENTS:
            parent.say(work.contents())
            continue
        times = SMALL.get(name, 1)
        started = time.perf_counter()
        for _ in range(times):
            work.works[name]()
        spent_ms = (time.perf_counter() - started) * 1000 / times
        if is_plain:
            check_plain()
        parent.say(spent_ms)


def main(side: Side, folder: str, settings: str) -> None:
    parent = Parent()
    spark = start(side, folder, json.loads(settings))
    is_plain = side == "plain"
    serve(parent, Workload(spark) if is_plain else InTransactions(spark), is_plain=is_plain)


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type] # what they are, `tests.bench` says
