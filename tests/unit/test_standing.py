"""How an arbiter stands to a store, told while others commit: a lake that runs is never said to have diverged."""

from __future__ import annotations

import itertools

import pytest

from lockstep.arbiters import Decision, Mark
from lockstep.errors import ArbiterError, ReadOnlyError, UnsupportedError
from lockstep.storage import Storage
from lockstep.timeline.arbitration import SERVER
from lockstep.timeline.log import Timeline
from lockstep.timeline.standing import compare, reseed, standing
from tests.support.arbitrated import make_namespace
from tests.support.lakes import open_catalog
from tests.support.memory import MemoryStorage
from tests.support.recorded import Recorded, Server, nothing


@pytest.mark.parametrize(
    ("found", "least", "newest", "there", "means"),
    [
        pytest.param(Decision("lake", 7, 7, "seven"), 7, 7, Mark("lake", 7, "seven"), "", id="nothing goes on"),
        pytest.param(Decision("lake", 8, 9, "next"), 7, 7, None, "", id="decided, and about to be copied"),
        pytest.param(Decision("lake", 8, 9, "next"), 7, 9, Mark("lake", 9, "next"), "", id="copied meanwhile"),
        pytest.param(Decision("lake", 8, 8, "next"), 7, 30, Mark("lake", 8, "next"), "", id="followed meanwhile"),
        pytest.param(None, 7, 7, None, "holds nothing", id="flushed"),
        pytest.param(Decision("other", 8, 8, "x"), 7, 7, None, "another lake", id="another lake"),
        pytest.param(Decision("lake", 6, 6, "six"), 7, 7, Mark("lake", 6, "six"), "behind", id="an old backup"),
        pytest.param(Decision("lake", 9, 9, "nine"), 7, 7, None, "entries are lost", id="an old store"),
        pytest.param(Decision("lake", 7, 7, "x"), 7, 7, Mark("lake", 7, "seven"), "another database", id="a fork"),
        pytest.param(Decision("lake", 7, 8, "x"), 7, 7, None, "another database version 8", id="a fork of a group"),
        pytest.param(Decision("lake", 7, 8, "x"), 7, 9, Mark("lake", 9, "x"), "another", id="a fork of another length"),
    ],
)
def test_what_is_said_of_an_arbiter(
    found: Decision | None, least: int, newest: int, there: Mark | None, means: str
) -> None:
    said = compare("lake", found, least, newest, there)
    assert means in said
    assert bool(means) == bool(said)


def opened(storage: Storage, server: Server) -> Timeline:
    return Timeline.open(storage, arbiter=Recorded(server))


@pytest.mark.parametrize("commits", [1, 3])
@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_a_lake_that_others_commit_to_is_never_said_to_have_diverged(commits: int, when: str) -> None:
    server, storage = Server(), MemoryStorage()
    writer = open_catalog(storage, arbiter=Recorded(server))
    make_namespace(writer, "a")
    timeline = opened(storage, server)
    numbers = itertools.count()

    def commit() -> None:
        reading, server.reading = server.reading, []  # the writer itself asks, too
        for _ in range(commits):
            make_namespace(writer, f"n{next(numbers)}")
        server.reading = reading

    around = (commit if when != "after" else nothing, commit if when != "before" else nothing)
    for change in (standing, reseed):
        server.reading = [around] * 40
        assert not change(timeline).wrong
    server.reading = []
    make_namespace(writer, "last")


def test_a_lake_that_goes_wrong_while_others_commit_is_found_out() -> None:
    server, storage = Server(), MemoryStorage()
    writer = open_catalog(storage, arbiter=Recorded(server))
    make_namespace(writer, "a")
    old = server.record
    make_namespace(writer, "b")
    server.record = old
    assert "it forgot" in standing(opened(storage, server)).wrong
    assert "it forgot" in reseed(opened(storage, server)).wrong
    assert make_namespace(writer, "c") == 3


def test_an_arbiter_that_may_forget_is_not_said_to_be_well() -> None:
    server, storage = Server(), MemoryStorage()
    open_catalog(storage, arbiter=Recorded(server))
    server.check = UnsupportedError("it may forget")
    with pytest.raises(UnsupportedError, match="it may forget"):
        standing(opened(storage, server))
    with pytest.raises(UnsupportedError, match="it may forget"):
        reseed(opened(storage, server))


def test_another_server_is_the_lakes_only_once_that_was_said() -> None:
    server, storage = Server(), MemoryStorage()
    writer = open_catalog(storage, arbiter=Recorded(server))
    other = Server(identity="two")
    with pytest.raises(ArbiterError, match="is another server"):
        reseed(opened(storage, other))
    assert other.record is None
    assert storage.get(SERVER) is None
    assert reseed(opened(storage, other), another_server=True).is_another_server
    assert make_namespace(open_catalog(storage, arbiter=Recorded(other)), "a") == 1
    with pytest.raises(ArbiterError, match="is another server"):
        make_namespace(writer, "b")
    assert standing(opened(storage, server)).is_another_server
    storage.put(SERVER, b"{")
    with pytest.raises(ArbiterError, match="cannot be read"):
        make_namespace(open_catalog(storage, arbiter=Recorded(other)), "b")
    reseed(opened(storage, other), another_server=True)
    assert make_namespace(open_catalog(storage, arbiter=Recorded(other)), "b") == 2


def test_who_has_not_the_lakes_arbiter_is_told_so() -> None:
    server, storage = Server(), MemoryStorage()
    open_catalog(storage, arbiter=Recorded(server))
    with pytest.raises((UnsupportedError, ReadOnlyError), match="is told to use none"):
        standing(Timeline.open(storage))
