"""Run random programs until one differs, and shrink that: `make fuzz`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import lockstep
from tests.fuzz.broken import DEFECTS, put_back
from tests.fuzz.differential import Differential
from tests.fuzz.process import PlainDelta
from tests.fuzz.program import write
from tests.fuzz.shrink import shrink, text
from tests.support.sessions import CATALOG, INTERPRETED, JAVA, SMALL, new_session


def main() -> int:
    """Return 1 if a program differs."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of the first program; one of today's if not given")
    parser.add_argument("--programs", type=int, default=1_000_000, help="how many at most")
    parser.add_argument("--minutes", type=float, default=10, help="how long at most")
    parser.add_argument("--blocks", type=int, default=3, help="transactions and statements of a program")
    parser.add_argument("--broken", choices=sorted(DEFECTS), help="with a rule taken out, to see that it is found")
    parser.add_argument("--keep-going", action="store_true", help="past programs that differ, without shrinking them")
    parser.add_argument("--no-shrink", action="store_true", help="print the program as it is")
    parser.add_argument("--verbose", action="store_true", help="a line for each program")
    args = parser.parse_args()
    seed = int(time.time()) // 86_400 * 1_000_000 if args.seed is None else args.seed
    if args.broken:
        put_back(args.broken)
    with tempfile.TemporaryDirectory(prefix="lockstep-fuzz-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with closing(PlainDelta(folder / "plain")) as plain:
            spark = start(folder)
            differential = Differential(lambda root: new_session(spark, root), plain, folder / "lakes")
            try:
                return search(differential, seed, args)
            finally:
                spark.stop()


def start(folder: Path) -> Any:
    """Start a Spark with Lockstep."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA)
    builder = SparkSession.builder.master("local[2]")
    settings = {**SMALL, **INTERPRETED, **lockstep.conf(root=str(folder / "unused"), catalog=CATALOG)}
    settings |= {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "local")}
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    lockstep.attach(spark)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def search(differential: Differential, seed: int, args: argparse.Namespace) -> int:
    """Run programs until the time is over or one differs."""
    started = time.monotonic()
    found = ran = steps = skipped = retried = 0
    for each in range(seed, seed + args.programs):
        if time.monotonic() - started > args.minutes * 60:
            break
        program = write(each, args.blocks)
        outcome = differential.run(program)
        if args.verbose:
            parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in outcome.seconds.items())
            print(f"seed {each}: {outcome.steps} statements, {outcome.skipped} refused; {parts}", flush=True)
        ran, steps, skipped = ran + 1, steps + outcome.steps, skipped + outcome.skipped
        retried += outcome.retried
        if outcome.wrong:
            found += 1
            print(f"\nseed {each} differs:\n" + "\n".join(outcome.wrong), flush=True)
            if not args.keep_going:
                if not args.no_shrink:
                    program, outcome = shrink(differential, program, outcome)
                print(f"\n{text(program)}\n\n" + "\n".join(outcome.wrong), flush=True)
                break
    seconds = time.monotonic() - started
    print(
        f"fuzz: {ran} programs from seed {seed} in {seconds:.0f} s, {steps} statements, of which plain Delta refuses "
        f"{skipped}, {retried} transactions run again, {found} programs differ"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
