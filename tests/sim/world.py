"""What the clients of one schedule share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action
from lockstep.errors import LockstepError
from lockstep.lake.lake import Lake
from lockstep.retention.ages import REMOVED, Retention
from lockstep.retry import RACE
from lockstep.timeline.entry import Isolation
from lockstep.timeline.log import Timeline
from tests.sim.arbiter import SimulatedArbiter
from tests.sim.journal import Attempt, Journal, Run
from tests.sim.scheduler import Process, Scheduler
from tests.sim.store import START, SimulatedStorage, backoff
from tests.support.lakes import NEW_TABLE, metadata

if TYPE_CHECKING:
    from tests.sim.caretakers import Caretaker

TABLES = ("t0", "t1", "t2")
RESTORED = "t2"
"""What happens to this table is not judged as a history: it is dropped, brought back and restored."""

KEYS = ("set0", "list0", "list1")

ROWS = "rows0"
"""The key of files whose rows are deleted one by one; only lakes that are looked after have it."""

PLAIN = "plain-"
"""What the names of plain writers' files begin with."""

FOR_EVER = timedelta(days=36_500)

CLOCKS_SECONDS = 600.0
"""So far apart, at most, are clocks, and what somebody began and others know of."""


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
        has_upkeep: whether time passes, versions expire, files are deleted, and persons bring back, settle, adopt and
            give back.
        retention: what is kept for how long, if so.
        removed_for: for how long Delta keeps removed files, as the tables say.
    """

    checkpoint_every: int = 3
    scripts: int = 4
    with_names: bool = True
    is_quick: bool = False
    isolation: Isolation = "SERIALIZABLE"
    arbiter: Literal["", "beside", "instead"] = ""
    has_upkeep: bool = False
    retention: Retention = field(default=Retention(FOR_EVER, 1, FOR_EVER, FOR_EVER))
    removed_for: str = "interval 1 week"

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a table, each of which has a file from the beginning."""
        return (*KEYS, ROWS) if self.has_upkeep else KEYS

    def new_table(self, **more: str) -> tuple[Action, ...]:
        """Return how the log of a table begins: its protocol and its metadata, with more properties."""
        if not self.has_upkeep:
            return NEW_TABLE
        protocol: Action = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {key: ["deletionVectors"] for key in ("readerFeatures", "writerFeatures")}
        properties = {"delta.enableDeletionVectors": "true", REMOVED: self.removed_for, **more}
        return ({"protocol": protocol}, metadata(**properties))


class World:
    """What the clients of one schedule share: the scheduler, the journal, and numbers that nobody else has.

    Attributes:
        nights: how often time passed at once.
        counts: what of upkeep happened.
        caretakers: the processes that look after the lake.
    """

    def __init__(self, scheduler: Scheduler, plan: Plan) -> None:
        self.scheduler = scheduler
        self.plan = plan
        self.journal = Journal()
        self.counts = Counter[str]()
        self.nights = 0
        self.caretakers: list[Caretaker] = []
        self._ids = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Note a run of upkeep."""
        run = Run(self.scheduler.now)
        self.journal.runs.append(run)
        try:
            yield
        except LockstepError:
            run.ended = self.scheduler.now
            raise
        run.ended = self.scheduler.now  # not of one whose process crashed

    def may_lose_files(self, attempt: Attempt) -> bool:
        """Whether a transaction reads for so long already that files of its snapshot may go."""
        now = self.scheduler.now
        since = now - attempt.at
        return since >= self.plan.retention.grace.total_seconds() - CLOCKS_SECONDS and not attempt.is_kept(now)

    def new_id(self, prefix: str = "id") -> str:
        """Return what nobody else has; upkeep knows a table's folder by an id as Lockstep gives them."""
        self._ids += 1
        return f"{self._ids:024x}" if prefix == "id" and self.plan.has_upkeep else f"{prefix}-{self._ids:04}"

    @property
    def next_id(self) -> str:
        """What `new_id` returns next."""
        return f"{self._ids + 1:024x}" if self.plan.has_upkeep else f"id-{self._ids + 1:04}"

    def now(self) -> datetime:
        """Return what the store's clock says."""
        return START + timedelta(seconds=self.scheduler.now)

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
