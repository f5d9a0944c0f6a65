"""`make bench-iceberg`: the works of `make bench` in transactions of Lockstep, and of Nessie with Iceberg's tables.

Three processes take turns, on Spark 4.1, the newest that Iceberg has been published for: Lockstep, plain Delta, and
Iceberg, whose process has neither of the others. Nothing is promised: formats differ, and so does what is durable.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pyspark

from tests.bench.__main__ import ALWAYS, SETTINGS, WORKS, check_same, started
from tests.bench.page import DOCUMENT, conditions, paragraph, with_section
from tests.bench.peers.nessie_server import NESSIE, nessie_server
from tests.bench.side import ROWS, SMALL
from tests.support.child import Child
from tests.support.maven import Published, fetched

ICEBERG = Published(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
"""With Nessie's client in it, 48 MB."""
SIDES = ("Lockstep", "plain Delta", "Iceberg")
COMPARED = [work for work in WORKS if work not in SMALL]
WARM_UP = 3

Times = Mapping[str, Sequence[float]]
"""What a work took, in milliseconds, by side, pair by pair."""


def iceberg_settings(folder: Path, port: int) -> dict[str, str]:
    """Return the settings of a Spark whose catalog `nessie` is main of the server at a port."""
    return {
        "spark.jars": str(fetched(ICEBERG)),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.nessie": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.nessie.type": "nessie",
        "spark.sql.catalog.nessie.uri": f"http://127.0.0.1:{port}/api/v2",
        "spark.sql.catalog.nessie.ref": "main",
        "spark.sql.catalog.nessie.warehouse": f"file://{folder}/warehouse",
        # Else main would be for half a minute as it was before a branch was merged.
        "spark.sql.catalog.nessie.cache-enabled": "false",
        "spark.local.dir": str(folder / "local"),
    }


@contextmanager
def iceberg(folder: Path, settings: Mapping[str, str]) -> Iterator[Child]:
    """Start Iceberg's side, and its server."""
    folder.mkdir()
    with nessie_server(folder) as port:
        said = {**ALWAYS, **settings, **iceberg_settings(folder, port)}
        with closing(Child("tests.bench.iceberg_side", json.dumps(said), str(port))) as child:
            assert child.answer() == "ready"
            yield child


def measure(folder: Path, repeats: int) -> dict[str, Times]:
    """Let the three take turns; return by work what each took."""
    settings = SETTINGS["few partitions"]
    found: dict[str, dict[str, list[float]]] = {work: {side: [] for side in SIDES} for work in COMPARED}
    with (
        started(folder, settings, ["lockstep", "plain"]) as (ours, plain),
        iceberg(folder / "iceberg", settings) as other,
    ):
        for number in range(-WARM_UP, repeats):
            for work, times in found.items():
                turns = list(zip(SIDES, (ours, plain, other), strict=True))
                for side, child in turns if number % 2 else reversed(turns):
                    spent = child.ask(work)
                    if number >= 0:
                        times[side].append(spent)
        check_same([ours, plain, other])
    return dict(found)


def row(work: str, times: Times) -> str:
    """Return a work's row: medians, and the median of the paired ratios with quartiles."""
    ours, plain, other = (times[side] for side in SIDES)
    low, middle, high = statistics.quantiles((a / b for a, b in zip(ours, other, strict=True)), n=4)
    medians = " | ".join(f"{statistics.median(each):.0f}" for each in (ours, other, plain))
    return f"| {WORKS[work][0]} | {medians} | **{middle:.2f}** ({low:.2f}-{high:.2f}) |"


def report(found: Mapping[str, Times], repeats: int) -> str:
    """Return the section's text."""
    return "\n".join([
        "## Beside Iceberg with Nessie, in Spark",
        "",
        paragraph(f"""
            The works of [the first table](#against-plain-delta), in three processes that take turns (`make
            bench-iceberg`; Spark {pyspark.__version__}, `local[2]`, few partitions, local disk, tables of {ROWS:,}
            rows, {repeats} repeats; {conditions()}). Iceberg is {ICEBERG.revision} with its defaults, but for its cache
            of tables, with which a session does not see for half a minute what was merged; Nessie is {NESSIE.revision}
            with RocksDB, on the same host. A transaction is there [a branch](https://projectnessie.org/guides/transactions),
            on which the statements run, and which is merged at once. Medians in milliseconds, and the median of the
            paired ratios with quartiles. Nothing is promised of them: an insert of Iceberg's writes other files than
            Delta's, and Nessie does not sync its log.
        """),
        "",
        "| | Lockstep | Iceberg with Nessie | plain Delta | Lockstep / Iceberg with Nessie |",
        "|---|---|---|---|---|",
        *(row(work, times) for work, times in found.items()),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.iceberg", description=__doc__)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lockstep-iceberg-"))
    try:
        text = report(measure(folder, args.repeats), args.repeats)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(text)
    if not args.no_write:
        page = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(with_section(page, "iceberg", text), encoding="utf-8")


if __name__ == "__main__":
    main()
