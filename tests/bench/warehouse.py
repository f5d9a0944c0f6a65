"""`python -m tests.bench.warehouse`: docs/migration.md, step by step, on a warehouse that plain Spark makes and writes.

A Spark without Lockstep makes tables of many small files in a schema of a Hive metastore, and goes on writing some of
them by their names while this process, a Spark with Lockstep, does what the page says. After each step what all were
told is compared with what both read, by both names. The figures are in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lockstep.lake.claims import claim_path
from tests.bench.adopt import steps as without_spark
from tests.bench.page import DOCUMENT, conditions, paragraph, with_section
from tests.bench.warehouse_side import KINDS, ROWS, SCHEMA, written
from tests.beside.journal import Journal
from tests.beside.judging import Said, read
from tests.beside.spark_writer import rolled_back, statement
from tests.support.child import Child
from tests.support.metastore import metastore
from tests.support.plain import plain_settings
from tests.support.sessions import INTERPRETED, SMALL

MARK = "warehouse"
HOT = 8
"""So many tables, at most, are written while the trial runs; one at least is not."""

TRANSACTIONS = 8
"""Of each step that writes through the lake."""

TOGETHER = 3
"""So many tables each of them writes."""

PLAIN_ROWS = 3
"""So many operations of the plain writer, at least, come to their end in each step."""

Rows = Mapping[str, Sequence[Sequence[str | None]]]


@dataclass
class Step:
    """A step of the page, and what it took.

    Attributes:
        seconds: of the step itself, without the checks.
        beside: how many operations the plain writer ended from the step's beginning to the end of its checks.
    """

    name: str
    seconds: float
    beside: int


@dataclass
class Trial:
    """What the steps work on.

    Attributes:
        warehouse: the folder of the schema.
        tables: all of them; the first are written.
        journals: of the plain writer, and of this process.
        plain: the Spark without Lockstep.
        spark: the session with it.
        hot, cold: the tables that are written, and those that nobody writes.
        began_with: the data files before anybody wrote: one that is just being written changes by itself.
    """

    warehouse: Path
    tables: list[str]
    journals: tuple[Path, Path]
    plain: Child
    spark: Any
    steps: list[Step] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        hot = min(HOT, len(self.tables) - 1)
        self.hot, self.cold = self.tables[:hot], self.tables[hot:]
        self.began_with = listing(self.warehouse)
        self._journal = Journal(self.journals[1], "lockstep")
        self._mine: list[tuple[str, list[str]]] = []
        self._id = 0

    def said(self) -> dict[str, Said]:
        """Return what all writers have said."""
        return read(path for path in self.journals if path.exists())

    def step(self, name: str, do: Callable[[], object], *, in_lake: bool = True) -> None:
        """Do a step of the page, let the plain writer go on, and see that everything is there, by both names."""
        ended = self._ended()
        began = time.perf_counter()
        do()
        seconds = time.perf_counter() - began
        while self._ended() < ended + PLAIN_ROWS:
            self.plain.ask(["rows", []])  # raises what the writing failed with
            time.sleep(0.1)
        wrong = self.wrong(in_lake=in_lake)
        assert not wrong, f"after {name!r}: {wrong[:20]}"
        self.steps.append(Step(name, seconds, self._ended() - ended))
        print(f"{name}: {seconds:.2f} s, {self.steps[-1].beside} operations of the plain writer", flush=True)

    def _ended(self) -> int:
        return sum(each.answer is not None for each in read([self.journals[0]]).values())

    # --- what must hold -----------------------------------------------------------------------------------------------

    def wrong(self, *, in_lake: bool) -> list[str]:
        """Return what either side reads that does not agree with what all writers said."""
        before = self.said()
        found: dict[str, Rows] = {"by the old names": self.plain.ask(["rows", self.hot])}
        if in_lake:
            found["by the lake's names"] = {table: self._rows(f"lake.{SCHEMA}.{table}") for table in self.hot}
        after = self.said()
        return [f"{name}: {line}" for name, rows in found.items() for line in disagreeing(before, after, rows)]

    def _rows(self, table: str) -> list[list[str | None]]:
        return [[*row] for row in self.spark.sql(written(table)).collect()]

    def count_all(self, prefix: str, expected: Mapping[str, int]) -> None:
        """See that all tables which nobody writes have their rows."""
        for table in self.cold:
            [[count]] = self.spark.sql(f"SELECT count(*) FROM {prefix}.{table}").collect()
            assert count == expected[table], f"{prefix}.{table} has {count} rows, and not {expected[table]}"

    # --- what is written ----------------------------------------------------------------------------------------------

    def transactions(self, session: Any, prefix: str) -> None:
        """Write some tables together, some times over, by the names with this prefix."""
        for _ in range(TRANSACTIONS):
            self._id += 1
            taken, tables = None, self.chance.sample(self.hot, min(TOGETHER, len(self.hot)))
            if self._mine and self.chance.random() < 0.6:
                taken, tables = self._mine.pop(self.chance.randrange(len(self._mine)))
            kind = "insert" if taken is None else self.chance.choice(("update", "merge", "delete"))
            id = f"wl{self._id}"
            self._journal.begin(id, kind, tables, takes_back=taken, adds=kind != "delete")
            statements = [statement(kind, f"{prefix}.{table}", id, taken) for table in tables]
            self._run(session, id, ["BEGIN", *statements, "COMMIT"], [*tables] if kind != "delete" else [])

    def insert(self, prefix: str) -> None:
        """Add a row to one table, in no transaction."""
        self._id += 1
        id, table = f"wl{self._id}", self.hot[0]
        self._journal.begin(id, "insert", [table])
        self._run(self.spark, id, [statement("insert", f"{prefix}.{table}", id, None)], [])

    def _run(self, session: Any, id: str, statements: Sequence[str], tables: list[str]) -> None:
        """Run statements, as a job would that tries no transaction again; whatever else fails ends the trial."""
        from pyspark.errors import PySparkException

        try:
            for text in statements:
                session.sql(text)
        except PySparkException as error:
            if error.getSqlState() != "40001":
                raise
            rolled_back(session)
            self._journal.end(id, "refused", error)
        else:
            self._journal.end(id, "done")
            self._mine += [(id, tables)] if tables else []


def disagreeing(before: Mapping[str, Said], after: Mapping[str, Said], rows: Rows) -> list[str]:
    """Return which rows do not agree with what was said before they were read, and what was said until after that.

    Args:
        rows: by table, those that were read of it: the id, and that of the row whose place it took.
    """
    counts = {table: Counter(row[0] for row in found) for table, found in rows.items()}
    takers = {each.takes_back: id for id, each in after.items() if each.takes_back is not None}
    wrong = []
    for id, each in after.items():
        known, taker = before.get(id), takers.get(id)
        is_done = known is not None and known.answer == "done"
        is_taken = taker is not None and (was := before.get(taker)) is not None and was.answer == "done"
        may_be_taken = taker is not None and after[taker].answer != "refused"
        if not each.adds or each.answer == "refused" or is_taken:
            allowed = {0}
        else:
            allowed = {1} if is_done and not may_be_taken else {0, 1}
        found = {table: counts[table][id] for table in each.tables if table in counts}
        if not {*found.values()} <= allowed:
            wrong.append(f"{id} ({each}, taken back by {taker}): {found}")
    for table, content in rows.items():
        wrong += [
            f"{table} has {row} in the place of {replaced}"
            for row, replaced in content
            if row is None or row not in after or replaced != after[row].takes_back
        ]
    return wrong


def listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return the data files, and deletion vectors, below a folder, each with what a copy or a rewrite would change."""
    found = {}
    for path in folder.rglob("*"):
        if path.suffix in (".parquet", ".bin") and "_delta_log" not in path.parts:
            about = path.stat()
            found[str(path.relative_to(folder))] = (about.st_ino, about.st_size, about.st_mtime_ns)
    return found


def lockstep_session(root: Path, settings: Mapping[str, str]) -> Any:
    """Start the Spark with Lockstep."""
    from pyspark.sql import SparkSession

    import lockstep

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return lockstep.configure(builder, root=str(root), catalog="lake").getOrCreate()


def walk(trial: Trial, rows: Mapping[str, int]) -> None:
    """Do the steps of the page, in their order."""
    spark, tables = trial.spark, trial.tables
    claims = [Path(claim_path(str(trial.warehouse / table))) for table in tables]
    before = trial.began_with

    def look() -> None:
        found = spark.sql(f"CALL lake.system.adopt(schema => 'spark_catalog.{SCHEMA}', dry_run => true)").collect()
        assert sorted(row["table"] for row in found) == sorted(tables), found
        assert not any(row["refused"] for row in found)
        assert not any(claim.exists() for claim in claims), "a dry run has written"

    def by_old_names() -> None:
        session = spark.newSession()
        session.conf.set("spark.sql.catalog.lake.session-names", "true")
        trial.transactions(session, SCHEMA)

    trial.step("look: `adopt(schema => …, dry_run => true)`", look, in_lake=False)
    adopted = partial(spark.sql, f"CALL lake.system.adopt(schema => 'spark_catalog.{SCHEMA}')")
    trial.step("`adopt(schema => …)`", adopted)
    trial.count_all(f"lake.{SCHEMA}", rows)
    _check_kept(trial, before)
    trial.step("transactions by the lake's names", lambda: trial.transactions(spark, f"lake.{SCHEMA}"))
    trial.step("a statement by an old name", lambda: trial.insert(f"spark_catalog.{SCHEMA}"))
    trial.step("transactions by old names, with `session-names`", by_old_names)
    released = partial(spark.sql, f"CALL lake.system.release(namespace => '{SCHEMA}')")
    trial.step("`release(namespace => …)`", released, in_lake=False)
    assert not any(claim.exists() for claim in claims), "claims are left"
    trial.step("a statement by an old name, after that", lambda: trial.insert(f"spark_catalog.{SCHEMA}"), in_lake=False)
    _check_kept(trial, before)
    trial.plain.ask(["stop"])
    _check_end(trial, rows)


def _check_kept(trial: Trial, before: Mapping[str, tuple[int, int, int]]) -> None:
    """See that every data file is where it was, as it was, and that tables which nobody writes have no other."""
    now = listing(trial.warehouse)
    changed = [path for path, about in before.items() if now.get(path) != about]
    assert not changed, f"data files were moved, rewritten or deleted: {changed[:5]}"
    added = [path for path in now if path not in before and path.partition("/")[0] in trial.cold]
    assert not added, f"data files were added: {added[:5]}"


def _check_end(trial: Trial, rows: Mapping[str, int]) -> None:
    """See what all tables have in the end, when nobody writes any more."""
    wrong = trial.wrong(in_lake=False)
    assert not wrong, wrong[:20]
    said = trial.said()
    assert all(each.answer is not None for each in said.values())
    alive = Counter(
        table
        for id, each in said.items()
        if each.adds and each.answer == "done"
        for table in each.tables
        if not any(other.takes_back == id and other.answer == "done" for other in said.values())
    )
    counts = trial.plain.ask(["counts", trial.tables])
    wrong = [f"{table}: {counts[table]} rows" for table in trial.tables if counts[table] != rows[table] + alive[table]]
    assert not wrong, wrong[:20]


def run(folder: Path, tables: int, files: int) -> tuple[list[str], Trial, float]:
    """Make a warehouse and walk through the page; return the core's figures, the trial, and how long making it took."""
    names = [f"t{number}" for number in range(tables)]
    small = {**SMALL, **INTERPRETED, "spark.master": "local[2]", "spark.driver.memory": "2g"}
    with ExitStack() as stack:
        shared = stack.enter_context(metastore(folder))
        settings = {**plain_settings(folder), **shared, **small}
        errors = stack.enter_context((folder / "plain.log").open("w"))
        plain = stack.enter_context(Child("tests.bench.warehouse_side", json.dumps(settings), errors=errors))
        assert plain.answer() == "ready"
        began = time.perf_counter()
        rows = plain.ask(["make", names, files])
        made = time.perf_counter() - began
        print(f"made in {made:.0f} s", flush=True)
        warehouse = folder / "warehouse" / f"{SCHEMA}.db"
        core = without_spark(folder / "warehouse", folder / "other", tables)
        spark = lockstep_session(folder / "lake", {**shared, **small, "spark.local.dir": str(folder / "local")})
        stack.callback(spark.stop)
        journals = folder / "plain.journal", folder / "lockstep.journal"
        trial = Trial(warehouse, names, journals, plain, spark)
        plain.ask(["start", trial.hot, str(journals[0])])
        walk(trial, rows)
        return core, trial, made


def section(folder: Path, tables: int, files: int) -> str:
    """Run the trial, and return what the page says."""
    core, trial, made = run(folder, tables, files)
    count, commits = len(listing(trial.warehouse)), sum(each.beside for each in trial.steps)
    kinds = Counter(each.answer for each in trial.said().values())
    steps = "\n".join(f"| {each.name} | **{each.seconds:.2f}** | {each.beside} |" for each in trial.steps)
    about = paragraph(
        f"""{tables} tables in a schema of a Hive metastore, with {count:,} data files in the end, of {ROWS} rows each
        when they were made: by turns {", ".join(KINDS)}. A Spark without Lockstep made them in {made:.0f} s
        (`{command(tables, files)}`). It went on writing {len(trial.hot)} of them by their old names, and ended
        {commits} statements, while a Spark with Lockstep did what [the guide](migration.md) says. After each step
        what all writers were told was compared with what is read by both names: each of {kinds["done"]} acknowledged
        writes was there once, none of {kinds["refused"]} that were refused was, and no data file had been moved, copied
        or rewritten. Single runs, {conditions()}."""
    )
    return f"""### One that Spark made, and goes on writing

{about}

| step | seconds | statements of the plain writer, to the end of the checks |
|---|---|---|
{steps}

The same warehouse, adopted and given back by another lake, without Spark, before that, while nobody wrote:

| step | seconds | requests |
|---|---|---|
{chr(10).join(core)}
"""


def command(tables: int, files: int) -> str:
    """Return how to run it again."""
    return f"python -m tests.bench.warehouse --tables {tables} --files {files}"


def main(arguments: Iterable[str]) -> None:
    """Run it, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--files", type=int, default=100, help="of each table")
    parser.add_argument("--write", action="store_true", help="put the section into docs/benchmarks.md")
    parser.add_argument("--folder", type=Path, help="an empty one to work in, which stays; by default one that goes")
    args = parser.parse_args([*arguments])
    folder = args.folder or Path(tempfile.mkdtemp(prefix="lockstep-warehouse-"))
    text = section(folder, args.tables, args.files)
    print(text)
    if args.write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")
    if not args.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    assert os.environ.get("SPARK_HOME") is None, "another Spark would be used"
    main(sys.argv[1:])
