"""Writers that all append to one table, each a process of its own, and what they met. No Spark.

    python -m tests.support.writers ROOT NAME APPENDS POLICY

is one of them: it says "ready", waits for a request, appends, and reports.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace

from lockstep.retry import RACE, Contention, doubling
from lockstep.storage import Storage, open_storage
from lockstep.timeline.files import FOLDER
from tests.support.child import Child, Parent
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, open_catalog, stage

TABLE = "appended"
TURNS = "turns"
POLICIES = {
    TURNS: RACE,
    "losers first": RACE,
    "doubling": replace(RACE, base_seconds=0.001, cap_seconds=0.5, growth=doubling),
}
"""How the writers try again: Lockstep's way, the same without turns, and, to compare, the way of networks."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one writer met.

    Attributes:
        seconds: from BEGIN to the answer of COMMIT, of each append.
        attempts: how many races for the timeline each append took.
        versions: the database version that each append became.
        whole_seconds: from the common start to its last answer.
    """

    seconds: list[float]
    attempts: list[int]
    versions: list[int]
    whole_seconds: float


def write(storage: Storage, writer: str, appends: int, policy: str) -> Report:
    """Append so many files, one transaction each, one right after the other."""
    store = FaultyStorage(storage)
    catalog = open_catalog(store, turns=policy == TURNS)
    catalog.backoff = POLICIES[policy]
    seconds, attempts, versions = [], [], []
    started = time.perf_counter()
    for n in range(appends):
        if catalog.backoff is not RACE:
            catalog.lake.contention = Contention()  # no other policy remembers
        store.calls.clear()
        began = time.perf_counter()
        tx = catalog.begin()
        stage(catalog, tx, TABLE, add(f"{writer}-{n}"))
        versions.append(catalog.commit(tx).version)
        seconds.append(time.perf_counter() - began)
        attempts.append(sum(done == "put_if_absent" and path.startswith(FOLDER) for done, path in store.calls))
    return Report(seconds, attempts, versions, time.perf_counter() - started)


def run_writers(root: str, writers: int, appends: int, policy: str = TURNS) -> list[Report]:
    """Start the writers together, on a new lake with one table, and return their reports.

    Raises:
        EndedError: one of them failed; what it said stands on the standard error.
    """
    create(open_catalog(open_storage(root, create=True)), TABLE)
    with ExitStack() as running:
        each = [
            running.enter_context(Child("tests.support.writers", root, f"w{n}", str(appends), policy))
            for n in range(writers)
        ]
        for writer in each:
            assert writer.answer() == "ready"
        for writer in each:
            writer.tell("go")
        return [Report(**writer.answer()) for writer in each]


def main(root: str, writer: str, appends: str, policy: str) -> None:
    parent = Parent()
    storage = open_storage(root)
    parent.say("ready")
    next(parent.requests())
    parent.say(asdict(write(storage, writer, int(appends), policy)))


if __name__ == "__main__":
    main(*sys.argv[1:])
