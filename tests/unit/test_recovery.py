"""Several publish what a dead driver ratified, beside plain Delta writers: they agree, in whatever order they come."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, bodies
from lockstep.delta.log import commit_path, last_published, read_published
from lockstep.errors import LockstepError, UnavailableError
from lockstep.lake import lake
from lockstep.lake.verify import verify
from lockstep.storage import Found, Names, Storage, open_storage
from tests.support.around import Around
from tests.support.child import Child
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    foreign,
    location,
    named,
    open_catalog,
    remove,
    replay,
    stage,
)

T = TypeVar("T")
ACTORS = ("one", "two")


class Turns:
    """Lets one of two actors run at a time, and the other go on after so many of their steps: a schedule."""

    def __init__(
        self, first: str, switches: tuple[int, ...], events: Mapping[int, Callable[[], object]] | None = None
    ) -> None:
        self._turn, self._switches, self._events = first, set(switches), events or {}
        self._steps = 0
        self._done: set[str] = set()
        self._changed = threading.Condition()

    def step(self, actor: str) -> None:
        """Wait for the actor's turn; each call is a step."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn == actor)
            self._steps += 1
            self._events.get(self._steps, lambda: None)()
            if self._steps in self._switches:
                self._pass_on(actor)
                self._changed.wait_for(lambda: self._turn == actor)

    def end(self, actor: str) -> None:
        with self._changed:
            self._done.add(actor)
            self._pass_on(actor)

    def _pass_on(self, actor: str) -> None:
        [other] = set(ACTORS) - {actor}
        if other not in self._done:
            self._turn = other
            self._changed.notify_all()


class Scheduled(Around):
    """A store in which each call is a step of one actor, once it is told whose turns they are."""

    def __init__(self, inner: Storage, actor: str) -> None:
        self.inner, self._actor = inner, actor
        self.turns: Turns | None = None

    def get(self, path: str) -> bytes | None:
        return self._run(lambda: self.inner.get(path))

    def try_put(self, path: str, data: bytes) -> bool:
        return self._run(lambda: self.inner.try_put(path, data))

    def put(self, path: str, data: bytes) -> None:
        self._run(lambda: self.inner.put(path, data))

    def list(self, folder: str, after: str | None = None) -> Names:
        return self._run(lambda: self.inner.list(folder, after))

    def walk(self, folder: str) -> Iterator[Found]:
        return iter(self._run(lambda: [*self.inner.walk(folder)]))

    def exists(self, path: str) -> bool:
        return self._run(lambda: self.inner.exists(path))

    def delete(self, path: str) -> None:
        self._run(lambda: self.inner.delete(path))

    def delete_folder(self, path: str) -> None:
        self._run(lambda: self.inner.delete_folder(path))

    def _run(self, call: Callable[[], T]) -> T:
        if self.turns is not None:
            self.turns.step(self._actor)
        return call()


def torn(root: Path, plain: Callable[[Path], object] | None = None) -> TransactionalCatalog:
    """Ratify an entry that writes a and b, publish nothing of it, and let a plain writer take a's version."""
    store = FaultyStorage(open_storage(str(root), create=True))
    catalog = open_catalog(store)
    create(catalog, "a", "b", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"), add("x"), operation="UPDATE")
    stage(catalog, tx, "b", add("y"))
    store.fail("put_if_absent", path=commit_path(location(catalog, "a"), 1), times=9)
    store.fail("put_if_absent", path=commit_path(location(catalog, "b"), 1), times=9)
    assert catalog.commit(tx).version == 2
    store.heal()
    if plain is None:
        foreign(catalog, "a", 1, add("f"))
    else:
        plain(root / location(catalog, "a"))
    return open_catalog(store.inner)


def recovered(
    root: Path,
    first: str,
    switches: tuple[int, ...],
    events: Mapping[int, Callable[[], object]] | None = None,
) -> tuple[list[Any], int]:
    """Let two processes begin on a copy of the lake in one order; return what they got, and how many steps it took.

    Args:
        events: what else happens, just before a step.
    """
    turns = Turns(first, switches, events)
    catalogs: list[TransactionalCatalog] = []
    stores: list[Scheduled] = []
    for actor in ACTORS:
        store = Scheduled(open_storage(str(root)), actor)
        with patch.object(lake, "WORKERS", 1):  # so that a schedule says it all
            catalogs.append(open_catalog(store))  # before both begin: neither knows of the other
        stores.append(store)
    for store in stores:
        store.turns = turns

    def begin(actor: str, catalog: TransactionalCatalog) -> Any:
        try:
            return catalog.begin()
        except LockstepError as error:
            return error
        finally:
            turns.end(actor)

    with ThreadPoolExecutor(2) as pool:
        found = [*pool.map(begin, ACTORS, catalogs)]
    return found, turns._steps


def seen(catalog: TransactionalCatalog, tx: Any, name: str) -> set[str]:
    table = tx.table(named(name))
    return replay(catalog.lake.storage, table.location, table.version)


def schedules(steps: int, preemptions: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield all orders of two actors' steps in which one is interrupted so many times at most."""
    for first in ACTORS:
        for count in range(preemptions + 1):
            for switches in combinations(range(1, steps + 1), count):
                yield first, switches


def test_two_that_recover_agree_in_every_order(tmp_path: Path) -> None:
    torn(tmp_path / "lake")
    _, steps = recovered(shutil.copytree(tmp_path / "lake", tmp_path / "0"), "one", ())
    for first, switches in schedules(steps, 1):
        root = tmp_path / "copy"
        shutil.copytree(tmp_path / "lake", root)
        found, _ = recovered(root, first, switches)
        after = open_catalog(open_storage(str(root)))
        order = f"{first} first, the other after steps {switches}"
        assert files(after, "a") == {"f", "x"}, order
        assert [entry.kind for entry in after.timeline.entries(2)] == ["external"], order
        for tx in found:
            assert (seen(after, tx, "a"), seen(after, tx, "b")) == ({"f", "x"}, {"p", "y"}), order
        shutil.rmtree(root)


OURS = ["n0", "n1", "n2"]


def several(root: Path) -> None:
    """Ratify a transaction of three versions of a table with row tracking, and publish none of them."""
    store = FaultyStorage(open_storage(str(root), create=True))
    catalog = open_catalog(store, isolation="SNAPSHOT")
    create(catalog, "a")
    tx = catalog.begin()
    for row_id, path in enumerate(OURS):
        change = {"cdc": {"path": f"_change_data/{path}", "partitionValues": {}, "size": 1, "dataChange": False}}
        stage(catalog, tx, "a", add(path, baseRowId=row_id, defaultRowCommitVersion=row_id + 1), mark(row_id), change)
    store.fail("put_if_absent", path=commit_path(location(catalog, "a"), 1), times=9)
    assert catalog.commit(tx).version == 2


def mark(row_id: int) -> Action:
    configuration = json.dumps({"rowIdHighWaterMark": row_id})
    return {"domainMetadata": {"domain": "delta.rowTracking", "configuration": configuration, "removed": False}}


def plain_append(catalog: TransactionalCatalog) -> None:
    """Append as a plain Delta writer does: at the next version of the log, with the next row id."""
    where, store = location(catalog, "a"), catalog.lake.storage
    version = last_published(store, where, 0) + 1
    rows = sum(len(bodies(read_published(store, where, each), "add")) for each in range(version))
    foreign(catalog, "a", version, add(f"f{version}", baseRowId=rows, defaultRowCommitVersion=version), mark(rows))


def judge(catalog: TransactionalCatalog, found: list[Any], before: int, case: str) -> None:
    """See that the log has each of our commits once and in order, with row ids that nobody else has."""
    version = catalog.database([named("a")]).tables[named("a")].version
    store, where = catalog.lake.storage, location(catalog, "a")
    logs = [bodies(read_published(store, where, each), "add") for each in range(1, version + 1)]
    assert [file["path"] for log in logs for file in log if file["path"] in OURS] == OURS, case
    assert [file["baseRowId"] for log in logs for file in log] == [*range(len(OURS) + before)], case
    assert [file["defaultRowCommitVersion"] for log in logs for file in log] == [*range(1, version + 1)], case
    assert verify(store, catalog.timeline).differences == (), case
    for tx in found:
        assert seen(catalog, tx, "a") >= {*OURS}, case


@pytest.mark.slow
@pytest.mark.parametrize("apart", [1, *(pytest.param(each, marks=pytest.mark.deep) for each in (4, 9))])
def test_two_that_recover_several_versions_agree_wherever_a_plain_writer_comes_in_between(
    tmp_path: Path, apart: int
) -> None:
    """What is in the log by then stays; the row ids say so, since a commit that is published twice has two."""
    several(tmp_path / "lake")
    _, steps = recovered(shutil.copytree(tmp_path / "lake", tmp_path / "0"), "one", ())
    kept: set[int] = set()
    for at in range(1, steps):
        for switches in ((), (at,), (at + 1,), (at // 2, at + 3)):
            root = shutil.copytree(tmp_path / "lake", tmp_path / "copy")
            plain = open_catalog(open_storage(str(root)))
            events = dict.fromkeys((at, at + apart), partial(plain_append, plain))
            found, done = recovered(root, "one", switches, events)
            case = f"plain writers before steps {at} and {at + apart}, the other's turn after {switches}"
            after = open_catalog(open_storage(str(root)))
            judge(after, found, sum(event <= done for event in events), case)
            kept |= {move.kept for entry in after.timeline.entries(2) for move in entry.moved}
            shutil.rmtree(root)
    assert kept == {0, 1, 2}, "each place before and between the versions was tried"


@pytest.mark.slow  # two processes, and delta-rs
def test_two_processes_that_recover_beside_delta_rs_agree(tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    def plain(folder: Path) -> None:
        write_deltalake(folder, pa.table({"id": pa.array([1], pa.int64())}), mode="append")

    with Child("tests.support.recoverer") as one, Child("tests.support.recoverer") as other:
        for n in range(12):
            root = tmp_path / str(n)
            catalog = torn(root, plain)
            one.tell(str(root))
            other.tell(str(root))
            answers = [one.answer(), other.answer()]
            assert answers == [{"versions": {"default.a": 2, "default.b": 1}, "set_aside": []}] * 2
            assert len(files(catalog, "a")) == 2, "the plain writer's file and ours"
            assert len(DeltaTable(root / location(catalog, "a")).file_uris()) == 2
            assert [entry.kind for entry in catalog.timeline.entries(2)] == ["external"]


def test_a_table_set_aside_at_begin_stays_so_for_the_transaction(tmp_path: Path) -> None:
    """Its snapshot has the table where it was before somebody moved the commit: half of another transaction."""
    torn(tmp_path / "lake")
    store = FaultyStorage(open_storage(str(tmp_path / "lake")))
    catalog = open_catalog(store)
    store.fail("get", path=commit_path(location(catalog, "a"), 1), times=2)  # a look, and what is done after it
    tx = catalog.begin()
    assert seen(catalog, tx, "b") == {"p", "y"}
    with pytest.raises(UnavailableError, match=r"injected.*ROLLBACK, and begin again"):
        tx.table(named("a"))
    assert files(catalog, "a") == {"f", "x"}, "the next statement mends it"
    with pytest.raises(UnavailableError, match="ROLLBACK, and begin again"):
        tx.table(named("a"))
    again = catalog.begin()
    assert seen(catalog, again, "a") == {"f", "x"}


def test_a_statement_does_not_read_a_table_that_another_thread_mends_meanwhile(tmp_path: Path) -> None:
    torn(tmp_path / "lake")
    store = FaultyStorage(open_storage(str(tmp_path / "lake")))
    catalog = open_catalog(store)
    store.fail("get", path=commit_path(location(catalog, "a"), 1), times=2)  # a look, and what is done after it
    # The statement's own refresh fails; before it looks at its tables another thread has mended all.
    store.interrupt("exists", catalog.lake.refresh, path=commit_path(location(catalog, "b"), 2))
    with pytest.raises(UnavailableError, match="injected"):
        catalog.database([named("a"), named("b")])
    assert files(catalog, "a") == {"f", "x"}


def test_time_travel_publishes_what_a_dead_driver_ratified(tmp_path: Path) -> None:
    torn(tmp_path / "lake")
    catalog = open_catalog(open_storage(str(tmp_path / "lake")))
    then = catalog.as_of(2)
    for name, wanted in (("a", {"f", "x"}), ("b", {"p", "y"})):
        table = then.tables[named(name)]
        assert replay(catalog.lake.storage, table.location, table.version) == wanted


# --- one table's trouble ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["exists", "get", "list", "put_if_absent"])
def test_a_table_that_cannot_be_reached_keeps_nobody_from_the_others(store: FaultyStorage, operation: Any) -> None:
    catalog = open_catalog(store)
    create(catalog, "a", "b", files=["p"])
    append(catalog, "a", "x")
    foreign(catalog, "a", 2, add("f"))
    other = open_catalog(store)
    for version in range(4):
        store.fail(operation, path=commit_path(location(catalog, "a"), version), times=1000)
    store.fail(operation, path=f"{location(catalog, 'a')}/_delta_log", times=1000)
    for each in (catalog, other, open_catalog(store)):
        tx = each.begin()
        stage(each, tx, "b", add(f"y{each.timeline.head.version}"))
        each.commit(tx)
        each.database([named("b")])
    store.heal()
    assert files(catalog, "a") == {"p", "x", "f"}


def test_what_nobody_thought_of_sets_one_table_aside_and_fails_no_commit(
    store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(store)
    create(catalog, "a", "b", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))

    def surprise() -> None:
        raise KeyError("surprise")

    store.interrupt("put_if_absent", surprise, path=commit_path(location(catalog, "a"), 1))
    assert catalog.commit(tx).version == 2
    assert files(catalog, "b") == {"p", "y"}
    assert files(catalog, "a") == {"p", "x"}
