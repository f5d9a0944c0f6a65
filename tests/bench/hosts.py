"""What a host in a process of its own costs, against one in the driver: `make bench-hosts`.

Each round starts two Sparks after each other, one with each host, and times the same statements in both: `BEGIN` with
`ROLLBACK` does little but ask, an `INSERT` is what users pay for.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.page import DOCUMENT, with_section
from tests.support.hosts import settings
from tests.support.sessions import CATALOG

HOSTS = ("attached", "spawned")
WARM_UP = 10


def median_ms(run: Callable[[], object], times: int) -> float:
    for _ in range(WARM_UP):
        run()
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent) * 1000


def driver(host: str, times: int) -> dict[str, float]:
    """Time statements in a Spark with this host."""
    from pyspark.sql import SparkSession

    import lockstep
    from lockstep.spark.bridge import _hosts
    from lockstep.spark.jars import session_jars

    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder
        for key, value in settings(Path(folder), Path(folder, CATALOG)).items():
            builder = builder.config(key, value)
        spark = builder.config("spark.jars", ",".join(map(str, session_jars()))).getOrCreate()
        if host == "attached":
            lockstep.attach(spark)
        spark.sql(f"USE {CATALOG}")
        spark.sql("CREATE TABLE t (id INT) USING delta")
        assert bool(_hosts) == (host == "attached")

        def begin_and_rollback() -> None:
            spark.sql("BEGIN")
            spark.sql("ROLLBACK")

        found = {
            "BEGIN; ROLLBACK": median_ms(begin_and_rollback, times),
            "INSERT": median_ms(lambda: spark.sql("INSERT INTO t VALUES (1)"), times),
        }
        spark.stop()
    return found


def measure(rounds: int, times: int) -> dict[str, dict[str, list[float]]]:
    """Return each host's medians, in milliseconds, one a round."""
    found: dict[str, dict[str, list[float]]] = {host: {} for host in HOSTS}
    for _ in range(rounds):
        for host in HOSTS:
            command = [sys.executable, "-m", "tests.bench.hosts", "--driver", host, "--times", str(times)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=dict(os.environ))
            for what, spent in json.loads(done.stdout.splitlines()[-1]).items():
                found[host].setdefault(what, []).append(spent)
    return found


def rendered(found: dict[str, dict[str, list[float]]], rounds: int, times: int) -> str:
    lines = []
    for what in found["attached"]:
        one, other = (found[host][what] for host in HOSTS)
        ratio = statistics.median(b / a for a, b in zip(one, other, strict=True))
        lines.append(f"| `{what}` | {statistics.median(one):.1f} | {statistics.median(other):.1f} | **{ratio:.2f}** |")
    return f"""## The spawned host

A host in a process of its own against one in the driver ([hosts.md](hosts.md)); `make bench-hosts`, {rounds} rounds of
two drivers after each other. Each figure is the median over the rounds of a driver's median of {times}; the ratio is
the median of the rounds' ratios.

| | attached, ms | spawned, ms | ratio |
|---|---|---|---|
""" + "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=60)
    parser.add_argument("--driver", choices=HOSTS)
    asked = parser.parse_args()
    if asked.driver:
        print(json.dumps(driver(asked.driver, asked.times)))
        return
    text = rendered(measure(asked.rounds, asked.times), asked.rounds, asked.times)
    DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), "hosts", text), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
