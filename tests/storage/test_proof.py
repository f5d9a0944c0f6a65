"""The race before a lake trusts a store: who ignores conditions is refused, and the answer is kept in the root."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import commit_path
from lockstep.errors import CorruptTimelineError, UnavailableError, UnsupportedError
from lockstep.storage import Mine, Storage, Theirs, open_storage, proof
from lockstep.storage.proof import FOLDER, PROBES, judge, path_of, prove, race
from lockstep.timeline.log import Timeline
from tests.support import servers
from tests.support.faulty import FaultyStorage
from tests.support.gcs import TOKEN, Gcs
from tests.support.lakes import append, create, location, named, open_catalog
from tests.support.s3 import KEYS, Application, Ignoring, LookingFirst, moto, serving

A, B, C = b"a", b"b", b"c"


@pytest.mark.parametrize(
    ("answers", "found", "wrong"),
    [
        pytest.param([Mine(), Theirs(A), Theirs(A)], A, "", id="the first one won"),
        pytest.param([Theirs(C), Theirs(C), Mine()], C, "", id="the last one won"),
        pytest.param([Mine(), Mine(), Theirs(A)], A, "2 of 3 writers", id="two won"),
        pytest.param([Mine(), Mine(), Mine()], C, "3 of 3 writers", id="all won"),
        pytest.param([Theirs(B), Theirs(B), Theirs(B)], B, "0 of 3 writers", id="nobody won"),
        pytest.param([Mine(), Theirs(A), Theirs(A)], B, "it is not", id="the winner was overwritten"),
        pytest.param([Mine(), Theirs(A), Theirs(A)], None, "it is not", id="the winner's object is gone"),
        pytest.param([Mine(), Theirs(A), Theirs(B)], A, "shown an object", id="one was shown something else"),
    ],
)
def test_what_a_race_shows(answers: list[Mine | Theirs], found: bytes | None, wrong: str) -> None:
    said = judge([A, B, C], answers, found)
    assert (wrong in said) if wrong else not said


class Distrusted(FaultyStorage):
    """A local store that must be raced first."""

    is_proven_by_use = False


@pytest.fixture
def store(tmp_path: Path) -> Distrusted:
    return Distrusted(open_storage(str(tmp_path), create=True))


def raced(store: Distrusted) -> list[str]:
    """Return the paths of all writes of races."""
    return [path for operation, path in store.calls if operation == "put_if_absent" and path.startswith(PROBES)]


def test_a_store_that_keeps_its_promise_is_raced_once(store: Distrusted) -> None:
    """The race comes before the first entry, leaves nothing but its answer, and is not run again."""
    create(open_catalog(store), "t")
    writes = [path for operation, path in store.calls if operation == "put_if_absent"]
    assert len(raced(store)) == 64
    assert writes[:64] == raced(store)
    assert [*store.walk(PROBES)] == []
    assert store.list(FOLDER) == [path_of(store.address).rpartition("/")[2]]
    open_catalog(store).database([named("t")])
    assert len(raced(store)) == 64


def test_a_store_under_another_address_is_raced_again(store: Distrusted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that was copied to another server must not bring the first one's answer with it."""
    create(open_catalog(store), "t")
    monkeypatch.setattr(Distrusted, "address", "elsewhere")
    store.calls.clear()
    open_catalog(store)
    assert len(raced(store)) == 64
    assert len(store.list(FOLDER)) == 2


def test_who_may_not_write_opens_a_lake_and_is_raced_before_it_appends(store: Distrusted) -> None:
    catalog = open_catalog(store)
    create(catalog, "t")
    catalog.lake.upkeep.settle()  # the hint says then that there is a lake
    store.delete(path_of(store.address))
    store.fail("put_if_absent", times=8, definite=True)
    reader = open_catalog(store)
    assert not store.exists(path_of(store.address))
    store.calls.clear()
    create(reader, "u")
    assert store.exists(path_of(store.address))
    assert next(path for operation, path in store.calls if operation == "put_if_absent").startswith(PROBES)


def test_a_store_that_fails_is_not_trusted(store: Distrusted) -> None:
    """No answer is no proof: nothing is remembered; the lake can be read, and nothing is appended."""
    catalog = open_catalog(store)
    create(catalog, "t")
    catalog.lake.upkeep.settle()  # the hint says then that there is a lake
    store.delete(path_of(store.address))
    store.fail("put_if_absent", path="/0", when="after", times=16)
    catalog = open_catalog(store)
    assert catalog.database([named("t")]).tables
    with pytest.raises(UnavailableError, match="injected"):
        create(catalog, "u")
    assert not store.exists(path_of(store.address))


def test_nothing_is_published_in_a_store_that_was_refused(store: Distrusted) -> None:
    """Who opened a lake without an answer may publish what others ratified: no more than it may append."""
    catalog = open_catalog(store)
    create(catalog, "t")
    published = commit_path(location(catalog, "t"), 1)
    store.fail("put_if_absent", path=published)
    append(catalog, "t", "file")
    catalog.lake.upkeep.settle()
    assert not store.exists(published)
    store.put(path_of(store.address), b'{"store":"it","wrong":"2 of 8"}')
    store.fail("get", path=path_of(store.address))
    reader = open_catalog(store)
    with pytest.raises(UnsupportedError, match="cannot hold a lake: 2 of 8"):
        reader.database([named("t")])
    assert not store.exists(published)


@pytest.mark.parametrize("wrong_is_first", [True, False])
def test_of_two_who_race_at_once_the_one_that_found_it_wrong_is_believed(
    store: Distrusted, monkeypatch: pytest.MonkeyPatch, wrong_is_first: bool
) -> None:
    """The other one had luck: whichever of them writes first what it found, the store stays refused."""
    wrong = "2 of 8 writers of one new object were told that it is theirs"
    outcomes = ["", wrong] if wrong_is_first else [wrong, ""]

    def racing(storage: Storage, **_: object) -> str:
        mine = outcomes.pop(0)
        if outcomes:
            with suppress(UnsupportedError):
                prove(storage)  # another process, which raced meanwhile and was faster
        return mine

    monkeypatch.setattr(proof, "race", racing)
    with pytest.raises(UnsupportedError, match="2 of 8"):
        prove(store)
    with pytest.raises(UnsupportedError, match="2 of 8"):
        Timeline.create(store)


def test_writers_that_cannot_be_started_end_the_race(store: Distrusted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on threads: those that were started must not wait for the others for ever, and no answer is no proof."""
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("lockstep-race"):
            started.append(thread)
            if len(started) > 5:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(UnavailableError, match=r"can't start new thread.*Allow this process more threads"):
        prove(store)
    assert not store.exists(path_of(store.address))
    assert not any(thread.is_alive() for thread in started)


def test_an_answer_that_cannot_be_read_is_no_answer(store: Distrusted) -> None:
    store.put(path_of(store.address), b"{")
    with pytest.raises(CorruptTimelineError, match="delete it, and the store is raced again"):
        prove(store)


@pytest.fixture(params=["ignoring", "looking first", "gcs"])
def racy(request: pytest.FixtureRequest) -> Iterator[servers.Server]:
    """A server that ignores conditions, or looks first and then writes."""
    scheme, options = "s3", KEYS
    match request.param:
        case "ignoring":
            app: Application = Ignoring(moto())
        case "looking first":
            app = LookingFirst(moto())
        case _:
            scheme, options, app = "gs", {"bearer_token": TOKEN}, Gcs(heeds_conditions=False)
    with serving(app, threaded=True) as endpoint:
        yield servers.Server(f"{scheme}://lake", {**options, "endpoint": endpoint})


def test_a_server_that_lets_two_win_is_refused_and_stays_refused(racy: servers.Server, tmp_path: Path) -> None:
    """Before anything of a lake is written; the answer is kept, so that luck in a later race does not help it."""
    options, root = racy.options, racy.url(tmp_path.name)
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=r"cannot hold a lake: (\d )?of 8 writers") as caught:
            TransactionalCatalog.open(root, create=True, options=options)
        assert f"{root} at {options['endpoint']}" in caught.value.message
        assert "delete _lockstep/store/" in caught.value.message
    store = open_storage(root, options=options)
    assert [found.path for found in store.walk("")] == [path_of(store.address)]


def test_a_lake_that_is_there_is_not_opened_on_such_a_server(racy: servers.Server, tmp_path: Path) -> None:
    """Its entries were copied there, or the server is older than the race."""
    local = open_storage(str(tmp_path), create=True)
    Timeline.create(local)
    store = open_storage(racy.url(tmp_path.name), options=racy.options)
    for found in local.walk(""):
        store.put(found.path, local.get(found.path) or b"")
    with pytest.raises(UnsupportedError, match="cannot hold a lake"):
        Timeline.open(store)


def test_a_server_that_is_right_is_found_right(tmp_path: Path) -> None:
    with serving(moto()) as endpoint:
        assert race(open_storage(f"s3://lake/{tmp_path.name}", options={**KEYS, "endpoint": endpoint})) == ""
    with serving(Gcs(), threaded=True) as endpoint:
        options = {"bearer_token": TOKEN, "endpoint": endpoint}
        assert race(open_storage(f"gs://lake/{tmp_path.name}", options=options)) == ""


fetched = pytest.mark.skipif(not servers.ARE_WANTED, reason="must be fetched first: `make test-stores`")


@fetched
@pytest.mark.slow
@pytest.mark.parametrize("server", [servers.s3proxy, servers.versitygw, servers.azurite])
def test_real_servers_that_are_right(server: servers.Starter) -> None:
    with server() as running:
        store: Storage = open_storage(running.url("root"), options=running.options)
        assert [race(store) for _ in range(10)] == [""] * 10


@fetched
@pytest.mark.slow
def test_a_server_that_does_not_take_uploads_is_refused() -> None:
    """fake-gcs-server has no plain PUT, with or without a condition: no answer to the race is no proof."""
    with servers.fake_gcs() as running, pytest.raises(UnavailableError, match="invalid uploadType"):
        TransactionalCatalog.open(running.url("root"), create=True, options=running.options)
