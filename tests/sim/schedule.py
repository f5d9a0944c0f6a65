"""One schedule: some clients, and a seed that says all that happens to them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import CommitUnknownError, LockstepError
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import maintain
from lockstep.timeline.entry import Entry
from tests.sim.archive import entries_of
from tests.sim.caretakers import Caretaker, Rival
from tests.sim.check import SET_UP, findings
from tests.sim.check_upkeep import left, unfinished
from tests.sim.clients import Client, PlainWriter
from tests.sim.journal import Attempt
from tests.sim.scheduler import Habits, Process, Scheduler, StuckError, Task
from tests.sim.statements import Statements
from tests.sim.store import Disk, RandomFaults, SimulatedStorage
from tests.sim.threads import simulated
from tests.sim.world import TABLES, Plan, World
from tests.support.replay import BrokenTableError

CLIENTS = 3

MOST_NIGHTS = 8
"""So many runs of upkeep, with so much time between them, are to come to an end."""

NIGHTS_SECONDS = 41 * 86_400.0
"""For longer than this nothing is kept that nobody needs, and nothing marked."""


@dataclass
class Result:
    """What became of a schedule.

    Attributes:
        digest: of all that was done; the same whenever the schedule is run.
        counts: how many transactions were told what, crashes, entries, requests.
    """

    seed: int
    findings: list[str]
    digest: int
    counts: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)


def habits_of(chance: random.Random) -> Habits:
    """Draw how a schedule goes about its choices."""
    return Habits(
        stay=chance.choice([0.0, 0.3, 0.7, 0.9]),
        at_locks=chance.choice([0.0, 0.0, 0.05, 0.3]),
        freeze=chance.choice([0.0, 0.002, 0.01]),
        hurry=chance.choice([0.0, 0.01, 0.1]),
        land=chance.choice([0.0, 0.01, 0.1]),
        slow=chance.choice([0, 0, 10, 60]),
    )


def looked_after(plan: Plan, chance: random.Random) -> Plan:
    """Return the plan of a lake that is looked after, with what is kept for how long."""
    hour, day = timedelta(hours=1), timedelta(days=1)
    return replace(
        plan,
        has_upkeep=True,
        is_quick=False,
        scripts=chance.randint(3, 8),
        retention=Retention(
            age=chance.choice([timedelta(0), hour, 3 * day]),
            last=chance.choice([1, 1, 3]),
            grace=chance.choice([timedelta(0), hour, day]),
            orphan_age=chance.choice([hour, day]),
        ),
        removed_for=chance.choice(["interval 1 hour", "interval 1 hour", "interval 1 week"]),
    )


class Schedule:
    """The clients of one schedule, and what they share."""

    def __init__(
        self, seed: int, *, is_traced: bool = False, has_arbiter: bool = False, has_upkeep: bool = False
    ) -> None:
        """Draw what is to happen; of lakes with an arbiter, those of odd seeds lie in stores without conditions."""
        self.seed = seed
        chance = random.Random(f"plan {seed}")
        self.plan = Plan(
            checkpoint_every=chance.choice([0, 2, 3, 5]),
            scripts=chance.randint(1, 5),
            with_names=chance.random() < 0.7,
            is_quick=chance.random() < 0.15,
            isolation="SERIALIZABLE" if chance.random() < 0.8 else "SNAPSHOT",
            arbiter=("beside", "instead")[seed % 2] if has_arbiter else "",
        )
        if has_upkeep:
            self.plan = looked_after(self.plan, random.Random(f"upkeep {seed}"))
        self.threads = [4 if self.plan.is_quick else chance.choice([1, 1, 2, 3]) for _ in range(CLIENTS)]
        # Where there are no conditional writes, Delta's own commits may overwrite each other, and ours.
        self.has_plain_writer = chance.random() < (0.7 if has_upkeep else 0.4) and self.plan.arbiter != "instead"
        self.crashes = sorted(
            chance.randint(50, 500 * self.plan.scripts) for _ in range(chance.choice([0, 0, 1, 2, 3]))
        )
        self.scheduler = Scheduler(f"schedule {seed}", habits_of(chance))
        self.scheduler.trace = [] if is_traced else None
        skewed = chance.random() < 0.5
        self.skews = [chance.uniform(-90, 90) if skewed else 0.0 for _ in range(CLIENTS + sum(self.threads) + 9)]
        self.disk = Disk(seconds=lambda: self.scheduler.now)
        # A run of upkeep takes many requests, and is to come to its end now and then.
        self.rate = chance.choice([0.0, 0.005, 0.02, 0.06]) * (0.3 if has_upkeep else 1)
        self.faults: list[RandomFaults] = []
        self.world = World(self.scheduler, self.plan)
        self.clients: list[Client] = []
        self.tasks: list[Task] = []
        self.crashed = 0
        self.counts: dict[str, int] = {}
        self.is_faulty = False

    def storage(self, name: str) -> SimulatedStorage:
        """Return the store as a new process reaches it."""
        process = Process(name, skew_seconds=self.skews.pop())
        self.faults.append(RandomFaults(self.scheduler, self.rate, is_on=self.is_faulty))
        return SimulatedStorage(self.disk, self.scheduler, process, self.faults[-1])

    def run(self) -> Result:
        """Run it to its end, and look at what is left."""
        found: list[str] = []
        with simulated(self.scheduler):
            try:
                found = list(self._run())
            except StuckError as error:
                found = [f"stuck: {error}"]
            except (LockstepError, BrokenTableError) as error:
                found = [f"opened: {error!r}"]
            finally:
                digest, steps = self.scheduler.digest, self.scheduler.steps
                self.scheduler.close()
        statuses = [attempt.status for attempt in self.world.journal.attempts.values() if not attempt.is_plain]
        counts = {status: statuses.count(status) for status in ("ok", "fail", "info")}
        counts |= self.counts | {"crashes": self.crashed, "steps": steps}
        return Result(self.seed, found, digest, counts, self.scheduler.trace or [])

    def _count(self, entries: Sequence[Entry]) -> None:
        """Note what of all that can happen did."""
        files = [name for name in self.disk.folders["_lockstep/timeline"] if name[0].isdigit()]
        actions: list[str] = [ddl.action for entry in entries for ddl in entry.tables]
        self.counts = {
            "entries": len(entries),
            "groups": sum(b'"entries":' in self._entry(name)[:50] for name in files),
            "checkpoints": len(self.disk.folders["_lockstep/checkpoints"]),
            "precedes": sum(entry.precedes is not None for entry in entries),
            "moved": sum(bool(entry.moved) for entry in entries),
            **{kind: sum(entry.kind == kind for entry in entries) for kind in ("external", "abort")},
            **{action: actions.count(action) for action in ("create", "drop", "rename")},
            "restores": sum("RESTORE" in str(entry.transaction.statements) for entry in entries),
            "views": sum(bool(entry.views) for entry in entries),
            "tags": sum(bool(entry.tags) for entry in entries),
            "decided": int(self.disk.decided is not None),
            **self.world.counts,
        }

    def _entry(self, name: str) -> bytes:
        return self.disk.folders["_lockstep/timeline"][name]

    def _run(self) -> Iterator[str]:
        self._set_up()
        self.is_faulty = True
        for number in range(CLIENTS):
            self._start(f"c{number}", self.threads[number], [])
        if self.has_plain_writer:
            self._start_plain()
        for step in self.crashes:
            self.scheduler.block(lambda step=step: self.scheduler.steps > step or self._are_done())  # type: ignore[misc]
            if self.scheduler.random.random() < 0.5:
                self.scheduler.block(lambda: any(map(_is_committing, self.scheduler.tasks)) or self._are_done())
            self._crash_one()
        self.scheduler.block(self._are_done)
        self.is_faulty = False
        for faults in self.faults:
            faults.is_on = False
        yield from self._settle()
        self.scheduler.land_all()
        fresh = self.world.open(self.storage("fresh"))
        self._count(entries_of(self.disk))
        living = [client.there for client in self.clients if not client.storage.process.is_dead and client.catalog]
        found = [*findings(self.world, self.disk, fresh, [*living, self.world.open(self.storage("fresher"))])]
        yield from found
        if self.plan.has_upkeep and not found:
            yield from self._look_after()

    def _set_up(self) -> None:
        catalog = self.world.open(self.storage(SET_UP))
        tx = catalog.begin()
        attempt = Attempt(tx.id, SET_UP, 0, 0)
        self.world.journal.attempts[tx.id] = attempt
        do = Statements(catalog, tx, attempt, self.world)
        for name in TABLES:
            do.create(name)
        attempt.settle("ok", catalog.commit(tx).version, at=self.scheduler.steps)
        catalog.lake.upkeep.settle()
        tables = catalog.timeline.head.tables
        self.tables = sorted((name.table, table.location, table.id) for name, table in tables.items())

    def _start(self, name: str, threads: int, orphans: list[Attempt]) -> None:
        client = (Caretaker if self.plan.has_upkeep else Client)(self.world, self.storage(name))
        self.clients.append(client)
        process = client.storage.process

        def main() -> None:
            client.catalog = client.open()
            if isinstance(client, Caretaker):
                client.threads = threads
                self.tasks.append(self.scheduler.spawn(client.keep, "keeper", process))
            self.tasks.extend(self.scheduler.spawn(client.run, f"t{n}", process) for n in range(1, threads))
            for attempt in orphans:
                client.find_out(attempt)
            client.run()

        self.tasks.append(self.scheduler.spawn(main, "t0", process))

    def _start_plain(self) -> None:
        locations, ids = [location for _, location, _ in self.tables], [id_ for _, _, id_ in self.tables]
        make = Rival if self.plan.has_upkeep else PlainWriter
        writer = make(self.world, self.storage("plain"), locations, ids)
        self.tasks.append(self.scheduler.spawn(writer.run, "t0", writer.storage.process))

    def _are_done(self) -> bool:
        return all(task.is_done for task in self.tasks)

    def _crash_one(self) -> None:
        committing = {task.process for task in self.scheduler.tasks if _is_committing(task)}
        living = [c for c in self.clients if not c.storage.process.is_dead]
        if not living:
            return
        victim = self.scheduler.random.choice([c for c in living if c.storage.process in committing] or living)
        self.scheduler.crash(victim.storage.process)
        self.crashed += 1
        orphans = [
            attempt
            for attempt in self.world.journal.attempts.values()
            if attempt.process == victim.storage.process.name and attempt.status in ("open", "info")
        ]
        for attempt in orphans:
            attempt.settle("info", why="crashed")
        name = f"{victim.storage.process.name}'"
        chance = self.scheduler.random
        if chance.random() < 0.5:
            orphans = []  # they are asked for at the end
        if chance.random() < 0.7:
            self._start(name, chance.choice([1, 2]), orphans)

    def _look_after(self) -> Iterator[str]:
        """Look after the lake until nothing is left to do, with nobody else there; one run is killed somewhere."""
        scheduler, kept = self.scheduler, self.plan.retention
        killed = self.storage("killed")
        scheduler.pass_time(NIGHTS_SECONDS)
        task = scheduler.spawn(lambda: maintain(self.world.open(killed).lake, kept), "t0", killed.process)
        end = scheduler.steps + scheduler.random.randint(1, 400)
        with self.world.running():
            scheduler.block(lambda: task.is_done or scheduler.steps > end)
            if not task.is_done:
                scheduler.crash(killed.process)
                scheduler.block(lambda: task.is_done)
        person = Caretaker(self.world, self.storage("caretaker"))
        catalog = person.catalog = person.open()
        person.settles()
        with self.world.running():
            told = maintain(catalog.lake, kept)
        for _ in range(MOST_NIGHTS):
            scheduler.pass_time(NIGHTS_SECONDS)
            with self.world.running():
                told = maintain(catalog.lake, kept)
            if not told.expired.versions + told.swept.deleted_files + told.swept.waiting_files:
                break
        fresh = self.world.open(self.storage("freshest"))
        yield from findings(self.world, self.disk, fresh, [catalog])
        yield from unfinished(self.disk)
        yield from left(self.world, self.disk, fresh.timeline, told)

    def _settle(self) -> Iterator[str]:
        """Ask for all of which nobody was told what became of it; what is told then is final."""
        catalog = self.world.open(self.storage("settler"))
        for attempt in list(self.world.journal.attempts.values()):
            if attempt.status in ("open", "info") and not attempt.is_plain:
                try:
                    done = catalog.find_out(attempt.id, attempt.base)
                except LockstepError as error:
                    if isinstance(error, CommitUnknownError) and self._has_expired(catalog, attempt):
                        attempt.settle("info", why="what it began at has expired")
                        attempt.is_forgotten = True
                        continue
                    yield f"told: nobody can say what became of {attempt.id}: {error!r}"
                    continue
                attempt.settle_as_found(done)

    @staticmethod
    def _has_expired(catalog: TransactionalCatalog, attempt: Attempt) -> bool:
        """Whether nobody can read any more what was committed since a transaction began."""
        return catalog.timeline.head.expired.first_kept > attempt.base + 1


def _is_committing(task: Task) -> bool:
    """Whether a task is about to ask for the write that commits."""
    is_asking = task.at.startswith(("put_if_absent _lockstep/timeline/0", "put _lockstep/timeline/0", "swap"))
    return is_asking and not task.at.endswith(("done", "exists"))


def run(seed: int, *, is_traced: bool = False, has_arbiter: bool = False, has_upkeep: bool = False) -> Result:
    """Run the schedule of a seed."""
    return Schedule(seed, is_traced=is_traced, has_arbiter=has_arbiter, has_upkeep=has_upkeep).run()
