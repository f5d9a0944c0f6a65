"""`make bench`: what Lockstep costs against plain Delta, side by side in one session, written to docs/benchmarks.md.

Each comparison runs both sides in turn (A B, B A, …) so that whatever else the machine does hits both, and reports
medians, quartiles and the median of the paired ratios: a ratio means something on any machine, a second only here.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

import lockstep
from lockstep.catalog import TransactionalCatalog
from tests.bench.commit import commit_cost
from tests.bench.page import DOCUMENT, sections

ROWS = 20_000


@dataclass
class Comparison:
    """One figure: ours against plain Delta's, in milliseconds, pair by pair."""

    name: str
    bound: float
    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(a / b for a, b in zip(self.ours, self.plain, strict=True))

    def row(self) -> str:
        ratios = sorted(a / b for a, b in zip(self.ours, self.plain, strict=True))
        low, _, high = statistics.quantiles(ratios, n=4)
        verdict = "yes" if self.ratio <= self.bound else "**no**"
        return (
            f"| {self.name} | {_spread(self.ours)} | {_spread(self.plain)} "
            f"| **{self.ratio:.2f}** ({low:.2f}-{high:.2f}) | {self.bound:.2f} | {verdict} |"
        )


def _spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.0f} ({low:.0f}-{high:.0f})"


def _timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1000


def compare(
    name: str, bound: float, repeats: int, ours: Callable[[], object], plain: Callable[[], object]
) -> Comparison:
    """Time both sides in alternating order, after one unmeasured round each."""
    found = Comparison(name, bound)
    ours(), plain()
    sides = [(found.ours, ours), (found.plain, plain)]
    for _ in range(repeats):
        for times, run in sides:
            times.append(_timed(run))
        sides.reverse()
    print(found.row(), flush=True)
    return found


class Workload:
    """The same three tables twice: in a Lockstep catalog, and plain Delta in Spark's own."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.next_id = 0
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        spark.sql("CREATE DATABASE IF NOT EXISTS spark_catalog.bench")
        for place in ("lake.bench", "spark_catalog.bench"):
            for table in ("inserted", "updated", "merged"):
                spark.sql(
                    f"CREATE TABLE {place}.{table} USING delta AS "
                    f"SELECT id, id % 100 AS part, CAST(id AS STRING) AS text FROM range({ROWS})"
                )

    def _sql(self, text: str) -> None:
        self.spark.sql(text).collect()

    def three(self, place: str) -> None:
        self.next_id += 1
        n = ROWS + self.next_id * 1000
        self._sql(f"INSERT INTO {place}.inserted SELECT id, 1, 'new' FROM range({n}, {n + 100})")
        self._sql(f"UPDATE {place}.updated SET text = 'u{n}' WHERE id % 1000 = {self.next_id % 1000}")
        self._sql(
            f"MERGE INTO {place}.merged t USING (SELECT id FROM range({n - 50}, {n + 50})) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET text = 'm' "
            "WHEN NOT MATCHED THEN INSERT (id, part, text) VALUES (s.id, 2, 'm')"
        )

    def transaction(self) -> None:
        self._sql("BEGIN")
        self.three("lake.bench")
        self._sql("COMMIT")

    def insert(self, place: str) -> None:
        self._sql(f"INSERT INTO {place}.inserted VALUES (1, 1, 'one')")

    def read(self, place: str) -> None:
        self._sql(f"SELECT part, count(*) FROM {place}.updated GROUP BY part")


def measure(spark: SparkSession, repeats: int) -> list[Comparison]:
    """Run the three comparisons of the promise "cheap"."""
    work = Workload(spark)
    plain = "spark_catalog.bench"
    return [
        compare(
            "BEGIN, INSERT + UPDATE + MERGE over three tables, COMMIT", 1.10, repeats, work.transaction,
            lambda: work.three(plain),
        ),
        compare("autocommitted INSERT", 1.10, repeats, lambda: work.insert("lake.bench"), lambda: work.insert(plain)),
        compare("read", 1.05, repeats, lambda: work.read("lake.bench"), lambda: work.read(plain)),
    ]  # fmt: skip


def session(root: str, warehouse: str) -> SparkSession:
    """Start a session as a user would, with few partitions: the data is small."""
    builder: Any = SparkSession.builder
    for key, value in {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.warehouse.dir": warehouse,
        "spark.driver.memory": "2g",
    }.items():
        builder = builder.config(key, value)
    spark = lockstep.configure(builder, root=root, catalog="lake").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def report(comparisons: list[Comparison], commits: str, repeats: int, page: str) -> str:
    """Return the new page, with the sections of others as the old one has them."""
    rows = "\n".join(c.row() for c in comparisons)
    return f"""# Benchmarks

Made by `make bench`; {repeats} repeats, both sides in turn in one Spark session (`local[2]`, local disk), tables of
{ROWS:,} rows. Milliseconds are medians with quartiles and mean little elsewhere; the ratio is the median of the paired
ratios. A bound is what the project promises; "no" in the last column is a promise not kept in this run.

## Against plain Delta

| | Lockstep, ms | plain Delta, ms | ratio | bound | kept |
|---|---|---|---|---|---|
{rows}

{commits}
{sections(page)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="lockstep-bench-")
    try:
        spark = session(f"{folder}/lake", f"{folder}/warehouse")
        comparisons = measure(spark, args.repeats)
        spark.stop()
        commits = commit_cost(lambda: TransactionalCatalog.open(f"{folder}/commits", create=True), args.repeats)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = report(comparisons, commits, args.repeats, DOCUMENT.read_text(encoding="utf-8"))
    print(text)
    if not args.no_write:
        DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
