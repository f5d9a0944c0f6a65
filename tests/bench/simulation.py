"""Many writers of one lake on a far store, simulated: what each request takes is drawn, what is decided is Lockstep's.

The pauses after a lost race are those of `lockstep.retry.RACE` itself, on the simulation's clock; how many commits go
into one file, when who lost goes alone, and how long others wait for him are the constants of the code. Processes do
what the code does with its requests, in sequence where that is in sequence:

    BEGIN           reads the timeline's files on, one after the other, until there is none; then looks whether each
                    entry of other processes is published, one after the other; then at the table
    COMMIT          looks at most one file further, beside the tables' logs; judges; puts the next file; publishes
    a lost put      reads what has its name, and all that came after, before it is judged and put again

What it leaves out: the time of the statements themselves but for a think time, Delta's checkpoints, upkeep behind the
answer, and failures. `tests/unit/test_simulation.py` holds it to what `make bench-slow` measured.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from math import exp

from lockstep.lake.gate import HELD_SECONDS
from lockstep.retry import RACE, Contention
from lockstep.timeline.append import LOSSES
from lockstep.timeline.files import MAX_GROUP
from tests.bench.events import Clock, Program, Signal, Turns


@dataclass(frozen=True)
class Store:
    """What requests to a store take: medians, in seconds, and how far they vary.

    Attributes:
        get: to read an object, or to see that there is none.
        put: to create one if it is absent.
        spread: the standard deviation of the logarithm of what a request takes; 0 for always the same.
    """

    name: str
    get: float
    put: float
    spread: float = 0.0


@dataclass(frozen=True)
class Setting:
    """Who does what.

    Attributes:
        processes: drivers, servers and jobs, each with a Lockstep of its own.
        threads: writers in each.
        think: mean seconds of a transaction's statements, drawn anew for each; 0 for none.
        tables: None for a table for each writer, else so many, one of which is drawn for each transaction.
        rows: None if transactions append; else each rewrites one of so many files of its table, and conflicts with who
            did since it began.
        cpu: seconds of work a transaction, half of it before COMMIT, one thread of a process at a time.
        max_group: commits in one file at most; 1 for no group commit.
        reads_ahead: whether files of the timeline, and what others published, are looked at side by side; Lockstep
            does that one after the other.
    """

    store: Store
    processes: int
    threads: int
    think: float = 0.0
    tables: int | None = None
    rows: int | None = None
    cpu: float = 0.0
    max_group: int = MAX_GROUP
    reads_ahead: bool = False


@dataclass
class Result:
    """What came of it, in a window of time.

    Attributes:
        commits, conflicts, exhausted: transactions that ended so; the last lost too many races.
        latencies: seconds from COMMIT to its answer, of those that committed.
        attempts: puts of all that ended.
        files: of the timeline.
    """

    seconds: float
    commits: int = 0
    conflicts: int = 0
    exhausted: int = 0
    latencies: list[float] = field(default_factory=list)
    attempts: int = 0
    files: int = 0

    @property
    def rate(self) -> float:
        """Commits a second."""
        return self.commits / self.seconds

    def latency(self, share: float) -> float:
        """Return the latency that this share of commits stays below; NaN if there were none."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


@dataclass(frozen=True, slots=True)
class Done:
    """A database version: whose it is, and what it changed."""

    owner: int
    changed: tuple[int, int | None]
    published: Signal


@dataclass(eq=False, slots=True)
class _Group:
    base: int
    prior: _Group | None
    members: list[Done] = field(default_factory=list)
    is_open: bool = True
    landed: bool = False
    taken: bool = False
    ended: Signal = field(default_factory=Signal)


class Lake:
    """The store's side: the timeline as it is."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.clock = Clock()
        self.random = random.Random(seed)
        self.done: list[Done] = []
        self.files: list[tuple[int, int]] = []
        self.versions: dict[int, list[int]] = {}
        self.gets = 0
        self._file_of: list[int] = []

    @property
    def head(self) -> int:
        """The newest database version; the lake begins with 0."""
        return len(self.done)

    def seconds(self, median: float) -> float:
        """Draw what a request takes."""
        spread = self.setting.store.spread
        return median * exp(self.random.gauss(0, spread)) if spread else median

    def get(self) -> float:
        """Draw what it takes to read an object, and count it."""
        self.gets += 1
        return self.seconds(self.setting.store.get)

    def put(self) -> float:
        """Draw what it takes to create an object."""
        return self.seconds(self.setting.store.put)

    def land(self, group: list[Done]) -> None:
        """Put a file."""
        self.files.append((self.head + 1, self.head + len(group)))
        self._file_of += [len(self.files) - 1] * len(group)
        for version, each in enumerate(group, self.head + 1):
            self.versions.setdefault(each.changed[0], [0]).append(version)
        self.done += group

    def file_end(self, version: int) -> int | None:
        """Return the last version of the file that begins with a version; None if there is none yet."""
        return None if version > self.head else self.files[self._file_of[version - 1]][1]


class Process:
    """One process: its view of the timeline, its queue of appends, its gate."""

    def __init__(self, lake: Lake, number: int) -> None:
        self.lake = lake
        self.number = number
        self.head = lake.head
        self.published = lake.head
        self.groups: list[_Group] = []
        self.contention = Contention()
        self.cpu = Turns(lake.clock)
        self.held: tuple[object, Signal] | None = None

    # --- reading on -------------------------------------------------------------------------------------------------

    def refresh(self, at_most: int | None = None) -> Program:
        """Read files on until there is none."""
        number = 0
        while at_most is None or number < at_most:
            yield self.lake.get()
            end = self.lake.file_end(self.head + 1)
            if end is None:
                return
            self.head = self.lake.head if self.lake.setting.reads_ahead else max(self.head, end)
            number += 1

    def publish_all(self, at_most: int | None = None) -> Program:
        """Read on, and see that what others ratified is published."""
        yield from self.refresh(at_most)
        yield from self.publish_through(self.head)

    def publish_through(self, head: int) -> Program:
        """See that what others ratified is published up to a version."""
        pending = self.lake.done[self.published : head]
        for each in pending:
            if each.owner == self.number:
                yield each.published
        # One look at the newest commit of each table, side by side.
        if tables := {each.changed[0] for each in pending if each.owner != self.number}:
            yield max(self.lake.get() for _ in tables)
        self.published = max(self.published, head)

    def version_of(self, table: int) -> int:
        """Return the database version that last changed a table, as this process knows it."""
        versions = self.lake.versions.get(table, [0])
        return versions[bisect_right(versions, self.head) - 1]

    def published_version_of(self, table: int) -> int | None:
        """Return that version if it is known to be published."""
        version = self.version_of(table)
        return version if version <= self.published or self.lake.done[version - 1].published.is_set else None

    # --- appending --------------------------------------------------------------------------------------------------

    def append(self, entry: Done, after: int, tell: Callable[[bool], None]) -> Program:
        """Try once, and tell whether the entry is in the timeline."""
        while True:
            last = self.groups[-1] if self.groups else None
            is_ahead = last is not None and last.base + len(last.members) > self.head
            base = last.base + len(last.members) if last is not None and is_ahead else self.head
            if after != base and not self._follows(entry, after):
                if last is not None and is_ahead and after == self.head:
                    yield last.ended
                    continue
                if not is_ahead:
                    yield from self.refresh()
                return tell(False)
            if last is None or not last.is_open:
                last = _Group(base, last)
                self.groups.append(last)
                self.lake.clock.start(self._lead(last))
            elif len(last.members) >= self.lake.setting.max_group:
                yield self.groups[0].ended
                continue
            last.members.append(entry)
            yield last.ended
            if last.landed:
                return tell(True)
            if last.taken:
                yield from self.refresh()
                return tell(False)

    def _follows(self, entry: Done, after: int) -> bool:
        """Tell whether an entry may follow what this process appended, or is about to, since it was judged."""
        between = self.lake.done[after : self.head] + [each for group in self.groups for each in group.members]
        return all(each.owner == self.number and each.changed[0] != entry.changed[0] for each in between)

    def _lead(self, group: _Group) -> Program:
        if group.prior is not None:
            yield group.prior.ended
        group.is_open = False
        follows = group.prior is None or group.prior.landed
        group.prior = None
        if follows and self.head == group.base:
            yield self.lake.put()
            if self.lake.head == group.base:
                self.lake.land(group.members)
                group.landed = True
                self.head = max(self.head, self.lake.head)
            else:
                yield self.lake.get()
                group.taken = True
                self.head = max(self.head, self.lake.file_end(group.base + 1) or 0)
        self.groups.remove(group)
        self.lake.clock.set(group.ended)

    # --- going alone ------------------------------------------------------------------------------------------------

    def pass_gate(self, writer: object) -> Program:
        """Wait while another goes alone."""
        until = self.lake.clock.now + HELD_SECONDS
        while self.held is not None and self.held[0] is not writer and self.lake.clock.now < until:
            yield self.held[1]

    def hold_gate(self, writer: object) -> Program:
        """Go alone from now on."""
        yield from self.pass_gate(writer)
        if self.held is None:
            self.held = writer, Signal()

    def leave_gate(self, writer: object) -> None:
        """Let the others go on."""
        if self.held is not None and self.held[0] is writer:
            signal = self.held[1]
            self.held = None
            self.lake.clock.set(signal)


class Writer:
    """One transaction after the other."""

    def __init__(self, process: Process, number: int, result: Result, counted_from: float) -> None:
        self.process = process
        self.lake = process.lake
        self.number = number
        self.result = result
        self.counted_from = counted_from
        self._pause = 0.0
        self._is_in = False
        self.backoff = replace(
            RACE,
            random=self.lake.random.random,
            clock=lambda: self.lake.clock.now + self._pause,
            sleep=self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self._pause += seconds

    def _answer(self, is_in: bool) -> None:
        self._is_in = is_in

    def run(self) -> Program:
        """Work for ever."""
        setting, rng = self.lake.setting, self.lake.random
        yield setting.think * rng.random()
        while True:
            yield from self.process.publish_all()
            yield self.lake.get()  # the table's log
            yield from self.process.cpu.hold(setting.cpu / 2)
            snapshot = self.process.head
            if setting.think:
                yield rng.expovariate(1 / setting.think)
            table = self.number if setting.tables is None else rng.randrange(setting.tables)
            row = None if setting.rows is None else rng.randrange(setting.rows)
            began = self.lake.clock.now
            outcome, attempts = yield from self.commit(snapshot, (table, row))
            if self.lake.clock.now >= self.counted_from:
                self._count(outcome, attempts, self.lake.clock.now - began)

    def _count(self, outcome: str, attempts: int, seconds: float) -> None:
        self.result.attempts += attempts
        if outcome == "committed":
            self.result.commits += 1
            self.result.latencies.append(seconds)
        elif outcome == "conflict":
            self.result.conflicts += 1
        else:
            self.result.exhausted += 1

    def commit(self, judged: int, changed: tuple[int, int | None]) -> Generator[float | Signal, None, tuple[str, int]]:
        """Commit what was judged up to a version; the value is what became of it, and how many puts it took."""
        process, attempts = self.process, 0
        for attempts in self.backoff.tries(process.contention):
            yield self._pause
            self._pause = 0.0
            if attempts > LOSSES:
                yield from process.hold_gate(self)
            before = process.published_version_of(changed[0])
            yield from process.publish_all(at_most=1)
            if process.version_of(changed[0]) != before:
                yield self.lake.get()  # the table's log, which was not looked at meanwhile
            yield from process.cpu.hold(self.lake.setting.cpu / 2)
            head = process.head
            if changed[1] is not None and any(each.changed == changed for each in self.lake.done[judged:head]):
                process.leave_gate(self)
                return "conflict", attempts
            judged = head
            entry = Done(process.number, changed, Signal())
            yield from process.pass_gate(self)
            yield from process.append(entry, head, self._answer)
            process.leave_gate(self)
            if self._is_in:
                yield self.lake.put()
                self.lake.clock.set(entry.published)
                return "committed", attempts
        return "exhausted", attempts


def simulate(setting: Setting, *, seconds: float, warm_up: float, seed: int = 1) -> Result:
    """Let all writers of a setting work, and return what they did after the warm-up, for so many seconds."""
    lake = Lake(setting, seed)
    result = Result(seconds)
    for number in range(setting.processes):
        process = Process(lake, number)
        for thread in range(setting.threads):
            lake.clock.start(Writer(process, number * setting.threads + thread, result, warm_up).run())
    lake.clock.run(warm_up)
    before = len(lake.files)
    lake.clock.run(warm_up + seconds)
    result.files = len(lake.files) - before
    return result
