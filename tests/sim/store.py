"""The store of a simulated lake: objects in memory, and the view that one process has of them through a bad network.

Each request is a point where the baton is handed on, before it is carried out, and for a write before its answer
arrives as well. What goes wrong with it, `Faults` say:

    refused    the store says no, or "slow down", before it does anything: a definite failure
    lost       the request never arrives; the caller cannot know
    unheard    it is carried out, and the answer is lost
    late       the caller is told that it failed, and it is carried out some time later, or never
    exists     a put-if-absent is answered "there is one already", and nothing was written (S3's 409); the object may
               be absent

A read knows only `refused` and `lost`, which are the same to it. Where the lake has an arbiter (`tests.sim.arbiter`),
the requests to that meet the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal, Protocol, TypeAlias, TypeVar

from lockstep.arbiters import Decision
from lockstep.errors import UnavailableError
from lockstep.retry import CLAIM, Backoff
from lockstep.storage import Found, Names, Storage
from lockstep.timeline.files import FOLDER as TIMELINE
from lockstep.timeline.files import version_in, wrapped
from tests.sim.scheduler import Crashed, Process, Scheduler

T = TypeVar("T")
Fault: TypeAlias = Literal["refused", "lost", "unheard", "late", "exists"]

START = datetime(2026, 1, 1, tzinfo=UTC)
"""What the store's clock says when a schedule begins."""

URL = "s3://bucket/lake"
"""Where the lake lies."""

PAGE = 25
"""So many objects are in one answer to `walk`."""

OFTENER = 5
"""By so much more often than other requests that one fails which commits."""

READS = ("get", "list", "exists", "ask")
KINDS: Mapping[str, tuple[Fault, ...]] = {
    "get": ("lost",),
    "list": ("lost",),
    "exists": ("lost",),
    "put_if_absent": ("refused", "lost", "unheard", "late", "exists"),
    "put": ("refused", "lost", "unheard", "late"),
    "delete": ("refused", "lost", "unheard", "late"),
    "swap": ("refused", "lost", "unheard", "late"),
    "ask": ("lost",),
}
"""By operation, what can go wrong with it."""


@dataclass
class Disk:
    """What is stored, by folder and name; nothing here hands the baton on.

    Attributes:
        decided: what the lake's arbiter has recorded, if it has one.
        seconds: the store's clock.
        times: by path, when each was written last.
        archive: each file of the timeline that there ever was, as it was first written, and when.
        rewritten: files of the timeline that were written a second time, with something else.
    """

    folders: dict[str, dict[str, bytes]] = field(default_factory=lambda: defaultdict(dict))
    decided: Decision | None = None
    seconds: Callable[[], float] = lambda: 0.0
    times: dict[str, float] = field(default_factory=dict)
    archive: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    rewritten: list[str] = field(default_factory=list)

    def get(self, path: str) -> bytes | None:
        folder, _, name = path.rpartition("/")
        return self.folders[folder].get(name) if folder in self.folders else None

    def put(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        self.folders[folder][name] = data
        self.times[path] = self.seconds()
        if folder == TIMELINE and version_in(name) is not None:
            first, _ = self.archive.setdefault(path, (data, self.seconds()))
            if data not in (first, wrapped(first)):
                self.rewritten.append(path)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.get(path) is not None:
            return False
        self.put(path, data)
        return True

    def delete(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self.folders[folder].pop(name, None)

    def page(self, folder: str, after: str) -> list[Found]:
        """Return the next objects below a folder whose paths sort after one."""
        paths = sorted(self.under(folder))
        begin = bisect_right(paths, after)
        return [
            Found(path, len(self.get(path) or b""), START + timedelta(seconds=self.times.get(path, 0.0)))
            for path in paths[begin : begin + PAGE]
        ]

    def under(self, folder: str) -> list[str]:
        """Return the paths of all that is below a folder."""
        return [
            f"{each}/{name}"
            for each, names in self.folders.items()
            if not folder or each == folder or each.startswith(f"{folder}/")
            for name in names
        ]


class Faults(Protocol):
    """Says what goes wrong with a request."""

    def choose(self, operation: str, path: str) -> Fault | None:
        """Return it; None for nothing. Asked once for each request, in the order in which they are made."""
        ...


@dataclass
class RandomFaults:
    """Faults of one process' requests that come from a seed; more often of the write that commits.

    Attributes:
        rate: how many of the requests meet one.
        throttled: how many of the next requests are told to slow down.
        down_until: until this step all requests fail in some way.
        is_on: whether there are any.
    """

    scheduler: Scheduler
    rate: float
    throttled: int = 0
    down_until: int = 0
    is_on: bool = True

    def choose(self, operation: str, path: str) -> Fault | None:
        if not self.is_on:
            return None
        chance = self.scheduler.random
        if self.throttled > 0:
            self.throttled -= 1
            return KINDS[operation][0]
        is_commit = operation == "swap" or (
            operation in ("put_if_absent", "put") and path.startswith("_lockstep/timeline/0")
        )
        if self.scheduler.steps >= self.down_until:
            if chance.random() >= self.rate * (OFTENER if is_commit else 1):
                return None
            draw = chance.random()
            if draw < 0.05:
                self.throttled = chance.randint(1, 8)
            elif draw < (0.5 if is_commit else 0.1):
                self.down_until = self.scheduler.steps + chance.randint(5, 150)
        return chance.choice(KINDS[operation])


class SimulatedStorage(Storage):
    """The store as one process reaches it."""

    is_proven_by_use = True

    def __init__(self, disk: Disk, scheduler: Scheduler, process: Process, faults: Faults) -> None:
        self.disk = disk
        self.scheduler = scheduler
        self.process = process
        self.faults = faults
        self.claim = backoff(scheduler, CLAIM)

    @property
    def url(self) -> str:
        return URL

    def get(self, path: str) -> bytes | None:
        return self.read("get", path, lambda: self.disk.get(path))

    def exists(self, path: str) -> bool:
        return self.read("exists", path, lambda: self.disk.get(path) is not None)

    def list(self, folder: str, after: str | None = None) -> Names:
        def names() -> Names:
            return sorted(name for name in self.disk.folders.get(folder, ()) if after is None or name > after)

        return self.read("list", folder, names)

    def walk(self, folder: str) -> Iterator[Found]:
        page = self.read("list", folder, lambda: self.disk.page(folder, ""))
        while page:
            yield from page
            page = self.read("list", folder, partial(self.disk.page, folder, page[-1].path))

    def try_put(self, path: str, data: bytes) -> bool:
        return self.write("put_if_absent", path, lambda: self.disk.put_if_absent(path, data))

    def put(self, path: str, data: bytes) -> None:
        self.write("put", path, lambda: self._true(self.disk.put, path, data))

    def delete(self, path: str) -> None:
        self.write("delete", path, lambda: self._true(self.disk.delete, path))

    def delete_folder(self, path: str) -> None:
        """Look what is in the folder, and remove one object after the other, as object stores do."""
        for each in self.read("list", path, lambda: self.disk.under(path)):
            self.delete(each)

    @staticmethod
    def _true(effect: Callable[..., object], *args: object) -> bool:
        effect(*args)
        return True

    def read(self, operation: str, path: str, look: Callable[[], T]) -> T:
        self.scheduler.pause(f"{operation} {path}")
        if (fault := self.faults.choose(operation, path)) is not None:
            raise self._failed(operation, path, fault)
        return look()

    def write(self, operation: str, path: str, effect: Callable[[], bool]) -> bool:
        scheduler = self.scheduler
        try:
            for _ in range(scheduler.random.randint(0, scheduler.habits.slow)):
                scheduler.pause(f"{operation} {path}")
            scheduler.pause(f"{operation} {path}")
        except Crashed:
            if scheduler.random.random() < 0.5:  # it had left before the process ended
                scheduler.later(effect)
            raise
        fault = self.faults.choose(operation, path)
        if fault in ("refused", "lost"):
            raise self._failed(operation, path, fault)
        if fault == "late":
            scheduler.later(effect)
            raise self._failed(operation, path, fault)
        answer = effect() if fault != "exists" else False
        scheduler.pause(f"{operation} {path} {'exists' if not answer else 'done'}")
        if fault == "unheard":
            raise self._failed(operation, path, fault)
        return answer

    def _failed(self, operation: str, path: str, fault: Fault) -> UnavailableError:
        self.scheduler.note(f"{operation} {path}: {fault}")
        is_definite = fault == "refused" and operation not in READS
        return UnavailableError(f"injected: {operation} {path}: {fault}", definite=is_definite)


def backoff(scheduler: Scheduler, policy: Backoff) -> Backoff:
    """Return a policy whose pauses and chances are the scheduler's."""
    return replace(policy, random=scheduler.random.random, clock=lambda: scheduler.now, sleep=scheduler.sleep)
