"""Writers that all append to one table, each a process of its own, and what they met. No Spark.

    python -m tests.support.writers ROOT NAME APPENDS POLICY

is one of them: it says "ready", waits for a line, appends, and reports.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lockstep.retry import RACE, Contention, doubling
from lockstep.storage import Storage, open_storage
from lockstep.timeline.files import FOLDER
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, open_catalog, stage

TABLE = "appended"
REPOSITORY = Path(__file__).parents[2]
POLICIES = {
    "losers first": RACE,
    "doubling": replace(RACE, base_seconds=0.001, cap_seconds=0.5, growth=doubling),
}
"""How the writers try again: Lockstep's way, and, to compare, the way of networks."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one writer met.

    Attributes:
        seconds: from BEGIN to the answer of COMMIT, of each append.
        attempts: how many races for the timeline each append took.
        whole_seconds: from the common start to its last answer.
    """

    seconds: list[float]
    attempts: list[int]
    whole_seconds: float


def write(storage: Storage, writer: str, appends: int, policy: str) -> Report:
    """Append so many files, one transaction each, one right after the other."""
    store = FaultyStorage(storage)
    catalog = open_catalog(store)
    catalog.backoff = POLICIES[policy]
    seconds, attempts = [], []
    started = time.perf_counter()
    for n in range(appends):
        if catalog.backoff is not RACE:
            catalog.lake.contention = Contention()  # no other policy remembers
        store.calls.clear()
        began = time.perf_counter()
        tx = catalog.begin()
        stage(catalog, tx, TABLE, add(f"{writer}-{n}"))
        catalog.commit(tx)
        seconds.append(time.perf_counter() - began)
        attempts.append(sum(done == "put_if_absent" and path.startswith(FOLDER) for done, path in store.calls))
    return Report(seconds, attempts, time.perf_counter() - started)


def run_writers(root: Path, writers: int, appends: int, policy: str = "losers first") -> list[Report]:
    """Start the writers together, on a new lake with one table, and return their reports.

    Raises:
        RuntimeError: one of them failed; its last words are in the message.
    """
    create(open_catalog(open_storage(str(root), create=True)), TABLE)
    command = [sys.executable, "-m", "tests.support.writers", str(root)]
    running = [
        subprocess.Popen(
            [*command, f"w{n}", str(appends), policy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        for n in range(writers)
    ]
    try:
        return list(_reports(running))
    finally:
        for process in running:
            process.kill()
            process.communicate()


def _reports(running: list[subprocess.Popen[str]]) -> Iterator[Report]:
    for process in running:
        assert process.stdout is not None
        process.stdout.readline()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        out, errors = process.communicate()
        if process.returncode:
            raise RuntimeError(f"a writer failed: {errors.splitlines()[-1:]}")
        yield Report(**json.loads(out))


def main(root: str, writer: str, appends: str, policy: str) -> None:
    storage = open_storage(root)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asdict(write(storage, writer, int(appends), policy))))


if __name__ == "__main__":
    main(*sys.argv[1:])
