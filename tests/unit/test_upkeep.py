"""Upkeep: a commit past the interval writes a checkpoint behind its answer, and is done whatever becomes of that."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import InvalidError, LockstepError
from lockstep.lake.upkeep import Upkeep
from lockstep.spark.host.lakehouses import checkpoint_interval
from lockstep.timeline.checkpoint import versions
from lockstep.timeline.manifest import FOLDER
from tests.support.faulty import FaultyStorage
from tests.support.lakes import append, create

pytestmark = pytest.mark.behind


def opened(root: Path, interval: int = 3) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(root), create=True, checkpoint_interval=interval)


def settle(catalog: TransactionalCatalog) -> None:
    """Wait for what is under way."""
    catalog.lake.upkeep.settle()


def test_transactions_and_statements_write_checkpoints(tmp_path: Path) -> None:
    catalog = opened(tmp_path)
    create(catalog, "a")
    append(catalog, "a", "x")
    settle(catalog)
    assert versions(catalog.lake.storage) == []
    append(catalog, "a", "y")
    settle(catalog)
    assert versions(catalog.lake.storage) == [3]
    for n in range(3):
        catalog.run(lambda tx, n=n: tx.changing().create_namespace((f"n{n}",), {}))  # type: ignore[misc]
    settle(catalog)
    assert versions(catalog.lake.storage) == [3, 6]
    again = TransactionalCatalog.open(str(tmp_path))
    assert again.database() == catalog.database()


def test_no_checkpoint_is_written_where_none_is_wanted(tmp_path: Path) -> None:
    catalog = opened(tmp_path, 0)
    create(catalog, "a")
    for n in range(5):
        append(catalog, "a", f"x{n}")
    settle(catalog)
    assert versions(catalog.lake.storage) == []


@pytest.mark.parametrize("error", [LockstepError("injected"), ValueError("injected")])
def test_a_checkpoint_that_fails_delays_nobody(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The commits are answered, the log says why, and the next interval has one again."""
    catalog = opened(tmp_path)
    create(catalog, "a")
    store = FaultyStorage(catalog.timeline.storage)
    catalog.timeline.storage = catalog.timeline._checkpoints._storage = store

    def failure() -> None:
        raise error

    store.interrupt("put_if_absent", failure, path=".jsonl")
    for n in range(3):
        append(catalog, "a", f"x{n}")
    settle(catalog)
    assert catalog.database().version == 4
    assert versions(store) == []
    assert "upkeep behind a commit is not done" in caplog.text
    with caplog.at_level(logging.WARNING):
        for n in range(3, 6):
            append(catalog, "a", f"x{n}")
    settle(catalog)
    assert versions(store) == [6]


def test_a_process_that_only_reads_writes_none(tmp_path: Path) -> None:
    writer = opened(tmp_path, 0)
    create(writer, "a")
    for n in range(5):
        append(writer, "a", f"x{n}")
    reader = TransactionalCatalog.open(str(tmp_path), checkpoint_interval=3)
    reader.database()
    reader.as_of(2)
    settle(reader)
    assert not (tmp_path / FOLDER).exists()


def test_the_setting_is_a_number() -> None:
    assert checkpoint_interval({}) == 100
    assert checkpoint_interval({"checkpoint-interval": "0"}) == 0
    for wrong in ("-1", "", "many", "1.5", "²"):
        with pytest.raises(InvalidError, match=f"checkpoint-interval is '{wrong}'"):
            checkpoint_interval({"checkpoint-interval": wrong})


def test_a_forked_child_waits_for_no_upkeep_of_its_parent() -> None:
    """It is the parent's to do; who waits for it in the child would do so for ever."""
    upkeep, go = Upkeep(), threading.Event()
    waiting = upkeep.add(lambda: go.wait(60), keys=["t"])
    upkeep.add_once(lambda: None, "hint")
    child = os.fork()
    if not child:
        done = list[str]()
        upkeep.add(lambda: done.append("t"), keys=["t"])
        upkeep.add_once(lambda: done.append("hint"), "hint")
        upkeep.settle()
        os._exit(0 if sorted(done) == ["hint", "t"] else 1)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            pytest.fail("it hangs")
        time.sleep(0.01)
    assert ended == (child, 0)
    go.set()
    waiting.result(60)
