"""`make bench`: what Lockstep costs against plain Delta, side by side in one run, written to docs/benchmarks.md.

Each side is a process of its own (`tests.bench.side`), and plain Delta's has never loaded Lockstep. The two take turns
(A B, B A, …), so that whatever else the machine does hits both. Reported are medians, quartiles and the median of the
paired ratios: a ratio means something on any machine, a second only here.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from lockstep.catalog import TransactionalCatalog
from project import render_docs
from tests.bench.bounds import Bound, exit_if_missed
from tests.bench.commit import CommitCost, commit_cost
from tests.bench.page import DOCUMENT, sections
from tests.bench.side import CONTENTS, ROWS, SMALL, Side
from tests.support.child import Child
from tests.support.plain import plain_settings

WORKS = {
    "transaction": ("BEGIN, INSERT + UPDATE + MERGE over three tables, COMMIT", 1.02),
    "update after": ("autocommitted UPDATE of a table just written by a transaction", 1.05),
    "five tables": ("BEGIN, INSERTs into five tables, COMMIT", 1.05),
    "ten inserts": ("BEGIN, ten INSERTs into one table, COMMIT", 1.05),
    "insert": ("autocommitted INSERT", 1.05),
    "count": ("a table counted by groups", 1.05),
    "join": ("a join of two tables", 1.05),
    "read only": ("BEGIN READ ONLY, two queries, COMMIT", 1.05),
    "select 1": ("SELECT 1", 1.05),
}
"""What is measured, in the order of each round, and what it may cost at most of what it costs on plain Delta."""

NOTHING = ("BEGIN; ROLLBACK", 10.0)
"""What plain Delta has none of: a transaction that does nothing, and how many milliseconds it may take."""

ALWAYS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.catalogImplementation": "in-memory",
}
SETTINGS = {
    "few partitions": {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "2"},
    "Delta's and Spark's defaults": {},
}


def start(side: Side, folder: Path, settings: Mapping[str, str]) -> Child:
    """Start one side; its first answer comes when it is ready."""
    folder.mkdir(parents=True)
    said = {**ALWAYS, **settings, **(plain_settings(folder) if side == "plain" else {})}
    return Child("tests.bench.side", side, str(folder), json.dumps(said))


@dataclass
class Comparison:
    """One figure: ours against plain Delta's, in milliseconds, pair by pair."""

    work: str
    ours: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)

    @property
    def quartiles(self) -> list[float]:
        """Of the paired ratios."""
        return _ratios(self.ours, self.plain)

    @property
    def noise(self) -> str:
        """Of plain Delta's second process against its first: how far from 1 a ratio is that means nothing."""
        low, middle, high = _ratios(self.again, self.plain)
        return f"{WORKS[self.work][0]}: {middle:.2f} ({low:.2f}-{high:.2f})"

    def bound(self, setting: str) -> Bound:
        """Return what is promised of the median of the paired ratios."""
        name, bound = WORKS[self.work]
        return Bound(f"{name}, with {setting}", self.quartiles[1], bound)

    def row(self) -> str:
        low, middle, high = self.quartiles
        bound = self.bound("")
        spread = f"**{middle:.2f}** ({low:.2f}-{high:.2f})"
        figures = f"{_spread(self.ours)} | {_spread(self.plain)} | {spread}"
        return f"| {WORKS[self.work][0]} | {figures} | {bound.bound:.2f} | {bound.verdict} |"


def _ratios(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return statistics.quantiles((a / b for a, b in zip(some, others, strict=True)), n=4)


def _spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.0f} ({low:.0f}-{high:.0f})"


@contextmanager
def started(folder: Path, settings: Mapping[str, str], sides: Sequence[Side]) -> Iterator[list[Child]]:
    """Start a process of each of these sides."""
    with ExitStack() as running:
        children = []
        for number, side in enumerate(sides):
            child = running.enter_context(closing(start(side, folder / f"{side}{number}", settings)))
            assert child.answer() == "ready"
            children.append(child)
        yield children


@dataclass
class Measured:
    """What one run says: of each work, and in milliseconds how long a transaction takes that does nothing.

    Beside that, how long two statements take that do as little on plain Delta.
    """

    comparisons: list[Comparison]
    nothing: list[float] = field(default_factory=list)
    two_settings: list[float] = field(default_factory=list)

    def bounds(self, setting: str) -> list[Bound]:
        name, most = NOTHING
        nothing = Bound(f"{name}, ms, with {setting}", statistics.median(self.nothing), most)
        return [*(comparison.bound(setting) for comparison in self.comparisons), nothing]

    def lines(self) -> list[str]:
        """Return the rows of the table, and what is said behind it."""
        *_, nothing = self.bounds("")
        said = (
            f"`{NOTHING[0]}` takes {_spread(self.nothing)} ms; at most {nothing.bound:g}, kept: {nothing.verdict}. In "
            f"turn, two `SET` on plain Delta take {_spread(self.two_settings)} ms."
        )
        noise = "; ".join(comparison.noise for comparison in self.comparisons if comparison.again)
        again = ["", f"A second process of plain Delta that did the same, against the first: {noise}."] if noise else []
        return [*(comparison.row() for comparison in self.comparisons), "", said, *again]


def measure(folder: Path, settings: Mapping[str, str], repeats: int, *, control: bool = False) -> Measured:
    """Let the two sides take turns, after three rounds that do not count.

    Args:
        control: whether plain Delta has a second process, which does the same.
    """
    found = {work: Comparison(work) for work in WORKS}
    measured = Measured(list(found.values()))
    sides: list[Side] = [*get_args(Side)]
    if control:
        sides.append("plain")
    with started(folder, settings, sides) as children:
        ours, plain, *_ = children
        for number in range(-3, repeats):
            for work, comparison in found.items():
                turns = list(zip(children, (comparison.ours, comparison.plain, comparison.again), strict=False))
                for side, times in turns if number % 2 else reversed(turns):
                    spent = side.ask(work)
                    if number >= 0:
                        times.append(spent)
            for side, times in ((ours, measured.nothing), (plain, measured.two_settings)):
                spent = side.ask("nothing")
                if number >= 0:
                    times.append(spent)
        check_same(children)
    return measured


def check_same(sides: Sequence[Child]) -> None:
    """See that all sides did the same: their tables have the same rows."""
    first, *others = [side.ask(CONTENTS) for side in sides]
    assert all(other == first for other in others), f"the sides have different rows: {[first, *others]}"


def report(measured: Mapping[str, Measured], commits: CommitCost, repeats: int, page: str) -> str:
    """Return the new page, with the sections of others as the old one has them."""
    head = "| | Lockstep, ms | plain Delta, ms | ratio | bound | kept |\n|---|---|---|---|---|---|"
    tables = "\n\n".join(f"### With {name}\n\n{head}\n" + "\n".join(one.lines()) for name, one in measured.items())
    return f"""# Benchmarks

Made by `make bench`; {repeats} repeats. Lockstep and plain Delta are processes of their own, which take turns; plain
Delta's has never loaded Lockstep (`local[2]`, local disk, tables of {ROWS:,} rows). Milliseconds are medians with
quartiles and mean little elsewhere; the ratio is the median of the paired ratios. A bound is what the project promises;
"no" in the last column is a promise not kept in this run.

## Against plain Delta

*Few partitions* are two: `spark.sql.shuffle.partitions = 2` and `spark.databricks.delta.snapshotPartitions = 2`, which
suits small tables. *Delta's and Spark's defaults* set neither. All kinds of work are done in turn, so the queries come
just after writes to their tables. `SELECT 1` and `BEGIN; ROLLBACK` are the mean of {SMALL["nothing"]} in a row.

A ratio below 1 is a small table's: which files it has, the driver remembers and plain Delta finds out by Spark jobs
([how](design.md#which-uri-which-version)). Tables of [many files](#tables-of-many-files) are measured
by themselves.

{tables}

{commits.text}
{sections(page)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--control", action="store_true", help="measure plain Delta against plain Delta, too")
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lockstep-bench-"))
    try:
        measured = {}
        for number, (name, settings) in enumerate(SETTINGS.items()):
            measured[name] = measure(folder / str(number), settings, args.repeats, control=args.control)
            print(name, *measured[name].lines(), sep="\n", flush=True)
        commits = commit_cost(lambda: TransactionalCatalog.open(f"{folder}/commits", create=True), args.repeats)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = report(measured, commits, args.repeats, DOCUMENT.read_text(encoding="utf-8"))
    print(text)
    if not args.no_write:
        DOCUMENT.write_text(text, encoding="utf-8")
        render_docs.write()
    exit_if_missed([*(bound for name, one in measured.items() for bound in one.bounds(name)), *commits.bounds])


if __name__ == "__main__":
    main()
