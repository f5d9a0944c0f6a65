"""The scheduler and the locks that it gives out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockstep.errors import UnavailableError
from tests.sim.scheduler import Crashed, Process, Scheduler, StuckError
from tests.sim.store import Disk, Fault, RandomFaults, SimulatedStorage
from tests.sim.threads import Condition, Event, Lock


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    found = Scheduler(7)
    yield found
    found.close()


def test_tasks_take_turns_as_the_seed_says() -> None:
    def turns(seed: int) -> list[str]:
        scheduler, done = Scheduler(seed), list[str]()

        def work(name: str) -> None:
            for _ in range(5):
                scheduler.pause(name)
                done.append(name)

        tasks = [scheduler.spawn(lambda name=name: work(name), name) for name in "abc"]  # type: ignore[misc]
        scheduler.block(lambda: all(task.is_done for task in tasks))
        scheduler.close()
        return done

    assert turns(1) == turns(1)
    assert len({tuple(turns(seed)) for seed in range(5)}) > 1


def test_a_lock_is_held_by_one(scheduler: Scheduler) -> None:
    lock, inside, most = Lock(scheduler), 0, 0

    def work() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            scheduler.pause("inside")
            inside -= 1

    tasks = [scheduler.spawn(work, "t") for _ in range(5)]
    scheduler.block(lambda: all(task.is_done for task in tasks))
    assert (inside, most) == (0, 1)


def test_two_locks_in_two_orders_are_found_stuck(scheduler: Scheduler) -> None:
    one, other = Lock(scheduler), Lock(scheduler)

    def work(first: Lock, second: Lock, mine: Event, theirs: Event) -> None:
        with first:
            mine.set()
            theirs.wait()
            with second:
                pass

    a, b = Event(scheduler), Event(scheduler)
    tasks = [scheduler.spawn(lambda: work(one, other, a, b), "a"), scheduler.spawn(lambda: work(other, one, b, a), "b")]
    with pytest.raises(StuckError, match="nobody can go on"):
        scheduler.block(lambda: all(task.is_done for task in tasks))


def test_who_waits_with_a_patience_goes_on_when_it_ends(scheduler: Scheduler) -> None:
    condition = Condition(scheduler)
    with condition:
        assert not condition.wait_for(lambda: False, 5)
    assert scheduler.now >= 5


def test_a_process_that_has_crashed_does_nothing_more(scheduler: Scheduler) -> None:
    disk, process = Disk(), Process("p")
    storage = SimulatedStorage(disk, scheduler, process, RandomFaults(scheduler, 0.0))
    tried: list[str] = []

    def work() -> None:
        try:
            storage.put("a/1", b"")
            scheduler.sleep(60)
            storage.put("a/2", b"")
        finally:
            tried.append("to tidy up")
            storage.delete("a/1")

    task = scheduler.spawn(work, "t", process)
    scheduler.block(lambda: disk.get("a/1") is not None)
    scheduler.crash(process)
    scheduler.block(lambda: task.is_done)
    scheduler.under_way.clear()
    assert tried == ["to tidy up"]
    assert disk.under("a") == ["a/1"]


@pytest.mark.parametrize(
    ("fault", "at_once", "in_the_end"),
    [
        ("refused", False, False),
        ("lost", False, False),
        ("unheard", True, True),
        ("late", False, True),
        ("exists", False, False),
    ],
)
def test_what_a_fault_leaves(scheduler: Scheduler, fault: Fault, at_once: bool, in_the_end: bool) -> None:
    class One(RandomFaults):
        def choose(self, operation: str, path: str) -> Fault | None:
            return fault

    scheduler.habits.land = 0
    disk = Disk()
    storage = SimulatedStorage(disk, scheduler, Process("p"), One(scheduler, 1.0))
    if fault == "exists":
        assert not storage.try_put("a/1", b"")
    else:
        with pytest.raises(UnavailableError) as caught:
            storage.try_put("a/1", b"")
        assert caught.value.definite == (fault == "refused")
    assert (disk.get("a/1") is not None) == at_once
    scheduler.land_all()
    assert (disk.get("a/1") is not None) == in_the_end


def test_a_crash_is_no_exception_that_anybody_catches() -> None:
    assert not issubclass(Crashed, Exception)
