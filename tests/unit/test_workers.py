"""Threads that do the same to many things: all of it is done, whatever one of them comes to."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from time import sleep
from types import SimpleNamespace

import pytest

from lockstep import workers
from lockstep.workers import PATIENCE_SECONDS, Threads, Workers


def test_the_answers_come_in_order() -> None:
    assert list(Workers(3, "w").map(lambda n: n * n, range(20))) == [n * n for n in range(20)]


@pytest.mark.parametrize("ended", [False, True], ids=["threads", "no threads any more"])
def test_all_is_done_though_one_fails(ended: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Who reads no further than the first error has not kept the others from their turn; of those the log tells."""
    one, done = Workers(1, "w"), list[int]()
    if ended:
        one._pool.shutdown()

    def work(n: int) -> None:
        if n in (0, 2):
            raise ValueError(f"fails: {n}")
        sleep(0.01)  # so that who asked has the first answer while the others wait for their turn
        done.append(n)

    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match="fails: 0"):
        list(one.map(work, range(5)))
    assert sorted(done) == [1, 3, 4]
    assert "fails: 2" in caplog.text
    assert "fails: 0" not in caplog.text, "that one is told"


def test_quick_work_is_done_by_who_asks_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread takes longer to begin than a look at a local disk; a disk that is slow gets threads all the same."""
    now = [0.0]
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Threads(2, thread_name_prefix="w", quick=True) as pool:
        first = pool.submit(threading.current_thread)
        now[0] += PATIENCE_SECONDS
        later = pool.submit(threading.current_thread)
    assert first.result() is threading.current_thread()
    assert later.result() is not threading.current_thread()


def test_threads_that_outlive_the_main_one_may_open_a_lake_and_commit(tmp_path: Path) -> None:
    """From when the main thread has returned Python gives nobody new threads; a program's others go on."""
    program = f"""
import threading
import time
from lockstep.catalog import TransactionalCatalog
from lockstep.commit import files

def late():
    threading.main_thread().join()
    catalog = TransactionalCatalog.open({str(tmp_path)!r}, create=True)
    tx = catalog.begin()
    tx.names.create_namespace(("late",), {{}})
    assert files.missing_files(catalog.lake.storage, ["nothing"], "it") is not None
    print(catalog.commit(tx).version)

threading.Thread(target=late).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def test_what_gets_no_thread_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool has put it into its queue before it asks for a thread: those that it has do not do it again, later."""
    pool, go = Threads(2, thread_name_prefix="w"), threading.Event()
    busy, done = pool.submit(go.wait, 60), list[str]()

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        assert pool.submit(done.append, "by who asked").result() is None
        with pytest.raises(ZeroDivisionError):
            pool.submit(lambda: 1 // 0).result()
    assert done == ["by who asked"]
    go.set()
    pool.shutdown()  # its thread has done all that was in the queue
    assert busy.result()
    assert done == ["by who asked"]


def test_a_forked_child_has_threads_of_its_own() -> None:
    """Those of its parent that were idle would be waited for, for ever."""
    both, pool = threading.Barrier(2), Threads(2, thread_name_prefix="w")
    assert [future.result() for future in [pool.submit(both.wait, 60) for _ in range(2)]]  # so there are two
    deadline = time.monotonic() + 60
    while pool._idle_semaphore._value < 2 and time.monotonic() < deadline:
        sleep(0.001)
    child = os.fork()
    if not child:
        os._exit(0 if pool.submit(lambda: 7).result(30) == 7 else 1)
    assert os.waitpid(child, 0) == (child, 0)
    assert pool.submit(lambda: 7).result(60) == 7, "the parent's go on"
