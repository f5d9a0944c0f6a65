"""The fold: each rule of what an entry may say, and properties of whole histories."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from immutables import Map

from lockstep.errors import CorruptTimelineError
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Commit, Entry, Moved, Table, TableDdl, TableRead, TableWrite
from lockstep.timeline.files import entry_path
from lockstep.timeline.fold import amended, apply, fold
from lockstep.timeline.placements import amendments, first_moved, placements, placements_after
from tests.support.entries import T0, entry
from tests.support.histories import DEFAULT, History, create, drop, histories, name, namespace, rename, write

E0 = entry(0)
E1 = entry(1, tables=[create()], writes=[write(-1, 0)])
ONE_TABLE = fold([E0, E1])


def versions(db: Database) -> dict[str, int]:
    return {str(table.name): table.version for table in db.tables.values()}


def test_version_0_is_an_empty_database_with_a_default_namespace() -> None:
    """Entry 0 makes version 0: no tables, one namespace `default` without properties."""
    assert apply(None, E0) == Database(version=0, committed_at=T0, namespaces={DEFAULT: {}}, tables={})


def test_an_abort_changes_nothing_but_the_version() -> None:
    db = apply(ONE_TABLE, entry(2, kind="abort", aborts=["txn-9"]))
    assert (db.version, db.tables, db.namespaces) == (2, ONE_TABLE.tables, ONE_TABLE.namespaces)


def test_a_table_is_created_with_its_first_versions() -> None:
    """Create and write in one entry put the table at the write's last version, since this database version."""
    db = apply(apply(None, E0), entry(1, tables=[create()], writes=[write(-1, 2)]))
    table = db.tables[name("t")]
    assert (table.id, table.location, table.version, table.since) == ("id-t", "tables/id-t", 2, 1)
    assert db.table_by_id("id-t") == db.table_at("tables/id-t") == table


def test_apply_leaves_the_database_before_as_it_was() -> None:
    """A database is a value: applying an entry to it does not change it."""
    before = msgspec.structs.replace(ONE_TABLE, tables=dict(ONE_TABLE.tables), namespaces=dict(ONE_TABLE.namespaces))
    apply(ONE_TABLE, entry(2, namespaces=[namespace("create", "n")], writes=[write(0, 1)]))
    assert before == ONE_TABLE


@pytest.mark.parametrize("change", ["write", "create", "rename", "drop", "namespace"])
def test_applying_an_entry_costs_what_it_says_whatever_the_lake_holds(change: str) -> None:
    """What an entry leaves alone is shared with the version before: a copy of 20,000 names alone is over a megabyte."""
    tables = {
        name(f"t{n}"): Table(id=f"id-{n}", name=name(f"t{n}"), location=f"tables/{n}", version=0, since=1)
        for n in range(20_000)
    }
    before = Database(version=1, committed_at=E1.committed_at, namespaces={DEFAULT: {}, ("n",): {}}, tables=tables)
    changes: dict[str, Any] = {
        "write": {"writes": [write(0, 1, "t7", "id-7", location="tables/7")]},
        "create": {"tables": [create("u", "id-u")], "writes": [write(-1, 0, "u", "id-u")]},
        "rename": {"tables": [rename("t7", "u", "id-7")]},
        "drop": {"tables": [drop("t7", "id-7")]},
        "namespace": {"namespaces": [namespace("drop", "n")]},
    }
    after = entry(2, **changes[change])
    tracemalloc.start()
    try:
        apply(before, after)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_tables_are_found_by_id_and_by_folder_whatever_became_of_their_names() -> None:
    """What is found by the index is what a look at all tables finds, after each kind of change."""
    renamed = apply(ONE_TABLE, entry(2, tables=[rename("t", "u")]))
    assert renamed.table_by_id("id-t") == renamed.table_at("tables/id-t") == renamed.tables[name("u")]
    dropped = apply(renamed, entry(3, tables=[drop("u")]))
    assert dropped.table_by_id("id-t") is dropped.table_at("tables/id-t") is None
    for db in (ONE_TABLE, renamed, dropped):
        again = Database(
            version=db.version, committed_at=db.committed_at, namespaces=dict(db.namespaces), tables=dict(db.tables)
        )
        assert again == db


def test_a_write_moves_only_its_table() -> None:
    """A write puts its table at its last version and leaves the others and their `since` alone."""
    second = entry(2, tables=[create("u", "id-u")], writes=[write(-1, 0, "u", "id-u")])
    db = apply(apply(ONE_TABLE, second), entry(3, writes=[write(0, 3, "u", "id-u")]))
    assert versions(db) == {"default.t": 0, "default.u": 3}
    assert {table.since for table in db.tables.values()} == {1, 3}


def test_a_renamed_table_keeps_its_identity() -> None:
    """A rename keeps id, location and version; a write in the same entry knows the new name."""
    db = apply(ONE_TABLE, entry(2, tables=[rename("t", "u")], writes=[write(0, 1, "u", "id-t")]))
    assert versions(db) == {"default.u": 1}
    assert db.tables[name("u")].id == "id-t"
    renamed = apply(ONE_TABLE, entry(2, tables=[rename("t", "u")])).tables[name("u")]
    assert (renamed.version, renamed.since) == (0, 2)


def test_a_dropped_name_and_folder_are_free_again() -> None:
    """REPLACE is drop and create in one entry: the name and even the folder can be taken, under a new id."""
    again = create("t", "id-2", location="tables/id-t")
    db = apply(ONE_TABLE, entry(2, tables=[drop(), again], writes=[write(-1, 0, "t", "id-2", location="tables/id-t")]))
    assert db.tables[name("t")].id == "id-2"
    assert db.table_by_id("id-t") is None


def test_namespaces_are_created_altered_and_dropped() -> None:
    """`properties` is the whole new map, and tables may leave a namespace in the entry that drops it."""
    db = apply(ONE_TABLE, entry(2, namespaces=[namespace("create", "a", "b", owner="x")]))
    assert dict(db.namespaces) == {DEFAULT: {}, ("a", "b"): {"owner": "x"}}
    db = apply(db, entry(3, namespaces=[namespace("alter", "a", "b", tier="1")]))
    assert db.namespaces[("a", "b")] == {"tier": "1"}
    moving = TableDdl(action="rename", id="id-t", name=name("t"), new_name=name("t", "a", "b"))
    db = apply(db, entry(4, namespaces=[namespace("drop", "default")], tables=[moving]))
    assert list(db.namespaces) == [("a", "b")]
    assert versions(db) == {"a.b.t": 0}
    again = [namespace("drop", "a", "b"), namespace("create", "a", "b")]
    assert dict(apply(db, entry(5, namespaces=again)).namespaces) == {("a", "b"): {}}


def test_an_external_write_carries_no_commits() -> None:
    """Commits found in a table's log move it on without being in the entry; a whole table can be adopted so."""
    db = apply(ONE_TABLE, entry(2, kind="external", writes=[write(0, 4, commits=[])]))
    assert versions(db) == {"default.t": 4}
    adopted = entry(3, kind="external", tables=[create("u", "id-u")], writes=[write(-1, 9, "u", "id-u", commits=[])])
    assert versions(apply(db, adopted)) == {"default.t": 4, "default.u": 9}


STAGED = Commit(staged="a")
BOTH = Commit(inline=[msgspec.Raw(b"{}")], staged="a")
BAD: dict[str, tuple[Entry, str]] = {
    "gap": (entry(3), "expected entry 2"),
    "repeat": (entry(1), "expected entry 2"),
    "same time": (entry(2, committed_at=E1.committed_at), "expected a time after"),
    "earlier time": (entry(2, committed_at=T0), "expected a time after"),
    "second create": (entry(2, kind="create"), "expected 'create' in entry 0"),
    "base ahead": (
        entry(2, transaction=msgspec.structs.replace(E1.transaction, base_version=2)),
        "expected one from 0 to 1",
    ),
    "base before 0": (
        entry(2, transaction=msgspec.structs.replace(E1.transaction, base_version=-1)),
        "expected one from 0 to 1",
    ),
    "name taken": (entry(2, tables=[create("t", "id-2")], writes=[write(-1, 0, "t", "id-2")]), "expected one that is"),
    "name empty": (entry(2, tables=[create("", "id-2")], writes=[write(-1, 0, "", "id-2")]), "expected one that is"),
    "id taken": (entry(2, tables=[create("u")], writes=[write(-1, 0, "u")]), "expected a new one"),
    "id empty": (entry(2, tables=[create("u", "")], writes=[write(-1, 0, "u", "")]), "expected a new one"),
    "folder taken": (
        entry(2, tables=[create("u", "id-u", location="tables/id-t")], writes=[]),
        "expected a folder of its own",
    ),
    "folder empty": (entry(2, tables=[create("u", "id-u", location="")]), "expected a folder of its own"),
    "no first version": (entry(2, tables=[create("u", "id-u")]), "expected a write of its first version"),
    "no namespace": (entry(2, tables=[create("u", "id-u", name=name("u", "n"))]), "expected its namespace to exist"),
    "drop unknown": (entry(2, tables=[drop("u")]), "expected it to exist"),
    "drop other id": (entry(2, tables=[drop("t", "id-2")]), "expected id id-t"),
    "rename unknown": (entry(2, tables=[rename("u", "v")]), "expected it to exist"),
    "rename onto itself": (
        entry(2, tables=[create("u", "id-u"), rename("t", "u")], writes=[write(-1, 0, "u", "id-u")]),
        "expected one that is free",
    ),
    "rename to nothing": (entry(2, tables=[rename("t", None)]), "expected a new name"),
    "write unknown": (entry(2, writes=[write(0, 1, "u")]), "expected it to exist"),
    "write other id": (entry(2, writes=[write(0, 1, "t", "id-2")]), "expected id id-t"),
    "write elsewhere": (entry(2, writes=[write(0, 1, location="x")]), "expected 'tables/id-t'"),
    "write after drop": (entry(2, tables=[drop()], writes=[write(0, 1)]), "expected it to exist"),
    "write from before": (entry(2, writes=[write(-1, 1)]), "from -1: expected 0"),
    "write from beyond": (entry(2, writes=[write(1, 2)]), "from 1: expected 0"),
    "write nothing": (entry(2, writes=[write(0, 0)]), "expected past 0"),
    "write twice": (entry(2, writes=[write(0, 1), write(1, 2)]), "expected one write for each table"),
    "too few commits": (entry(2, writes=[write(0, 2, commits=[STAGED])]), "expected 2"),
    "too many commits": (entry(2, writes=[write(0, 1, commits=[STAGED, STAGED])]), "expected 1"),
    "external commits": (entry(2, kind="external", writes=[write(0, 1)]), "expected 0"),
    "empty commit": (entry(2, writes=[write(0, 1, commits=[Commit()])]), "inline or staged"),
    "double commit": (entry(2, writes=[write(0, 1, commits=[BOTH])]), "inline or staged"),
    "namespace exists": (entry(2, namespaces=[namespace("create", "default")]), "expected no such namespace"),
    "alter no namespace": (entry(2, namespaces=[namespace("alter", "n")]), "expected it to exist"),
    "drop no namespace": (entry(2, namespaces=[namespace("drop", "n")]), "expected it to exist"),
    "drop full namespace": (entry(2, namespaces=[namespace("drop", "default")]), "expected nothing in it"),
    "namespace empty": (entry(2, namespaces=[namespace("create")]), "expected no empty part"),
    "namespace empty part": (entry(2, namespaces=[namespace("create", "a", "")]), "expected no empty part"),
    "moves in a transaction": (entry(2, moved=[Moved(id="id-t", entry=1, to_version=1)]), "'external' only"),
    "abort without ids": (entry(2, kind="abort"), "expected ids with 'abort' only"),
    "ids without abort": (entry(2, aborts=["x"]), "expected ids with 'abort' only"),
    "abort and more": (entry(2, kind="abort", aborts=["x"], writes=[write(0, 1)]), "expected one of the two"),
    "moves itself": (entry(2, kind="external", moved=[Moved(id="id-t", entry=2, to_version=1)]), "an earlier entry"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_entry_that_does_not_fit_is_refused(case: str) -> None:
    """Every inconsistency names the entry's version and what was expected instead."""
    bad, expected = BAD[case]
    with pytest.raises(CorruptTimelineError) as caught:
        apply(ONE_TABLE, bad)
    assert f"timeline entry {bad.version} " in caught.value.message
    assert expected in caught.value.message
    assert f"({entry_path(bad.version)}). Nothing is guessed: restore the file " in caught.value.message


BAD_FIRST: dict[str, tuple[Entry, str]] = {
    "not 0": (E1, "expected entry 0"),
    "kind": (entry(0, kind="transaction"), "expected 'create' in entry 0"),
    "no namespace": (entry(0, namespaces=[]), "expected 'default' alone"),
    "two namespaces": (entry(0, namespaces=[*E0.namespaces, namespace("create", "n")]), "expected 'default' alone"),
    "properties": (entry(0, namespaces=[namespace("create", "default", a="b")]), "expected 'default' alone"),
    "a table": (entry(0, tables=[create()], writes=[write(-1, 0)]), "expected an empty database"),
    "a read": (entry(0, reads=[TableRead(id="id-t", name=name("t"), version=0)]), "expected an empty database"),
}


@pytest.mark.parametrize("case", BAD_FIRST)
def test_a_first_entry_that_is_not_one_is_refused(case: str) -> None:
    """A history begins with entry 0 of kind create, an empty database with the namespace `default`."""
    bad, expected = BAD_FIRST[case]
    with pytest.raises(CorruptTimelineError, match=expected):
        fold([bad])


def test_no_entries_are_no_database() -> None:
    """Folding nothing raises: there is no database before entry 0."""
    with pytest.raises(CorruptTimelineError, match="begins with entry 0"):
        fold([])


# A commit of entry 2 was ratified as version 1, and entry 3 went on to 2; a plain writer had taken 1, so both moved on.
WRITES = [E0, E1, entry(2, writes=[write(0, 1)]), entry(3, writes=[write(1, 2)])]
MOVES = [Moved(id="id-t", entry=2, to_version=2), Moved(id="id-t", entry=3, to_version=3)]
MOVING = entry(4, kind="external", moved=MOVES)
MOVED = [*WRITES, MOVING]


def test_older_versions_see_a_moved_commit_where_it_is() -> None:
    """With the timeline's amendments, each database version sees the table version that its commit now has."""
    moved = amendments(MOVED)
    assert moved == {("id-t", 2): 2, ("id-t", 3): 3}
    assert [versions(fold(MOVED[: n + 1], moved)).get("default.t") for n in range(5)] == [None, 0, 2, 3, 3]
    assert [versions(fold(MOVED[: n + 1])).get("default.t") for n in range(5)] == [None, 0, 1, 2, 3]


def test_the_head_is_the_same_with_and_without_amendments() -> None:
    """A reader who learns of a move late has the same head as one who opens the timeline after it."""
    assert fold(MOVED) == fold(MOVED, amendments(MOVED))


@pytest.mark.parametrize("to_version", [3, 5])
def test_the_entry_that_moves_may_also_record_the_foreign_commits(to_version: int) -> None:
    """An external entry's own write counts from where the table was, and may reach past the moved commits."""
    both = entry(4, kind="external", writes=[write(2, to_version, commits=[])], moved=MOVES)
    after = entry(5, writes=[write(to_version, to_version + 1)])
    history = [*WRITES, both, after]
    assert versions(fold(history)) == {"default.t": to_version + 1}
    assert fold(history) == fold(history, amendments(history))


@pytest.mark.parametrize("recorded", [[], [write(2, 3, commits=[])]])
def test_a_commit_can_be_moved_again(recorded: list[TableWrite]) -> None:
    """The last word on a commit wins, in every older version and at the head; foreign commits stay where they are."""
    again = [Moved(id="id-t", entry=2, to_version=3), Moved(id="id-t", entry=3, to_version=4)]
    first = entry(4, kind="external", writes=recorded, moved=MOVES)
    history = [*WRITES, first, entry(5, kind="external", moved=again)]
    moved = amendments(history)
    assert [versions(fold(history[: n + 1], moved))["default.t"] for n in range(1, 6)] == [0, 3, 4, 4, 4]
    assert fold(history) == fold(history, moved)


def test_of_an_entrys_commits_those_that_are_kept_stay_where_they_are() -> None:
    """Each move keeps the first commits at the versions that the moves before it gave them."""
    history = [E0, E1, entry(2, writes=[write(0, 3)])]
    assert placements(history) == {}
    history.append(entry(3, kind="external", moved=[Moved(id="id-t", entry=2, to_version=4, kept=1)]))
    assert placements(history) == {("id-t", 2): (1, 3, 4)}
    history.append(entry(4, kind="external", moved=[Moved(id="id-t", entry=2, to_version=6, kept=2)]))
    assert placements(history) == {("id-t", 2): (1, 3, 6)}
    assert amendments(history) == {("id-t", 2): 6}
    assert versions(fold(history)) == {"default.t": 6}


def test_a_commit_of_a_table_dropped_since_can_be_moved() -> None:
    """The versions before the drop see the commit where it is; the head has no such table."""
    history = [*WRITES[:3], entry(3, tables=[drop()]), entry(4, kind="external", moved=[MOVES[0]])]
    assert versions(fold(history)) == {}
    assert versions(fold(history[:3], amendments(history))) == {"default.t": 2}


def test_amendments_do_not_excuse_other_gaps() -> None:
    """Only a write that may not have known of the move is let through; any other wrong version is refused."""
    wrong = [*WRITES[:3], entry(3, writes=[write(0, 1)])]
    with pytest.raises(CorruptTimelineError, match="from 0: expected 1"):
        fold(wrong, {("id-other", 2): 1, ("id-t", 9): 7})


BAD_MOVES: dict[str, tuple[list[Moved], str]] = {
    "unknown table": ([Moved(id="id-u", entry=2, to_version=9)], "which did not write it"),
    "unwritten": ([Moved(id="id-t", entry=0, to_version=9)], "which did not write it"),
    "not moved": ([Moved(id="id-t", entry=3, to_version=2)], "not past 2"),
    "back": ([Moved(id="id-t", entry=3, to_version=1)], "not past 2"),
    "onto the next": ([Moved(id="id-t", entry=2, to_version=2)], "entry 2 is at 2 already"),
    "past the next": (
        [Moved(id="id-t", entry=2, to_version=5), Moved(id="id-t", entry=3, to_version=4)],
        "entry 2 is at 5 already",
    ),
    "keeps all": ([Moved(id="id-t", entry=3, to_version=3, kept=1)], "keeps 1 of its 1 commits"),
    "keeps less than none": ([Moved(id="id-t", entry=3, to_version=3, kept=-1)], "keeps -1 of its 1 commits"),
}


@pytest.mark.parametrize("case", BAD_MOVES)
def test_moves_that_make_no_sense_are_refused(case: str) -> None:
    """A move names a commit that exists, goes forward, and leaves a table's commits in their order."""
    moves, expected = BAD_MOVES[case]
    with pytest.raises(CorruptTimelineError, match=expected) as caught:
        amendments([*WRITES, entry(4, kind="external", moved=moves)])
    assert "timeline entry 4 " in caught.value.message


@given(histories())
def test_any_history_folds_to_what_its_steps_did(history: History) -> None:
    """The head's tables, versions and namespaces are those of a plain model that took the same steps."""
    db = fold(history.entries)
    assert {key: (table.id, table.version) for key, table in db.tables.items()} == history.tables
    assert set(db.namespaces) == set(history.namespaces)
    assert {key: view.definition.text for key, view in db.views.items()} == history.views
    assert dict(db.batches) == history.batches
    assert db.version == len(history.entries) - 1


@given(histories())
def test_folding_is_applying_one_by_one_and_amendments_leave_the_head_alone(history: History) -> None:
    """fold(a + [b]) == apply(fold(a), b) at each version, with or without amendments, and both agree at the head."""
    moved = amendments(history.entries)
    plain = amended = None
    for n, step in enumerate(history.entries):
        plain, amended = apply(plain, step), apply(amended, step, moved)
        assert plain == fold(history.entries[: n + 1])
        assert amended == fold(history.entries[: n + 1], moved)
    assert plain == amended


@given(histories())
def test_placements_and_amendments_come_step_by_step_too(history: History) -> None:
    """What one more entry moves is known from the entries since the first that it moves; an older version follows."""
    entries, known = history.entries, Map[tuple[str, int], tuple[int, ...]]()
    moved = amendments(entries)
    for n, step in enumerate(entries):
        if step.moved:
            known = placements_after(known, step, entries[first_moved(step) : n])
        assert dict(known) == placements(entries[: n + 1])
        assert amended(fold(entries[: n + 1]), moved) == fold(entries[: n + 1], moved)
        assert fold(entries[n + 1 :], moved, after=amended(fold(entries[: n + 1]), moved)) == fold(entries)


@given(histories())
def test_amended_versions_never_go_back(history: History) -> None:
    """Along the amended history a table's version only grows: a later snapshot never sees less."""
    moved = amendments(history.entries)
    seen: dict[str, int] = {}
    for n in range(len(history.entries)):
        for table in fold(history.entries[: n + 1], moved).tables.values():
            assert table.version >= seen.get(table.id, -1)
            seen[table.id] = table.version
