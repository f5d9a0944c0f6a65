"""All single and double faults of one commit of three tables: it is there as a whole or not, as its client was told.

Every request of COMMIT, and of the upkeep behind its answer, is met with each fault that there is for it
(`tests.sim.store`); for each of these runs every later request is too. A write that is late arrives either right after
COMMIT has answered or after all is settled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, TypeAlias

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import parse
from lockstep.delta.log import commit_path
from lockstep.errors import CommitUnknownError, LockstepError
from lockstep.lake.verify import verify
from lockstep.transactions.transaction import Transaction
from tests.sim.scheduler import Habits, Process, Scheduler
from tests.sim.store import KINDS, Disk, Fault, SimulatedStorage
from tests.sim.threads import simulated
from tests.sim.world import TABLES, Plan, World
from tests.support.lakes import add, append, create, large, named, stage
from tests.support.replay import Replayed

Call: TypeAlias = tuple[str, str]
Faulty: TypeAlias = Mapping[int, Fault]
Arrival: TypeAlias = Literal["answered", "settled"]
"""When late writes arrive."""

ASKED = 20
"""How often a client asks what became of its COMMIT."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A commit: whether what it writes is too large for the entry, and whether another one is ahead of it."""

    is_large: bool
    has_rival: bool

    def __str__(self) -> str:
        return f"{'large' if self.is_large else 'small'}, {'behind a rival' if self.has_rival else 'alone'}"


COMMITS = tuple(Kind(is_large, has_rival) for is_large in (False, True) for has_rival in (False, True))


@dataclass
class PlannedFaults:
    """Faults of certain requests, by their number since `is_on`."""

    planned: Faulty
    calls: list[Call] = field(default_factory=list)
    is_on: bool = False

    def choose(self, operation: str, path: str) -> Fault | None:
        if not self.is_on:
            return None
        self.calls.append((operation, path))
        return self.planned.get(len(self.calls) - 1)


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a commit: what is wrong, its requests, and what the client was told, in order."""

    findings: list[str]
    calls: list[Call]
    told: list[str]


class Lake:
    """Three tables in a store, which each case begins with.

    Attributes:
        arbiter: see `Plan`.
    """

    def __init__(self, arbiter: Literal["", "beside", "instead"] = "") -> None:
        self.disk = Disk()
        self.arbiter = arbiter
        world, storage = _world(self, self.disk, PlannedFaults({}))
        with simulated(world.scheduler):
            catalog = world.open(storage)
            create(catalog, *TABLES, files=["old.parquet"])
            catalog.lake.upkeep.settle()
            self.locations = {name: catalog.timeline.head.tables[named(name)].location for name in TABLES}
            world.scheduler.close()

    def copied(self) -> Disk:
        """Return a store with the same in it."""
        folders = {folder: dict(names) for folder, names in self.disk.folders.items()}
        return Disk(defaultdict(dict, folders), self.disk.decided)

    def contents(self, disk: Disk, catalog: TransactionalCatalog) -> dict[str, set[str]]:
        """Return the files of the newest version of each table, by its log, as the timeline says which that is."""
        found = {}
        for name in TABLES:
            table = catalog.database([named(name)]).tables[named(name)]
            replayed = Replayed()
            for version in range(table.version + 1):
                data = disk.get(commit_path(table.location, version))
                assert data is not None, f"version {version} of {name} is not in its log"
                replayed.take(parse(data))
            found[name] = replayed.paths()
        return found


def lakes(*, has_arbiter: bool) -> list[Lake]:
    """Return the lakes whose commits are tried: one, or one of each kind that has an arbiter."""
    return [Lake("beside"), Lake("instead")] if has_arbiter else [Lake()]


def _world(lake: Lake, disk: Disk, faults: PlannedFaults) -> tuple[World, SimulatedStorage]:
    scheduler = Scheduler("commit", Habits(stay=0.5, land=0.0))
    world = World(scheduler, Plan(checkpoint_every=2, arbiter=lake.arbiter))
    return world, SimulatedStorage(disk, scheduler, Process("c0"), faults)


def run(lake: Lake, kind: Kind, planned: Faulty, arrival: Arrival = "answered") -> Run:
    """Commit a row into each of three tables, while these requests fail."""
    faults = PlannedFaults(planned)
    case = _Case(lake, kind, arrival, faults)
    with simulated(case.world.scheduler):
        try:
            case.run()
        except (AssertionError, LockstepError) as error:
            case.findings.append(repr(error))
        finally:
            case.world.scheduler.close()
    return Run(case.findings, faults.calls, case.told)


class _Case:
    """One commit, and what was found and told so far."""

    def __init__(self, lake: Lake, kind: Kind, arrival: Arrival, faults: PlannedFaults) -> None:
        self.lake = lake
        self.kind = kind
        self.arrival = arrival
        self.faults = faults
        self.disk = lake.copied()
        self.world, self.storage = _world(lake, self.disk, faults)
        self.findings: list[str] = []
        self.told: list[str] = []

    def run(self) -> None:
        """Commit, ask until it is certain what became of it, and look from all sides."""
        scheduler, world = self.world.scheduler, self.world
        watcher = SimulatedStorage(self.disk, scheduler, Process("watcher"), PlannedFaults({}))
        catalog, reader = world.open(self.storage), world.open(watcher)
        tx = catalog.begin()
        for name in TABLES:
            stage(catalog, tx, name, (large if self.kind.is_large else add)(f"new-{name}.parquet"))
        if self.kind.has_rival:
            append(reader, "t1", "rival.parquet")
        self.faults.is_on = True
        for number in range(ASKED):
            self.told.append(answer := _asked(catalog, tx))
            if number == 0 and self.arrival == "answered":
                scheduler.land_all()
            self.look(reader, answer)
            if answer in ("ok", "fail"):
                break
        catalog.lake.upkeep.settle()
        scheduler.block(lambda: len(scheduler.tasks) == 1)
        self.faults.is_on = False
        scheduler.land_all()
        fresh = world.open(watcher)
        for each in (catalog, reader, fresh):
            self.look(each, self.told[-1])
        if self.told[-1] != "ok":
            self.findings.append(f"a commit that conflicts with nobody is not committed after all: {self.told}")
        report = verify(watcher, fresh.timeline)
        self.findings += [f"verify: {each}" for each in (*report.differences, *report.wrong_checkpoints)]

    def look(self, catalog: TransactionalCatalog, answer: str) -> None:
        """Note what a process sees that cannot be, given what the client was told."""
        found = self.lake.contents(self.disk, catalog)
        old = {"old.parquet", "rival.parquet"} if self.kind.has_rival else {"old.parquet"}
        seen = set()
        for name, files in found.items():
            new = files - old
            assert new <= {f"new-{name}.parquet"}, f"{name} has {files}"
            seen.add(bool(new))
            for path in new:
                if self.disk.get(f"{self.lake.locations[name]}/{path}") is None:
                    self.findings.append(f"data file {path} of {name} is gone")
        if len(seen) > 1:
            self.findings.append(f"half of the transaction is there: {found}")
        elif (answer == "ok" and seen != {True}) or (answer in ("open", "fail") and seen != {False}):
            self.findings.append(f"told {answer!r}, and there is {found}")


def _asked(catalog: TransactionalCatalog, tx: Transaction) -> str:
    """COMMIT, and return what the client is told: 'open' is that nothing was committed, and it may try again."""
    try:
        catalog.commit(tx)
    except CommitUnknownError:
        return "unknown"
    except LockstepError:
        return "open" if tx.is_open else "fail"
    return "ok"


def cases(lake: Lake, kind: Kind, faults: int, *, every: int = 1) -> Iterator[tuple[Faulty, Arrival, Run]]:
    """Run a commit with each fault of each request, and with each two; yield what came of each.

    Args:
        faults: 1 or 2.
        every: run one out of so many pairs.
    """
    whole = run(lake, kind, {})
    yield {}, "answered", whole
    singles = []
    for planned, arrival in _with_one_more(whole.calls, {}):
        result = run(lake, kind, planned, arrival)
        singles.append((planned, result.calls))
        yield planned, arrival, result
    if faults > 1:
        pairs = (pair for planned, calls in singles for pair in _with_one_more(calls, planned))
        for planned, arrival in islice(pairs, 0, None, every):
            yield planned, arrival, run(lake, kind, planned, arrival)


def _with_one_more(calls: list[Call], planned: Faulty) -> Iterator[tuple[Faulty, Arrival]]:
    """Yield a plan with each fault that a later request can meet."""
    for number in range(max(planned, default=-1) + 1, len(calls)):
        for fault in KINDS[calls[number][0]]:
            more = {**planned, number: fault}
            yield more, "answered"
            if "late" in more.values():
                yield more, "settled"
