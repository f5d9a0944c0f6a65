"""Schedules of a lake of which copies are made, beside expiry and what deletes: see `tests.sim.keepers`.

    python -m tests.sim --keeping --schedules 1000

In some all clocks but that of the pauses go faster, so that whatever has an age becomes old while an operation is under
way. Processes stop for as long as it takes others to wait for a pause, and crash at any request.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from lockstep.errors import LockstepError
from lockstep.exports import promote
from lockstep.lake.exports import FOLDER as EXPORTS
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import maintain
from tests.sim.bucket import BucketStorage, Quiet
from tests.sim.check_keeping import findings, hollow
from tests.sim.copies import KeptWorld
from tests.sim.keepers import WORK, Keeper, Told
from tests.sim.schedule import NIGHTS_SECONDS, Result, habits_of
from tests.sim.scheduler import Process, Scheduler, StuckError, Task
from tests.sim.store import URL, RandomFaults
from tests.sim.threads import simulated
from tests.sim.world import Plan
from tests.support.lakes import add, stage_new

RUNS = 4
"""So many runs of upkeep, with much time between them, come after a schedule."""

EVERYTHING = tuple(WORK)

ROLES = (
    ("writes", "writes", "writes", "restores", "logs", "tags"),
    ("copies", "copies", "promotes", "drops", "writes"),
    ("upkeep", "upkeep", "upkeep", "time"),
    ("upkeep", "writes", "time"),
    EVERYTHING,
)
"""What processes do: the first three are there in each schedule."""


@dataclass
class Shape:
    """What is drawn for a schedule before it begins.

    Attributes:
        events: at which steps a process stops, and for how many steps; 0: it crashes.
    """

    plan: Plan
    rate: float
    roles: list[tuple[str, ...]]
    events: list[tuple[int, int]]
    fault_rate: float
    skews: list[float]


def shape_of(chance: random.Random) -> Shape:
    """Draw a schedule."""
    hour, day, none = timedelta(hours=1), timedelta(days=1), timedelta(0)
    retention = Retention(
        age=chance.choice([none, none, hour, 3 * day]),
        last=chance.choice([1, 1, 2, 5]),
        grace=chance.choice([none, none, hour, day]),
        orphan_age=chance.choice([hour, day]),
    )
    plan = Plan(
        checkpoint_every=chance.choice([0, 2, 3, 5]),
        scripts=chance.randint(4, 14),
        has_upkeep=True,
        retention=retention,
        removed_for=chance.choice(["interval 0 seconds", "interval 0 seconds", "interval 1 hour", "interval 1 week"]),
    )
    roles = [*ROLES[:3], *(chance.choice(ROLES) for _ in range(chance.choice([0, 1, 1, 2, 3])))]
    return Shape(
        plan=plan,
        rate=chance.choice([1.0, 60.0, 1_200.0, 20_000.0, 200_000.0]),
        roles=roles,
        events=sorted(
            (chance.randint(50, 500 * plan.scripts), chance.choice([0, 300, 1_000, 3_000]))
            for _ in range(chance.choice([0, 1, 3, 6]))
        ),
        fault_rate=chance.choice([0.0, 0.0, 0.003, 0.01]),
        skews=[chance.choice([0.0, chance.uniform(-90, 90)]) for _ in range(40)],
    )


def crowded(shape: Shape, chance: random.Random) -> Shape:
    """Have nothing kept for its age, and several processes at expiry, which stop as they look who needs what."""
    none = timedelta(0)
    retention = replace(shape.plan.retention, age=none, last=1, grace=none)
    return replace(
        shape,
        plan=replace(shape.plan, retention=retention, scripts=chance.randint(8, 16)),
        roles=[("writes",), ("copies", "copies", "writes"), *[("upkeep",)] * chance.randint(2, 3)],
        events=[(100, chance.choice([500, 1_000, 2_000])) for _ in range(6)],
        fault_rate=0.0,
    )


class KeepingSchedule:
    """The processes of one schedule, and what they share."""

    def __init__(self, seed: int, *, is_traced: bool = False) -> None:
        """Draw what is to happen."""
        chance = random.Random(f"keeping {seed}")
        self.seed = seed
        self.shape = shape_of(chance)
        if chance.random() < 0.3:
            self.shape = crowded(self.shape, chance)
        self.scheduler = Scheduler(f"keeping {seed}", habits_of(chance))
        self.scheduler.habits.freeze = chance.choice([0.0, 0.002, 0.01, 0.03])
        self.scheduler.trace = [] if is_traced else None
        self.world = KeptWorld(self.scheduler, self.shape.plan, self.shape.rate)
        self.keepers: list[Keeper] = []
        self.faults: list[RandomFaults] = []
        self.tasks: list[Task] = []
        self.crashed = self.stopped = 0

    def storage(self, name: str, *, is_faulty: bool = False) -> BucketStorage:
        """Return the lake's store as a new process reaches it."""
        process = Process(name, skew_seconds=self.shape.skews.pop())
        self.faults.append(RandomFaults(self.scheduler, self.shape.fault_rate, is_on=is_faulty))
        return BucketStorage(self.world.bucket, URL, self.scheduler, process, self.faults[-1])

    def run(self) -> Result:
        """Run it to its end, and look at what is left."""
        found: list[str] = []
        with ExitStack() as stack:
            stack.enter_context(simulated(self.scheduler))
            stack.enter_context(patch.object(promote, "KEEPER", Told))
            try:
                found = list(self._run())
            except StuckError as error:
                found = [f"stuck: {error}", *self.world.wrong]
            except LockstepError as error:
                found = [f"looked: {error!r}", *self.world.wrong]
            finally:
                digest, steps = self.scheduler.digest, self.scheduler.steps
                self.scheduler.close()
        counts = dict(self.world.counts) | {"crashes": self.crashed, "stops": self.stopped, "steps": steps}
        return Result(self.seed, found, digest, counts, self.scheduler.trace or [])

    def _run(self) -> Iterator[str]:
        self._set_up()
        for number, kinds in enumerate(self.shape.roles):
            self._start(f"k{number}", kinds)
        for step, length in self.shape.events:
            self.scheduler.block(lambda step=step: self.scheduler.steps > step or self._are_done())  # type: ignore[misc]
            self._happen(length)
        self.scheduler.block(self._are_done)
        for faults in self.faults:
            faults.is_on = False
        self.scheduler.land_all()
        yield from self._found("fresh")
        if not self.world.wrong:
            yield from self._look_after()

    def _found(self, name: str, *, is_settled: bool = False) -> Iterator[str]:
        storage = self.storage(name)
        quiet = Quiet(self.world.bucket, URL, self.scheduler, storage.process, storage.faults)
        yield from findings(self.world, self.world.open(quiet), quiet)
        if is_settled:
            yield from hollow(quiet)

    def _set_up(self) -> None:
        catalog = self.world.open(self.storage("set-up"))
        tx = catalog.begin()
        for _ in range(2):
            new = (add(self.world.new_id("f"), size=4, modificationTime=0) for _ in range(3))
            stage_new(catalog, tx, self.world.new_id("t"), *new, start=self.world.new_table)
        catalog.commit(tx)
        catalog.lake.upkeep.settle()

    def _start(self, name: str, kinds: tuple[str, ...]) -> None:
        keeper = Keeper(self.world, self.storage(name, is_faulty=True), kinds)
        self.keepers.append(keeper)
        self.tasks.append(self.scheduler.spawn(keeper.run, "t0", keeper.storage.process))

    def _are_done(self) -> bool:
        return all(task.is_done for task in self.tasks)

    def _happen(self, length: int) -> None:
        """Have a process stop, mostly one that is at upkeep, or crash."""
        chance = self.scheduler.random
        if length and chance.random() < 0.6:
            self.scheduler.block(lambda: bool(self._looking()) or self._are_done())
        living = [each for each in self.keepers if not each.storage.process.is_dead and not each.is_done]
        upkeep = self._looking() or [each for each in living if each.kind == "upkeep"]
        if not living:
            return
        victim = chance.choice(upkeep if upkeep and chance.random() < 0.7 else living)
        process = victim.storage.process
        if length:
            process.frozen_until = self.scheduler.steps + length
            self.stopped += 1
            return
        self.scheduler.crash(process)
        self.crashed += 1
        self._start(f"{process.name}'", tuple(victim.kinds))

    def _looking(self) -> list[Keeper]:
        """Return who is just looking which versions are needed."""
        looking = {task.process for task in self.scheduler.tasks if task.at == f"list {EXPORTS}"}
        return [each for each in self.keepers if each.kind == "upkeep" and each.storage.process in looking]

    def _look_after(self) -> Iterator[str]:
        """Let pass what anything is kept for, and delete what nobody needs, some times over."""
        catalog = self.world.open(self.storage("caretaker"))
        for _ in range(RUNS):
            self.scheduler.pass_time(NIGHTS_SECONDS / self.shape.rate)
            maintain(catalog.lake, self.shape.plan.retention)
        yield from self._found("freshest", is_settled=True)


def run(seed: int, *, is_traced: bool = False, **_: Any) -> Result:
    """Run the schedule of a seed."""
    return KeepingSchedule(seed, is_traced=is_traced).run()
