"""Arbiters, with real servers: what each must answer, and which are refused."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from lockstep.arbiters import Decision, Mark, Swapped
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import (
    UnavailableError,
    UnsupportedError,
)
from lockstep.timeline import arbitration
from lockstep.timeline.files import entry_path
from tests.support.arbiters import QUICKLY, decision, dynamodb, make_table, of
from tests.support.arbitrated import make_namespace
from tests.support.authority import Authority
from tests.support.gate import wait_until
from tests.support.listening import Listening
from tests.support.ports import free_port
from tests.support.valkey import DURABLE, Line, Server, running
from tests.support.wire import Wire

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
                start.wait(60)  # noqa: B023 (of this round)
                mine = decision(version, str(number))
                return mine if arbiters[number].swap(before.mark, mine) else None

            [before] = [won for won in pool.map(decide, range(16)) if won is not None]
            assert arbiters[0].read() == before


def test_an_arbiter_that_nobody_reaches_has_decided_nothing(tmp_path: Path) -> None:
    port = free_port()
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


class Certified(Listening):
    """A server behind TLS that says nothing, and notes what it is told."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self.heard = b""
        self._context = context

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), self._context.wrap_socket(connection, server_side=True) as secure:
            self.heard += secure.recv(1000)


@pytest.mark.parametrize(("host", "is_told"), [("127.0.0.1", True), ("localhost", False)])
def test_a_password_goes_to_no_server_with_another_ones_certificate(
    host: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is for the number alone. Older releases of redis look for a good one, whoever it is of."""
    authority = Authority(tmp_path, "ours")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    monkeypatch.setenv("LOCKSTEP_ARBITER_PASSWORD", "hunter2")
    with Certified(authority.context()) as server:
        arbiter = of(f"valkeys://{host}:{server.port}", f"file://{tmp_path}")
        arbiter.repeat = replace(QUICKLY, attempts=1)
        with pytest.raises(UnavailableError):
            arbiter.check()
    assert (b"hunter2" in server.heard) is is_told
