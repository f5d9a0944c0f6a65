"""The simulation of docs/scale.md: the same by its seed, and as the code is where that can be measured."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import replace

import pytest

from lockstep.storage import Storage
from tests.bench.events import Clock, Program, Signal, Turns
from tests.bench.page import DOCUMENT, section
from tests.bench.simulate import CPU_SECONDS, S3
from tests.bench.simulation import Done, Lake, Process, Result, Setting, Store, Writer, simulate
from tests.bench.slow import MARK, REQUEST_SECONDS, WRITERS
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, location, open_catalog, stage

SLOW = Store("slow", REQUEST_SECONDS, REQUEST_SECONDS)


def measured() -> dict[str, float]:
    """Return the commits a second of each case of `make bench-slow`, as the page has them."""
    rows = re.findall(
        r"^\| ([^|]+?) \| ([\d.]+) \| \*\*", section(DOCUMENT.read_text(encoding="utf-8"), MARK), re.MULTILINE
    )
    return {name: float(rate) for name, rate in rows}


@pytest.mark.parametrize(
    ("case", "setting", "tolerance"),
    [
        ("one thread", Setting(SLOW, 1, 1, cpu=CPU_SECONDS), 0.25),
        (f"{WRITERS} threads, a table each", Setting(SLOW, 1, WRITERS, cpu=CPU_SECONDS), 0.25),
        (f"{WRITERS} threads, one table", Setting(SLOW, 1, WRITERS, cpu=CPU_SECONDS, tables=1), 0.5),
    ],
)
def test_it_comes_to_what_was_measured(case: str, setting: Setting, tolerance: float) -> None:
    assert simulate(setting, seconds=30, warm_up=5).rate == pytest.approx(measured()[case], rel=tolerance)


@pytest.mark.parametrize("winners", [1, 4, 9])
def test_a_commit_behind_others_makes_as_many_requests_as_the_code(store: Storage, winners: int) -> None:
    """What is read of the timeline, and of what others published, since the snapshot: each in sequence."""
    other, counting = open_catalog(store), FaultyStorage(store)
    create(other, "mine", "theirs")
    ours = open_catalog(counting)
    tx = ours.begin()
    stage(ours, tx, "mine", add("a"))
    for number in range(winners):
        append(other, "theirs", f"b{number}")
    ours.lake.upkeep.settle()
    there = location(other, "theirs")
    counting.calls.clear()
    ours.commit(tx)
    entries = [path for done, path in counting.calls if done == "get" and path.startswith("_lockstep/timeline/0")]
    published = [path for done, path in counting.calls if done == "get" and path.startswith(there)]

    lake = Lake(Setting(SLOW, 2, 1), seed=1)
    writer = Writer(Process(lake, 0), 0, Result(60), 0)
    for _ in range(winners):
        lake.land([Done(1, (1, None), was_set())])
    outcomes: list[object] = []
    lake.clock.start(kept(writer.commit(0, (0, None)), outcomes))
    lake.clock.run(60)
    assert (outcomes, lake.head) == ([("committed", 1 if winners == 1 else 2)], winners + 1)
    assert lake.gets == len(entries) + len(published)


def test_group_commit_is_what_makes_a_process_fast() -> None:
    many = Setting(SLOW, 1, WRITERS)
    alone = simulate(replace(many, max_group=1), seconds=20, warm_up=2)
    together = simulate(many, seconds=20, warm_up=2)
    assert alone.files == pytest.approx(alone.commits, abs=2)
    assert together.rate > 1.5 * alone.rate


def test_transactions_of_the_same_rows_conflict_and_others_do_not() -> None:
    shared = Setting(SLOW, 4, 1, think=0.2, tables=1, rows=1)
    assert simulate(shared, seconds=20, warm_up=2).conflicts > 0
    assert simulate(replace(shared, rows=None), seconds=20, warm_up=2).conflicts == 0


def test_a_seed_says_it_all() -> None:
    setting = Setting(S3, 5, 2, think=1)
    first, again, other = (simulate(setting, seconds=20, warm_up=2, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_programs_go_on_at_their_time_in_the_order_in_which_they_asked() -> None:
    clock, signal, said = Clock(), Signal(), list[tuple[str, float]]()
    turns = Turns(clock)

    def program(name: str, seconds: float) -> Program:
        yield seconds
        yield from turns.hold(1)
        said.append((name, clock.now))
        yield signal
        said.append((name, clock.now))

    def setter() -> Program:
        yield 5
        clock.set(signal)

    for name, seconds in (("a", 1), ("b", 1), ("c", 4.5)):
        clock.start(program(name, seconds))
    clock.start(setter())
    clock.run(10)
    assert said == [("a", 2), ("b", 3), ("a", 5), ("b", 5), ("c", 5.5), ("c", 5.5)]


def was_set() -> Signal:
    signal = Signal()
    signal.is_set = True
    return signal


def kept(program: Generator[float | Signal, None, object], values: list[object]) -> Program:
    """Run a program, and keep the value that it returns."""
    values.append((yield from program))
