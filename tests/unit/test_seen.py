"""What a transaction has seen, and which later database version may take its snapshot's place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.timeline.entry import Batch, Entry, Moved, Name, TagDdl, ViewDdl, ViewDefinition
from lockstep.timeline.fold import fold
from lockstep.transactions.seen import Seen
from tests.support.entries import entry
from tests.support.histories import History, create, drop, histories, name, namespace, rename, write

VIEW = ViewDdl(action="create", name=name("v"), definition=ViewDefinition(text="SELECT 1", schema="{}"))


def foreign(version: int, id: str = "id-t") -> Entry:
    return entry(version, kind="external", writes=[write(0, 1, id=id, commits=[])])


# What an entry says, and what a transaction has seen of which none is the same after it.
CHANGES: dict[str, tuple[Entry, list[dict[str, Any]]]] = {
    "a table is written": (entry(5, writes=[write(0, 1)]), [{"tables": {"id-t"}}]),
    "a commit is moved": (
        entry(5, kind="external", moved=[Moved(id="id-t", entry=3, to_version=4)]),
        [{"tables": {"id-t"}}],
    ),
    "a table is made": (entry(5, tables=[create()]), [{"names": {name("t")}}, {"every_name": True}]),
    "a table is made, in upper case": (entry(5, tables=[create("T")]), [{"names": {name("t")}}, {"every_name": True}]),
    "a table is dropped": (
        entry(5, tables=[drop()]),
        [{"tables": {"id-t"}}, {"names": {name("t")}}, {"every_name": True}],
    ),
    "a table is renamed": (
        entry(5, tables=[rename("t", "u")]),
        [{"tables": {"id-t"}}, {"names": {name("t")}}, {"names": {name("u")}}, {"every_name": True}],
    ),
    "a view is made": (entry(5, views=[VIEW]), [{"names": {name("v")}}, {"every_name": True}]),
    "a namespace is made": (
        entry(5, namespaces=[namespace("create", "n")]),
        [{"namespaces": True}, {"names": {name("x")}}, {"tables": {"id-x"}}, {"every_name": True}],
    ),
    "a tag is dropped": (entry(5, tags=[TagDdl(action="drop", name="eod")]), [{"tags": True}, {"every_name": True}]),
    "a batch is done": (entry(5, batch=Batch(application="orders", number=1)), [{"application": "orders"}]),
    "another transaction is ended": (entry(5, kind="abort", aborts=["other"]), [{"last_version": True}]),
    "nothing": (entry(5), [{"last_version": True}]),
}
OTHERS: list[dict[str, Any]] = [
    {},
    {"tables": {"id-x"}},
    {"names": {name("x")}},
    {"namespaces": True},
    {"tags": True},
    {"application": "returns"},
    {"every_name": True},
]


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        pytest.param(change, seen, id=f"{what}: {', '.join(seen) or 'anything'}")
        for what, (change, cases) in CHANGES.items()
        for seen in cases
    ],
)
def test_what_an_entry_changes_is_not_the_same_after_it(change: Entry, seen: dict[str, Any]) -> None:
    assert not Seen("mine", **seen).is_same_after(change)


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        pytest.param(change, seen, id=f"{what}: {', '.join(seen) or 'nothing'}")
        for what, (change, cases) in CHANGES.items()
        for seen in OTHERS
        if seen not in cases and not (what == "a namespace is made" and seen.keys() & {"names", "tables"})
    ],
)
def test_what_it_does_not_change_is_the_same(change: Entry, seen: dict[str, Any]) -> None:
    assert Seen("mine", **seen).is_same_after(change)


@pytest.mark.parametrize("seen", OTHERS, ids=lambda seen: ", ".join(seen) or "nothing")
def test_a_snapshot_is_before_what_ends_its_transaction(seen: dict[str, Any]) -> None:
    """COMMIT finds out that it was killed, or has landed, by the entries after its snapshot."""
    killed = entry(5, kind="abort", aborts=["mine"])
    landed = entry(5)
    assert not Seen("mine", **seen).is_same_after(killed)
    assert not Seen(landed.transaction.id, **seen).is_same_after(landed)


WRITE_OF_U = entry(5, writes=[write(0, 1, "u", "id-u")])


@pytest.mark.parametrize(
    ("seen", "entries", "version"),
    [
        pytest.param({}, [], 4, id="nothing happened"),
        pytest.param({}, [WRITE_OF_U, entry(6, writes=[write(0, 1)])], 4, id="what Lockstep committed moves nothing"),
        pytest.param({}, [foreign(5)], 5, id="what a plain writer did"),
        pytest.param({}, [foreign(5, "id-u")], 4, id="to another table"),
        pytest.param({}, [WRITE_OF_U, foreign(6), entry(7, writes=[write(1, 2)])], 6, id="behind and before others"),
        pytest.param({}, [foreign(5), WRITE_OF_U, foreign(7)], 7, id="twice"),
        pytest.param({"tables": {"id-u"}}, [WRITE_OF_U, foreign(6)], 4, id="behind a change of what was seen"),
        pytest.param({"tables": {"id-u"}}, [foreign(5), foreign(6, "id-u"), foreign(7)], 5, id="as far as it is"),
        pytest.param(
            {},
            [entry(5, kind="external", moved=[Moved(id="id-t", entry=3, to_version=4)])],
            5,
            id="a plain writer overtook a commit",
        ),
    ],
)
def test_a_snapshot_moves_for_a_plain_writers_commit_alone(
    seen: dict[str, Any], entries: list[Entry], version: int
) -> None:
    assert Seen("mine", **seen).moved_to(entries, 4, {"id-t"}) == version


@given(histories(), st.data())
def test_all_that_was_seen_is_the_same_where_a_snapshot_moves_to(history: History, data: st.DataObject) -> None:
    """Whatever was seen of a database version: the one that a snapshot moves to has the same."""
    entries = history.entries
    begin = data.draw(st.integers(0, len(entries) - 1))
    before = fold(entries[: begin + 1])
    names: list[Name] = data.draw(st.lists(st.sampled_from([*before.tables, *before.views, name("none")]), max_size=3))
    seen = Seen("mine", every_name=data.draw(st.booleans()), namespaces=data.draw(st.booleans()))
    for each in names:
        seen.add_name(each)
        if each in before.tables and data.draw(st.booleans()):
            seen.tables.add(before.tables[each].id)
    foreign_ids = {write.id for entry in entries for write in entry.writes if entry.kind == "external"}
    version = seen.moved_to(entries[begin + 1 :], begin, foreign_ids)
    after = fold(entries[: version + 1])
    for each in names:
        assert before.views.get(each) == after.views.get(each)
        one, other = before.tables.get(each), after.tables.get(each)
        assert (one and one.id) == (other and other.id)
    for id_ in seen.tables:
        assert before.table_by_id(id_) == after.table_by_id(id_)
    if seen.every_name:
        assert set(before.tables) == set(after.tables)
        assert set(before.views) == set(after.views)
    if seen.namespaces or seen.names:
        assert before.namespaces == after.namespaces
