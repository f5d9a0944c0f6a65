"""Transactions without Spark that take too long: rolled back, at a statement or between two, as a session's are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.commit import keeping
from lockstep.commit.ended import ended_transactions
from lockstep.commit.keeping import RECORDED_AFTER
from lockstep.commit.records import abort, open_transactions
from lockstep.errors import (
    CancelledError,
    CommitUnknownError,
    FailedTransactionError,
    InvalidError,
    LockstepError,
    UnavailableError,
)
from lockstep.storage import open_storage
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from lockstep.timeline.files import entry_path
from lockstep.transactions.limits import IDLED_OUT, TIMED_OUT
from tests.support.faulty import FaultyStorage
from tests.support.gate import wait_until
from tests.support.lakes import open_catalog
from tests.support.looking import Looking

SCHEMA = pa.schema([("id", pa.int64())])
ENDLESS = "SELECT count(*) AS n FROM range(100000000) a, range(100000000) b WHERE a.range + b.range < 0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def lake(root: Path) -> OpenLake:
    lake = OpenLake(open_catalog(FaultyStorage(open_storage(str(root), create=True))), {})
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append({"id": [1]})
    return lake


def ids(lake: OpenLake) -> list[int]:
    return sorted(lake.at()["t"].to_arrow()["id"].to_pylist())


def files(root: Path) -> set[str]:
    """Return the files that there are; a folder may go while they are looked for, which `Path.rglob` cannot bear."""
    found = {str(Path(folder, name).relative_to(root)) for folder, _, names in os.walk(root) for name in names}
    return {path for path in found if "/turns/" not in path}


@contextmanager
def refused(
    error: type[Exception], lake: OpenLake, sqlstate: str | None = None, **given: Any
) -> Iterator[LakeTransaction]:
    """Begin a transaction whose block is to raise this."""
    with pytest.raises(error) as caught, lake.transaction(**given) as tx:
        yield tx
    if sqlstate is not None:
        assert isinstance(caught.value, LockstepError)
        assert (caught.value.sqlstate, caught.value.retryable) == (sqlstate, False)
        assert any(argument in str(caught.value) for argument in given)


Do = Callable[[LakeTransaction], object]
STATEMENTS: dict[str, Do] = {
    "a write": lambda tx: tx["t"].append({"id": [3]}),
    "a read": lambda tx: tx["t"].to_arrow(),
    "a query": lambda tx: tx.sql("FROM t"),
    "names": lambda tx: tx.tables,
    "SAVEPOINT": lambda tx: tx.savepoint("a"),
    "ROLLBACK TO": lambda tx: tx.rollback_to("before"),
    "RELEASE": lambda tx: tx.release("before"),
    "COMMIT": lambda tx: tx.commit(),
}
LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "open too long": ({"timeout": 60}, TIMED_OUT),
    "idle too long": ({"idle_timeout": 60}, IDLED_OUT),
}


@pytest.mark.parametrize("is_looked_after", [True, False], ids=["by the keeper", "at the statement"])
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_one_that_takes_too_long_is_rolled_back_and_every_statement_says_so(
    keeper: Looking, lake: OpenLake, root: Path, statement: str, limits: str, *, is_looked_after: bool
) -> None:
    given, sqlstate = LIMITS[limits]
    before = files(root)
    with refused(FailedTransactionError, lake, sqlstate, **given) as tx:
        tx.savepoint("before")
        tx["t"].append({"id": [2]})
        keeper.now += 60
        if is_looked_after:
            keeper.look()
            assert files(root) == before, "what it wrote is removed while nobody asks"
            assert tx.status == "ROLLED BACK"
        STATEMENTS[statement](tx)
    assert tx.status == "ROLLED BACK"
    assert ids(lake) == [1]
    assert files(root) == before


IN_TIME: dict[str, tuple[dict[str, Any], float]] = {
    "none": ({}, 10**6),
    "0 is for ever": ({"timeout": 0, "idle_timeout": 0}, 10**6),
    "just before it is open too long": ({"timeout": 60}, 59),
    "just before it is idle too long": ({"idle_timeout": 60}, 59),
}


@pytest.mark.parametrize("case", IN_TIME)
def test_one_that_is_in_time_commits(keeper: Looking, lake: OpenLake, case: str) -> None:
    given, seconds = IN_TIME[case]
    with lake.transaction(**given) as tx:
        tx["t"].append({"id": [2]})
        keeper.now += seconds
        keeper.look()
    assert ids(lake) == [1, 2]


def test_each_statement_ends_the_idle_time_and_none_the_whole(keeper: Looking, lake: OpenLake) -> None:
    with lake.transaction(idle_timeout=60) as tx:
        for number in range(2, 5):
            keeper.now += 59
            keeper.look()
            tx["t"].append({"id": [number]})
    assert ids(lake) == [1, 2, 3, 4]
    with refused(FailedTransactionError, lake, TIMED_OUT, timeout=100, idle_timeout=60) as tx:
        for number in range(5, 8):
            keeper.now += 40
            tx["t"].append({"id": [number]})
    assert ids(lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("limits", LIMITS)
def test_a_block_that_ends_without_a_word_is_told(keeper: Looking, lake: OpenLake, limits: str) -> None:
    given, sqlstate = LIMITS[limits]
    with refused(FailedTransactionError, lake, sqlstate, **given) as tx:
        tx["t"].append({"id": [2]})
        keeper.now += 60
        keeper.look()
    with refused(FailedTransactionError, lake, sqlstate, **given) as tx:
        keeper.now += 60
        with pytest.raises(FailedTransactionError):
            tx["t"].append({"id": [2]})  # and the program goes on as if nothing had been
    assert ids(lake) == [1]


def test_a_rollback_of_one_is_no_error_and_a_block_s_own_error_stays(keeper: Looking, lake: OpenLake) -> None:
    with lake.transaction(idle_timeout=60) as tx:
        tx["t"].append({"id": [2]})
        keeper.now += 60
        tx.rollback()
    with refused(ZeroDivisionError, lake, idle_timeout=60) as tx:
        tx["t"].append({"id": [2]})
        keeper.now += 60
        keeper.look()
        raise ZeroDivisionError
    assert ids(lake) == [1]


def test_a_statement_that_runs_goes_on_to_its_end_and_is_refused_then(
    keeper: Looking, lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it runs it is not idle; and nobody rolls back what a statement is reading."""

    def reading() -> pa.Table:
        keeper.now += 60
        beside = threading.Thread(target=keeper.look)
        beside.start()
        beside.join(60)
        return pa.table({"id": [5]})

    with lake.transaction(idle_timeout=60) as tx:
        tx.sql("SELECT 1")
        monkeypatch.setattr("lockstep.tables.transaction.run_query", lambda *_: reading())
        assert tx.sql("SELECT 2").num_rows == 1
        tx["t"].append({"id": [2]})
    with refused(FailedTransactionError, lake, TIMED_OUT, timeout=60) as tx:
        tx["t"].append({"id": [3]})
        tx.sql("SELECT 2")
    assert ids(lake) == [1, 2]


def test_others_see_why_it_was_rolled_back(keeper: Looking, lake: OpenLake, root: Path) -> None:
    other = TransactionalCatalog.open(str(root))
    with refused(FailedTransactionError, lake, TIMED_OUT, timeout=60) as tx:
        tx["t"].append({"id": [2]})
        keeper.now += RECORDED_AFTER
        keeper.look()
        assert len(open_transactions(other.lake)) == 1
        keeper.now += 60
        keeper.look()
        assert open_transactions(other.lake) == []
    [ended] = ended_transactions(other.lake)
    why = "it was open for longer than lockstep.transaction_timeout (timeout=60)"
    assert (ended.transaction, ended.reason) == (tx.id, why)


def test_one_that_a_person_had_ended_is_told_so_however_late(keeper: Looking, lake: OpenLake, root: Path) -> None:
    other = TransactionalCatalog.open(str(root), author="bob")
    with refused(CancelledError, lake, timeout=600) as tx:
        tx["t"].append({"id": [2]})
        keeper.now += 30
        keeper.look()
        abort(other.lake, str(tx.id), author="bob", reason="no", statement="")
        keeper.now += 30
        keeper.look()
        keeper.now += 6000
        keeper.look()
    assert ids(lake) == [1]


def test_a_block_says_so_though_its_program_had_tried_to_commit(keeper: Looking, lake: OpenLake) -> None:
    store = lake.catalog.lake.storage
    assert isinstance(store, FaultyStorage)
    with refused(FailedTransactionError, lake, IDLED_OUT, idle_timeout=60) as tx:
        tx["t"].append({"id": [2]})
        store.die_at(1)
        with pytest.raises(UnavailableError):
            tx.commit()
        store.heal()
        assert tx.status == "OPEN"
        keeper.now += 60
        keeper.look()
    assert ids(lake) == [1]


def test_a_block_that_is_never_left_is_not_watched_for_its_statements_alone(keeper: Looking, lake: OpenLake) -> None:
    tx = lake.transaction(statement_timeout=60).__enter__()
    assert tx["t"].to_arrow().num_rows == 1
    assert not keeper._watched


def test_of_one_in_doubt_nobody_says_that_it_is_rolled_back(keeper: Looking, lake: OpenLake) -> None:
    store = lake.catalog.lake.storage
    assert isinstance(store, FaultyStorage)
    with lake.transaction(timeout=60, idle_timeout=60) as tx:
        tx["t"].append({"id": [2]})
        store.go_down(entry_path(lake.catalog.timeline.head.version + 1), landed=True)
        with pytest.raises(CommitUnknownError):
            tx.commit()
        keeper.now += 600
        keeper.look()
        assert tx.status == "IN DOUBT"
        store.heal()
        tx.commit()
    assert ids(lake) == [1, 2]


def test_one_that_was_in_doubt_and_is_rolled_back_is_so_once_that_is_certain(lake: OpenLake) -> None:
    store = lake.catalog.lake.storage
    assert isinstance(store, FaultyStorage)
    with lake.transaction() as tx:
        tx["t"].append({"id": [2]})
        store.go_down(entry_path(lake.catalog.timeline.head.version + 1), landed=False)
        with pytest.raises(CommitUnknownError):
            tx.commit()
        store.heal()
        tx.rollback()
        assert tx.status == "ROLLED BACK"
    assert ids(lake) == [1]


def test_the_lake_s_limits_hold_unless_a_transaction_says_another(keeper: Looking, lake: OpenLake, root: Path) -> None:
    opened = lockstep.open(str(root), idle_timeout=60)
    with refused(FailedTransactionError, opened) as tx:
        keeper.now += 60
        tx["t"].append({"id": [2]})
    with opened.transaction(idle_timeout=0) as tx:
        keeper.now += 60
        tx["t"].append({"id": [2]})

    def slow(tx: LakeTransaction) -> None:
        keeper.now += 60
        tx["t"].append({"id": [3]})

    with pytest.raises(FailedTransactionError):
        opened.run(slow)
    assert ids(lake) == [1, 2]


@pytest.mark.parametrize("argument", ["timeout", "idle_timeout", "statement_timeout"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1e10, "3s", True])
def test_a_timeout_that_is_none_is_refused_by_name(lake: OpenLake, root: Path, argument: str, value: Any) -> None:
    given: dict[str, Any] = {argument: value}
    with pytest.raises(InvalidError, match=argument):
        lake.transaction(**given)
    with pytest.raises(InvalidError, match=argument):
        lockstep.open(str(root), **given)


LATE: dict[str, tuple[Do, type[LockstepError] | None]] = {
    "a query": (lambda tx: tx.sql(ENDLESS), None),
    "rows that come late": (lambda tx: tx["t"].append(Slow()), FailedTransactionError),
}


class Slow:
    """Rows that are there when their statement is late."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        threading.Event().wait(0.4)
        return pa.table({"id": [2]}).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("case", LATE)
def test_a_statement_that_runs_for_too_long_is_cancelled_as_if_it_had_failed(lake: OpenLake, case: str) -> None:
    """A real query of DuckDB, which would run for years."""
    do, at_commit = LATE[case]
    tx = lake.transaction(statement_timeout=0.2)
    with tx:
        tx["t"].append({"id": [7]})
        tx.savepoint("before")
        with pytest.raises(CancelledError) as caught:
            do(tx)
        assert (caught.value.sqlstate, "statement_timeout" in str(caught.value)) == ("57014", True)
        if at_commit is not None:
            with pytest.raises(at_commit) as refused:
                tx["t"].append({"id": [8]})
            assert refused.value.sqlstate == "25P02"
            tx.rollback_to("before")
    assert ids(lake) == [1, 7]
    assert not [each for each in threading.enumerate() if each.name == "lockstep-statement" and each.is_alive()]


def test_a_statement_is_limited_where_there_can_be_no_thread(lake: OpenLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the interpreter ends: nobody interrupts it then, and it is refused at its end."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with lake.transaction(statement_timeout=0.2) as tx, monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        tx.savepoint("before")
        with pytest.raises(CancelledError):
            tx["t"].append(Slow())
        tx.rollback_to("before")
    with lake.transaction(statement_timeout=60) as tx, monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        tx["t"].append({"id": [3]})
        assert tx.sql("FROM t").num_rows == 2
    assert ids(lake) == [1, 3]


def test_the_keeper_s_thread_ends_an_idle_one_by_itself(
    lake: OpenLake, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By real clocks and threads, while the program does nothing at all."""
    monkeypatch.setattr(keeping, "TICK", 0.01)
    before = files(root)
    with refused(FailedTransactionError, lake, IDLED_OUT, idle_timeout=0.3) as tx:
        tx["t"].append({"id": [2]})
        wait_until(lambda: files(root) == before, "what it wrote stays")
        assert tx.status == "ROLLED BACK"
    assert ids(lake) == [1]
