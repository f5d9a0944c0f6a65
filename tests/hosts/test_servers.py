"""Sessions of a Thrift server and of Spark Connect, whose driver has no Python but the host that it spawned."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import termios
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.errors import ConflictError, TransactionStateError, UnsupportedError
from lockstep.spark.session import SessionTransaction
from tests.support.contract import find
from tests.support.gate import wait_until
from tests.support.hosts import WHOLE, ConnectConnection, Server, ThriftConnection, server
from tests.support.lakes import staged_commits
from tests.support.runner import Failure, Result, run_case
from tests.support.sessions import CATALOG

SQL = Path(__file__).parents[2] / "sql"
FEW = ("conflict_lost_update", "isolation_both_ways", "not_a_delta_table", "time_travel_time")
"""Run always: two of what transactions are for, and two that show that a Hive session's statements are looked at."""

# Slow: a server with two ports to start, which all tests here share.
pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def cases() -> list[Any]:
    return [case for case in find(SQL) if WHOLE or case.id.removesuffix(".test") in FEW]


def rows(connection: Any, sql: str) -> list[Any]:
    found = connection.run(sql)
    assert isinstance(found, Result), f"{sql}: {found}"
    return [tuple(row) for row in found.rows]


def refused(connection: Any, sql: str) -> str | None:
    found = connection.run(sql)
    assert isinstance(found, Failure), f"{sql}: {found}"
    return found.sqlstate


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_the_contract_holds(case: Any, connect: Callable[[], Any], root: Path) -> None:
    if wrong := run_case(case, lambda name: connect(), {"catalog": CATALOG, "root": str(root)}):
        pytest.fail(wrong, pytrace=False)


def test_a_client_that_goes_leaves_nothing_behind(connect: Callable[[], Any], root: Path) -> None:
    gone, stays = connect(), connect()
    rows(gone, "CREATE TABLE t (id INT) USING delta")
    for connection in (gone, stays):
        rows(connection, "BEGIN")
        rows(connection, "INSERT INTO t VALUES (1)")
    assert len(staged_commits(root)) == 2
    gone.close()
    wait_until(lambda: len(staged_commits(root)) == 1, "the transaction of a client that went is still there")
    rows(stays, "COMMIT")
    assert rows(stays, "SELECT count(*) FROM t") == [(1,)]


def test_the_timeline_names_the_user_of_the_client(connect: Callable[..., Any], root: Path) -> None:
    """Not the one who runs the server: of a statement on its own, a change of the catalog, a transaction."""
    ada, grace = connect(user="ada"), connect(user="grace_Session_x")
    rows(ada, "CREATE TABLE t (id INT) USING delta")
    rows(grace, "INSERT INTO t VALUES (1)")
    rows(ada, "CREATE NAMESPACE ns")
    rows(grace, "BEGIN")
    rows(grace, "INSERT INTO t VALUES (2)")
    rows(grace, "COMMIT")
    timeline = lockstep.TransactionalCatalog.open(str(root)).timeline
    authors = [entry.transaction.author for entry in timeline.entries(after=0)]
    assert authors == ["ada", "grace_Session_x", "ada", "grace_Session_x"]


def test_a_shared_transaction_outlives_the_connections_that_made_it(connect: Callable[[], Any], root: Path) -> None:
    first, second, other = sharing(connect, root), sharing(connect, root), connect()
    rows(other, "CREATE TABLE t (id INT) USING delta")
    rows(first, "BEGIN")
    rows(first, "INSERT INTO t VALUES (1)")
    first.close()
    rows(second, "INSERT INTO t VALUES (2)")
    second.close()
    third = sharing(connect, root)
    assert sorted(rows(third, "SELECT * FROM t")) == [(1,), (2,)]
    assert rows(other, "SELECT * FROM t") == []
    rows(third, "COMMIT")
    assert sorted(rows(other, "SELECT * FROM t")) == [(1,), (2,)]


def test_a_shared_transaction_that_nobody_comes_back_for_is_rolled_back(connect: Callable[[], Any], root: Path) -> None:
    """Who does come back, too late, is told so: what is left of its work must not be committed on its own."""
    gone = sharing(connect, root)
    rows(gone, "CREATE TABLE t (id INT) USING delta")
    rows(gone, "SET lockstep.shared_transaction_timeout = 1")
    rows(gone, "BEGIN")
    rows(gone, "INSERT INTO t VALUES (1)")
    gone.close()
    wait_until(lambda: not staged_commits(root), "a transaction that nobody can end is still there")
    late = sharing(connect, root)
    assert refused(late, "INSERT INTO t VALUES (2)") == "25P02"
    assert refused(late, "COMMIT") == "25P02"
    assert rows(late, "SELECT * FROM t") == []
    rows(late, "INSERT INTO t VALUES (3)")
    assert rows(connect(), "SELECT * FROM t") == [(3,)]


@pytest.mark.deep  # a minute, for something that no user sees
def test_a_client_that_goes_while_its_first_statement_is_read_is_not_waited_for(running: Server, root: Path) -> None:
    """It takes part after the server has said that it is gone."""
    first, hasty = (sharing(lambda: ThriftConnection(running.thrift, root), root) for _ in range(2))
    rows(first, "CREATE TABLE t (id INT) USING delta")
    rows(first, "SET lockstep.shared_transaction_timeout = 1")
    rows(first, "BEGIN")
    rows(first, "INSERT INTO t VALUES (1)")
    long = f"EXPLAIN SELECT * FROM t WHERE id IN ({', '.join(map(str, range(200_000)))})"  # takes seconds to read
    hasty.connection.cursor().execute(long, async_=True)
    hasty.close()
    rows(first, long)  # begun later, and read as long
    first.close()
    wait_until(lambda: not staged_commits(root), "a transaction that nobody can end is still there")


@pytest.mark.deep  # it starts a server of its own
def test_connections_of_one_session_are_told_that_one_of_them_left_their_transaction(tmp_path: Path) -> None:
    """What the others do next would be committed on its own, without what came before."""
    root = tmp_path / CATALOG
    with server(tmp_path, root, {"spark.sql.hive.thriftServer.singleSession": "true"}) as running:
        gone, stays = (ThriftConnection(running.thrift, root) for _ in range(2))
        rows(gone, "CREATE TABLE t (id INT) USING delta")
        rows(gone, "BEGIN")
        rows(gone, "INSERT INTO t VALUES (1)")
        rows(stays, "INSERT INTO t VALUES (2)")
        gone.close()
        wait_until(lambda: not staged_commits(root), "a transaction that has been left is still there")
        assert refused(stays, "INSERT INTO t VALUES (3)") == "25P02"
        assert refused(stays, "COMMIT") == "25P02"
        assert rows(stays, "SELECT * FROM t") == []
        rows(stays, "BEGIN")
        rows(stays, "INSERT INTO t VALUES (4)")
        stays.close()
        wait_until(lambda: not staged_commits(root), "what the only client has left is still there")
        last = ThriftConnection(running.thrift, root)
        assert rows(last, "SELECT * FROM t") == []
        last.close()


def sharing(connect: Callable[[], Any], root: Path) -> Any:
    """Open a connection that shares its transactions with those of the same test."""
    connection = connect()
    rows(connection, f"SET lockstep.shared_transaction = {root}")
    return connection


def test_what_a_host_had_open_when_it_died_is_rolled_back(
    connect: Callable[[], Any], running: Server, root: Path
) -> None:
    """The next statement starts another host; the session learns that its transaction is gone, and nothing is lost."""
    one, two = connect(), connect()
    rows(one, "CREATE TABLE t (id INT) USING delta")
    rows(one, "BEGIN")
    rows(one, "INSERT INTO t VALUES (1)")
    died = running.host()
    assert died is not None
    os.kill(died, signal.SIGKILL)
    wait_until(lambda: running.host() != died, "it is still there")
    wait_until(lambda: isinstance(two.run("INSERT INTO t VALUES (2)"), Result), "no new host")
    assert running.host() not in (None, died)
    assert refused(one, "INSERT INTO t VALUES (3)") == "25P02", "it would be committed as a statement on its own"
    assert refused(one, "SELECT * FROM t") == "25P02"
    assert refused(one, "COMMIT") == "25P02"
    assert rows(one, "SELECT * FROM t") == [(2,)]
    rows(one, "BEGIN")
    rows(one, "INSERT INTO t VALUES (4)")
    rows(one, "COMMIT")
    assert sorted(rows(two, "SELECT * FROM t")) == [(2,), (4,)]


def test_a_commit_that_a_host_died_of_is_found_out(connect: Callable[[], Any], running: Server, root: Path) -> None:
    """Until then nothing else happens in its session, so nothing is committed that was to follow it."""
    one = connect()
    rows(one, "CREATE TABLE t (id INT) USING delta")
    rows(one, "BEGIN")
    rows(one, "INSERT INTO t VALUES (1)")
    host = running.host()
    assert host is not None
    os.kill(host, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(refused, one, "COMMIT")
        wait_until(lambda: unread(host) > 0, "COMMIT was not sent")
        os.kill(host, signal.SIGKILL)
        assert answer.result() == "40003"
    assert refused(one, "INSERT INTO t VALUES (2)") == "25P02"
    assert refused(one, "COMMIT") == "25P02", "the host never read it"
    assert rows(one, "SELECT * FROM t") == []
    rows(one, "INSERT INTO t VALUES (3)")
    assert rows(one, "SELECT * FROM t") == [(3,)]


def unread(process: int) -> int:
    """Return how many bytes wait in a process's standard input."""
    with Path(f"/proc/{process}/fd/0").open("rb", buffering=0) as pipe:
        return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.fixture
def remote(running: Server, root: Path) -> Any:
    connection = ConnectConnection(running.connect, root)
    yield connection.session
    connection.close()


def test_the_python_face_works_with_a_client_of_connect(remote: Any, running: Server, root: Path) -> None:
    remote.sql("CREATE TABLE t (id INT) USING delta")
    with lockstep.transaction(remote, comment="from afar") as tx:
        remote.sql("INSERT INTO t VALUES (1)")
        remote.createDataFrame([(2,)], "id INT").write.mode("append").saveAsTable("t")
    assert (tx.status, tx.version) == ("COMMITTED", 2)
    with pytest.raises(ZeroDivisionError):
        failing(remote)
    other = ConnectConnection(running.connect, root)
    with pytest.raises(ConflictError):
        overtaken(remote, other.session)
    other.close()
    assert sorted(row.id for row in remote.table("t").collect()) == [101, 102]
    with pytest.raises(TransactionStateError, match="which then began transaction"):
        lockstep.run(remote, begin_another)
    remote.sql("ROLLBACK")
    assert sorted(row.id for row in remote.table("t").collect()) == [101, 102]


def begin_another(tx: SessionTransaction) -> None:
    session = tx._spark
    session.sql("COMMIT")
    session.sql("BEGIN")
    session.sql("DELETE FROM t")


def failing(session: Any) -> None:
    with lockstep.transaction(session):
        session.sql("INSERT INTO t VALUES (3)")
        raise ZeroDivisionError


def overtaken(session: Any, other: Any) -> None:
    with lockstep.transaction(session):
        session.sql("UPDATE t SET id = id + 10")
        other.sql("UPDATE t SET id = id + 100")


def test_a_client_of_connect_has_no_micro_batches(remote: Any) -> None:
    with pytest.raises(UnsupportedError), lockstep.transaction(remote, batch=("copier", 1)):
        pass
    assert refused_by(remote, "COMMIT") == "25P01"


def refused_by(session: Any, sql: str) -> str | None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        session.sql(sql)
    return caught.value.getSqlState()
