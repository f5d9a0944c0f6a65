"""A process that was forked goes on with a lake that its parent had opened, whatever threads of its parent did then."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lockstep import forks
from lockstep.catalog import TransactionalCatalog
from lockstep.lake import gate, publisher
from lockstep.storage import open_storage
from lockstep.storage.outside import OutsideStorage
from lockstep.timeline import group
from tests.support.entries import draft
from tests.support.lakes import add, append, create, files, foreign, open_catalog, stage

LOCKS = (forks.Lock, type(threading.Lock()), type(threading.RLock()), threading.Condition)


@pytest.fixture
def catalog(tmp_path: Path) -> TransactionalCatalog:
    """A lake of which everything has been used once."""
    catalog = open_catalog(OutsideStorage(open_storage(str(tmp_path))), turns=True)
    create(catalog, "a", "b", files=["p"])
    append(catalog, "a", "q")
    catalog.as_of(1)
    return catalog


def locks_of(one: object, seen: set[int]) -> Iterator[Any]:
    """Yield all locks that Lockstep's own objects have, however deep."""
    if id(one) in seen:
        return
    seen.add(id(one))
    if isinstance(one, LOCKS):
        yield one
    elif type(one).__module__.startswith("lockstep"):
        slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()) if name[:2] != "__"]
        values = [*getattr(one, "__dict__", {}).values(), *(getattr(one, name, None) for name in slots)]
        for value in values:
            yield from locks_of(value, seen)


def ends_well(work: Callable[[], bool]) -> None:
    """See that something is done, and comes to true, in a process that is forked now."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, that there are threads
        child = os.fork()
    if not child:
        is_well = False
        try:
            is_well = work()
        finally:
            os._exit(0 if is_well else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("it hangs")
        time.sleep(0.01)
    assert ended == (child, 0)


def test_a_forked_child_waits_for_no_lock_that_its_parent_held(catalog: TransactionalCatalog) -> None:
    """It reads, takes in what a plain writer did, and commits; a thread that reads has a lock now and then, too."""
    foreign(catalog, "b", 1, add("plain"))

    def goes_on() -> bool:
        append(catalog, "a", "r")
        return files(catalog, "a") == {"p", "q", "r"} and files(catalog, "b") == {"p", "plain"}

    locks = [*locks_of(catalog.lake, set())]
    assert len(locks) > 10, "they are found"
    with ExitStack() as held:
        for lock in locks:
            inner = lock._inner if isinstance(lock, forks.Lock) else lock
            if inner.acquire(blocking=False):  # some share one
                held.callback(inner.release)
        ends_well(goes_on)
    assert files(catalog, "a") == {"p", "q", "r"}


def test_a_forked_child_waits_for_no_thread_of_its_parent(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for who is about to put an entry, or to publish one, nor for who goes alone: it does so itself."""
    for module, name in ((group, "PATIENCE_SECONDS"), (publisher, "OWNER_SECONDS"), (gate, "HELD_SECONDS")):
        monkeypatch.setattr(module, name, 300)
    lake, version = catalog.lake, catalog.timeline.head.version
    assert isinstance(lake.timeline._place(draft("parent's"), version, None), tuple)
    other = open_catalog(lake.storage)
    tx = other.begin()
    stage(other, tx, "b", add("theirs"))
    lake.publisher.expect(tx.id)
    assert other.commit(tx).version == version + 1

    def goes_on() -> bool:
        append(catalog, "a", "r")
        ids = [entry.transaction.id for entry in lake.timeline.entries(version)]
        return ids[0] == tx.id and len(ids) == 2 and "parent's" not in ids

    with lake.gate.held_by("parent's"):
        ends_well(goes_on)
    lake.publisher.expect_no_more(tx.id)
    assert files(catalog, "a") == {"p", "q", "r"}
