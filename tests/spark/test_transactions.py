"""`lockstep.transaction` and `lockstep.run` in a real session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from py4j.protocol import Py4JJavaError

import lockstep
from lockstep.errors import (
    CommitUnknownError,
    ConflictError,
    FailedTransactionError,
    InvalidError,
    NoTransactionError,
    ReadOnlyError,
    TransactionStateError,
)
from lockstep.spark.bridge import is_open
from lockstep.spark.raised import lockstep_errors
from lockstep.spark.session import SessionTransaction
from lockstep.timeline.entry import Entry
from lockstep.timeline.files import FOLDER, entry_path
from tests.support.faulty import FaultyStorage
from tests.support.interposed import timeline_of

T = "lake.default.t"


@pytest.fixture
def t(spark: Any) -> str:
    """Return the name of a table that counts: one row, n = 0."""
    spark.sql(f"CREATE TABLE {T} AS SELECT 0 AS n")
    return T


def n(session: Any) -> int:
    ((value,),) = session.sql(f"SELECT max(n) FROM {T}").collect()
    return int(value)


def test_a_block_commits_at_its_end(t: str, spark: Any, other: Any) -> None:
    tx = lockstep.transaction(spark)
    assert (tx.status, tx.id, tx.version) == ("NEW", None, None)
    with tx as entered:
        assert entered is tx
        assert tx.status == "OPEN"
        assert tx.snapshot == 1
        assert str(tx.id) in repr(tx)
        spark.sql(f"UPDATE {t} SET n = 1")
        assert n(other) == 0
    assert (tx.status, tx.version) == ("COMMITTED", 2)
    assert repr(tx) == f"<lockstep.transaction {tx.id} COMMITTED as database version 2>"
    assert tx.result["tables_changed"] == 1
    assert n(other) == 1


def test_a_comment_with_quotes_arrives_as_it_is(t: str, spark: Any) -> None:
    with lockstep.transaction(spark, comment="it's \\ 'quoted'\nin two lines"):
        spark.sql(f"UPDATE {t} SET n = 1")
    assert last_entry(spark).transaction.message == "it's \\ 'quoted'\nin two lines"


def last_entry(session: Any) -> Entry:
    catalog = lockstep.TransactionalCatalog.open(session.conf.get("spark.sql.catalog.lake.root"))
    return catalog.timeline.entries(0)[-1]


def test_a_secret_in_a_statement_is_not_kept(t: str, spark: Any, root: Path) -> None:
    """What `spark.sql.redaction.string.regex` calls a secret stays out of the timeline, as out of Spark's plans."""
    spark.conf.set("spark.sql.redaction.string.regex", "hunter[0-9]+")
    spark.sql(f"CREATE TABLE {T}2 TBLPROPERTIES ('note' = 'none') AS SELECT 'hunter1' AS password")
    assert last_entry(spark).transaction.statements == [
        f"CREATE TABLE {T}2 TBLPROPERTIES ('note' = 'none') AS SELECT '*********(redacted)' AS password"
    ]
    spark.sql(f"INSERT INTO {T}2 VALUES ('hunter2')")
    assert last_entry(spark).transaction.statements == [f"INSERT INTO {T}2 VALUES ('*********(redacted)')"]
    with lockstep.transaction(spark):
        spark.sql(f"INSERT INTO {T}2 VALUES ('hunter3')")
        spark.sql(f"CREATE TABLE {T}3 AS SELECT 'hunter4' AS password")
    assert "hunter" not in " ".join(said := last_entry(spark).transaction.statements)
    assert len(said) == 2
    for entry in (root / FOLDER).glob("*.json"):
        assert "hunter" not in " ".join(msgspec.json.decode(entry.read_bytes(), type=Entry).transaction.statements)
    assert sorted(row[0] for row in spark.sql(f"SELECT * FROM {T}2").collect()) == ["hunter1", "hunter2", "hunter3"]


def test_an_exception_rolls_back_and_is_what_the_caller_gets(t: str, spark: Any) -> None:
    tx = lockstep.transaction(spark)

    def work() -> None:
        with tx:
            spark.sql(f"UPDATE {t} SET n = 1")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        work()
    assert (tx.status, tx.version) == ("ROLLED BACK", None)
    assert n(spark) == 0
    assert not is_open(spark)


def test_an_interrupt_at_commit_leaves_the_transaction_as_open_as_it_is(t: str, spark: Any) -> None:
    def interrupted(statement: str) -> Any:
        raise KeyboardInterrupt

    with lockstep.transaction(spark) as tx:
        spark.sql(f"UPDATE {t} SET n = 1")
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(tx, "_execute", interrupted)
            with pytest.raises(KeyboardInterrupt):
                tx.commit()
        assert tx.status == "OPEN"
    assert (tx.status, n(spark)) == ("COMMITTED", 1)


# --- a COMMIT without an answer ---------------------------------------------------------------------------------------


@pytest.fixture
def faults(t: str, spark: Any) -> Iterator[FaultyStorage]:
    """The store of the test's timeline, to be made to fail."""
    timeline = timeline_of(spark)
    store = FaultyStorage(timeline.storage)
    timeline.storage = store
    yield store
    timeline.storage = store.inner


@pytest.fixture
def asked(faults: FaultyStorage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `lockstep.transaction` asks for; when it is what stands first here, the store works again."""
    said: list[str] = []
    execute = SessionTransaction._execute

    def executed(self: Any, statement: str) -> Any:
        said.append(statement)
        if said[0] == f"heal at {said.count(statement)} {statement}":
            faults.heal()
        return execute(self, statement)

    monkeypatch.setattr(SessionTransaction, "_execute", executed)
    return said


def update(spark: Any, faults: FaultyStorage, tx: Any, *, landed: bool) -> None:
    """Update t in a block at whose end the store goes down, with the entry written or not."""
    with tx:
        spark.sql(f"UPDATE {T} SET n = 1")
        faults.go_down(entry_path(2), landed=landed)


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_a_block_whose_commit_had_no_answer_asks_once_more(
    spark: Any, faults: FaultyStorage, asked: list[str], landed: bool
) -> None:
    """The store is back by then: what was committed is COMMITTED, what was not is committed now; nobody hears 40003."""
    asked.append("heal at 2 COMMIT")
    tx = lockstep.transaction(spark)
    update(spark, faults, tx, landed=landed)
    assert asked[2:] == ["COMMIT", "COMMIT"]
    assert (tx.status, tx.version, n(spark)) == ("COMMITTED", 2, 1)
    assert not is_open(spark)


def test_a_block_that_landed_is_committed_though_only_its_rollback_learns_it(
    spark: Any, faults: FaultyStorage, asked: list[str]
) -> None:
    asked.append("heal at 1 ROLLBACK")
    tx = lockstep.transaction(spark)
    update(spark, faults, tx, landed=True)
    assert asked[2:] == ["COMMIT", "COMMIT", "ROLLBACK"]
    assert (tx.status, tx.version, n(spark)) == ("COMMITTED", 2, 1)
    assert not is_open(spark)


def test_a_block_that_did_not_land_and_is_rolled_back_says_so(
    spark: Any, faults: FaultyStorage, asked: list[str]
) -> None:
    asked.append("heal at 1 ROLLBACK")
    tx = lockstep.transaction(spark)
    with pytest.raises(CommitUnknownError) as caught:
        update(spark, faults, tx, landed=False)
    assert caught.value.__notes__ == ["Lockstep has rolled it back since then: nothing of it is committed."]
    assert (tx.status, tx.version, n(spark)) == ("ROLLED BACK", None, 0)


def test_a_block_that_nobody_can_tell_about_is_in_doubt(spark: Any, faults: FaultyStorage) -> None:
    """It landed, and the store stays down: neither ROLLED BACK nor COMMITTED would be known."""
    tx = lockstep.transaction(spark)
    with pytest.raises(CommitUnknownError) as caught:
        update(spark, faults, tx, landed=True)
    assert "still does not say" in caught.value.__notes__[0]
    assert (tx.status, tx.version) == ("IN DOUBT", None)
    assert not is_open(spark)
    faults.heal()
    assert n(spark) == 1


def test_a_commit_of_ones_own_without_an_answer_is_in_doubt_until_one_comes(spark: Any, faults: FaultyStorage) -> None:
    with lockstep.transaction(spark) as tx:
        spark.sql(f"UPDATE {T} SET n = 1")
        faults.go_down(entry_path(2), landed=True)
        with pytest.raises(CommitUnknownError):
            tx.commit()
        assert (tx.status, tx.version, is_open(spark)) == ("IN DOUBT", None, True)
        faults.heal()
        with pytest.raises(TransactionStateError, match="too late") as caught:
            tx.rollback()
        assert caught.value.sqlstate == "2D000"
    assert (tx.status, tx.version, n(spark)) == ("COMMITTED", 2, 1)


def test_a_block_that_sql_ended_claims_nothing(t: str, spark: Any) -> None:
    def work() -> None:
        with tx:
            spark.sql(f"UPDATE {t} SET n = 1")
            spark.sql("COMMIT")  # behind the object's back

    tx = lockstep.transaction(spark)
    with pytest.raises(NoTransactionError):
        work()
    assert (tx.status, tx.version) == ("IN DOUBT", None)
    assert n(spark) == 1


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_the_block_began_itself_is_not_ended_for_it(
    t: str, spark: Any, other: Any, end: str
) -> None:
    """It is another piece of work: nobody has said that it is done."""

    def work(_: SessionTransaction) -> None:
        spark.sql(end)
        spark.sql("BEGIN")
        spark.sql(f"UPDATE {t} SET n = 7")

    with pytest.raises(TransactionStateError, match="which then began transaction") as caught:
        lockstep.run(spark, work)
    assert (caught.value.sqlstate, caught.value.retryable) == ("25000", False)
    assert n(other) == 0
    assert is_open(spark)
    spark.sql("ROLLBACK")
    assert n(other) == 0


def test_an_error_of_the_block_does_not_roll_back_a_transaction_that_it_began_itself(
    t: str, spark: Any, other: Any
) -> None:

    def work() -> None:
        with tx:
            spark.sql("COMMIT")
            spark.sql("BEGIN")
            spark.sql(f"UPDATE {t} SET n = 7")
            raise ZeroDivisionError

    tx = lockstep.transaction(spark)
    with pytest.raises(ZeroDivisionError) as caught:
        work()
    assert any("which then began transaction" in note for note in caught.value.__notes__)
    assert tx.status == "IN DOUBT"
    spark.sql("COMMIT")
    assert n(other) == 7


def test_an_exception_is_not_masked_when_rolling_back_fails_too(spark: Any) -> None:
    def work() -> None:
        with lockstep.transaction(spark):
            spark.sql("ROLLBACK")  # behind the object's back
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        work()
    assert "25P01" in caught.value.__notes__[0]


def test_a_transaction_is_used_once(spark: Any) -> None:
    tx = lockstep.transaction(spark)
    with tx:
        pass
    with pytest.raises(TransactionStateError, match="used already"), tx:
        pass
    assert not is_open(spark)


def test_a_block_may_end_itself(t: str, spark: Any) -> None:
    with lockstep.transaction(spark) as tx:
        spark.sql(f"UPDATE {t} SET n = 1")
        tx.commit()
        assert tx.status == "COMMITTED"
    with lockstep.transaction(spark) as tx:
        spark.sql(f"UPDATE {t} SET n = 2")
        tx.rollback()
    assert tx.status == "ROLLED BACK"
    assert n(spark) == 1


def test_transactions_do_not_nest(spark: Any) -> None:
    with lockstep.transaction(spark) as outer:
        inner = lockstep.transaction(spark)
        with pytest.raises(TransactionStateError) as caught, inner:
            pass
        assert caught.value.sqlstate == "25001"
        assert inner.status == "NEW"
    assert outer.status == "COMMITTED"


def test_options_are_those_of_begin(t: str, spark: Any) -> None:
    with pytest.raises(ReadOnlyError), lockstep_errors(), lockstep.transaction(spark, read_only=True):
        spark.sql(f"UPDATE {t} SET n = 1")
    with pytest.raises(InvalidError, match="CHAOS"):
        lockstep.transaction(spark, isolation="CHAOS")  # type: ignore[arg-type]


def test_a_conflict_is_raised_and_rolled_back(t: str, spark: Any, other: Any) -> None:
    tx = lockstep.transaction(spark, isolation="SNAPSHOT")

    def work() -> None:
        with tx:
            spark.sql(f"UPDATE {t} SET n = n + 1")
            other.sql(f"UPDATE {t} SET n = n + 10")

    with pytest.raises(ConflictError) as caught:
        work()
    assert caught.value.retryable
    assert caught.value.sqlstate == "40001"
    assert tx.status == "ROLLED BACK"
    assert not is_open(spark)
    assert n(spark) == 10


def test_a_block_that_swallows_a_failed_write_is_not_committed(t: str, spark: Any) -> None:
    def work() -> None:
        with lockstep.transaction(spark):
            spark.sql(f"INSERT INTO {t} VALUES (1)")
            with suppress(Py4JJavaError):  # how PySpark shows a failed job
                spark.sql(f"INSERT INTO {t} SELECT CAST(raise_error('no luck') AS INT)")

    with pytest.raises(FailedTransactionError):
        work()
    assert n(spark) == 0


def test_run_tries_again_after_a_conflict(t: str, spark: Any, other: Any) -> None:
    pauses: list[float] = []
    tried = []

    def work(tx: Any) -> int:
        tried.append(tx)
        spark.sql(f"UPDATE {t} SET n = n + 1")
        if len(tried) < 3:
            other.sql(f"UPDATE {t} SET n = n + 10")
        return len(tried)

    assert lockstep.run(spark, work, attempts=4, sleep=pauses.append) == 3
    assert n(spark) == 21
    assert len({tx.id for tx in tried}) == 3
    assert len(pauses) == 2


def test_run_gives_up_after_its_attempts(t: str, spark: Any, other: Any) -> None:
    pauses: list[float] = []

    def work(_: Any) -> None:
        spark.sql(f"UPDATE {t} SET n = n + 1")
        other.sql(f"UPDATE {t} SET n = n + 10")

    with pytest.raises(ConflictError):
        lockstep.run(spark, work, attempts=2, sleep=pauses.append)
    assert n(spark) == 20
    assert len(pauses) == 1
    assert not is_open(spark)


def test_run_does_not_try_again_what_cannot_be_cured(t: str, spark: Any) -> None:
    tried = []

    def work(tx: Any) -> None:
        tried.append(tx)
        spark.sql("CREATE TABLE lake.default.p (id INT) USING parquet")

    with pytest.raises(InvalidError):
        lockstep.run(spark, work, sleep=lambda _: pytest.fail("paused"))
    assert len(tried) == 1

    def broken(tx: Any) -> None:
        tried.append(tx)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        lockstep.run(spark, broken, sleep=lambda _: pytest.fail("paused"))
    assert len(tried) == 2
    with pytest.raises(InvalidError, match="attempts=0"):
        lockstep.run(spark, work, attempts=0)
