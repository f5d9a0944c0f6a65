"""What keeps one transaction from being taken back alone: pure rules over entries and commits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from lockstep.delta.actions import Action
from lockstep.errors import InvalidError
from lockstep.recovery.revert import LaterWrite, later_writes, why_no_append
from lockstep.timeline.entry import (
    Entry,
    Moved,
    NamespaceDdl,
    TableDdl,
    TableRead,
    TableWrite,
    TransactionInfo,
    ViewDdl,
)
from tests.support.lakes import PROTOCOL, add, metadata, named, remove

T, U = named("t"), named("u")


def entry(version: int, **more: Any) -> Entry:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    info = TransactionInfo(id=f"tx{version}", began_at=now, base_version=version - 1, isolation="SERIALIZABLE")
    return Entry(format=1, version=version, committed_at=now, kind="transaction", transaction=info, **more)


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
    if why is not None:
        with pytest.raises(InvalidError, match=why):
            later_writes(older, [newer], beside=True)
        return
    shared = {each.id for each in older.writes} & {each.id for each in newer.writes}
    found = later_writes(older, [newer], beside=True)
    assert found == {each.id: [LaterWrite(newer, each)] for each in newer.writes if each.id in shared}


def test_where_delta_takes_logs_back_whoever_writes_later_is_in_the_way_and_another_way_is_named() -> None:
    with pytest.raises(InvalidError, match=r"version 6 \(transaction tx6\) changed table default\.t .*lockstep revert"):
        later_writes(entry(5, **MINE), [entry(6, writes=[write("t")])], beside=False)
    assert later_writes(entry(5, writes=[write("u")]), [entry(6, writes=[write("t")])], beside=False) == {}


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
    assert LaterWrite(entry(6, reads=[read]), write("t")).has_read(2) is expected


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
