"""How often Lockstep and plain Delta list a table's log, and read files in it, each in a process of its own.

python -m tests.bench.listings [--no-write] [--master MASTER]     writes its section of docs/benchmarks.md
python -m tests.bench.listings {lockstep | plain} FOLDER SETTINGS     one of these processes
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.log_requests import LogRequests
from tests.support.plain import plain_settings, plain_spark

REPOSITORY = Path(__file__).parents[2]

CLUSTER = "local-cluster[1,1,1024]"
"""An executor that is a process of its own."""

Counts = Mapping[str, Mapping[str, int]]
"""For each kind of work, what it asked for."""


def counts(side: str, master: str = "local[2]") -> Counts:
    """Return what each kind of work asks of a log on one side, "lockstep" or "plain", in a process of its own."""
    from tests.support.sessions import SMALL

    with tempfile.TemporaryDirectory() as folder:
        settings = {**SMALL, **_settings(side, Path(folder)), "spark.master": master}
        command = [sys.executable, "-m", "tests.bench.listings", side, folder, json.dumps(settings)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{side}: {done.stderr}")
        found: Counts = json.loads(done.stdout.splitlines()[-1])
        return found


def _settings(side: str, folder: Path) -> dict[str, str]:
    if side == "plain":
        return plain_settings(folder)
    import lockstep

    return {**plain_settings(folder), **lockstep.conf(root=str(folder / "lake"), catalog="lake")}


def section(lockstep: Counts, plain: Counts, master: str) -> str:
    """Return the section's text, given what either side asked for."""
    from tests.bench.page import paragraph

    return "\n".join(
        [
            "## Listings of a table's log",
            "",
            paragraph(f"""
                How often each kind of work lists a table's `_delta_log`, how many files in it are read, and how many
                are looked for one by one, counted below Delta in the driver (`make bench-listings`, `{master}`).
                Plain Delta is a process of its own; for what it does not have stand its statements alone, or its own
                `VERSION AS OF`. The view of a transaction is two folders, its own and the table's, so each of its
                listings is two. What Lockstep's Python asks for is [counted elsewhere](requests.md).
            """),
            "",
            "| listings, reads, looks | Lockstep | plain Delta |",
            "|---|---|---|",
            *(f"| {work} | {_cell(counted)} | {_cell(plain[work])} |" for work, counted in lockstep.items()),
        ]
    )


def _cell(counted: Mapping[str, int]) -> str:
    return ", ".join(str(counted.get(kind, 0)) for kind in ("list", "read", "look"))


# --- inside the process -----------------------------------------------------------------------------------------------


SELECT, INSERT = "SELECT * FROM counted.t", "INSERT INTO counted.t VALUES (7)"
NOTHING = "SELECT 1"


def count(spark: Any, side: str) -> Counts:
    """Do each kind of work once, and count."""
    spark.sql(f"USE {'lake' if side == 'lockstep' else 'spark_catalog'}")
    spark.sql("CREATE NAMESPACE counted")
    spark.sql("CREATE TABLE counted.t USING delta AS SELECT id FROM range(3)")
    for number in range(3):
        spark.sql(f"INSERT INTO counted.t VALUES ({number})")
    works = {
        "a first read of a table": SELECT,
        "a second read": SELECT,
        "`INSERT`": INSERT,
        "a read after it": SELECT,
        "`VERSION AS OF`": f"{SELECT} VERSION AS OF 2",
        **(transactions(spark) if side == "lockstep" else STATEMENTS),
    }
    with LogRequests(spark) as requests:
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        return {name: dict(requests.of(partial(_run, spark, text))) for name, text in works.items()}


def _run(spark: Any, text: str) -> None:
    spark.sql(text).collect()


def transactions(spark: Any) -> dict[str, str]:
    """Return what is done in transactions, and at an older version of the database."""
    import lockstep

    lake = lockstep.TransactionalCatalog.open(spark.conf.get("spark.sql.catalog.lake.root"))
    older = lake.timeline.head.version - 1
    return {
        "`BEGIN`": "BEGIN",
        "a read inside": SELECT,
        "`INSERT` inside": INSERT,
        "a read of what was written inside": SELECT,
        "`COMMIT`": "COMMIT",
        "a read after `COMMIT`": SELECT,
        "`FOR SYSTEM_VERSION AS OF`": f"{SELECT} FOR SYSTEM_VERSION AS OF {older}",
        "`BEGIN READ ONLY AS OF`": f"BEGIN READ ONLY AS OF VERSION {older}",
        "a read in that": SELECT,
        "its `COMMIT`": "COMMIT",
    }


STATEMENTS = {
    "`BEGIN`": NOTHING,
    "a read inside": SELECT,
    "`INSERT` inside": INSERT,
    "a read of what was written inside": SELECT,
    "`COMMIT`": NOTHING,
    "a read after `COMMIT`": SELECT,
    "`FOR SYSTEM_VERSION AS OF`": f"{SELECT} VERSION AS OF 2",
    "`BEGIN READ ONLY AS OF`": NOTHING,
    "a read in that": f"{SELECT} VERSION AS OF 2",
    "its `COMMIT`": NOTHING,
}
"""The same in plain Delta, which has neither: its statements alone, and the table's own versions."""


def main() -> None:
    """Count on both sides, or in this process on one."""
    if len(sys.argv) == 4 and sys.argv[1] in ("lockstep", "plain"):
        side, _, settings = sys.argv[1:]
        spark = _spark(side, json.loads(settings))
        print(json.dumps(count(spark, side)))
        spark.stop()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--master", default="local[2]", help=f"Spark's; {CLUSTER} has an executor of its own")
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    from tests.bench.page import DOCUMENT, with_section

    text = section(counts("lockstep", args.master), counts("plain", args.master), args.master)
    print(text)
    if not args.no_write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), "listings", text), encoding="utf-8")


def _spark(side: str, settings: Mapping[str, str]) -> Any:
    if side == "plain":
        return plain_spark(settings)
    from pyspark.sql import SparkSession

    import lockstep

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    lockstep.attach(session)
    return session


if __name__ == "__main__":
    main()
