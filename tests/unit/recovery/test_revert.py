"""What keeps one transaction from being taken back alone: pure rules over entries and commits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from lockstep.delta.actions import Action
from lockstep.errors import InvalidError
from lockstep.recovery.revert import (
    Culprit,
    Thing,
    check_revertible,
    has_read,
    is_as_left,
    refused,
    things_of,
    why_in_the_way,
    why_no_append,
)
from lockstep.timeline.database import Database
from lockstep.timeline.entry import (
    Entry,
    Moved,
    Name,
    Namespace,
    NamespaceDdl,
    Table,
    TableDdl,
    TableRead,
    TableWrite,
    TransactionInfo,
    View,
    ViewDdl,
    ViewDefinition,
)
from lockstep.transactions.names import Names
from tests.support.lakes import PROTOCOL, add, metadata, named, remove

T, U = named("t"), named("u")
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def entry(version: int, **more: Any) -> Entry:
    info = TransactionInfo(id=f"tx{version}", began_at=NOW, base_version=version - 1, isolation="SERIALIZABLE")
    return Entry(format=1, version=version, committed_at=NOW, kind="transaction", transaction=info, **more)


def write(table: str = "t") -> TableWrite:
    return TableWrite(id=table, name=named(table), location=table, from_version=1, to_version=2, commits=[])


def created(table: str = "t") -> TableDdl:
    return TableDdl(action="create", id=table, name=named(table), location=table)


MINE = {"writes": [write("t"), write("u")]}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    # what the entry did, what a later one did, and why the entry cannot be taken back; None leaves it to the commits
    "it wrote": (MINE, {"writes": [write("t")]}, None),
    "it wrote another table": ({"writes": [write("u")]}, {"writes": [write("t")]}, None),
    "it renamed it": (MINE, {"tables": [TableDdl(action="rename", id="t", name=T, new_name=U)]}, "changed table"),
    "it dropped it": (MINE, {"tables": [TableDdl(action="drop", id="t", name=T)]}, "changed table"),
    "it brought it back and wrote": (MINE, {"tables": [created()], "writes": [write("t")]}, "changed table"),
    "a plain writer came between": (MINE, {"moved": [Moved(id="t", entry=1, to_version=3)]}, "changed table"),
    "it wrote what was made": ({"tables": [created()], **MINE}, {"writes": [write("t")]}, "which it made"),
    "it wrote the other that was not made": ({"tables": [created()], **MINE}, {"writes": [write("u")]}, None),
    "it wrote what was moved": (
        {"moved": [Moved(id="t", entry=1, to_version=3)], **MINE},
        {"writes": [write("t")]},
        "stands behind that",
    ),
    "both replaced a view": (
        {"views": [ViewDdl(action="drop", name=T)], **MINE},
        {"views": [ViewDdl(action="drop", name=T)], "writes": [write("t")]},
        "view",
    ),
    "both altered a namespace": (
        {"namespaces": [NamespaceDdl(action="alter", name=("n",))]},
        {"namespaces": [NamespaceDdl(action="drop", name=("n",))]},
        "namespace n",
    ),
    "nothing was changed": ({}, {}, "nothing to revert"),
}


@pytest.mark.parametrize("case", CASES)
def test_later_entries_are_judged_by_their_commits_where_both_only_wrote(case: str) -> None:
    mine, theirs, why = CASES[case]
    older, newer = entry(5, **mine), entry(6, **theirs)
    reasons: list[str] = []
    try:
        check_revertible(older)
    except InvalidError as error:
        reasons.append(error.message)
    both = things_of(older) & things_of(newer)
    reasons += filter(None, (why_in_the_way(older, newer, thing, beside=True) for thing in both))
    if why is None:
        assert not reasons
        assert all(why_in_the_way(older, newer, thing, beside=False) for thing in both), "Delta's restore takes it back"
    else:
        assert any(why in each for each in reasons), reasons


def test_a_refusal_says_who_is_in_the_way_and_which_way_there_is() -> None:
    other = Culprit.of(entry(6))
    plain = refused(entry(5), other, "changed it").message
    assert "version 6 (transaction tx6) changed it. Revert what came later first" in plain
    assert "TO VERSION 4" in plain
    assert "lockstep revert" in refused(entry(5), other, "changed it", beside=False).message
    metadata_alone = refused(entry(5), other, "changed it", only_metadata=True, beside=False).message
    assert "revert what changed those" in metadata_alone
    assert "Revert what came later" not in metadata_alone


V = ViewDefinition(text="SELECT 1", schema="{}")
OTHER_V = ViewDefinition(text="SELECT 2", schema="{}")
AS_LEFT: dict[str, tuple[Thing, dict[str, Any], dict[str, Any], bool]] = {
    # a thing, what there was as the entry left it, what there is now, and whether that is the same of it
    "a table": (Thing("table", "t"), {"tables": {"t": T}}, {"tables": {"t": T, "u": U}}, True),
    "a table of another name": (Thing("table", "t"), {"tables": {"t": T}}, {"tables": {"t": U}}, False),
    "a table that was dropped": (Thing("table", "t"), {"tables": {"t": T}}, {}, False),
    "a table that was dropped by it": (Thing("table", "t"), {}, {}, True),
    "a table that came back": (Thing("table", "t"), {}, {"tables": {"t": T}}, False),
    "another table of the name": (Thing("table", "t"), {"tables": {"t": T}}, {"tables": {"u": T}}, False),
    "a view": (Thing("view", T), {"views": {T: V}}, {"views": {T: V}}, True),
    "a view that says something else": (Thing("view", T), {"views": {T: V}}, {"views": {T: OTHER_V}}, False),
    "a view that was dropped": (Thing("view", T), {"views": {T: V}}, {}, False),
    "no view": (Thing("view", T), {}, {}, True),
    "a namespace": (Thing("namespace", ("n",)), {"namespaces": {("n",): {}}}, {"namespaces": {("n",): {}}}, True),
    "an altered one": (
        Thing("namespace", ("n",)),
        {"namespaces": {("n",): {}}},
        {"namespaces": {("n",): {"a": "b"}}},
        False,
    ),
    "no namespace": (Thing("namespace", ("n",)), {}, {}, True),
}


def database(
    tables: Mapping[str, Name] = MappingProxyType({}),
    views: Mapping[Name, ViewDefinition] = MappingProxyType({}),
    namespaces: Mapping[Namespace, dict[str, str]] = MappingProxyType({}),
) -> Database:
    return Database(
        version=5,
        committed_at=NOW,
        tables={name: Table(id=id_, name=name, location=id_, version=1, since=1) for id_, name in tables.items()},
        views={name: View(name=name, definition=each, since=1) for name, each in views.items()},
        namespaces=dict(namespaces),
    )


@pytest.mark.parametrize("case", AS_LEFT)
def test_what_is_as_the_entry_left_it_is_told_whatever_came_between(case: str) -> None:
    thing, made, now, expected = AS_LEFT[case]
    assert is_as_left(thing, database(**made), Names(database(**now), case_sensitive=True)) is expected


@pytest.mark.parametrize(
    ("id_", "version", "predicates", "expected"),
    [
        ("t", 2, None, True),
        ("t", 3, ["id > 1"], True),
        ("t", 1, None, False),  # it saw the table as it was before
        ("t", 2, [], False),  # its name and columns alone
        ("u", 2, None, False),
    ],
)
def test_who_has_read_rows_of_it_depends_on_it(
    id_: str, version: int, predicates: list[str] | None, expected: bool
) -> None:
    read = TableRead(id=id_, name=named(id_), version=version, predicates=predicates)
    assert has_read(entry(6, reads=[read]), "t", 2) is expected


def info(**more: Any) -> Action:
    return {"commitInfo": {"operation": "WRITE", **more}}


def domain(name: str) -> Action:
    return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": False}}


COMMITS: dict[str, tuple[list[Action], bool, str | None]] = {
    # the actions, whether a plain writer made them, and what more they do than to append
    "an append": ([info(isBlindAppend=True), add("x")], False, None),
    "one that says nothing of reading": ([info(), add("x")], True, None),
    "a plain writer's that read": ([info(isBlindAppend=False), add("x")], True, "had read"),
    "one whose reads the entry knows": ([info(isBlindAppend=False), add("x")], False, None),
    "a stream's": ([info(), {"txn": {"appId": "a", "version": 1}}, add("x")], False, None),
    "one with row ids": ([info(), domain("delta.rowTracking"), add("x")], False, None),
    "nothing": ([info()], False, None),
    "a removal": ([info(), add("x"), remove("p")], False, "removed files"),
    "a deletion vector": ([info(), remove("p"), add("p", deletionVector={})], False, "deletion vectors"),
    "new columns": ([info(), metadata("more"), add("x")], False, "columns and properties"),
    "a new protocol": ([info(), PROTOCOL, add("x")], False, "protocol"),
    "a new clustering": ([info(), domain("delta.clustering"), add("x")], False, "metadata domains"),
}


@pytest.mark.parametrize("case", COMMITS)
def test_a_commit_appends_or_does_more(case: str) -> None:
    commit, is_external, expected = COMMITS[case]
    reason = why_no_append(commit, is_external=is_external)
    assert reason is None if expected is None else expected in (reason or "")
