"""Lockstep on TPC-H: load, refresh, roll back, collide and look back, each step checked. `README.md` says more."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any

import deltalake
from pyarrow import parquet
from pyspark.sql import SparkSession
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import lockstep
from lockstep.scripts.splitting import Statement, split

HERE = Path(__file__).parent
TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
CHANGING = ("orders", "lineitem", "history")
"""The tables that change after they are loaded."""

DELTA_RS = {"allow_http": "true"}
"""What delta-rs is told besides the environment: that a store may be reached without TLS if its address says so."""

PATIENCE_SECONDS = 120
MAX_WIDTH = 112


class Checks:
    """What must be true, as it turns out. Safe to use from threads."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.passed = 0
        self.failures: list[tuple[str, object, object]] = []

    def equal(self, what: str, expected: object, got: object, *, shown: str = "") -> None:
        """Note whether it is so, and say it; `shown` says a long value shorter if it is."""
        if expected == got:
            self.passed += 1
            self._console.print(f"  [green]✓[/] {escape(what)}: {escape(shown or str(got))}")
        else:
            self.failures.append((what, expected, got))
            self._console.print(f"  [red]✗ {escape(what)}: expected {escape(str(expected))}, got {escape(str(got))}[/]")

    def verdict(self) -> int:
        """Say how it went; returns the exit status."""
        if self.failures:
            self._console.print(f"[red]✗ {len(self.failures)} of {self.passed + len(self.failures)} checks failed[/]")
            return 1
        self._console.print(f"[green]✓ all {self.passed} checks passed[/]" if self.passed else "[red]✗ no checks[/]")
        return 0 if self.passed else 1


class Demo:
    """The steps, in order; they share one lake, a session that works and a session that looks on."""

    def __init__(self, root: Path, lake: str, settings: dict[str, str], scale: float, console: Console) -> None:
        self.root = root
        self.lake = lake
        self.settings = settings
        self.data = root / "generated"
        self.scale = scale
        self.refresh_orders = max(1, round(scale * 1500))
        self.console = console
        self.checks = Checks(console)
        self._step = 0

    def run(self) -> int:
        began = time.perf_counter()
        self.console.print(f"TPC-H at scale factor {self.scale:g}, in the lake [bold]{escape(self.lake)}[/]")
        self.generate()
        self.spark = self.start()
        self.outside = self.spark.newSession()
        self.load()
        self.refresh_in()
        self.change_one_order()
        self.roll_back()
        self.collide()
        self.refresh_out()
        self.look_back()
        self.read_as_plain_delta()
        self.show_timeline()
        self.rule("The end")
        self.console.print(f"{time.perf_counter() - began:.0f} s in all. The lake stays in {escape(self.lake)}")
        return self.checks.verdict()

    # --- steps --------------------------------------------------------------------------------------------------------

    def generate(self) -> None:
        self.step("Generate", "Parquet files as TPC-H's own generator would make them.")
        program = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or shutil.which("tpchgen-cli")
        if program is None:
            raise SystemExit("tpchgen-cli is missing: pip install 'lockstep-delta[demo]'")
        began = time.perf_counter()
        options = ["--scale-factor", f"{self.scale:g}", "--output-dir", str(self.data), "--quiet"]
        subprocess.run([program, "parquet", *options], check=True)
        self.generated = {name: parquet.read_metadata(self.data / f"{name}.parquet").num_rows for name in TABLES}
        self.took(began, f"tpchgen-cli: {sum(self.generated.values()):,} rows in {len(TABLES)} files")

    def start(self) -> Any:
        began = time.perf_counter()
        builder = SparkSession.builder.master("local[2]").appName("lockstep demo")
        settings = {
            # Java's first compiler alone: the demo ends before most of what the second one makes is used.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.warehouse.dir": str(self.root / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **self.settings,
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
        with stderr_to(self.root / "spark.log"):
            spark = lockstep.configure(builder, root=self.lake, catalog="lake", create=True).getOrCreate()
        spark.conf.set("tpch.data", str(self.data))
        self.took(began, "Spark is up; its own log is spark.log")
        return spark

    def load(self) -> None:
        self.step("Load", "A namespace and nine tables in one transaction: all of it becomes visible at once.")
        *statements, commit = self.script("load.sql")
        for statement in statements:
            self.execute(self.spark, statement)
        self.checks.equal("namespaces that others see before COMMIT", [], self.namespaces("tpch"), shown="none")
        row = self.execute(self.spark, commit)
        self.checks.equal("tables changed", len(TABLES) + 1, row["tables_changed"])
        self.checks.equal("rows added", sum(self.generated.values()), row["rows_added"])
        self.checks.equal("namespaces that others see after it", ["tpch"], self.namespaces("tpch"), shown="tpch")
        counts = self.counts(tables=[*TABLES, "history"])
        self.checks.equal("rows", self.generated | {"history": 0}, counts, shown=self.sizes(counts))
        self.console.print("  The generator's order totals need no correction: step 8 adds up every one of them.")

    def refresh_in(self) -> None:
        self.step("RF1: new sales", f"{self.refresh_orders} orders arrive together with their line items.")
        before = self.counts()
        self.parameters(self.spark, refresh_orders=("INT", self.refresh_orders))
        *statements, commit = self.script("rf1.sql")
        for statement in statements:
            self.execute(self.spark, statement)
        seen = self.counts()
        self.checks.equal("rows that others see before COMMIT", before, seen, shown=self.sizes(seen))
        self.execute(self.spark, commit)
        after = self.counts()
        self.checks.equal("new orders", self.refresh_orders, after["orders"] - before["orders"])
        lines = after["lineitem"] - before["lineitem"]
        few, many = self.refresh_orders, 7 * self.refresh_orders
        self.checks.equal("1 to 7 lines for each", True, few <= lines <= many, shown=f"{lines} new lines")

    def change_one_order(self) -> None:
        order = self.one("SELECT max(l_orderkey) FROM lake.tpch.lineitem")
        self.order = order
        self.step("The ACID transaction", f"Order {order} gets 10 more pieces: three tables change, or none.")
        quantity = self.quantity()
        self.parameters(self.spark, **self.acid_parameters(delta=10))
        for statement in self.script("acid.sql"):
            self.execute(self.spark, statement)
        self.checks.equal("pieces", quantity + 10, self.quantity())
        self.checks.equal("rows of HISTORY", 1, self.counts()["history"])

    def roll_back(self) -> None:
        self.step("RF2, but ROLLBACK", "The oldest orders go, and come back: nothing has happened.")
        before, version = self.counts(), self.version()
        *statements, commit = self.script("rf2.sql")
        for statement in statements:
            self.execute(self.spark, statement)
        gone = before["orders"] - self.counts(self.spark)["orders"]
        self.checks.equal("orders that the transaction misses", self.refresh_orders, gone)
        self.execute(self.spark, Statement(text="ROLLBACK", line=commit.line))
        after = self.counts(self.spark)
        self.checks.equal("rows afterwards", before, after, shown=self.sizes(after))
        self.checks.equal("database version", version, self.version())

    def collide(self) -> None:
        self.step("Two at once", f"Alice and Bob change order {self.order}; both began before either committed.")
        quantity, version = self.quantity(), self.version()
        alice, bob = self.spark.newSession(), self.spark.newSession()
        # lockstep.run begins and commits, so both get what stands between.
        body = [s for s in self.script("acid.sql") if not s.text.upper().startswith(("BEGIN", "COMMIT"))]
        bob_is_ready, alice_is_done = threading.Event(), threading.Event()
        attempts = []

        def bobs(tx: Any) -> None:
            attempts.append(tx.snapshot)
            self.say(f"Bob, attempt {len(attempts)}: his snapshot is database version {tx.snapshot}")
            self.parameters(bob, **self.acid_parameters(delta=5))
            for statement in body:
                bob.sql(statement.text)
            if not bob_is_ready.is_set():
                bob_is_ready.set()
                alice_is_done.wait(PATIENCE_SECONDS)

        def pause(seconds: float) -> None:
            self.say(f"Bob: Alice was first, nothing of mine is visible; again in {seconds:.2f} s")
            time.sleep(seconds)

        with ThreadPoolExecutor(max_workers=1) as pool:
            try:
                with lockstep.transaction(alice, comment="ACID transaction, Alice") as tx:
                    self.say(f"Alice: her snapshot is database version {tx.snapshot}")
                    self.parameters(alice, **self.acid_parameters(delta=20))
                    for statement in body:
                        alice.sql(statement.text)
                    running = pool.submit(lockstep.run, bob, bobs, comment="ACID transaction, Bob", sleep=pause)
                    bob_is_ready.wait(PATIENCE_SECONDS)
                self.say(f"Alice: committed as database version {tx.version}")
            finally:
                alice_is_done.set()
            running.result()
        self.say(f"Bob: committed as database version {self.version()}")
        self.checks.equal("snapshots of Bob's attempts", [version, version + 1], attempts)
        self.checks.equal("database versions added", 2, self.version() - version)
        self.checks.equal("pieces, no update lost", quantity + 20 + 5, self.quantity())
        self.checks.equal("rows of HISTORY, none twice", 3, self.counts()["history"])

    def refresh_out(self) -> None:
        self.step("RF2: old sales", f"The {self.refresh_orders} oldest orders go together with their line items.")
        before = self.counts()
        for statement in self.script("rf2.sql"):
            self.execute(self.spark, statement)
        after = self.counts()
        self.checks.equal("orders gone", self.refresh_orders, before["orders"] - after["orders"])
        lines = before["lineitem"] - after["lineitem"]
        self.checks.equal("lines gone with them", True, lines >= self.refresh_orders, shown=str(lines))

    def look_back(self) -> None:
        self.step("The ACID query, at every version", "Each order costs what its lines add up to, now and ever before.")
        self.console.print("  … FROM lake.tpch.orders [bold]FOR SYSTEM_VERSION AS OF n[/] …, for each n:")
        query = Template((HERE / "consistent.sql").read_text(encoding="utf-8"))
        shown, wrong = [], {}
        for version in range(1, self.version() + 1):
            began = time.perf_counter()
            (statement,) = split(query.substitute(version=version))
            row = self.outside.sql(statement.text).collect()[0]
            wrong[version] = row["wrong"]
            shown.append([version, row["orders"], row["lines"], row["history"], row["wrong"], self.since(began)])
        self.table(["version", "orders", "lines", "history", "wrong totals", "time"], shown)
        self.checks.equal("wrong totals", dict.fromkeys(wrong, 0), wrong, shown=f"none in {len(wrong)} versions")
        first = {"orders": shown[0][1], "lineitem": shown[0][2]}
        loaded = {name: self.generated[name] for name in first}
        self.checks.equal("orders and lines in version 1", loaded, first, shown="what was loaded")

    def read_as_plain_delta(self) -> None:
        self.step("Without Lockstep, without Spark", "delta-rs reads the folders: they are ordinary Delta tables.")
        shown, found = [], {}
        for table in lockstep.TransactionalCatalog.open(self.lake).timeline.head.tables.values():
            delta = deltalake.DeltaTable(f"{self.lake}/{table.location}", storage_options=DELTA_RS)
            found[table.name.table] = delta.to_pyarrow_dataset().count_rows()
            shown.append([table.location, delta.version(), found[table.name.table]])
        self.table(["folder", "Delta version", "rows"], shown)
        counts = self.counts(tables=list(found))
        self.checks.equal("the same rows as through Lockstep", counts, found, shown=self.sizes(found))

    def show_timeline(self) -> None:
        self.step("The timeline", "Everything that has happened to the database, in order.")
        rows = []
        entries = lockstep.TransactionalCatalog.open(self.lake).timeline.entries(-1)
        for entry in entries:
            what = entry.transaction.message or next(iter(entry.transaction.statements), "an empty database")
            names = [write.name.table for write in entry.writes]
            counts = [write.counts for write in entry.writes]
            rows.append(
                [
                    entry.version,
                    entry.committed_at.strftime("%H:%M:%S.%f")[:-3],
                    entry.kind,
                    what,
                    ", ".join(names) if len(names) <= 3 else f"{len(names)} tables",
                    known_sum(c.rows_added for c in counts),
                    known_sum(c.rows_removed for c in counts),
                    round((entry.committed_at - entry.transaction.began_at).total_seconds() * 1000),
                ]
            )
        self.table(["version", "time (UTC)", "kind", "what", "tables", "rows +", "rows -", "ms"], rows)
        self.say(
            "ms is the time from BEGIN to COMMIT. A row that was updated counts twice: as the old one, and as the new."
        )
        expected = ["load TPC-H", "RF1, new sales", "ACID transaction", "ACID transaction, Alice"]
        expected += ["ACID transaction, Bob", "RF2, old sales"]
        done = [entry.transaction.message for entry in entries[1:]]
        self.checks.equal("transactions", expected, done, shown=f"{len(done)}, as they were told above")

    # --- SQL ----------------------------------------------------------------------------------------------------------

    def script(self, name: str) -> list[Statement]:
        self.console.print(f"  [dim]sql/demo/{name}[/]")
        return split((HERE / name).read_text(encoding="utf-8"))

    def execute(self, spark: Any, statement: Statement) -> dict[str, Any]:
        """Run a statement and say how long it took; COMMIT's row is shown as a table."""
        began = time.perf_counter()
        rows = spark.sql(statement.text).collect()
        self.took(began, " ".join(statement.text.split()))
        row: dict[str, Any] = rows[0].asDict() if rows else {}
        if statement.text.upper().startswith("COMMIT"):
            columns = [name.replace("milliseconds", "ms").replace("_", "\n", 1) for name in row]
            self.table(columns, [list(row.values())])
        return row

    def parameters(self, spark: Any, **values: tuple[str, int]) -> None:
        for name, (kind, value) in values.items():
            spark.sql(f"DECLARE OR REPLACE VARIABLE {name} {kind} DEFAULT {value}")

    def acid_parameters(self, *, delta: int) -> dict[str, tuple[str, int]]:
        return {"o_key": ("BIGINT", self.order), "l_key": ("INT", 1), "delta": ("INT", delta)}

    def one(self, query: str, spark: Any = None) -> Any:
        return (spark or self.outside).sql(query).collect()[0][0]

    def counts(self, spark: Any = None, *, tables: Sequence[str] = CHANGING) -> dict[str, int]:
        """Return how many rows tables have, as others see it unless a session is given."""
        columns = ", ".join(f"(SELECT count(*) FROM lake.tpch.{name}) AS {name}" for name in tables)  # noqa: S608
        row: dict[str, int] = (spark or self.outside).sql(f"SELECT {columns}").collect()[0].asDict()
        return row

    def quantity(self) -> int:
        where = f"l_orderkey = {self.order} AND l_linenumber = 1"
        return int(self.one(f"SELECT l_quantity FROM lake.tpch.lineitem WHERE {where}"))  # noqa: S608

    def version(self) -> int:
        return lockstep.TransactionalCatalog.open(self.lake).timeline.head.version

    def namespaces(self, name: str) -> list[str]:
        return [row[0] for row in self.outside.sql(f"SHOW NAMESPACES IN lake LIKE '{name}'").collect()]

    # --- what a person sees -------------------------------------------------------------------------------------------

    def rule(self, title: str) -> None:
        self.console.print()
        self.console.rule(f"[bold]{escape(title)}", align="left")

    def step(self, title: str, sentence: str) -> None:
        self._step += 1
        self.rule(f"{self._step}  {title}")
        self.console.print(escape(sentence))

    def say(self, sentence: str) -> None:
        self.console.print(f"  {escape(sentence)}")

    def since(self, began: float) -> str:
        return f"{(time.perf_counter() - began) * 1000:,.0f} ms"

    def took(self, began: float, what: str) -> None:
        self.console.print(f"  [cyan]{self.since(began):>9}[/]  {escape(what)}", overflow="ellipsis", no_wrap=True)

    def table(self, columns: Iterable[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table; a number stands at the right, and what nobody knows is a question mark."""
        columns, rows = list(columns), list(rows)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for index, column in enumerate(columns):
            is_text = any(isinstance(row[index], str) for row in rows)
            table.add_column(column, justify="left" if is_text else "right", overflow="fold")
        for row in rows:
            table.add_row(*map(self.cell, row))
        self.console.print(table)

    def cell(self, value: object) -> str:
        if value is None:
            return "?"
        return f"{value:,}" if isinstance(value, int) else escape(str(value))

    def sizes(self, counts: dict[str, int]) -> str:
        return f"{sum(counts.values()):,} in {len(counts)} tables"


def known_sum(counts: Iterable[int]) -> int | None:
    """Return the sum, None if one of them is unknown (-1)."""
    counts = list(counts)
    return None if -1 in counts else sum(counts)


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Send what this process and those it starts say on stderr to a file; the latter go on doing so afterwards."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def main() -> int:
    """Read the options, run the demo and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01, help="TPC-H's scale factor (default: 0.01, 10 MB)")
    parser.add_argument("--root", type=Path, help="an empty folder (default: a new temporary one, which is kept)")
    parser.add_argument("--lake", help="where the lake is to lie, if not in that folder: s3://…, hdfs://…")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark's")
    options = parser.parse_args()
    if wrong := [each for each in options.conf if "=" not in each]:
        parser.error(f"--conf: expected KEY=VALUE, got {wrong[0]}")
    root = options.root or Path(tempfile.mkdtemp(prefix="lockstep-demo-"))
    if options.scale <= 0:
        parser.error("--scale: expected more than 0")
    if root.exists() and any(root.iterdir()):
        parser.error(f"--root: {root} is not empty")
    console = Console(highlight=False)
    console.width = min(console.width, MAX_WIDTH) if console.is_terminal else MAX_WIDTH
    # PySpark logs, with its stack trace, the conflict that the demo provokes.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    root = root.resolve()
    lake = options.lake.rstrip("/") if options.lake else str(root / "lake")
    return Demo(root, lake, dict(each.split("=", 1) for each in options.conf), options.scale, console).run()


if __name__ == "__main__":
    sys.exit(main())
