"""Transactions without Spark can be seen, and ended, from other processes, and clean-up knows of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from lockstep.catalog import TransactionalCatalog
from lockstep.cli.main import main
from lockstep.commit import keeping
from lockstep.commit.ended import ended_transactions, this_process
from lockstep.commit.keeping import HEARTBEAT, RECORDED_AFTER, Keeper
from lockstep.commit.records import FOLDER, OpenRecord, abort, open_transactions
from lockstep.errors import CancelledError, ConflictError, InvalidError
from lockstep.retention.beside import beside
from lockstep.storage import open_storage
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from tests.support.faulty import FaultyStorage
from tests.support.gate import wait_until
from tests.support.lakes import open_catalog
from tests.support.looking import Looking
from tests.support.promotions import clone_to, promote

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def lake(root: Path) -> OpenLake:
    store = FaultyStorage(open_storage(str(root), create=True))
    lake = OpenLake(open_catalog(store), {})
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append({"id": [1]})
    return lake


@pytest.fixture
def other(lake: OpenLake, root: Path) -> TransactionalCatalog:
    """The same lake in another process."""
    return TransactionalCatalog.open(str(root), author="bob")


def seen(catalog: TransactionalCatalog) -> list[OpenRecord]:
    return open_transactions(catalog.lake)


def touched(lake: OpenLake) -> list[tuple[str, str]]:
    """Return what was asked of the store about records."""
    store = lake.catalog.lake.storage
    assert isinstance(store, FaultyStorage)
    return [call for call in store.calls if FOLDER in call[1] or "_lockstep/ended" in call[1]]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_one_that_ends_within_a_second_costs_no_request(keeper: Looking, lake: OpenLake, end: str) -> None:
    with lake.transaction() as tx:
        tx["t"].append({"id": [2]})
        keeper.after(RECORDED_AFTER - 0.1)
        if end == "ROLLBACK":
            tx.rollback()
    assert touched(lake) == []
    assert ended_transactions(lake.catalog.lake) == []


def test_one_that_only_reads_costs_none_however_long_it_is_open(keeper: Looking, lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx["t"].to_arrow()
        keeper.after(3600)
    assert touched(lake) == []


def test_one_that_wrote_a_second_ago_is_seen_until_it_ends(
    keeper: Looking, lake: OpenLake, other: TransactionalCatalog
) -> None:
    with lake.transaction(comment="nightly") as tx:
        tx["t"].append({"id": [2]})
        keeper.after(RECORDED_AFTER)
        [record] = seen(other)
        assert (record.transaction, record.message, record.state) == (tx.id, "nightly", "INFLIGHT")
        assert [str(name) for name in record.tables] == ["default.t"]
        assert record.bytes_staged > 0
        assert record.process.endswith(f":{os.getpid()}")
        keeper.after(HEARTBEAT)
        assert seen(other)[0].seen_at > record.seen_at
        place = other.database().tables[record.tables[0]].location
        assert beside(other.lake, place, timedelta(), []).since < record.began_at, "VACUUM leaves what it wrote"
    assert seen(other) == []
    assert ended_transactions(other.lake) == []


def test_so_is_one_that_only_changed_names(keeper: Looking, lake: OpenLake, other: TransactionalCatalog) -> None:
    with lake.transaction() as tx:
        tx.create_namespace("sales")
        keeper.after(RECORDED_AFTER)
        assert [each.transaction for each in seen(other)] == [tx.id]


def test_of_one_that_lost_it_is_kept_how_much_it_had_written(lake: OpenLake, other: TransactionalCatalog) -> None:
    with lake.transaction() as tx:
        tx["t"].overwrite({"id": [2]})
        with lake.transaction() as first:
            first["t"].overwrite({"id": [3]})
        with pytest.raises(ConflictError):
            tx.commit()
    lake.catalog.lake.upkeep.settle()
    [record] = ended_transactions(other.lake)
    assert (record.transaction, record.process) == (tx.id, this_process())
    assert record.bytes_staged > 0


def test_why_it_was_rolled_back_is_kept(keeper: Looking, lake: OpenLake, other: TransactionalCatalog) -> None:
    with lake.transaction() as one:
        one["t"].append({"id": [2]})
        keeper.after(RECORDED_AFTER)
        one.rollback()
    with lake.transaction() as two:
        two["t"].append({"id": [4]})
        keeper.after(RECORDED_AFTER)
        with pytest.raises(InvalidError):
            two["t"].delete("nosuch = 1")
        two.rollback()
    lake.catalog.lake.upkeep.settle()
    reasons = {each.transaction: each.reason for each in ended_transactions(other.lake)}
    assert reasons[one.id or ""] == "ROLLBACK"
    assert reasons[two.id or ""].startswith("a write of it failed: ")
    assert seen(other) == []


GO_ON: dict[str, Callable[[LakeTransaction], object]] = {
    "write": lambda tx: tx["t"].append({"id": [3]}),
    "read": lambda tx: tx["t"].to_arrow(),
    "savepoint": lambda tx: tx.savepoint("s"),
    "commit": lambda tx: tx.commit(),
    "commit, before it was looked for": lambda tx: tx.commit(),
}


@pytest.mark.parametrize("at", GO_ON)
def test_one_that_another_process_ended_is_told(
    keeper: Looking, lake: OpenLake, other: TransactionalCatalog, at: str
) -> None:
    with lake.transaction() as tx:
        tx["t"].append({"id": [2]})
        keeper.after(RECORDED_AFTER)
        abort(other.lake, tx.id or "", author="bob", statement="lockstep abort", reason="too long")
        if "before" not in at:
            keeper.after(HEARTBEAT)
        with pytest.raises(CancelledError, match="bob asked for that: too long") as caught:
            GO_ON[at](tx)
        tx.rollback()
    assert caught.value.sqlstate == "57014"
    assert tx.status == "ROLLED BACK"
    assert lake.at()["t"].to_arrow().num_rows == 1
    lake.catalog.lake.upkeep.settle()
    [record] = ended_transactions(other.lake)
    assert "bob asked for that: too long" in record.reason
    assert seen(other) == []


def test_one_that_was_told_of_its_end_rolls_back_as_any(
    keeper: Looking, lake: OpenLake, other: TransactionalCatalog
) -> None:
    with lake.transaction() as tx:
        tx["t"].append({"id": [2]})
        keeper.after(RECORDED_AFTER)
        abort(other.lake, tx.id or "", author="bob", statement="lockstep abort")
        keeper.after(HEARTBEAT)
        tx.rollback()
    assert tx.status == "ROLLED BACK"


def test_a_store_that_fails_ends_no_transaction(keeper: Looking, lake: OpenLake, other: TransactionalCatalog) -> None:
    store = lake.catalog.lake.storage
    assert isinstance(store, FaultyStorage)
    with lake.transaction() as tx:
        tx["t"].append({"id": [2]})
        store.fail("put", path=f"{tx.id}.json")
        keeper.after(RECORDED_AFTER)
        assert seen(other) == []
        keeper.after(keeping.TICK)
        assert [each.transaction for each in seen(other)] == [tx.id], "the next look tries again"


def looking() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "lockstep-open"]


def test_a_thread_does_so_by_itself_one_for_all(
    lake: OpenLake, other: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "TICK", 0.01)
    monkeypatch.setattr(keeping, "RECORDED_AFTER", 0.05)
    keeper, before = Keeper(), {*looking()}
    for module in ("lockstep.catalog", "lockstep.tables.statement"):
        monkeypatch.setattr(f"{module}.KEEPER", keeper)
    with lake.transaction() as one, lake.transaction() as two:
        one["t"].append({"id": [2]})
        two["t"].append({"id": [3]})
        wait_until(lambda: len(seen(other)) == 2, "they are not told of")
        assert len({*looking()} - before) == 1
    assert seen(other) == []
    wait_until(lambda: keeper._thread is None, "the thread stays")


def test_where_there_can_be_no_thread_statements_go_on_and_a_later_one_begins_it(
    lake: OpenLake, other: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has too many threads for a moment, or comes to its end."""
    monkeypatch.setattr(keeping, "TICK", 0.01)
    monkeypatch.setattr(keeping, "RECORDED_AFTER", 0.05)
    keeper, start, refused = Keeper(), threading.Thread.start, ["first"]
    for module in ("lockstep.catalog", "lockstep.tables.statement"):
        monkeypatch.setattr(f"{module}.KEEPER", keeper)

    def begin(thread: threading.Thread) -> None:
        if thread.name == "lockstep-open" and refused:
            raise RuntimeError(f"can't start new thread: {refused.pop()}")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)
    with lake.transaction() as tx:
        tx["t"].append({"id": [2]})
        assert not refused
        tx["t"].append({"id": [3]})
        wait_until(lambda: len(seen(other)) == 1, "nobody is told of it")
    assert lake.at()["t"].to_arrow().num_rows == 3


def test_a_restore_is_seen_while_a_person_is_asked(
    keeper: Looking, lake: OpenLake, other: TransactionalCatalog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = lake.catalog.timeline.head.version
    with lake.transaction() as tx:
        tx["t"].append({"id": [2]})
    during: list[OpenRecord] = []

    def confirm(*_: object, **__: object) -> bool:
        keeper.after(60)
        during.extend(seen(other))
        return True

    monkeypatch.setattr("lockstep.cli.recovery.goes_on", confirm)
    done = CliRunner().invoke(main, ["restore", str(root), "--to-version", str(version)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    [record] = during
    assert (record.application, [str(name) for name in record.tables]) == ("lockstep", ["default.t"])
    assert lake.at()["t"].to_arrow().num_rows == 1


def test_a_promotion_is_seen_while_files_are_copied_and_can_be_ended(
    keeper: Looking, lake: OpenLake, other: TransactionalCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = OpenLake(clone_to(lake.catalog, tmp_path / "clone"), {})
    for id_ in (2, 3):
        with clone.transaction() as tx:
            tx["t"].append({"id": [id_]})
    during: list[OpenRecord] = []

    def copied(*_: object, **__: object) -> None:
        keeper.after(HEARTBEAT)
        during.extend(seen(other))
        abort(other.lake, during[0].transaction, author="bob", statement="lockstep abort")
        keeper.after(HEARTBEAT)

    monkeypatch.setattr("lockstep.exports.promote.AT_ONCE", 1)
    monkeypatch.setattr("lockstep.exports.promote.copy", copied)
    with pytest.raises(CancelledError, match="bob asked for that"):
        promote(clone.catalog, lake.catalog)
    assert [str(name) for name in during[0].tables] == ["default.t"]
    assert "promoted from" in during[0].message
    monkeypatch.undo()
    assert promote(clone.catalog, lake.catalog).is_done
    assert lake.at()["t"].to_arrow().num_rows == 3
