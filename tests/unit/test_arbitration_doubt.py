"""Of an entry that may have been decided nobody says that it was not: a decided entry's files must never be removed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import lockstep
from lockstep.arbiters import Decision
from lockstep.errors import (
    ArbiterError,
    CommitUnknownError,
    LockstepError,
    SnapshotTooOldError,
    UnavailableError,
    UnsupportedError,
)
from lockstep.storage import Mine, Storage, Theirs, open_storage
from lockstep.tables.opened import OpenLake
from lockstep.timeline.arbitration import Arbitration, after_failure, digest_of
from lockstep.timeline.files import entry_path
from tests.support.arbitrated import make_namespace
from tests.support.faulty import FaultyStorage
from tests.support.lakes import open_catalog
from tests.support.memory import MemoryStorage
from tests.support.recorded import Recorded, Server

FORGOT = ArbiterError("it forgot")
DOWN = UnavailableError("it is down", definite=True)
DOUBTFUL = UnavailableError("no answer")
EXPIRED = SnapshotTooOldError("it has expired, and the history tells")
MAY_FORGET = UnsupportedError("it may forget")

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.mark.parametrize(
    ("error", "there", "may_be_decided", "said"),
    [
        (FORGOT, b"ours", True, Mine()),
        (FORGOT, b"another", True, Theirs(b"another")),
        (FORGOT, None, True, "in doubt"),
        (FORGOT, DOUBTFUL, True, "in doubt"),
        (DOWN, b"ours", True, Mine()),
        (DOWN, b"another", True, Theirs(b"another")),
        (DOWN, None, True, "in doubt"),
        (DOWN, DOWN, True, "in doubt"),
        (DOUBTFUL, b"ours", True, Mine()),
        (DOUBTFUL, b"another", True, Theirs(b"another")),
        (DOUBTFUL, None, True, "in doubt"),
        (MAY_FORGET, None, True, "in doubt"),
        (FORGOT, None, False, "as it is"),
        (FORGOT, b"another", False, "as it is"),
        (DOWN, None, False, "definite"),
        (DOUBTFUL, None, False, "definite"),
        (EXPIRED, None, True, "as it is"),
        (EXPIRED, DOWN, True, "in doubt"),
        (EXPIRED, b"ours", True, Mine()),
        (MAY_FORGET, None, False, "as it is"),
    ],
)
def test_what_a_failure_says_of_an_entry_is_decided_by_the_store_and_by_what_was_tried(
    error: LockstepError, there: bytes | UnavailableError | None, may_be_decided: bool, said: object
) -> None:
    answer = after_failure(error, there, b"ours", may_be_decided=may_be_decided)
    match said:
        case "in doubt":
            assert isinstance(answer, UnavailableError)
            assert not answer.definite
            assert error.message in answer.message
        case "definite":
            assert isinstance(answer, UnavailableError)
            assert answer.definite
        case "as it is":
            assert answer is error
        case _:
            assert answer == said


def arbitration(server: Server, storage: Storage) -> Arbitration:
    made = Arbitration(storage, Recorded(server), "lake")
    assert made.put(0, 0, b"zero") == Mine()
    return made


def forgetting_after(server: Server, storage: Storage, copied: bytes | None) -> None:
    """Another process copies something, and then the arbiter forgets."""
    if copied is not None:
        storage.put(entry_path(1), copied)
    server.forget()


@pytest.mark.parametrize(("copied", "answer"), [(b"one", Mine()), (b"another", Theirs(b"another"))])
def test_an_arbiter_that_forgot_what_the_store_has_leaves_it_to_the_store(copied: bytes, answer: Mine | Theirs) -> None:
    server, storage = Server(), MemoryStorage()
    ours = arbitration(server, storage)
    server.lost = [partial(forgetting_after, server, storage, copied)]
    assert ours.put(1, 1, b"one") == answer


def test_an_arbiter_that_forgot_what_nobody_copied_leaves_it_in_doubt() -> None:
    server, storage = Server(), MemoryStorage()
    ours = arbitration(server, storage)
    server.lost = [partial(forgetting_after, server, storage, None)]
    with pytest.raises(UnavailableError, match="holds nothing of this lake") as failed:
        ours.put(1, 1, b"one")
    assert not failed.value.definite
    with pytest.raises(UnavailableError, match="holds nothing of this lake") as again:
        ours.put(1, 1, b"one")
    assert not again.value.definite, "the doubt is about the entry, and not about one call"


def test_an_arbiter_that_may_forget_since_an_answer_was_lost_leaves_it_in_doubt() -> None:
    """Before the request is repeated the server is checked, and may not decide any more."""
    server, storage = Server(), MemoryStorage()
    ours = arbitration(server, storage)
    server.lost = [lambda: setattr(server, "check", MAY_FORGET)]
    with pytest.raises(UnavailableError, match="it may forget") as failed:
        ours.put(1, 1, b"one")
    assert not failed.value.definite
    server.check = None
    assert ours.put(1, 1, b"one") == Mine()
    server.check = MAY_FORGET
    with pytest.raises(UnsupportedError):
        ours.put(2, 2, b"two")


def test_another_server_that_answers_after_a_lost_answer_leaves_it_in_doubt() -> None:
    server, storage = Server(), MemoryStorage()
    ours = Arbitration(storage, Recorded(server), "lake", "one")
    assert ours.put(0, 0, b"zero") == Mine()
    server.lost = [lambda: setattr(server, "identity", "two")]
    with pytest.raises(UnavailableError, match="is another server") as failed:
        ours.put(1, 1, b"one")
    assert not failed.value.definite


@pytest.mark.parametrize("is_followed", [False, True])
def test_an_entry_that_the_arbiter_is_found_to_have_is_in_doubt_until_it_is_copied(is_followed: bool) -> None:
    """Whoever asked for that: this process may have been interrupted, and remembers nothing of it."""
    server, storage = Server(), FaultyStorage(MemoryStorage())
    ours = arbitration(server, storage)
    server.record = Decision("lake", 1, 1, digest_of(b"one"), b"one")
    if is_followed:
        storage.put(entry_path(1), b"one")
        server.record = Decision("lake", 2, 2, digest_of(b"two"), b"two")
    storage.fail("put_if_absent", path=entry_path(1), definite=True)
    answer: object = None
    try:
        answer = ours.put(1, 1, b"one")
    except UnavailableError as error:
        answer = error.definite
    assert answer == (Mine() if is_followed else False)
    assert is_followed or ours.put(1, 1, b"one") == Mine()


def test_who_never_tried_is_told_that_nothing_is_committed() -> None:
    server, storage = Server(), MemoryStorage()
    ours = arbitration(server, storage)
    server.forget()
    with pytest.raises(ArbiterError, match="holds nothing of this lake"):
        ours.put(1, 1, b"one")
    assert storage.get(entry_path(1)) is None


def test_rollback_keeps_the_files_of_an_entry_that_another_process_copied(tmp_path: Path) -> None:
    """Its answer is lost, somebody who wants the next version copies it, and the arbiter forgets."""
    server = Server()
    storage = open_storage(str(tmp_path / "lake"), create=True)
    lake = OpenLake(open_catalog(storage, arbiter=Recorded(server)), {})
    with lake.transaction() as tx:
        tx.create("t", SCHEMA)
    other = open_catalog(open_storage(str(tmp_path / "lake")), arbiter=Recorded(server))

    def copied_and_forgotten() -> None:
        make_namespace(other, "others")
        server.forget()

    server.lost = [copied_and_forgotten]
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2]})
    assert lockstep.open(str(tmp_path / "lake")).at().sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 2}]


def test_rollback_keeps_the_files_of_an_entry_that_may_be_copied_yet(tmp_path: Path) -> None:
    server = Server()
    storage = open_storage(str(tmp_path / "lake"), create=True)
    lake = OpenLake(open_catalog(storage, arbiter=Recorded(server)), {})
    with lake.transaction() as tx:
        tx.create("t", SCHEMA)
    server.lost = [server.forget]
    with pytest.raises(CommitUnknownError), lake.transaction() as tx:
        tx["t"].append({"id": [1, 2]})
    location = next(iter(lake.catalog.timeline.head.tables.values())).location
    assert list((tmp_path / "lake" / location).glob("*.parquet")), "they may be part of a database version"
