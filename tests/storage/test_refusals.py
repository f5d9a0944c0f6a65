"""A store that says no is believed: it is told with what to do, by an error that nobody runs again for.

The noes are what real servers answer: moto's of a bucket that is not there, and what S3, Azure and Google say of keys,
from a socket.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lockstep.display import error_html
from lockstep.errors import LockstepError, StoreRefusedError, UnavailableError
from lockstep.spark.host.host import refusal
from lockstep.storage import Storage, open_storage
from lockstep.storage.hadoop import connect
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from lockstep.timeline.files import entry_path
from tests.support.answering import answering, http
from tests.support.commands import lockstep
from tests.support.lakes import open_catalog
from tests.support.s3 import KEYS, moto, serving
from tests.support.servers import ACCOUNT, ACCOUNT_KEY
from tests.support.wire import Wire

ACTS: Mapping[str, Callable[[Storage], object]] = {
    "get": lambda store: store.get("f/a"),
    "put_if_absent": lambda store: store.put_if_absent("f/a", b"x"),
    "put": lambda store: store.put("f/a", b"x"),
    "put_chunks": lambda store: store.put_chunks("f/a", [b"x"]),
    "chunks": lambda store: store.chunks("f/a"),
    "list": lambda store: store.list("f"),
    "list after": lambda store: store.list("f", after="a"),
    "walk": lambda store: [*store.walk("f")],
    "exists": lambda store: store.exists("f/a"),
    "delete": lambda store: store.delete("f/a"),
    "delete_all": lambda store: store.delete_all(["f/a", "f/b"]),
    "delete_folder": lambda store: store.delete_folder("f"),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving(moto()) as endpoint:
        yield endpoint


def s3(endpoint: str) -> Storage:
    return open_storage("s3://lake/root", options={**KEYS, "endpoint": endpoint})


def azure(endpoint: str) -> Storage:
    options = {"endpoint": f"{endpoint}/{ACCOUNT}", "account_key": ACCOUNT_KEY}
    return open_storage(f"abfss://lake@{ACCOUNT}.dfs.core.windows.net/root", options=options)


def google(endpoint: str) -> Storage:
    return open_storage("gs://lake/root", options={"endpoint": endpoint, "bearer_token": "x"})


def refused(act: Callable[[], object]) -> tuple[str, bool]:
    """Return the SQLSTATE of a refusal, and whether running again may help."""
    with pytest.raises(StoreRefusedError, match="would be refused again: ") as caught:
        act()
    return caught.value.sqlstate, caught.value.retryable


@pytest.mark.parametrize("opened", [s3, azure, google])
@pytest.mark.parametrize(
    "answer",
    [
        ("403 Forbidden", "AccessDenied"),
        ("403 Forbidden", "QuotaExceeded"),
        ("401 Unauthorized", "InvalidToken"),
        ("400 Bad Request", "ExpiredToken"),
    ],
    ids=lambda answer: answer[1],
)
def test_a_no_is_told_as_one_by_each_store_and_request(
    opened: Callable[[str], Storage], answer: tuple[str, str]
) -> None:
    with answering(http(*answer)) as endpoint:
        store = opened(endpoint)
        assert {name: refused(partial(act, store)) for name, act in ACTS.items()} == dict.fromkeys(
            ACTS, ("42501", False)
        )


def test_a_mistyped_bucket_is_told_as_one_by_each_request(endpoint: str) -> None:
    """Also by a look, whose answer has no body that says what is absent."""
    for name, act in ACTS.items():
        store = open_storage("s3://mistyped/lake", options={**KEYS, "endpoint": endpoint})
        assert refused(partial(act, store)) == ("22023", False), name


def test_a_look_reads_only_once_whether_the_bucket_is_there(endpoint: str, tmp_path: Path) -> None:
    """An object that is not there costs one request more, in all of a store's life, or none after anything was read."""
    with Wire(endpoint) as wire:
        for warm, methods in [(False, ["HEAD", "GET", "HEAD"]), (True, ["GET", "HEAD", "HEAD"])]:
            store = open_storage(f"s3://lake/{tmp_path.name}", options={**KEYS, "endpoint": wire.endpoint})
            wire.number({})
            if warm:
                assert store.get("f/b") is None
            assert not any(store.exists("f/a") for _ in range(2))
            assert [method for method, _ in wire.requests] == methods


def test_keys_of_s3_that_may_not_be_deleted_are_told_as_refused() -> None:
    """S3 answers such a request with 200, and says in it of which key it said no."""
    body = (
        '<?xml version="1.0"?><DeleteResult><Error><Key>root/f/a</Key><Code>AccessDenied</Code>'
        "<Message>Access Denied</Message></Error></DeleteResult>"
    )
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()
    with answering(answer) as endpoint:
        assert refused(lambda: s3(endpoint).delete_all(["f/a", "f/b"])) == ("42501", False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_folder_that_may_not_be_written_is_told_as_refused(tmp_path: Path) -> None:
    store = open_storage(str(tmp_path))
    tmp_path.chmod(0o500)
    with pytest.raises(StoreRefusedError, match="Permission denied"):
        store.put_if_absent("a", b"")
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("kind", "is_final"),
    [
        ("org.apache.hadoop.security.AccessControlException", True),
        ("org.apache.hadoop.security.token.SecretManager$InvalidToken", True),
        ("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", True),
        ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", False),
        ("org.apache.hadoop.ipc.StandbyException", False),
        ("java.net.ConnectException", False),
        ("java.io.IOException", False),
    ],
)
def test_what_a_name_node_says_of_permissions_is_told_as_refused(kind: str, is_final: bool) -> None:
    """tests/storage/test_hdfs.py has it from a real one."""
    error = {"kind": kind, "message": "no", "may_be_done": False}
    connect(lambda request: json.dumps({"error": error}).encode() + b"\n")
    try:
        with pytest.raises(UnavailableError) as caught:
            open_storage("hdfs://name/lake").put_if_absent("f/a", b"")
    finally:
        connect(None)
    assert (isinstance(caught.value, StoreRefusedError), caught.value.definite) == (is_final, True)


# --- what becomes of it -----------------------------------------------------------------------------------------------


@pytest.fixture
def wire(endpoint: str) -> Iterator[Wire]:
    with Wire(endpoint) as wire:
        yield wire


@pytest.fixture
def lakes(wire: Wire, endpoint: str, tmp_path: Path) -> tuple[OpenLake, OpenLake]:
    """A lake with a table, over the wire and without it."""
    url = f"s3://lake/{tmp_path.name}"
    settings = [{**KEYS, "endpoint": at} for at in (wire.endpoint, endpoint)]
    over, plain = (OpenLake(open_catalog(open_storage(url, options=each)), each) for each in settings)
    with plain.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64())]))
    over.catalog.database()
    return over, plain


def rows(lake: OpenLake) -> list[int]:
    return sorted(row["id"] for row in lake.at().sql("SELECT id FROM t").to_pylist())


def never(_: float) -> None:
    raise AssertionError("it is run again")


@pytest.mark.parametrize("denied", [False, True], ids=["every write", "the entry"])
def test_what_was_refused_is_run_once(wire: Wire, lakes: tuple[OpenLake, OpenLake], denied: bool) -> None:
    """Also when it is COMMIT's own write that is refused: a no is definite, so nothing is in doubt."""
    over, plain = lakes
    wanted = entry_path(plain.catalog.database().version + 1) if denied else ""
    begun: list[int] = []

    def work(tx: LakeTransaction) -> None:
        begun.append(len(begun))
        tx["t"].append({"id": [begun[-1]]})
        wire.next("PUT", wanted, "403", times=1_000)

    with pytest.raises(StoreRefusedError, match=r"AccessDenied.*would be refused again") as caught:
        over.run(work, sleep=never)
    wire.number({})
    assert (begun, caught.value.sqlstate) == ([0], "42501")
    assert rows(plain) == []


def test_the_notebook_does_not_advise_to_run_it_again() -> None:
    assert "does not help" in error_html(StoreRefusedError("no"))
    assert "may help" in error_html(UnavailableError("busy"))


def test_sql_is_told_the_same_over_the_bridge() -> None:
    error: LockstepError = StoreRefusedError("no such bucket", sqlstate="22023")
    assert json.loads(refusal(error))["error"] == {
        "condition": "LOCKSTEP_STORE_REFUSED",
        "message": "no such bucket",
        "sqlstate": "22023",
    }


def test_the_command_line_is_told_the_same(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in [*KEYS.items(), ("endpoint_url", endpoint)]:
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
    for command in ("log", "tables", "init"):
        done = lockstep(command, "s3://mistyped/lake")
        assert (done.exit_code, "NoSuchBucket" in done.stderr, "SQLSTATE 22023" in done.stderr) == (1, True, True)
