"""Open transactions are seen, ended and timed out, on real Spark: by another session, and by another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import FailedTransactionError
from lockstep.spark.bridge import is_open
from tests.support.driver import Driver
from tests.support.gate import wait_until
from tests.support.runner import Result

pytestmark = pytest.mark.long


@pytest.fixture
def one(connect: Callable[[], Any]) -> Any:
    spark = connect()
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    spark.sql("CREATE TABLE u AS SELECT 1 AS id")
    return spark


def published(root: Path, table: str) -> list[int]:
    """What plain Delta reads, without Spark."""
    location = TransactionalCatalog.open(str(root)).timeline.head
    [found] = [each for each in location.tables.values() if each.name.table == table]
    return sorted(DeltaTable(str(root / found.location)).to_pyarrow_table()["id"].to_pylist())


def refused(act: Callable[[], Any]) -> tuple[str | None, str]:
    with pytest.raises(PySparkException) as caught:
        act()
    return caught.value.getSqlState(), str(caught.value)


def command(*args: str) -> Any:
    """What a process of the command line prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "lockstep", *args, "--json"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_another_session_sees_it_and_ends_it(one: Any, connect: Callable[[], Any], root: Path) -> None:
    two = connect()
    one.sql("BEGIN COMMENT 'nightly'")
    one.sql("INSERT INTO t VALUES (2)")
    one.sql("UPDATE u SET id = 2")
    [row] = two.sql("SHOW TRANSACTIONS IN lake").collect()
    assert (row.state, row.tables, row.comment, row.is_alive) == ("INFLIGHT", "default.t, default.u", "nightly", True)
    [ended] = two.sql(f"CALL lake.system.abort('{row.transaction_id}', 'the window is over')").collect()
    assert ended.transaction_id == row.transaction_id
    state, message = refused(lambda: one.sql("INSERT INTO t VALUES (3)"))
    assert state == "57014"
    assert "the window is over" in message
    assert refused(lambda: one.sql("COMMIT"))[0] == "57014"
    assert not is_open(one)
    assert two.sql("SHOW TRANSACTIONS").count() == 0
    assert (published(root, "t"), published(root, "u")) == ([1], [1])
    one.sql("INSERT INTO t VALUES (4)")
    assert published(root, "t") == [1, 4]


def test_another_process_sees_it_and_ends_it(one: Any, root: Path) -> None:
    one.sql("BEGIN")
    one.sql("INSERT INTO t VALUES (2)")
    wait_until(lambda: command("transactions", str(root)), "no record came")
    [record] = command("transactions", str(root))
    done = command("abort", str(root), record["transaction"], "--reason", "enough", "--yes")
    state, message = refused(lambda: one.sql("COMMIT"))
    assert state == "57014"
    assert f"(database version {done['aborted_by']})" in message
    assert "enough" in message
    assert command("transactions", str(root)) == []
    assert published(root, "t") == [1]


def backdated(root: Path, transaction: str, age: timedelta) -> None:
    """Have what a killed process said and staged last be as old as this: nobody writes any of it again."""
    path = root / "_lockstep" / "open" / f"{transaction}.json"
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"seen_at": (datetime.now(UTC) - age).isoformat()}))
    then = time.time() - age.total_seconds()
    for staged in root.glob(f"*/*/_delta_log/_lockstep/{transaction}/*"):
        os.utime(staged, (then, then))


@pytest.mark.slow
def test_what_a_killed_driver_had_open_is_seen_and_ended_by_another(one: Any, root: Path) -> None:
    """SIGKILL with two transactions open: SQL elsewhere shows them as gone; one is aborted, one left to upkeep."""
    with Driver(root) as killed:
        for session, table in ((killed.connect(root), "t"), (killed.connect(root), "u")):
            for statement in (f"BEGIN COMMENT 'of {table}'", f"INSERT INTO {table} VALUES (2)"):
                assert isinstance(session.run(statement), Result)

        def shown() -> dict[str, Any]:
            return {row.comment: row for row in one.sql("SHOW TRANSACTIONS IN lake").collect()}

        wait_until(lambda: len(shown()) == 2, "no records came")
        assert all(row.is_alive for row in shown().values())
        killed.kill()
    ids = {comment: row.transaction_id for comment, row in shown().items()}
    for id_ in ids.values():
        backdated(root, id_, timedelta(minutes=2))
    rows = shown()
    assert {comment: (row.state, row.tables, row.is_alive) for comment, row in rows.items()} == {
        "of t": ("INFLIGHT", "default.t", False),
        "of u": ("INFLIGHT", "default.u", False),
    }
    one.sql(f"CALL lake.system.abort('{ids['of t']}', 'its driver is dead')")
    assert shown().keys() == {"of u"}
    for id_ in ids.values():
        if (root / "_lockstep" / "open" / f"{id_}.json").exists():
            backdated(root, id_, timedelta(days=30))
    one.conf.set("spark.sql.catalog.upkeep", one.conf.get("spark.sql.catalog.lake"))
    one.conf.set("spark.sql.catalog.upkeep.root", str(root))
    one.conf.set("spark.sql.catalog.upkeep.deletion-grace", "0s")
    one.sql("CALL upkeep.system.maintain(optimize => false)")
    assert shown() == {}
    assert not [*root.glob(f"*/*/_delta_log/_lockstep/{ids['of u']}")]
    ended = one.sql("SELECT transaction_id, state FROM lake.system.transactions WHERE state = 'ROLLED_BACK'").collect()
    assert {row.transaction_id for row in ended} >= {ids["of t"], ids["of u"]}
    assert (published(root, "t"), published(root, "u")) == ([1], [1])


def test_one_that_is_open_too_long_is_rolled_back(one: Any, other: Any) -> None:
    one.sql("SET lockstep.transaction_timeout = 300ms")
    one.sql("BEGIN")
    one.sql("SET lockstep.transaction_timeout = 0")  # what it is at BEGIN counts
    wait_until(lambda: other.sql("SHOW TRANSACTIONS").count() == 0, "it stays open")


def test_its_statements_say_so(one: Any, root: Path) -> None:
    one.sql("SET lockstep.transaction_timeout = 2s")
    one.sql("BEGIN")
    seen: list[str | None] = []

    def write() -> bool:
        try:
            one.sql("INSERT INTO t VALUES (2)")
        except PySparkException as error:
            seen.append(error.getSqlState())
        return bool(seen)

    wait_until(write, "it stays open")
    assert seen == ["25P04"]
    one.sql("ROLLBACK")
    assert published(root, "t") == [1]
    assert refused(lambda: one.sql("SET lockstep.transaction_timeout = soon"))[0] == "22023"
    one.sql("SET lockstep.transaction_timeout = 0")
    with lockstep.transaction(one):
        one.sql("INSERT INTO t VALUES (3)")
    assert published(root, "t") == [1, 3]


def test_a_block_whose_transaction_was_ended_does_not_run_again(one: Any, connect: Callable[[], Any]) -> None:
    two, runs = connect(), 0

    def work(_: Any) -> None:
        nonlocal runs
        runs += 1
        one.sql("INSERT INTO t VALUES (2)")
        [row] = two.sql("SHOW TRANSACTIONS").collect()
        two.sql(f"CALL lake.system.abort('{row.transaction_id}')")

    with pytest.raises(FailedTransactionError) as caught:
        lockstep.run(one, work)
    assert caught.value.sqlstate == "57014"
    assert runs == 1
    assert not is_open(one)


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("SHOW TRANSACTIONS IN", "42601"),
        ("SHOW TRANSACTIONS LIKE 'x'", "42601"),
        ("CALL lake.system.abort()", "22023"),
        ("CALL lake.system.abort(NULL)", "22023"),
        ("CALL lake.system.abort('../x')", "22023"),
        ("CALL lake.system.abort('000000000000000000000000')", "42704"),
    ],
)
def test_what_is_refused_leaves_the_transaction(one: Any, statement: str, state: str) -> None:
    one.sql("BEGIN")
    one.sql("INSERT INTO t VALUES (2)")
    assert refused(lambda: one.sql(statement).collect())[0] == state
    one.sql("COMMIT")
    assert one.sql("SELECT id FROM t").count() == 2
