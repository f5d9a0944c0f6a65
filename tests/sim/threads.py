"""Threads, locks and time as a `Scheduler` gives them out, and how Lockstep comes to use them.

`Primitives` stands for the module `threading`, and each task of `lockstep.workers.Threads` is a task of the scheduler.
No pool has a bound here: what is submitted may begin at once. So a pool that is too small for its work is not found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch
from uuid import UUID

import lockstep.recovery.changes
from lockstep.commit import maintenance, records
from lockstep.lake import publisher, upkeep
from lockstep.timeline import expiry, fence, group
from lockstep.timeline.entry import Name
from lockstep.workers import Threads
from tests.sim.scheduler import Scheduler

T = TypeVar("T")

_USED = (maintenance, records, lockstep.recovery.changes)  # their modules are imported before they are looked through


class Lock:
    """`threading.Lock`, and with `is_reentrant` an `RLock`."""

    def __init__(self, scheduler: Scheduler, *, is_reentrant: bool = False) -> None:
        self._scheduler = scheduler
        self._is_reentrant = is_reentrant
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self._scheduler
        scheduler.check_alive()
        if scheduler.habits.at_locks and scheduler.random.random() < scheduler.habits.at_locks:
            scheduler.pause("lock")
        me = scheduler.current
        if self._owner is not None and not (self._is_reentrant and self._owner is me):
            if not blocking:
                return False
            if not scheduler.block(lambda: self._owner is None, None if timeout < 0 else timeout):
                return False
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        if self._owner is None:  # taken away by a wait that a crash has ended
            self._scheduler.check_alive()
            raise RuntimeError("release of a lock that is free")
        self._depth -= 1
        if self._depth == 0:
            self._owner = None

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        if self._owner is not None or not self._scheduler.current.process.is_dead:
            self.release()

    def put_down(self) -> int:
        """Release it whole, and return how deep it was held."""
        depth, self._depth, self._owner = self._depth, 0, None
        return depth

    def take_up(self, depth: int) -> None:
        """Hold it again as before."""
        self.acquire()
        self._depth = depth


class Condition:
    """`threading.Condition`."""

    def __init__(self, scheduler: Scheduler, lock: Lock | None = None) -> None:
        self._scheduler = scheduler
        self._lock = lock or Lock(scheduler, is_reentrant=True)
        self._waiters: list[list[bool]] = []

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()

    def wait(self, timeout: float | None = None) -> bool:
        waiter = [False]
        self._waiters.append(waiter)
        depth = self._lock.put_down()
        is_told = self._scheduler.block(lambda: waiter[0], timeout)
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        self._lock.take_up(depth)
        return is_told

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        end = None if timeout is None else self._scheduler.now + timeout
        while not (result := predicate()):
            left = None if end is None else end - self._scheduler.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        for waiter in self._waiters[:n]:
            waiter[0] = True
        del self._waiters[:n]

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class Event:
    """`threading.Event`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._is_set or self._scheduler.block(self.is_set, timeout)


class Semaphore:
    """`threading.BoundedSemaphore`, as far as it is used: nobody waits for it."""

    def __init__(self, value: int = 1) -> None:
        self._value = value

    def acquire(self, blocking: bool = True) -> bool:
        assert not blocking, "nobody waits for one"
        is_free = self._value > 0
        self._value -= is_free
        return is_free

    def release(self) -> None:
        self._value += 1


class SimulatedFuture(Future[T]):
    """A future whose result a task waits for."""

    scheduler: Scheduler

    def result(self, timeout: float | None = None) -> T:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if not self.done():
            self.scheduler.block(self.done, timeout)


class Primitives(SimpleNamespace):
    """What Lockstep uses of `threading`."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(
            Lock=lambda: Lock(scheduler),
            RLock=lambda: Lock(scheduler, is_reentrant=True),
            Condition=lambda lock=None: Condition(scheduler, lock),
            Event=lambda: Event(scheduler),
            BoundedSemaphore=Semaphore,
        )


@contextmanager
def simulated(scheduler: Scheduler) -> Iterator[None]:
    """Have Lockstep's threads, locks and clocks be the scheduler's, until the block ends."""
    primitives = Primitives(scheduler)

    def init(self: Threads, most: int, **_: object) -> None:
        self._submitted = []  # type: ignore[attr-defined]

    def submit(self: Threads, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: SimulatedFuture[T] = SimulatedFuture()
        future.scheduler = scheduler

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 (whoever asks the future is told)
                future.set_exception(error)

        scheduler.check_alive()
        scheduler.spawn(run, "helper")
        self._submitted.append(future)  # type: ignore[attr-defined]
        return future

    def shutdown(self: Threads, wait: bool = True, **_: object) -> None:
        if wait:
            wait_for(self._submitted)  # type: ignore[attr-defined]

    def wait_for(futures: Iterable[Future[Any]]) -> None:
        pending = [future for future in futures if not future.done()]
        if pending:
            scheduler.block(lambda: all(future.done() for future in pending))

    class Group(group._Group):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.ended = primitives.Event()

    with (
        patch.multiple(Threads, __init__=init, submit=submit, shutdown=shutdown),
        patch.object(upkeep, "wait", wait_for),
        patch.object(group, "_Group", Group),
        patch.object(
            Name, "__hash__", lambda name: hash((name.namespace, name.table))
        ),  # msgspec's has an address in it
        patch.object(publisher, "time", SimpleNamespace(monotonic=lambda: scheduler.now)),
        patch.object(fence, "time", SimpleNamespace(clock_gettime=lambda _: scheduler.now, sleep=scheduler.sleep)),
        patch.object(expiry, "uuid", SimpleNamespace(uuid4=lambda: UUID(int=scheduler.random.getrandbits(128)))),
        patch.object(upkeep, "time", SimpleNamespace(monotonic=lambda: scheduler.now, sleep=scheduler.sleep)),
        _modules_with(primitives),
    ):
        yield


@contextmanager
def _modules_with(primitives: Primitives) -> Iterator[None]:
    """Have all modules of Lockstep find other locks where they look for those of `threading`."""
    names = [name for name in sys.modules if name.startswith("lockstep.") and not name.startswith("lockstep.spark")]
    modules = [sys.modules[name] for name in names]
    found = [module for module in modules if hasattr(module, "threading")]
    kept = [module.threading for module in found]
    try:
        for module in found:
            module.threading = primitives  # type: ignore[attr-defined]
        yield
    finally:
        for module, before in zip(found, kept, strict=True):
            module.threading = before  # type: ignore[attr-defined]
