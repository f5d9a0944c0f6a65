"""Turns of the processes of one host: one at a time tries to commit, and nobody waits for long."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.catalog import TransactionalCatalog
from lockstep.conflict.serializable import Antidependency, judge
from lockstep.conflict.writes import Changes, Hit, first_conflict
from lockstep.delta.footprint import Footprint
from lockstep.delta.pruning.row_sets import EVERY_ROW, NO_ROW
from lockstep.errors import UnavailableError
from lockstep.lake.changes import is_apart
from lockstep.lake.turns import IGNORED_SECONDS, Turn, Turns, lock_file
from lockstep.timeline.clock import utc_now
from lockstep.timeline.entry import (
    Batch,
    Entry,
    Name,
    NamespaceDdl,
    TableDdl,
    TableRead,
    TableWrite,
    TransactionInfo,
    ViewDdl,
)
from lockstep.timeline.files import FOLDER, entry_path
from tests.support.faulty import FaultyStorage
from tests.support.gate import wait_until
from tests.support.lakes import add, append, create, files, stage

LONG = 20.0
"""Seconds that no test waits for."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "turn.lock"


def turns_at(file: Path, *, patience: float = LONG, tenure: float = 0.0) -> Turns:
    """The turns of a process of its own: nothing is shared with others."""
    return Turns(file, patience_seconds=patience, tenure_seconds=tenure)


def turn_of(turns: Turns, ahead: Callable[[], object] = lambda: None) -> Turn:
    return Turn(turns, before=lambda: None, ahead=ahead)


class Begun(threading.Thread):
    """Begins a turn, ends it, and ends."""

    def __init__(self, turns: Turns, ahead: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._turns, self._turn, self._came = turns, turn_of(turns, ahead), False
        self.start()

    def run(self) -> None:
        with self._turn:
            self._came = self._turns.enter(self._turn)

    def has_come(self) -> bool:
        """Wait for its end, and tell whether it had its turn."""
        self.join()
        return self._came


HOLDER = """
import sys, time
from pathlib import Path
from lockstep.lake.turns import Turn, Turns
turn = Turn(Turns(Path(sys.argv[1])), before=lambda: None)
turn.begin()
print("mine", flush=True)
{then}
sys.stdin.read()
turn.end()
print("ended", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(file: Path, then: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process, which has its turn until its input ends."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLDER.format(then=then), str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        try:
            yield process
        finally:
            process.kill()


def test_one_process_at_a_time(file: Path) -> None:
    """Who waits is let in as soon as the other has ended."""
    mine, other = turns_at(file), turns_at(file)
    with turn_of(mine) as turn:
        turn.begin()
        thread = Begun(other)
        wait_until(lambda: mine._locks is not None and mine._locks.others_wait(), "not yet: another waits")
        assert thread.is_alive()
        turn.end()
        assert thread.has_come()
    assert not other._holds, "and has ended its own"


def test_the_threads_of_a_process_share_its_turn(file: Path) -> None:
    turns = turns_at(file)
    with turn_of(turns) as one, turn_of(turns) as two:
        one.begin()
        two.begin()
        one.end()
        assert turns._holds
        two.end()
        assert not turns._holds


def test_no_thread_joins_an_old_turn_while_others_wait(file: Path) -> None:
    mine, other = turns_at(file), turns_at(file)
    with turn_of(mine) as turn:
        turn.begin()
        rival = Begun(other)
        wait_until(lambda: mine._locks is not None and mine._locks.others_wait(), "not yet: another waits")
        late = Begun(mine)
        wait_until(lambda: mine._waiting == 1, "not yet: a thread waits")
        assert late.is_alive(), "its process has the turn, and another has waited for longer"
        turn.end()
        assert rival.has_come()
        assert late.has_come()
    assert not mine._holds
    assert not other._holds


def test_one_of_those_who_wait_is_next_and_reads_on_before_its_turn(file: Path) -> None:
    """One alone: the others are not next before it has its turn."""
    mine, others = turns_at(file), [turns_at(file) for _ in range(3)]
    ahead: list[Turns] = []
    with turn_of(mine) as turn:
        turn.begin()
        threads = [Begun(other, partial(ahead.append, other)) for other in others]
        wait_until(lambda: len(ahead) == 1 and all(other._is_asking for other in others), "not yet: all wait")
        assert sum(other._is_next for other in others) == 1
        turn.end()
        assert all(thread.has_come() for thread in threads)
    assert len(ahead) == len(set(ahead)), "each once at most: who has its turn at once has nothing to read ahead"
    assert not any(other._is_next for other in others)


def test_who_need_not_wait_has_nothing_to_read_ahead(file: Path) -> None:
    ahead: list[str] = []
    with turn_of(turns_at(file), lambda: ahead.append("read")) as turn:
        turn.begin()
        assert not ahead


def test_a_turn_may_begin_before_all_is_read_ahead(file: Path) -> None:
    """It is waited for: nobody else has the turn meanwhile."""
    mine, other = turns_at(file), turns_at(file)
    is_read, may_end = threading.Event(), threading.Event()

    def read() -> None:
        is_read.set()
        assert may_end.wait(LONG)

    with turn_of(mine) as turn:
        turn.begin()
        thread = Begun(other, read)
        assert is_read.wait(LONG)
        turn.end()
        wait_until(lambda: other._holds, "not yet: its process has the turn")
        assert thread.is_alive()
        may_end.set()
        assert thread.has_come()
    assert not other._holds


@pytest.mark.parametrize("when", ["before its turn", "when its turn has come"])
def test_what_fails_ahead_fails_for_who_wanted_the_turn_and_for_nobody_else(file: Path, when: str) -> None:
    mine, other = turns_at(file), turns_at(file)
    turn = turn_of(mine)

    def fail() -> None:
        if when == "when its turn has come":
            turn.end()
            wait_until(lambda: other._holds, "not yet: its process has the turn")
        raise UnavailableError("the store is gone")

    with turn:
        turn.begin()
        with pytest.raises(UnavailableError, match="is gone"), turn_of(other, fail) as failed:
            failed.begin()
        assert other._waiting == 0
    wait_until(lambda: not other._is_asking, "not yet: it has let the turn pass")
    assert not other._holds
    with turn_of(mine) as turn:
        assert mine.enter(turn)


def test_a_stopped_holder_is_ignored_after_a_moment_and_then_for_a_while(file: Path) -> None:
    now = 0.0
    turns = Turns(file, patience_seconds=0.05, clock=lambda: now)
    with holder(file) as process:
        process.send_signal(signal.SIGSTOP)
        turn = turn_of(turns)
        assert not turns.enter(turn), "it goes on without"
        began = time.monotonic()
        turns._patience = LONG
        assert not turns.enter(turn)
        assert time.monotonic() - began < LONG / 2, "nobody waits for it a second time"
        process.send_signal(signal.SIGCONT)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        assert process.stdout.readline() == "ended\n"
        now += IGNORED_SECONDS
        assert turns.enter(turn), "there are turns again"
        turn.end()


def test_where_there_can_be_no_thread_for_a_moment_there_are_turns_later(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody waits meanwhile for what nobody asks for."""
    now = 0.0
    mine, other = turns_at(file), Turns(file, patience_seconds=LONG, clock=lambda: now)
    turn, late = turn_of(mine), turn_of(other)
    assert mine.enter(turn)

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        assert not other.enter(late), "it goes on without"
    now += IGNORED_SECONDS
    thread = Begun(other)
    wait_until(lambda: other._is_asking, "not yet: it waits")
    mine.leave(turn)
    assert thread.has_come()


def test_a_killed_holder_has_no_turn(file: Path) -> None:
    turns = turns_at(file)
    with holder(file) as process:
        thread = Begun(turns)
        wait_until(lambda: turns._is_asking, "not yet: it waits")
        process.kill()
        assert thread.has_come()


def test_a_fork_does_not_keep_the_turn_of_its_parent(file: Path) -> None:
    """A worker process that outlives the killed driver must not have everybody wait."""
    turns = turns_at(file)
    forks = "import os\nif os.fork() == 0:\n    print('forked', flush=True); time.sleep(600)"
    with holder(file, forks) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "forked\n"
        thread = Begun(turns)
        wait_until(lambda: turns._is_asking, "not yet: it waits")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
        process.kill()
        try:
            assert thread.has_come()
        finally:
            for child in children:
                os.kill(int(child), signal.SIGKILL)


def test_a_fork_has_none_of_the_files_open_that_a_thread_of_its_parent_waits_by(file: Path) -> None:
    """The thread is not in the child, and nothing that it was in the middle of is ever freed there."""
    mine, other = turns_at(file), turns_at(file)
    first = turn_of(mine)
    assert mine.enter(first)
    thread = Begun(other)
    wait_until(lambda: other._is_asking, "not yet: it waits")
    mine.leave(first)
    assert thread.has_come()
    child = os.fork()
    if not child:
        opened = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
        os._exit(1 if any(each.startswith(str(file.parent)) for each in opened) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("what", ["no folder", "a file for a folder", "a link"])
def test_without_a_file_there_are_no_turns(tmp_path: Path, what: str) -> None:
    """And nobody waits: a folder that cannot be written, or a file that somebody else has put there."""
    folder = tmp_path / "folder"
    if what == "a file for a folder":
        folder.write_bytes(b"")
    elif what == "a link":
        folder.mkdir()
        (folder / "turn.lock").symlink_to(tmp_path / "elsewhere")
    turns = turns_at(folder / "turn.lock")
    assert not turns.enter(turn_of(turns))
    assert not turns.enter(turn_of(turns))
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_without_locks_has_no_turns(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    turns = turns_at(file, patience=0.2)
    assert not turns.enter(turn_of(turns))
    wait_until(lambda: not turns._is_asking, "not yet: it has failed")
    began = time.monotonic()
    turns._patience, turns._ignored_until = LONG, 0.0
    assert not turns.enter(turn_of(turns))
    assert time.monotonic() - began < LONG / 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_users_take_turns_whoever_made_the_file(tmp_path: Path, file: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    file.touch(0o644)
    for suffix in (".waiting", ".next"):
        file.with_suffix(suffix).touch(0o644)
    turns = turns_at(file)
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        os._exit(0 if turns.enter(turn_of(turns)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_where_the_file_lies(tmp_path: Path) -> None:
    assert lock_file("file:///data/lake") == Path("/data/lake/_lockstep/turn.lock")
    one, other = lock_file("s3://bucket/lake"), lock_file("s3://bucket/other")
    assert one.parent == other.parent
    assert one != other


# --- commits ----------------------------------------------------------------------------------------------------------


def opened(tmp_path: Path) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(tmp_path / "lake"), create=True)


def test_processes_that_take_turns_lose_no_race(tmp_path: Path) -> None:
    """Each has one put of the timeline for each of its commits."""
    create(opened(tmp_path), "t")
    catalogs = [opened(tmp_path) for _ in range(3)]
    stores = [FaultyStorage(catalog.lake.storage) for catalog in catalogs]
    for catalog, store in zip(catalogs, stores, strict=True):
        assert catalog.lake._turns is not None
        catalog.lake._turns._patience = LONG
        catalog.timeline.storage = store

    def work(number: int) -> None:
        for each in range(10):
            append(catalogs[number], "t", f"{number}-{each}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    puts = [call for store in stores for call in store.calls if call[0] == "put_if_absent" and FOLDER in call[1]]
    assert len(puts) == 30
    assert files(catalogs[0], "t") == {f"{number}-{each}" for number in range(3) for each in range(10)}


def test_a_commit_that_waits_reads_what_others_committed_before_its_turn(tmp_path: Path) -> None:
    """In its turn it looks whether there is more, and reads nothing again."""
    catalog, other = opened(tmp_path), opened(tmp_path)
    create(catalog, "t")
    tx = other.begin()
    stage(other, tx, "t", add("mine"))
    for number in range(3):
        append(catalog, "t", f"{number}")
    assert other.lake._turns is not None
    other.lake._turns._patience = LONG
    store = FaultyStorage(other.lake.storage)
    other.timeline.storage = store
    newest = catalog.timeline.head.version

    def read(store: FaultyStorage) -> list[str]:
        return [path for call, path in store.calls if call == "get" and path.startswith(FOLDER)]

    with holder(lock_file(catalog.lake.storage.url)) as process:
        thread = threading.Thread(target=lambda: other.commit(tx))
        thread.start()
        wait_until(lambda: entry_path(newest + 1) in read(store), "not yet: it has looked for the end")
        assert other.timeline.head.version == newest
        before = read(store)
        assert thread.is_alive()
        assert process.stdin is not None
        process.stdin.close()
        thread.join()
    assert other.timeline.head.version == newest + 1
    assert set(read(store)[len(before) :]) == {entry_path(newest + 1)}
    assert files(catalog, "t") == {"0", "1", "2", "mine"}


def test_a_stopped_holder_delays_a_commit_and_no_more(tmp_path: Path) -> None:
    catalog = opened(tmp_path)
    create(catalog, "t")
    assert catalog.lake._turns is not None
    catalog.lake._turns._patience = 0.1
    with holder(lock_file(catalog.lake.storage.url)) as process:
        process.send_signal(signal.SIGSTOP)
        append(catalog, "t", "one")
        append(catalog, "t", "two")
    assert files(catalog, "t") == {"one", "two"}


def test_the_turn_ends_when_the_commit_does_not_succeed(tmp_path: Path) -> None:
    catalog, other = opened(tmp_path), opened(tmp_path)
    create(catalog, "t")
    tx = catalog.begin()
    stage(catalog, tx, "t", add("x"))
    other.database()
    (tmp_path / "lake" / catalog.timeline.head.tables[Name(("default",), "t")].location / "x").unlink()
    with pytest.raises(Exception, match="are gone"):
        catalog.commit(tx)
    assert catalog.lake._turns is not None
    assert not catalog.lake._turns._holds


# --- what has nothing in common ---------------------------------------------------------------------------------------

IDS = st.sampled_from(["a", "b", "c"])
NOW = utc_now().replace(microsecond=0)


def name(id: str) -> Name:
    return Name(("default",), id)


def a_write(id: str) -> TableWrite:
    return TableWrite(id=id, name=name(id), location=id, from_version=0, to_version=1, commits=[])


T = TypeVar("T")


def mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    """Draw what leaves the most to be told by the rest of an example, and the others at times."""
    return st.sampled_from([usual] * 6 + [*others])


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    reads = draw(st.sets(IDS))
    return Entry(
        format=1,
        version=1,
        committed_at=NOW,
        kind=draw(mostly("transaction", "external", "abort")),
        transaction=TransactionInfo(id="theirs", began_at=NOW, base_version=0, isolation="SERIALIZABLE"),
        namespaces=draw(mostly([], [NamespaceDdl(action="drop", name=("n",))])),
        tables=draw(mostly([], [TableDdl(action="drop", id="a", name=name("a"), location="a")])),
        views=draw(mostly([], [ViewDdl(action="drop", name=name("v"))])),
        writes=[a_write(id) for id in draw(st.sets(IDS))],
        reads=[TableRead(id=id, name=name(id), version=0) for id in sorted(reads)],
        view_reads=draw(mostly([], [name("v")])),
        precedes=draw(mostly(None, 0)),
        batch=draw(st.sampled_from([None, Batch(application="app", number=1)])),
        aborts=draw(mostly([], ["mine"])),
    )


CHANGED = Footprint(
    removed_paths=frozenset({"f"}), added_paths=frozenset({"f"}), data_change=True, metadata=frozenset({"columns"})
)


@settings(max_examples=500)
@given(entries(), st.data())
def test_what_has_nothing_in_common_is_in_no_conflict(entry: Entry, data: st.DataObject) -> None:
    """Whatever the commits of the entry say: here they collide with anything of the same table."""
    theirs = Changes(
        "theirs",
        namespaces=tuple(entry.namespaces),
        tables=tuple(entry.tables),
        views=tuple(entry.views),
        writes={write.id: CHANGED for write in entry.writes},
        reads={write.id: NO_ROW for write in entry.writes} | {read.id: EVERY_ROW for read in entry.reads},
        view_reads=frozenset(entry.view_reads),
        batch=entry.batch,
        aborts=frozenset(entry.aborts),
        isolation="SERIALIZABLE",
        precedes=entry.precedes,
        database_version=entry.version,
        base=0,
    )
    ours = data.draw(st.sets(IDS))
    mine = Changes(
        "mine",
        namespaces=data.draw(mostly((), (NamespaceDdl(action="create", name=("n", "m")),))),
        tables=data.draw(mostly((), (TableDdl(action="drop", id="b", name=name("b"), location="b"),))),
        views=data.draw(mostly((), (ViewDdl(action="drop", name=name("v")),))),
        writes=dict.fromkeys(ours, CHANGED),
        reads=dict.fromkeys(ours, NO_ROW) | dict.fromkeys(data.draw(st.sets(IDS)), EVERY_ROW),
        view_reads=data.draw(mostly(frozenset(), frozenset({name("v")}))),
        batch=data.draw(st.sampled_from([None, Batch(application="app", number=2)])),
        isolation="SERIALIZABLE",
        base=0,
    )
    if is_apart(entry, mine):
        assert first_conflict(mine, theirs) is None
        assert judge(mine, [theirs]) is None
        before = Antidependency(Changes("before", database_version=0), Hit("changed what was read"))
        assert judge(mine, [theirs], before) is before
