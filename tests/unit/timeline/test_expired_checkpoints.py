"""A process that stands on a checkpoint whose version expires, and whose parts go in the end: the lake is whole."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from lockstep.errors import SnapshotTooOldError
from lockstep.timeline.log import Timeline
from tests.support.entries import FakeClock, commit
from tests.support.expiries import LAST, long_store, opened, run
from tests.support.faulty import FaultyStorage

ASKED = LAST + 15


@pytest.fixture
def store() -> FaultyStorage:
    return long_store()


@pytest.fixture
def reader(store: FaultyStorage) -> Timeline:
    """A process that only reads: it stands on the checkpoint of the last version, and writes none itself."""
    writer = opened(store)
    writer.write_checkpoint()
    writer.write_hint()
    return opened(store)


def let_go(store: FaultyStorage, after_commits: Callable[[], object], after_expiry: Callable[[], object]) -> None:
    """Let that version expire and, more than an hour later, its checkpoint's parts go that no other one names."""
    clock = FakeClock()
    writer = opened(store, clock=clock)
    commit(writer, *(f"more-{n}" for n in range(30)))
    writer.write_checkpoint()
    writer.mark_published(writer.head.version)
    after_commits()
    run(writer, LAST + 10)
    after_expiry()
    clock.now += timedelta(hours=2)
    assert run(writer, LAST + 10).parts > 0


def forget_parts(timeline: Timeline) -> None:
    """Have nothing in memory of what was read of checkpoints."""
    timeline._checkpoints._parts._kept.clear()


def nothing() -> None:
    """It looks at nothing."""


def test_who_only_reads_moves_to_another_checkpoint_in_time(store: FaultyStorage, reader: Timeline) -> None:
    """As do the older versions that it has in memory."""

    def read() -> None:
        reader.refresh()
        reader.at(ASKED)

    let_go(store, read, read)
    forget_parts(reader)
    again = opened(store)
    assert reader.head == again.head
    assert reader.at(ASKED) == again.at(ASKED)


@pytest.mark.parametrize("more", [[], ["more"]])
def test_who_comes_back_when_it_is_gone_begins_anew(store: FaultyStorage, reader: Timeline, more: list[str]) -> None:
    """A process that looked at nothing for hours: also if what came since asks for what the checkpoint had."""
    let_go(store, reader.refresh, nothing)
    forget_parts(reader)
    commit(opened(store), *more)
    reader.refresh()
    again = opened(store)
    assert reader.head == again.head
    assert reader.at(ASKED) == again.at(ASKED)


def test_without_other_checkpoints_it_stands_on_the_base(store: FaultyStorage, reader: Timeline) -> None:
    let_go(store, reader.refresh, nothing)
    for path in [path for path in store.inner.files if "/checkpoints/" in path]:  # type: ignore[attr-defined]
        store.inner.delete(path)
    forget_parts(reader)
    reader.refresh()
    assert reader.head == opened(store).head


def test_a_store_that_does_not_answer_leaves_it_where_it_stands(store: FaultyStorage, reader: Timeline) -> None:
    """What it stands on is there for another hour: the next look moves it."""
    let_go(store, reader.refresh, lambda: None)
    store.fail("get", path=f"{LAST + 20:020d}.json", times=1)
    store.fail("exists", times=100)
    store.fail("list", path="checkpoints", times=100)
    reader.refresh()
    store.heal()
    forget_parts(reader)
    reader.refresh()
    assert reader.head == opened(store).head


def test_an_older_value_says_that_it_has_expired(store: FaultyStorage, reader: Timeline) -> None:
    """A transaction that was open all the time is to run again, which helps, and nothing is to be restored."""
    before = reader.head
    let_go(store, reader.refresh, reader.refresh)
    forget_parts(reader)
    with pytest.raises(SnapshotTooOldError, match=rf"database version {LAST}\b.* expired") as raised:
        _ = before.namespaces[("default",)]
    assert raised.value.retryable
