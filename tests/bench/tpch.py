"""`make bench-tpch`: TPC-H's refreshes in transactions beside a stream of queries, against plain Delta.

Two processes take turns, as in `make bench`. In each round two sessions of a side work at the same time: one goes
through the queries of `tpch.sql`, the other through four refreshes: twice RF1, by which orders with their lines arrive,
and RF2, by which as many old ones go: 1,500 times the scale factor. Plain Delta runs the same statements one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import get_args

from lockstep.scripts.splitting import split
from tests.bench.__main__ import ALWAYS, SETTINGS
from tests.bench.bounds import Bound, exit_if_missed
from tests.bench.page import DOCUMENT, paragraph, with_section
from tests.bench.side import Side
from tests.bench.tpch_side import TABLES
from tests.support.child import Child
from tests.support.plain import plain_settings

MARKS = {0.1: "tpch", 1.0: "tpch-1"}
"""The sections of the page, by the scale factor that each is about; of other scales nothing is written."""
QUERIES = [statement.text for statement in split(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))]
WORKS = {
    "queries": ("five queries beside refreshes", 1.02),
    "refreshes": ("two RF1 and two RF2 beside queries, each a transaction", 1.05),
}
WARM_UP = 2
NEW_KEYS = 1_000_000_000
"""New orders have keys above all that were generated."""


def refreshes(number: int, scale: float) -> list[list[str]]:
    """Return the statements of a round's refreshes: an RF1 and an RF2, twice.

    The generator uses a quarter of the keys. Each refresh takes the next stretch of them: RF1 brings its orders again
    under new keys, RF2 removes the old ones.
    """
    width = round(6000 * scale)
    found = []
    for which in (2 * number, 2 * number + 1):
        low, high = which * width + 1, (which + 1) * width
        new = NEW_KEYS + which
        among = f"BETWEEN {low} AND {high}"
        found.append([_again("orders", "o_orderkey", new, among), _again("lineitem", "l_orderkey", new, among)])
        found.append([f"DELETE FROM lineitem WHERE l_orderkey {among}", f"DELETE FROM orders WHERE o_orderkey {among}"])
    return found


def _again(table: str, key: str, new: int, among: str) -> str:
    rows = f"SELECT {key} + {new}, * EXCEPT ({key}) FROM generated_{table}"
    return f"INSERT INTO {table} {rows} WHERE {key} {among}"


def generated(folder: Path, scale: float) -> None:
    """Have TPC-H's tables generated as Parquet files."""
    program = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts"))
    assert program is not None, "tpchgen-cli is among the development tools"
    options = ["--scale-factor", f"{scale:g}", "--output-dir", str(folder), "--tables", ",".join(TABLES), "--quiet"]
    subprocess.run([program, "parquet", *options], check=True)


@contextmanager
def both(folder: Path, data: Path, settings: Mapping[str, str]) -> Iterator[tuple[Child, Child]]:
    """Start the two sides, ours first, with their tables loaded."""
    with ExitStack() as started:
        sides = []
        for side in get_args(Side):
            home = folder / side
            home.mkdir()
            said = {**ALWAYS, **settings, **(plain_settings(home) if side == "plain" else {})}
            child = Child("tests.bench.tpch_side", side, str(home), json.dumps(said), str(data))
            started.enter_context(closing(child))
            assert child.answer() == "ready"
            sides.append(child)
        yield sides[0], sides[1]


def measure(folder: Path, scale: float, rounds: int) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Let the two sides take turns; return what each round took, ours and plain Delta's."""
    generated(folder / "generated", scale)
    found = []
    with both(folder, folder / "generated", SETTINGS["few partitions"]) as (ours, plain):
        for number in range(-WARM_UP, rounds):
            request = {"queries": QUERIES, "refreshes": refreshes(number + WARM_UP, scale)}
            sides = (ours, plain) if number % 2 == 0 else (plain, ours)
            answers = [side.ask(request) for side in sides]
            mine, theirs = answers if number % 2 == 0 else reversed(answers)
            print(number, "Lockstep:", mine, "plain Delta:", theirs, flush=True)
            if number >= 0:
                found.append((mine, theirs))
    return found


def report(found: Sequence[tuple[dict[str, float], dict[str, float]]], scale: float) -> tuple[str, list[Bound]]:
    """Return the section's text, and its bounds."""
    rows, bounds = [], []
    for work, (name, bound) in WORKS.items():
        ours, plain = ([each[side][work] for each in found] for side in (0, 1))
        low, middle, high = statistics.quantiles((a / b for a, b in zip(ours, plain, strict=True)), n=4)
        bounds.append(Bound(f"TPC-H, {name}", middle, bound))
        rows.append(
            f"| {name} | {statistics.median(ours):.0f} | {statistics.median(plain):.0f} | "
            f"**{middle:.2f}** ({low:.2f}-{high:.2f}) | {bound:.2f} | {bounds[-1].verdict} |"
        )
    text = "\n".join([
        f"## TPC-H at scale factor {scale:g}, refreshes beside queries",
        "",
        paragraph(f"""
            In each of {len(found)} rounds two sessions of a driver work at the same time: one
            runs Q1, Q3, Q4, Q6 and Q12, the other twice RF1 and RF2 of TPC-H, each one transaction over two tables;
            plain Delta, a process of its own, runs the same statements one by one. The two take turns
            (`make bench-tpch`, `local[2]`, few partitions as above). Medians, and the median of the paired ratios with
            quartiles; {os.cpu_count()} cores with a load of {os.getloadavg()[1]:.0f}.
        """),
        "",
        "| | Lockstep, ms | plain Delta, ms | ratio | bound | kept |",
        "|---|---|---|---|---|---|",
        *rows,
    ])  # fmt: skip
    return text, bounds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tpch", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor (default: 0.1, 100 MB)")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lockstep-tpch-"))
    try:
        text, bounds = report(measure(folder, args.scale, args.rounds), args.scale)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(text)
    if args.scale in MARKS and not args.no_write:
        page = with_section(DOCUMENT.read_text(encoding="utf-8"), MARKS[args.scale], text)
        DOCUMENT.write_text(page, encoding="utf-8")
    exit_if_missed(bounds)


if __name__ == "__main__":
    main()
