"""One client of a randomized history test: a process that runs random transactions, and writes down each step.

    python -m tests.support.workload '<Plan as JSON>'

What is done is a function of the plan's seed and the script's number (`tests.support.scripts`); what comes of it is
not, with several processes. Delta's part is played by `tests.support.keyed`.
The journal has a line for each event, written before a step that others can notice and after one that tells something.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, Literal

from lockstep.errors import CommitUnknownError, ConflictError, LockstepError
from lockstep.storage import open_storage
from tests.support.faulty import FaultyStorage
from tests.support.keyed import Delta, Tables
from tests.support.lakes import open_catalog
from tests.support.replay import BrokenTableError
from tests.support.scripts import Plan, Step, balance, script

ATTEMPTS = 3
"""How often a script is run that loses against another."""

ROLLED_BACK = 0.08
"""How many of the transactions that write change their minds."""


class Client:
    """One life: runs its scripts, each until it is committed or has been refused often enough."""

    def __init__(self, plan: Plan) -> None:
        storage = FaultyStorage(open_storage(plan.root))
        self.plan = plan
        self.name = f"{plan.client}{chr(ord('a') + plan.life)}"
        self.catalog = open_catalog(storage, isolation=plan.isolation)
        self.tables = Tables(self.catalog.lake.storage)
        self._journal = os.open(plan.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if plan.dies_at is not None:
            _die_at(storage, plan.dies_at, after=plan.dies_after)

    def note(self, tx: str, event: str, **more: Any) -> None:
        """Write one line of the journal; it is out of this process before anything else happens."""
        line = {"at": time.monotonic_ns(), "tx": tx, "event": event, **more}
        os.write(self._journal, json.dumps(line).encode() + b"\n")

    def run(self) -> None:
        """Run the plan."""
        for number in range(self.plan.first, self.plan.scripts):
            chance = random.Random(f"{self.plan.seed}/{self.name}/{number}")
            for attempt in range(ATTEMPTS):
                if self._attempt(f"{self.name}.{number}.{attempt}", number, chance):
                    break
                time.sleep(chance.random() * 0.01)

    def _attempt(self, name: str, number: int, chance: random.Random) -> bool:
        """Run one transaction, and tell whether it need not be tried again."""
        steps = script(self.plan, number)
        self.note(name, "began", script=number)
        try:
            return self._transaction(name, steps, chance)
        except (LockstepError, BrokenTableError) as error:
            self.note(name, "error", why=f"{type(error).__name__}: {error}")
            return True

    def _transaction(self, name: str, steps: Sequence[Step], chance: random.Random) -> bool:
        writes = any(verb != "read" for verb, *_ in steps)
        read_only = not writes and chance.random() < 0.5
        tx = self.catalog.begin(read_only=read_only, record_reads=self.plan.record_reads)
        try:
            delta = Delta(self.catalog, self.tables, tx)
            for n, step in enumerate(steps):
                self._step(delta, name, step, n, chance)
                time.sleep(chance.random() * self.plan.pause_ms / 1000)
            if writes and chance.random() < ROLLED_BACK:
                self.catalog.rollback(tx)
                self.note(name, "fail", why="rolled back")
                return True
            self.note(name, "committing")
            done = self.catalog.commit(tx)
            self.note(name, "ok", version=done.version)
        except ConflictError as error:
            self.note(name, "fail", why=error.message)
            return False
        except CommitUnknownError as error:
            self.note(name, "info", why=error.message)
        finally:
            if tx.is_open and tx.in_doubt is None:
                self.catalog.rollback(tx)
                self.note(name, "fail", why="it met an error")
        return True

    def _step(self, delta: Delta, name: str, step: Step, number: int, chance: random.Random) -> None:
        verb, *keys = step
        if verb == "read":
            self.note(name, "read", key=keys[0], values=delta.read(keys[0]))
            return
        amount = chance.randint(1, 30)
        for key, sign in zip(keys, (-1, 1), strict=False):
            value = f"{name}.{number}"
            if verb == "transfer":
                value = f"{value}={balance(delta.read(key)[-1]) + sign * amount}"
            self.note(name, "add" if verb in ("add", "merge") else "append", key=key, value=value)
            if verb == "add":
                delta.insert(key, value)
            else:
                delta.rewrite(key, value, "MERGE" if verb == "merge" else "UPDATE")


def _die_at(storage: FaultyStorage, number: int, *, after: bool) -> None:
    """Have this process killed at its `number`-th put-if-absent from now: no handler runs, nothing is flushed."""
    when: Literal["before", "after"] = "after" if after else "before"
    for _ in range(number - 1):
        storage.interrupt("put_if_absent", lambda: None, when=when)
    storage.interrupt("put_if_absent", lambda: os.kill(os.getpid(), signal.SIGKILL), when=when)


def main(argument: str) -> None:
    plan = Plan(**json.loads(argument))
    client = Client(plan)
    if plan.broken:
        from tests.support.broken import DEFECTS

        DEFECTS[plan.broken](client.catalog)
    client.run()


if __name__ == "__main__":
    main(sys.argv[1])
