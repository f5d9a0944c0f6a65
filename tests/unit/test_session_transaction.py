"""`lockstep.transaction` when its way to Spark breaks: what the user is told, and what is left open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.errors import (
    ConflictError,
    CorruptTimelineError,
    FailedTransactionError,
    ForeignCommitError,
    InvalidError,
    LockstepError,
    MissingFilesError,
    UnavailableError,
)
from lockstep.spark import bridge, session
from lockstep.spark.session import SessionTransaction
from lockstep.timeline.entry import Batch

BATCH = Batch(application="orders", number=7)


class Driver:
    """A driver without Spark: what it is asked is noted, and fails as the test wants.

    Attributes:
        said: each statement and each request, in order.
        fails: what an asked one raises.
        loses: statements that are carried out, and interrupted then.
        batch: what a transaction carries out that has begun.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.fails: dict[str, BaseException] = {}
        self.loses: set[str] = set()
        self.open: str | None = None
        self.batch: dict[str, Any] | None = {"application": "orders", "number": 7}
        monkeypatch.setattr(session, "attach", lambda spark: None)
        monkeypatch.setattr(bridge, "is_remote", lambda spark: False)
        monkeypatch.setattr(bridge, "is_open", lambda spark: self._is_open())
        monkeypatch.setattr(bridge, "current", lambda spark: self.open, raising=False)
        monkeypatch.setattr(bridge, "ask", lambda spark, op, **asked: self._asked(op, asked))
        monkeypatch.setattr(SessionTransaction, "_execute", lambda tx, statement: self._executed(statement))

    def _meet(self, what: str) -> None:
        self.said.append(what)
        if what in self.fails:
            raise self.fails[what]

    def _is_open(self) -> bool:
        self._meet("is open?")
        return self.open is not None

    def _asked(self, op: str, asked: dict[str, Any]) -> dict[str, Any]:
        self._meet(op if asked or op != "batch" else "no batch")
        return {"batch": self.batch, "last_batch": None, "is_replay": False} if op == "begun" else {}

    def _executed(self, statement: str) -> dict[str, Any]:
        self._meet(statement)
        self.open = "t1" if statement.startswith("BEGIN") else None
        if statement in self.loses:
            raise KeyboardInterrupt
        return {"transaction_id": "t1", "database_version": 1}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def begun(batch: Batch | None = None) -> SessionTransaction:
    spark: Any = None  # the driver stands for it
    return SessionTransaction(spark, "BEGIN TRANSACTION", batch)


@pytest.mark.parametrize("lost", [ConnectionError, RuntimeError, OSError])
def test_the_error_of_a_block_is_what_its_user_sees(driver: Driver, lost: Callable[[str], Exception]) -> None:
    """The JVM is gone: whatever ROLLBACK says then, it is not why the block ended."""
    driver.fails = {"ROLLBACK": lost("the JVM is gone"), "is open?": lost("the JVM is gone")}
    tx = begun()
    with pytest.raises(ZeroDivisionError) as caught, tx:
        raise ZeroDivisionError
    assert any("did not roll back: " in note and "the JVM is gone" in note for note in caught.value.__notes__)
    assert tx.status == "IN DOUBT", "nobody can tell here"


@pytest.mark.parametrize(
    ("refusal", "status", "rolled_back"),
    [
        (ForeignCommitError("set aside"), "OPEN", True),
        (CorruptTimelineError("gone"), "OPEN", True),
        (InvalidError("too large"), "OPEN", True),
        (UnavailableError("the store"), "OPEN", True),
        (LockstepError("internal error"), "OPEN", True),
        (ConflictError("first"), "ROLLED BACK", False),
        (FailedTransactionError("a write failed"), "ROLLED BACK", False),
        (MissingFilesError("gone"), "ROLLED BACK", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_over_connect_the_refusal_tells_whether_the_transaction_is_still_open(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, refusal: LockstepError, status: str, rolled_back: bool
) -> None:
    """Nobody can be asked there; what is left open would have the session's next statements in it."""
    monkeypatch.setattr(bridge, "is_remote", lambda spark: True)
    driver.fails["COMMIT"] = refusal
    with pytest.raises(type(refusal)), begun() as tx:
        pass
    assert ("ROLLBACK" in driver.said) is rolled_back
    assert tx.status == ("ROLLED BACK" if rolled_back else status)


def test_an_interrupt_of_the_rollback_is_not_held_back(driver: Driver) -> None:
    driver.fails = {"ROLLBACK": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt), begun():
        raise ZeroDivisionError


@pytest.mark.parametrize("batch", [None, BATCH])
def test_a_begin_that_is_interrupted_leaves_nothing_open(driver: Driver, batch: Batch | None) -> None:
    """The session's next statements would be part of it, and nobody would commit them."""
    driver.loses = {"BEGIN TRANSACTION"}
    with pytest.raises(KeyboardInterrupt), begun(batch):
        raise AssertionError("the block must not run")
    assert driver.open is None


@pytest.mark.parametrize("other", [None, {"application": "orders", "number": 6}])
def test_a_transaction_that_does_not_carry_its_batch_out_does_not_run(
    driver: Driver, other: dict[str, Any] | None
) -> None:
    """Of whoever is told of the batch nobody may be left by BEGIN: its rows would be written each time it is tried."""
    driver.batch = other
    with pytest.raises(UnavailableError, match=r"batch 7 of orders") as caught, begun(BATCH):
        raise AssertionError("the block must not run")
    assert caught.value.retryable
    assert driver.open is None


def test_a_begin_that_is_interrupted_leaves_another_transaction_alone(driver: Driver) -> None:
    driver.open = "t0"
    driver.fails = {"BEGIN TRANSACTION": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt), begun():
        raise AssertionError("the block must not run")
    assert driver.open == "t0"


@pytest.mark.parametrize("lost", [KeyboardInterrupt(), ConnectionError("no answer")])
def test_a_commit_that_is_interrupted_before_it_is_sent_leaves_nothing_open(
    driver: Driver, lost: BaseException
) -> None:
    driver.fails = {"COMMIT": lost}
    with pytest.raises(type(lost)), begun() as tx:
        pass
    assert driver.said[-1] == "ROLLBACK"
    assert driver.open is None
    assert tx.status == "ROLLED BACK"


def test_a_commit_that_is_interrupted_after_it_is_sent_stays_an_interrupt(driver: Driver) -> None:
    driver.loses = {"COMMIT"}
    with pytest.raises(KeyboardInterrupt), begun():
        pass


@pytest.mark.parametrize("lost", [InvalidError("refused"), ConnectionError("the JVM is gone"), KeyboardInterrupt()])
def test_a_batch_that_cannot_learn_how_it_stands_leaves_nothing_open(driver: Driver, lost: BaseException) -> None:
    """Python runs no `__exit__` after an `__enter__` that raised."""
    driver.fails = {"begun": lost}
    tx = begun(BATCH)
    with pytest.raises(type(lost)), tx:
        raise AssertionError("the block must not run")
    assert driver.said[-1] == "ROLLBACK"
    assert driver.open is None
    assert tx.status == "ROLLED BACK"


def test_a_begin_that_took_the_batch_has_nothing_to_take_back(driver: Driver) -> None:
    """The host forgets it at BEGIN. A question more is one more that can fail, with a transaction open."""
    with begun(BATCH):
        pass
    assert driver.said == ["batch", "BEGIN TRANSACTION", "begun", "COMMIT"]


def test_a_batch_that_did_not_begin_is_taken_back(driver: Driver) -> None:
    driver.fails = {"BEGIN TRANSACTION": InvalidError("which catalog?"), "no batch": ConnectionError("gone")}
    with pytest.raises(InvalidError, match="which catalog") as caught, begun(BATCH):
        raise AssertionError("the block must not run")
    assert driver.said == ["batch", "BEGIN TRANSACTION", "no batch"]
    assert any("gone" in note for note in caught.value.__notes__)
