"""Arbiters, with real servers: what each must answer, and that a lake is never told two things about one version."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import boto3
import pytest
import redis

from lockstep.arbiters import Arbiter, Decision, Mark, Swapped, arbiter_of
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import (
    ArbiterError,
    CommitUnknownError,
    LockstepError,
    ReadOnlyError,
    UnavailableError,
    UnsupportedError,
)
from lockstep.lake.claims import claim, claim_path
from lockstep.retry import REQUEST
from lockstep.spark.doctor import examine
from lockstep.storage import Mine, Theirs, open_storage
from lockstep.storage.outside import comparable
from lockstep.timeline import arbitration
from lockstep.timeline.arbitration import Arbitration
from lockstep.timeline.clock import utc_now
from lockstep.timeline.expiry import expire
from lockstep.timeline.files import entry_path
from lockstep.timeline.log import Timeline
from lockstep.timeline.standing import reseed
from tests.support import servers, valkey
from tests.support.arbitrated import client, make_namespace
from tests.support.commands import lockstep
from tests.support.faulty import FaultyStorage
from tests.support.gate import wait_until
from tests.support.lakes import open_catalog
from tests.support.markdown import blocks
from tests.support.s3 import CONDITION, KEYS, Application, Ignoring, moto, serving
from tests.support.valkey import DURABLE, Line, Server, running
from tests.support.wire import Wire

ARBITERS = (
    "valkey",
    "dynamodb of moto",
    pytest.param("DynamoDB Local", marks=pytest.mark.skipif(not servers.ARE_WANTED, reason="make test-stores")),
)
QUICKLY = replace(REQUEST, base_seconds=0.001, cap_seconds=0.01)

Make: TypeAlias = Callable[[str], Arbiter]
"""Makes an arbiter's client, for the lake at a root."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Valkey server that is as it has to be; what a test does to it, it undoes."""
    with running(tmp_path_factory.mktemp("valkey")) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def emulated() -> Iterator[str]:
    """The endpoint of moto's DynamoDB."""
    with serving(moto()) as endpoint:
        make_table(endpoint)
        yield endpoint


def make_table(endpoint: str, *, key: str = "lake_root", name: str = "lakes") -> None:
    boto3.client("dynamodb", region_name="eu-west-1", endpoint_url=endpoint).create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def dynamodb(endpoint: str, table: str = "lakes") -> str:
    return f"dynamodb://{table}?region=eu-west-1&endpoint={endpoint}"


@pytest.fixture(scope="module")
def dynamodb_local() -> Iterator[str]:
    """The endpoint of DynamoDB Local."""
    with servers.dynamodb_local() as endpoint:
        make_table(endpoint)
        yield endpoint


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Iterator[None]:
    """Those that an emulator takes; also for fixtures of this module."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        yield


@pytest.fixture(params=ARBITERS)
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a setting calls an arbiter that works."""
    match request.param:
        case "valkey":
            yield request.getfixturevalue("server").address()
        case "dynamodb of moto":
            yield dynamodb(request.getfixturevalue("emulated"))
        case _:
            yield dynamodb(request.getfixturevalue("dynamodb_local"))


def of(address: str, root: str) -> Arbiter:
    arbiter = arbiter_of(address, root)
    assert arbiter is not None
    arbiter.repeat = QUICKLY
    return arbiter


def decision(version: int, text: str = "x", *, lake: str = "lake", data: bytes | None = b"x") -> Decision:
    return Decision(lake, version, version, f"{version}-{text}", data)


# --- the contract of an arbiter ---------------------------------------------------------------------------------------


def test_a_decision_replaces_the_one_that_it_follows_and_no_other(address: str, tmp_path: Path) -> None:
    arbiter = of(address, f"file://{tmp_path}")
    assert arbiter.read() is None
    assert not arbiter.swap(decision(0).mark, decision(1)), "there is nothing to follow"
    assert arbiter.swap(None, decision(0))
    assert not arbiter.swap(None, decision(0, "late")), "there is something"
    assert arbiter.read() == decision(0)
    for wrong in (Mark("other", 0, "0-x"), Mark("lake", 1, "0-x"), Mark("lake", 0, "0-y")):
        assert not arbiter.swap(wrong, decision(1))
    assert arbiter.swap(decision(0).mark, decision(1, data=None))
    assert not arbiter.swap(decision(0).mark, decision(1, "late"))
    assert arbiter.read() == decision(1, data=None), "nothing is left of what was there before"


def test_lakes_at_other_roots_have_records_of_their_own(address: str, tmp_path: Path) -> None:
    one, other = (of(address, f"file://{tmp_path}/{name}") for name in ("one", "other"))
    assert one.swap(None, decision(0))
    assert other.read() is None
    assert other.swap(None, decision(0, "other"))
    assert one.read() == decision(0)


def test_any_bytes_up_to_the_size_that_is_kept_there(address: str, tmp_path: Path) -> None:
    arbiter = of(address, f"file://{tmp_path}")
    data = bytes(range(256)) * (arbitration.INLINE_BYTES // 256)
    assert arbiter.swap(None, decision(0, data=data))
    assert arbiter.read() == decision(0, data=data)


def test_of_sixteen_who_decide_at_once_one_does(address: str, tmp_path: Path) -> None:
    arbiters = [of(address, f"file://{tmp_path}") for _ in range(16)]
    assert arbiters[0].swap(None, decision(0))
    before = decision(0)
    with ThreadPoolExecutor(16) as pool:
        for version in range(1, 21):
            start = threading.Barrier(16)

            def decide(number: int, version: int = version, before: Decision = before) -> Decision | None:
                start.wait(10)  # noqa: B023 (of this round)
                mine = decision(version, str(number))
                return mine if arbiters[number].swap(before.mark, mine) else None

            [before] = [won for won in pool.map(decide, range(16)) if won is not None]
            assert arbiters[0].read() == before


def test_an_arbiter_that_nobody_reaches_has_decided_nothing(tmp_path: Path) -> None:
    port = valkey.free_port()
    for address in (f"valkey://127.0.0.1:{port}", dynamodb(f"http://127.0.0.1:{port}")):
        with pytest.raises(UnavailableError) as failed:
            of(address, f"file://{tmp_path}").swap(None, decision(0))
        assert failed.value.definite


# --- answers that are lost --------------------------------------------------------------------------------------------


def test_valkeys_lost_requests_and_answers(server: Server, tmp_path: Path) -> None:
    """A lost request is sent again; a lost answer's request was carried out, so it is not carried out again."""
    with Line(server.port) as line:
        arbiter = of(server.address(port=line.port), f"file://{tmp_path}")
        line.next(b"EVAL", "lost request")
        assert arbiter.swap(None, decision(0))
        line.next(b"EVAL", "lost answer")
        swapped = arbiter.swap(decision(0).mark, decision(1))
        assert swapped == Swapped(is_recorded=False, may_have_been=True), "the second of two requests found it decided"
        assert arbiter.read() == decision(1)
        line.next(b"EVAL", "lost answer", times=100)
        with pytest.raises(UnavailableError) as failed:
            arbiter.swap(decision(1).mark, decision(2))
        assert not failed.value.definite, "nobody knows"


def test_who_is_interrupted_before_the_answer_leaves_it_to_nobody(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.Redis(port=server.port) as admin:

        def connections() -> set[str]:
            return {client["id"] for client in admin.client_list()}

        others = connections()
        arbiter = of(server.address(), f"file://{tmp_path}")
        assert arbiter.swap(None, decision(0))
        its = connections() - others
        assert its
        with monkeypatch.context() as patch:
            patch.setattr(redis.Connection, "read_response", interrupted)
            with pytest.raises(KeyboardInterrupt):
                arbiter.read()
        wait_until(lambda: not its & connections(), "the connection stayed open")
        assert arbiter.read() == decision(0)


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_dynamodbs_lost_requests_and_answers(emulated: str, tmp_path: Path) -> None:
    with Wire(emulated) as wire:
        arbiter = of(dynamodb(wire.endpoint), f"file://{tmp_path}")
        assert arbiter.swap(None, decision(0))
        for fault, is_told in (("reset", True), ("503", True), ("lost answer", False), ("503 after", False)):
            before = arbiter.read()
            assert before is not None
            assert not arbiter.swap(None, decision(0)), "after a failure the table is looked at again: that is done now"
            wire.next("POST", "/", fault)  # type: ignore[arg-type]
            assert bool(arbiter.swap(before.mark, decision(before.last + 1))) == is_told, fault
            assert arbiter.read() == decision(before.last + 1)
        assert not arbiter.swap(None, decision(0)), "looked at again"
        wire.next("POST", "/", "lost answer", times=100)
        with pytest.raises(UnavailableError) as failed:
            arbiter.swap(decision(4).mark, decision(5))
        assert not failed.value.definite


def test_what_dynamodb_says_no_to_was_not_done(emulated: str, tmp_path: Path) -> None:
    with Wire(emulated) as wire:
        arbiter = of(dynamodb(wire.endpoint), f"file://{tmp_path}")
        assert arbiter.swap(None, decision(0))
        wire.next("POST", "/", "403", times=100)
        with pytest.raises(UnavailableError) as failed:
            arbiter.swap(decision(0).mark, decision(1))
        assert failed.value.definite


# --- arbiters that may forget -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"appendonly": "no"}, "appendonly is no"),
        ({"appendfsync": "everysec"}, "appendfsync is everysec"),
        ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy is allkeys-lru"),
        ({"no-appendfsync-on-rewrite": "yes"}, "no-appendfsync-on-rewrite is yes"),
    ],
)
def test_a_valkey_that_may_forget_is_refused(changed: dict[str, str], why: str, tmp_path: Path) -> None:
    with running(tmp_path / "valkey", {**DURABLE, **changed}) as server:
        with pytest.raises(UnsupportedError, match=f"may forget what it decides: {why}"):
            TransactionalCatalog.open(str(tmp_path / "lake"), create=True, arbiter=server.address())
        assert server.client.dbsize() == 0
    assert not (tmp_path / "lake" / entry_path(0)).exists()


def test_a_valkey_that_tells_nobody_how_it_is_set_is_refused(tmp_path: Path) -> None:
    with running(tmp_path / "valkey") as server:
        server.client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-config"])
        with pytest.raises(UnsupportedError, match="does not say whether it keeps what it decides"):
            TransactionalCatalog.open(str(tmp_path / "lake"), create=True, arbiter=server.address())
        assert server.client.dbsize() == 0


def test_a_replica_is_refused(server: Server, tmp_path: Path) -> None:
    settings = {**DURABLE, "replicaof": f"127.0.0.1 {server.port}"}
    with running(tmp_path / "valkey", settings) as replica, pytest.raises(UnsupportedError, match="is a replica"):
        of(replica.address(), f"file://{tmp_path}").swap(None, decision(0))


def test_a_table_with_another_key_is_refused(emulated: str, tmp_path: Path) -> None:
    make_table(emulated, key="id", name="others")
    with pytest.raises(UnsupportedError, match="its key must be lake_root"):
        of(dynamodb(emulated, "others"), f"file://{tmp_path}").swap(None, decision(0))


def test_a_password_is_used_and_never_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "lake"
    with running(tmp_path / "valkey", DURABLE) as server:
        server.client.config_set("requirepass", "hunter2")
        with pytest.raises(UnavailableError) as failed:
            TransactionalCatalog.open(str(root), create=True, arbiter=server.address())
        monkeypatch.setenv("LOCKSTEP_ARBITER_PASSWORD", "hunter3")
        with pytest.raises(UnavailableError) as wrong:
            TransactionalCatalog.open(str(root), create=True, arbiter=server.address())
        monkeypatch.setenv("LOCKSTEP_ARBITER_PASSWORD", "hunter2")
        catalog = TransactionalCatalog.open(str(root), create=True, arbiter=server.address())
        assert make_namespace(catalog, "a") == 1
        shown = f"{failed.value}{wrong.value}{catalog!r}{catalog.timeline.arbitration!r}"
    stored = b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    assert "hunter" not in shown
    assert b"hunter" not in stored


# --- a lake with an arbiter -------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def opened(root: Path, address: str | None, *, create: bool = False) -> TransactionalCatalog:
    catalog = TransactionalCatalog.open(str(root), create=create, arbiter=address)
    if catalog.timeline.arbitration is not None:
        catalog.timeline.arbitration.arbiter.repeat = QUICKLY
    return catalog


def faulty(root: Path, address: str) -> tuple[FaultyStorage, TransactionalCatalog]:
    store = FaultyStorage(open_storage(str(root), create=True))
    return store, open_catalog(store, arbiter=of(address, comparable(store.url)))


def history(root: Path) -> list[str]:
    """Return the namespaces that were made, by database version, as a client without the arbiter reads them."""
    timeline = Timeline.open(open_storage(str(root)))
    return [".".join(entry.namespaces[0].name) for entry in timeline.entries(0)]


def test_a_lake_with_an_arbiter_commits_and_is_read_without_it(address: str, root: Path) -> None:
    catalog = opened(root, address, create=True)
    assert [make_namespace(catalog, name) for name in "abc"] == [1, 2, 3]
    assert make_namespace(opened(root, address), "d") == 4
    reader = opened(root, None)
    assert ("d",) in reader.database().namespaces
    with pytest.raises(ReadOnlyError, match="this client is told to use none: it may only read"):
        make_namespace(reader, "e")
    with pytest.raises(UnsupportedError, match="is told to use none"):
        reader.timeline.append(lambda version, at: pytest.fail("made an entry"), 4)
    assert history(root) == ["a", "b", "c", "d"]


def test_a_lake_without_an_arbiter_is_not_written_by_who_is_told_to_use_one(server: Server, root: Path) -> None:
    assert make_namespace(opened(root, None, create=True), "a") == 1
    with pytest.raises(ReadOnlyError, match="has no arbiter"):
        make_namespace(opened(root, server.address(), create=True), "b")


def test_the_environments_arbiter_is_for_lakes_that_have_it(
    server: Server, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(root, None, create=True)
    monkeypatch.setenv("LOCKSTEP_ARBITER", server.address())
    assert make_namespace(opened(root, None), "a") == 1
    opened(root.with_name("other"), None, create=True)
    assert make_namespace(opened(root.with_name("other"), None), "a") == 1
    monkeypatch.delenv("LOCKSTEP_ARBITER")
    assert not opened(root, None).lake.refusal
    assert opened(root.with_name("other"), None).lake.refusal


@pytest.mark.parametrize("inline", [arbitration.INLINE_BYTES, 0])
def test_what_was_decided_and_not_copied_is_copied_by_who_comes_next(
    address: str, root: Path, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 0 bytes in the record the file lies in the store, under a name of its own."""
    monkeypatch.setattr(arbitration, "INLINE_BYTES", inline)
    opened(root, address, create=True)
    store, catalog = faulty(root, address)
    store.fail("put_if_absent", path=entry_path(1), times=100)
    with pytest.raises(CommitUnknownError):
        make_namespace(catalog, "decided")
    assert opened(root, None).database().version == 0, "it is not there to who only reads"
    assert make_namespace(opened(root, address), "next") == 2
    assert history(root) == ["decided", "next"]
    assert not list((root / arbitration.FOLDER).glob("*")), "nothing is left of it"


def test_a_commit_in_doubt_is_settled_by_commit(address: str, root: Path) -> None:
    opened(root, address, create=True)
    for is_copied_by_another in (False, True):
        store, catalog = faulty(root, address)
        version = catalog.database().version + 1
        tx = catalog.begin()
        tx.changing().create_namespace((f"n{version}",), {})
        store.fail("put_if_absent", path=entry_path(version), times=100)
        with pytest.raises(CommitUnknownError):
            catalog.commit(tx)
        if is_copied_by_another:
            make_namespace(opened(root, address), "another")
        store.heal()
        assert catalog.commit(tx).version == version
    assert history(root) == ["n1", "n2", "another"]


def test_a_refusal_after_a_lost_answer_does_not_say_that_nothing_was_decided(server: Server, root: Path) -> None:
    """Between two requests about one entry, of which the first was carried out, the server is set to forget."""
    opened(root, server.address(), create=True)
    with Line(server.port) as line:
        store, catalog = faulty(root, server.address(port=line.port))
        tx = catalog.begin()
        tx.changing().create_namespace(("a",), {})
        line.next(b"EVAL", "lost answer", times=QUICKLY.attempts)
        forgetting = partial(server.client.config_set, "appendfsync", "everysec")
        store.interrupt("get", lambda: store.interrupt("get", forgetting, path=entry_path(1)), path=entry_path(1))
        try:
            with pytest.raises(CommitUnknownError, match="may forget what it decides"):
                catalog.commit(tx)
        finally:
            server.client.config_set("appendfsync", "always")
        assert catalog.commit(tx).version == 1
    assert history(root) == ["a"]


def test_a_store_that_refuses_the_copy_does_not_refuse_the_commit(server: Server, root: Path) -> None:
    """It says that it wrote nothing, and the entry is decided all the same."""
    opened(root, server.address(), create=True)
    store, catalog = faulty(root, server.address())
    store.fail("put_if_absent", path=entry_path(1), definite=True)
    assert make_namespace(catalog, "a") == 1, "it is copied by the second try"
    store.fail("put_if_absent", path=entry_path(2), definite=True, times=100)
    with pytest.raises(CommitUnknownError):
        make_namespace(catalog, "b")
    assert make_namespace(opened(root, server.address()), "c") == 3
    assert history(root) == ["a", "b", "c"]


def test_a_client_that_is_killed_between_deciding_and_copying(server: Server, root: Path) -> None:
    opened(root, server.address(), create=True)
    with client("die", str(root), server.address(), "decided") as dying:
        assert dying.wait(60) == -9
    assert history(root) == []
    found = of(server.address(), f"file://{root}").read()
    assert found is not None
    assert found.last == 1
    assert make_namespace(opened(root, server.address()), "next") == 2
    assert history(root) == ["decided", "next"]


def test_a_server_that_is_killed_goes_on_where_it_was(root: Path, tmp_path: Path) -> None:
    with running(tmp_path / "valkey") as server:
        catalog = opened(root, server.address(), create=True)
        for number in range(3):
            assert make_namespace(catalog, f"a{number}") == 2 * number + 1
            server.kill()
            with pytest.raises(UnavailableError, match="cannot decide"):  # which says that nothing was committed
                make_namespace(catalog, "unreached")
            server.start()
            assert make_namespace(catalog, f"b{number}") == 2 * number + 2
    assert history(root) == ["a0", "b0", "a1", "b1", "a2", "b2"]


# --- arbiters that do not fit the store -------------------------------------------------------------------------------


def refused(catalog: TransactionalCatalog, why: str) -> None:
    """See that nothing is committed, in two ways: by whom it was, and as the store has it."""
    before = history(Path(catalog.lake.storage.url.removeprefix("file://")))
    with pytest.raises(ArbiterError, match=why):
        make_namespace(catalog, "refused")
    assert history(Path(catalog.lake.storage.url.removeprefix("file://"))) == before


def test_an_arbiter_that_lost_its_memory_is_found_out(server: Server, root: Path) -> None:
    catalog = opened(root, server.address(), create=True)
    make_namespace(catalog, "a")
    server.client.delete(f"lockstep:file://{root}")
    for each in (catalog, opened(root, server.address())):
        refused(each, "holds nothing of this lake")
    assert catalog.database().version == 1, "it can be read"
    reseeded(root, server.address())
    assert make_namespace(catalog, "b") == 2


def test_an_arbiter_that_lost_all_that_it_had_counts_as_another_one(server: Server, root: Path) -> None:
    """What is empty may be the wrong server as well, so it takes another word than --yes."""
    catalog = opened(root, server.address(), create=True)
    make_namespace(catalog, "a")
    server.client.flushall()
    refused(catalog, "holds nothing of this lake")  # over a connection that was checked before
    refused(opened(root, server.address()), "is another server than the one that decides")
    said = lockstep_arbiter(root, server.address(), "--reseed", "--yes", exit_code=1)
    assert "--another-server" in said
    assert "55000" in said
    refused(opened(root, server.address()), "is another server")
    reseeded(root, server.address(), "--another-server")
    assert make_namespace(opened(root, server.address()), "b") == 2


def test_two_servers_of_one_prefix_never_both_decide(server: Server, root: Path, tmp_path: Path) -> None:
    """A wrong address, and a --reseed of what is there: the lake knows its server."""
    catalog = opened(root, server.address(), create=True)
    make_namespace(catalog, "a")
    with running(tmp_path / "valkey") as other:
        refused(opened(root, other.address()), "is another server than the one that decides")
        lockstep_arbiter(root, other.address(), "--reseed", "--yes", exit_code=1)
        refused(opened(root, other.address()), "is another server")
        assert make_namespace(catalog, "b") == 2
        assert lockstep("arbiter", root, "--another-server").exit_code == 2, "it says what to do with it"
        reseeded(root, other.address(), "--another-server")
        assert make_namespace(opened(root, other.address()), "c") == 3
        refused(opened(root, server.address()), "is another server")
    assert history(root) == ["a", "b", "c"]


def test_a_table_of_dynamodb_that_was_made_anew_counts_as_another_one(emulated: str, root: Path) -> None:
    make_table(emulated, name="remade")
    make_namespace(opened(root, dynamodb(emulated, "remade"), create=True), "a")
    boto3.client("dynamodb", region_name="eu-west-1", endpoint_url=emulated).delete_table(TableName="remade")
    make_table(emulated, name="remade")
    refused(opened(root, dynamodb(emulated, "remade")), "is another server")


@pytest.mark.parametrize("changed", [{"appendfsync": "everysec"}, {"maxmemory-policy": "allkeys-lru"}])
def test_after_a_reconnect_a_server_is_checked_before_it_decides(
    changed: dict[str, str], root: Path, tmp_path: Path
) -> None:
    """It went and came back between two commits, so no request failed; a minute has not passed."""
    with running(tmp_path / "valkey") as server:
        catalog = opened(root, server.address(), create=True)
        make_namespace(catalog, "a")
        server.kill()
        again = Server(server.folder, {**DURABLE, **changed})
        again.port = server.port
        again.start()
        try:
            with pytest.raises(UnsupportedError, match="may forget what it decides"):
                make_namespace(catalog, "b")
        finally:
            again.kill()
    assert history(root) == ["a"]


def test_after_a_reconnect_another_server_does_not_decide(root: Path, tmp_path: Path) -> None:
    with running(tmp_path / "valkey") as server:
        catalog = opened(root, server.address(), create=True)
        make_namespace(catalog, "a")
        server.kill()
        (tmp_path / "other").mkdir()
        other = Server(tmp_path / "other")
        other.port = server.port
        other.start()
        try:
            refused(catalog, "is another server than the one that decides")
        finally:
            other.kill()


def test_an_arbiter_from_an_old_backup_is_found_out(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "valkey"
    with running(folder) as server:
        stale = opened(root, server.address(), create=True)
        make_namespace(stale, "a")
        server.kill()
        shutil.copytree(folder, tmp_path / "backup")
        server.start()
        make_namespace(opened(root, server.address()), "b")
        server.kill()
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "backup", folder)
        server.start()
        refused(opened(root, server.address()), "stands at database version 1, behind the store, which has 2")
        # Who knows of no more than the backup does is told what it asks for, and meets the store then.
        assert stale.timeline.head.version == 1
        arbiter = stale.timeline.arbitration
        assert arbiter is not None
        answer = arbiter.put(2, 2, b"fork")
        assert answer == Theirs((root / entry_path(2)).read_bytes())
        assert history(root) == ["a", "b"]
        refused(opened(root, server.address()), "decided another database version 2")
        reseeded(root, server.address())
        assert make_namespace(stale, "c") == 3
    assert history(root) == ["a", "b", "c"]


def test_a_lake_that_is_made_anew_at_the_same_root_is_not_the_old_one(server: Server, root: Path) -> None:
    """And the message says what to delete first: this does."""
    for name in ("", "a"):
        catalog = opened(root, server.address(), create=True)
        if name:
            make_namespace(catalog, name)
        catalog.lake.upkeep.settle()
        shutil.rmtree(root)
        version = 1 if name else 0
        why = rf"knows a lake at {re.escape(comparable(f'file://{root}'))} already, at database version {version}"
        with pytest.raises(ArbiterError, match=why) as refused_:
            opened(root, server.address(), create=True)
        assert not (root / entry_path(0)).exists()
        [key] = re.findall(r"delete the key (\S+) there", refused_.value.message)
        assert server.client.delete(key) == 1
    assert make_namespace(opened(root, server.address(), create=True), "b") == 1
    assert history(root) == ["b"]


def test_dynamodbs_record_of_a_lake_that_is_gone_can_be_deleted(emulated: str, root: Path) -> None:
    opened(root, dynamodb(emulated), create=True)
    shutil.rmtree(root)
    with pytest.raises(ArbiterError, match=r"delete the item whose lake_root is (\S+) there"):
        opened(root, dynamodb(emulated), create=True)


@pytest.mark.parametrize("inline", [arbitration.INLINE_BYTES, 0])
def test_lakes_of_one_url_in_two_stores_never_share_a_record(
    server: Server, tmp_path: Path, inline: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The URL does not say which server a bucket is of: each lake's first file has to lie in its own store."""
    monkeypatch.setattr(arbitration, "INLINE_BYTES", inline)
    url = f"s3://lake/{tmp_path.name}"
    with serving(moto()) as one, serving(Elsewhere(moto())) as other:
        first = TransactionalCatalog.open(url, create=True, options={**KEYS, "endpoint": one}, arbiter=server.address())
        elsewhere = {**KEYS, "endpoint": other}
        for version in (0, 1):
            with pytest.raises(ArbiterError, match=f"database version {version}, which this store does not have"):
                TransactionalCatalog.open(url, create=True, options=elsewhere, arbiter=server.address())
            make_namespace(first, f"n{version}")
        second = TransactionalCatalog.open(
            url, create=True, options=elsewhere, arbiter=server.address(more="?prefix=other")
        )
        assert make_namespace(second, "a") == 1
        assert make_namespace(first, "b") == 3


def test_a_copy_of_a_lake_does_not_use_its_arbiters_record(server: Server, root: Path) -> None:
    catalog = opened(root, server.address(), create=True)
    make_namespace(catalog, "a")
    copy = root.with_name("copy")
    catalog.lake.upkeep.settle()
    shutil.copytree(root, copy)
    refused(opened(copy, server.address()), "or the lake was copied or moved")
    reseeded(copy, server.address())
    assert make_namespace(opened(copy, server.address()), "of the copy") == 2
    assert make_namespace(catalog, "b") == 2
    assert (history(root), history(copy)) == (["a", "b"], ["a", "of the copy"])


def test_a_store_from_an_old_backup_is_found_out(server: Server, root: Path) -> None:
    catalog = opened(root, server.address(), create=True)
    for name in "abc":
        make_namespace(catalog, name)
    catalog.lake.upkeep.settle()  # the hint is written behind the answer
    for path in (root / "_lockstep").rglob("*"):
        if path.is_file() and path.name not in {Path(entry_path(n)).name for n in (0, 1)}:
            path.unlink()
    refused(opened(root, server.address()), "which the store lacks")
    said = lockstep_arbiter(root, server.address(), exit_code=1)
    assert "has decided database version 3, and the store ends with 1: entries are lost" in said
    reseeded(root, server.address())
    assert make_namespace(opened(root, server.address()), "d") == 2


def test_what_only_the_arbiter_has_is_copied_and_not_forgotten_when_it_is_set_anew(server: Server, root: Path) -> None:
    opened(root, server.address(), create=True)
    store, catalog = faulty(root, server.address())
    store.fail("put_if_absent", path=entry_path(1), times=100)
    with pytest.raises(CommitUnknownError):
        make_namespace(catalog, "decided")
    assert not reseed(opened(root, server.address()).timeline).wrong
    assert history(root) == ["decided"]


def lockstep_arbiter(root: Path, address: str, *more: str, exit_code: int = 0) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_ARBITER", address)
        done = lockstep("arbiter", root, *more)
    assert done.exit_code == exit_code, done.output
    return done.output


def reseeded(root: Path, address: str, *more: str) -> None:
    """Set an arbiter anew, as its operator does: not unless that is confirmed."""
    before = lockstep_arbiter(root, address, exit_code=1)
    assert "WRONG" in before
    lockstep_arbiter(root, address, "--reseed", exit_code=1)
    assert lockstep_arbiter(root, address, exit_code=1) == before, "nothing was changed without --yes"
    lockstep_arbiter(root, address, "--reseed", "--yes", *more)
    assert "well" in lockstep_arbiter(root, address)


class Elsewhere:
    """An S3 server whose bucket is another one than moto's of that name: all of moto's in a process have one memory."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def __call__(self, environ: Any, start_response: Any) -> Any:
        for name in {"PATH_INFO", "RAW_URI", "REQUEST_URI"} & environ.keys():
            environ[name] = re.sub(r"^/lake(?![^/?])", "/elsewhere", environ[name])
        return self._app(environ, start_response)


class Refusing:
    """An S3 server that does not know `If-None-Match`, and says so."""

    def __init__(self, app: Application) -> None:
        self._app = app

    def __call__(self, environ: Any, start_response: Any) -> Any:
        if CONDITION not in environ:
            return self._app(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("501 Not Implemented", [("Content-Type", "application/xml")])
        return [b"<Error><Code>NotImplemented</Code></Error>"]


# --- processes, and stores without conditional writes -----------------------------------------------------------------


def raced(root: str, address: str, count: int, options: dict[str, str] | None = None) -> list[int]:
    """Have two processes commit, and return the versions that they were told."""
    names = ("one", "other")
    clients = [client("commit", root, address, name, str(count), options=options) for name in names]
    told = [each.communicate(timeout=300)[0].split() for each in clients]
    assert [each.returncode for each in clients] == [0, 0]
    timeline = Timeline.open(open_storage(root, options=options))
    by_version = {entry.version: entry.namespaces[0].name for entry in timeline.entries(0)}
    for name, versions in zip(names, told, strict=True):
        for number, version in enumerate(map(int, versions)):
            assert by_version[version] == (f"{name}_{number}",)
    return [int(version) for versions in told for version in versions]


def test_two_processes_share_two_hundred_versions(address: str, root: Path) -> None:
    opened(root, address, create=True)
    assert sorted(raced(str(root), address, 100)) == [*range(1, 201)]


def test_on_a_store_that_ignores_conditions_each_version_is_one_clients(server: Server, tmp_path: Path) -> None:
    """The race finds the store out: lakes without an arbiter are refused, and the others look before they write."""
    with serving(Ignoring(moto()), threaded=True) as endpoint:
        options = {**KEYS, "endpoint": endpoint}
        root = f"s3://lake/{tmp_path.name}"
        with pytest.raises(UnsupportedError, match="or make the lake with an arbiter"):
            TransactionalCatalog.open(root, create=True, options=options)
        TransactionalCatalog.open(root, create=True, options=options, arbiter=server.address())
        assert sorted(raced(root, server.address(), 15, options)) == [*range(1, 31)]


def test_a_store_that_answers_501_to_conditions_is_one_without(server: Server, tmp_path: Path) -> None:
    """It is found out as one that ignores them, and not taken for one that is down."""
    with serving(Refusing(moto())) as endpoint:
        options = {**KEYS, "endpoint": endpoint}
        root = f"s3://lake/{tmp_path.name}"
        with pytest.raises(UnsupportedError, match="it knows no conditional writes"):
            TransactionalCatalog.open(root, create=True, options=options)
        catalog = TransactionalCatalog.open(root, create=True, options=options, arbiter=server.address())
        assert [make_namespace(catalog, name) for name in "ab"] == [1, 2]
        reader = TransactionalCatalog.open(root, options=options)
        assert reader.database().version == 2, "who has no arbiter can read it"


def test_a_table_in_a_store_without_conditions_is_not_adopted(server: Server, tmp_path: Path) -> None:
    with serving(Ignoring(moto()), threaded=True) as endpoint:
        options = {**KEYS, "endpoint": endpoint}
        catalog = TransactionalCatalog.open(
            f"s3://lake/{tmp_path.name}", create=True, options=options, arbiter=server.address()
        )
        storage = catalog.lake.storage
        with pytest.raises(UnsupportedError, match="cannot be adopted where it is"):
            claim(storage, "t", "tx", clock=utc_now, name_in=lambda *_: None)
        assert storage.get(claim_path("t")) is None


def test_versions_expire_in_a_lake_with_an_arbiter(server: Server, root: Path) -> None:
    """Entry 0 is wrapped then, and what killed clients staged for versions that expired goes."""
    catalog = opened(root, server.address(), create=True)
    for name in "abcd":
        make_namespace(catalog, name)
    left = root / arbitration.staged_path(Decision("lake", 2, 2, "0" * 64))
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"of a client that was killed")
    catalog.timeline.mark_published(4)
    expire(catalog.timeline, first_kept=3, wait=lambda: None)
    assert not left.exists()
    again = opened(root, server.address())
    assert make_namespace(again, "e") == 6
    assert opened(root, None).lake.refusal


def test_doctor_tells_how_an_arbiter_stands(server: Server, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And races no store: it need not know conditional writes."""

    def found() -> dict[str, tuple[bool, str]]:
        findings = examine(str(root))
        return {each.what: (each.is_well, each.detail) for each in findings if each.what in ("store", "arbiter")}

    make_namespace(opened(root, server.address(), create=True), "a")
    monkeypatch.setenv("LOCKSTEP_ARBITER", server.address())
    assert found() == {"arbiter": (True, "valkey lockstep, which decided database version 1")}
    server.client.flushall()
    assert not found()["arbiter"][0]
    monkeypatch.delenv("LOCKSTEP_ARBITER")
    assert "is told to use none" in found()["arbiter"][1]


def test_the_guides_example_runs(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "storage.md").read_text(encoding="utf-8")
    [example] = [block for block in blocks(page) if block.language == "python" and "valkey://" in block.text]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(example.text.replace("valkey://127.0.0.1:6379", server.address()), {})
    assert example.prints(printed.getvalue()), printed.getvalue()


def test_two_who_make_a_lake_at_once_make_one(server: Server, root: Path) -> None:
    """Each would have made another, with an id of its own."""
    one, other = (of(server.address(), comparable(f"file://{root}")) for _ in range(2))
    store = FaultyStorage(open_storage(str(root), create=True))
    store.interrupt("put_if_absent", lambda: Timeline.create(store.inner, arbiter=other), path=entry_path(0))
    timeline = Timeline.create(store, arbiter=one)
    assert timeline.arbitration is not None
    assert timeline.arbitration.lake == Timeline.open(store.inner).entries(-1)[0].transaction.id
    assert isinstance(timeline.arbitration.put(1, 1, b"x"), Mine)
    assert isinstance(Arbitration(store, other, timeline.arbitration.lake).put(1, 1, b"y"), Theirs)


@pytest.mark.parametrize("operation", ["put_if_absent", "put"])
def test_two_who_make_a_lake_at_once_with_two_arbiters_make_one(
    operation: Literal["put_if_absent", "put"], server: Server, root: Path
) -> None:
    """Each has decided an entry 0 of its own. The store's is the lake's, and the other client may only read.

    Without conditional writes the one that was late overwrites the other's, which has not written anything behind it.
    """
    one, other = (of(server.address(more=f"?prefix={name}"), comparable(f"file://{root}")) for name in ("one", "two"))
    store = FaultyStorage(open_storage(str(root), create=True))
    made: list[Timeline] = []
    store.interrupt(operation, lambda: made.append(Timeline.create(store, arbiter=other)), path=entry_path(0))
    if operation == "put":
        store.look_first()
    timeline = Timeline.create(store, arbiter=one)
    winner = Timeline.open(store).arbiter_name
    assert winner is not None
    assert winner.name == ("two" if operation == "put_if_absent" else "one")
    assert bool(timeline.refusal) == (winner.name == "two")
    late, early = timeline.arbitration, made[0].arbitration
    if operation == "put_if_absent":
        assert late is None
        assert early is not None
        assert isinstance(early.put(1, 1, b"x"), Mine)
    else:
        assert early is not None
        with pytest.raises(ArbiterError, match="decided another database version 0 than the store has"):
            early.put(1, 1, b"x")
        assert late is not None
        assert isinstance(late.put(1, 1, b"x"), Mine)


def test_an_arbiters_failure_is_told_as_one(root: Path, tmp_path: Path) -> None:
    with running(tmp_path / "valkey") as server:
        catalog = opened(root, server.address(), create=True)
        server.kill()
        with pytest.raises(LockstepError, match=r"cannot .* the arbiter \(valkey lockstep\)"):
            make_namespace(catalog, "a")
        assert catalog.database().version == 0
