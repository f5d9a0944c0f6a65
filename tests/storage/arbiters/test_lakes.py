"""Lakes with an arbiter: they are never told two things about one version."""

from __future__ import annotations

import contextlib
import io
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from lockstep.arbiters import Decision
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
from lockstep.spark.doctor import examine
from lockstep.storage import Mine, Theirs, open_storage
from lockstep.storage.urls import comparable
from lockstep.timeline import arbitration
from lockstep.timeline.arbitration import Arbitration
from lockstep.timeline.clock import utc_now
from lockstep.timeline.expiry import expire
from lockstep.timeline.files import entry_path
from lockstep.timeline.log import Timeline
from tests.support.arbiters import QUICKLY, faulty, history, of, opened
from tests.support.arbitrated import client, make_namespace
from tests.support.faulty import FaultyStorage
from tests.support.markdown import blocks
from tests.support.s3 import CONDITION, KEYS, Application, Ignoring, moto, serving
from tests.support.valkey import Line, Server, running

pytestmark = pytest.mark.long


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


# --- processes, and stores without conditional writes -----------------------------------------------------------------


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
    page = (Path(__file__).parents[3] / "docs" / "storage.md").read_text(encoding="utf-8")
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
