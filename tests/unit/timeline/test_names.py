"""Names of a large catalog: those of one namespace, and those whose case does not count, without a look at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.timeline.checkpoint import Checkpoints
from lockstep.timeline.database import Database, spelled_of
from lockstep.timeline.entry import Name, NamespaceDdl, TableDdl, folded, names_in
from lockstep.timeline.files import File, encode
from lockstep.timeline.fold import fold
from lockstep.timeline.log import Timeline
from lockstep.timeline.manifest import manifest_path, read_manifest
from lockstep.timeline.parts import digest_of
from tests.support.checkpoints import checkpoint, stored
from tests.support.entries import entry
from tests.support.faulty import FaultyStorage
from tests.support.histories import write

LETTERS = st.text("aAbB", min_size=1, max_size=2)
NAMES = st.builds(lambda namespace, table: Name(namespace=namespace, table=table), st.tuples(LETTERS), LETTERS)


def all_like(database: Database, key: Name) -> list[Name]:
    return sorted(name for name in (*database.tables, *database.views) if folded(name) == key)


def created(version: int, names: list[Name], namespaces: set[tuple[str, ...]]) -> Any:
    new = sorted({name.namespace for name in names} - namespaces)
    return entry(
        version,
        namespaces=[NamespaceDdl(action="create", name=each) for each in new],
        tables=[TableDdl(action="create", id=f"{n}", name=n, location=f"{n.namespace}/{n.table}") for n in names],
        writes=[write(-1, 0, "", f"{n}", name=n, location=f"{n.namespace}/{n.table}") for n in names],
    )


@settings(max_examples=60, deadline=None)
@given(names=st.lists(NAMES, unique=True, max_size=12), gone=st.data())
def test_names_in_any_case_are_found(names: list[Name], gone: Any) -> None:
    """The index says what a look at all names says, while tables come and go, of memory and of a checkpoint."""
    entries = [entry(0), created(1, names, {("default",)})]
    dropped = gone.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    entries.append(entry(2, tables=[TableDdl(action="drop", id=f"{name}", name=name) for name in dropped]))
    store = stored(entries)
    for at in (1, 2):
        checkpoint(store, entries, at)
        for database in (fold(entries), Timeline.open(store).head):
            assert dict(database.index.spelled or {}) == dict(spelled_of(database.tables))
            for key in {folded(name) for name in names} | {Name(namespace=("a",), table="none")}:
                assert sorted(database.like(key)) == all_like(database, key)
            for namespace in {name.namespace for name in names}:
                wanted = sorted(name for name in database.tables if name.namespace == namespace)
                assert sorted(names_in(database.tables, namespace)) == wanted


@pytest.fixture
def large() -> FaultyStorage:
    """Ten namespaces of five hundred tables each, from a checkpoint."""
    names = [Name(namespace=(f"n{n % 10}",), table=f"{'T' if n == 77 else 't'}{n:04}") for n in range(5000)]
    entries = [entry(0), created(1, names, {("default",)})]
    store = stored(entries)
    checkpoint(store, entries, 1)
    return store


def parts_read(store: FaultyStorage) -> int:
    return sum(done == "get" and "/parts/" in path for done, path in store.calls)


def test_one_namespace_is_one_range(large: FaultyStorage) -> None:
    """Who lists a namespace reads its tables, and not those of the nine others."""
    database = Timeline.open(large).head
    large.calls.clear()
    assert len([*names_in(database.tables, ("n3",))]) == 500
    assert parts_read(large) <= 10  # of about forty


@pytest.mark.parametrize(("asked", "found"), [("t0077", ["T0077"]), ("t0087", ["t0087"]), ("nobody", [])], ids=str)
def test_a_name_in_another_case_costs_a_few_parts(large: FaultyStorage, asked: str, found: list[str]) -> None:
    """Neither a name that no table has in just that case, nor one that none has at all, reads the whole catalog."""
    database = Timeline.open(large).head
    large.calls.clear()
    assert [name.table for name in database.like(Name(namespace=("n7",), table=asked))] == found
    assert parts_read(large) <= 4


def test_a_checkpoint_without_the_index_is_read_as_ever(large: FaultyStorage) -> None:
    """One of an older Lockstep: all names are looked at, and the next checkpoint has the index."""
    path = manifest_path(1)
    sealed = json.loads(large.inner.get(path) or b"")
    del sealed["manifest"]["spelled"]
    data = json.dumps(sealed["manifest"], separators=(",", ":")).encode()
    large.inner.put(path, b'{"digest":"%b","manifest":%b}' % (digest_of(data).encode(), data))
    head = Timeline.open(large).head
    assert head.index.spelled is None
    assert [name.table for name in head.like(Name(namespace=("n7",), table="t0077"))] == ["T0077"]
    next_entry = created(2, [Name(namespace=("n1",), table="New")], {("n1",)})
    large.inner.put("_lockstep/timeline/00000000000000000002.json", encode(next_entry))
    timeline = Timeline.open(large)
    state = timeline.state_at(2)
    Checkpoints(large).write(state, File(2, encode(next_entry), [next_entry]))
    again = Timeline.open(large).at(2)
    assert again.like(Name(namespace=("n1",), table="new")) == [Name(namespace=("n1",), table="New")]
    assert read_manifest(large, 2).spelled is not None
