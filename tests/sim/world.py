"""What the clients of one schedule share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal

from lockstep.catalog import TransactionalCatalog
from lockstep.lake.lake import Lake
from lockstep.retry import RACE
from lockstep.timeline.entry import Isolation
from lockstep.timeline.log import Timeline
from tests.sim.arbiter import SimulatedArbiter
from tests.sim.journal import Journal
from tests.sim.scheduler import Process, Scheduler
from tests.sim.store import SimulatedStorage, backoff

TABLES = ("t0", "t1", "t2")
RESTORED = "t2"
"""What happens to this table is not judged as a history: it is dropped, brought back and restored."""

KEYS = ("set0", "list0", "list1")

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Plan:
    """What is the same for all clients of a schedule.

    Attributes:
        checkpoint_every: so often the timeline has a checkpoint; 0 for never.
        scripts: how many transactions each thread of a client runs.
        with_names: whether names change: tables, views, tags.
        is_quick: whether there are small transactions only, of many threads.
        arbiter: whether an arbiter decides the entries: `beside` a store that could, or `instead` of one that knows no
            conditional writes.
    """

    checkpoint_every: int = 3
    scripts: int = 4
    with_names: bool = True
    is_quick: bool = False
    isolation: Isolation = "SERIALIZABLE"
    arbiter: Literal["", "beside", "instead"] = ""


class World:
    """What the clients of one schedule share: the scheduler, the journal, and numbers that nobody else has."""

    def __init__(self, scheduler: Scheduler, plan: Plan) -> None:
        self.scheduler = scheduler
        self.plan = plan
        self.journal = Journal()
        self._ids = 0

    def new_id(self, prefix: str = "id") -> str:
        self._ids += 1
        return f"{prefix}-{self._ids:04}"

    @property
    def next_id(self) -> str:
        """What `new_id` returns next."""
        return f"id-{self._ids + 1:04}"

    def clock(self, process: Process) -> datetime:
        return START + timedelta(seconds=self.scheduler.now + process.skew_seconds)

    def open(self, storage: SimulatedStorage) -> TransactionalCatalog:
        """Open the lake as a process does.

        Raises:
            UnavailableError: the store failed.
        """
        clock = partial(self.clock, storage.process)
        race = backoff(self.scheduler, RACE)
        if self.plan.arbiter == "instead":
            storage.look_first()
        timeline = Timeline.create(
            storage,
            clock=clock,
            transaction_id="created",
            checkpoint_every=self.plan.checkpoint_every,
            arbiter=SimulatedArbiter(storage) if self.plan.arbiter else None,
        )
        lake = Lake(storage, timeline, clock=clock, new_id=self.new_id, backoff=race)
        return TransactionalCatalog(lake, author="ada", isolation="SERIALIZABLE", backoff=race)
