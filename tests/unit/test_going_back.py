"""The commit that makes a table what it was at an older version of its log, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from lockstep.delta.actions import bodies
from lockstep.delta.combine.going_back import (
    going_back,
    restored,
    taken_out,
    what_is_same,
    why_not,
    why_not_restored,
    why_not_taken_out,
)
from lockstep.delta.snapshot import Snapshot


def state(
    protocol: dict[str, Any] | None = None,
    *,
    files: dict[str, str | None] | None = None,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Snapshot:
    """A table with properties, and files with the vectors that they have."""
    adds = {(path, f"u{vector}" if vector else None): vector for path, vector in (files or {}).items()}
    return Snapshot(
        protocol=protocol or {"minReaderVersion": 1, "minWriterVersion": 2},
        metadata={"id": "x", "schemaString": "{}", "partitionColumns": [], "configuration": dict(properties)},
        files={
            key: {
                "path": key[0],
                "size": 1,
                "partitionValues": {},
                "dataChange": False,
                **({"deletionVector": {"storageType": "u", "pathOrInlineDv": vector}} if vector else {}),
            }
            for key, vector in adds.items()
        },
    )


LISTED = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["appendOnly"]}
WHY_NOT: dict[str, tuple[Snapshot, Snapshot, str | None]] = {
    "nothing": (state(), state(), None),
    "a raised protocol": (state(), state({**LISTED, "writerFeatures": ["appendOnly", "invariants"]}), None),
    "a dropped feature": (state(), state(LISTED), "invariants"),
    "a lowered version": (
        state({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["appendOnly"]}),
        state({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}),
        "was lowered",
    ),
    "an unknown protocol": (state({"minReaderVersion": 4, "minWriterVersion": 8}), state(), "not known"),
    "a mark of ids that is none": (state(), state(properties={"delta.columnMapping.maxColumnId": "x"}), "maxColumnId"),
    "properties": (state(properties={"mine": "1"}), state(), None),
    "times that began": (state(), state(properties={"delta.enableInCommitTimestamps": "true"}), "in-commit timestamps"),
    "times that began anew": (
        state(properties={"delta.enableInCommitTimestamps": "true"}),
        state(
            properties={"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "7"},
        ),
        "in-commit timestamps",
    ),
}


@pytest.mark.parametrize("case", WHY_NOT)
def test_why_no_commit_restores_a_table(case: str) -> None:
    wanted, there, expected = WHY_NOT[case]
    reason = why_not_restored(wanted, there)
    assert reason is None if expected is None else expected in (reason or "")


@pytest.mark.parametrize("since", [{}, {"delta.inCommitTimestampEnablementVersion": "3"}])
def test_no_commit_brings_back_times_of_commits_that_some_in_between_lack(since: dict[str, str]) -> None:
    """Delta finds no version by a time any more where one that is to say its time does not."""
    with_times, without = state(properties={"delta.enableInCommitTimestamps": "true", **since}), state()
    for wanted, there in ((with_times, without), (without, with_times)):
        assert "in-commit timestamps" in (why_not(wanted, there) or "")
    assert why_not(with_times, with_times) is None
    assert why_not(without, state(properties={"mine": "1"})) is None


def test_the_commit_is_of_files_and_metadata_and_leaves_the_rest() -> None:
    wanted = state(files={"same": None, "vector": None, "gone": None}, properties={"delta.columnMapping.mode": "name"})
    there = state(LISTED, files={"same": None, "vector": "v", "new": None}, properties={"mine": "1"})
    there.transactions = {"app": {"appId": "app", "version": 1}}
    wanted.transactions = {"app": {"appId": "app", "version": 3}}  # an application that went back: it stays there
    there.domains = {"mine": {"domain": "mine", "configuration": "2", "removed": False}}
    there.metadata["configuration"]["delta.columnMapping.maxColumnId"] = "5"
    target = restored(wanted, there)
    actions = going_back(target, there, 7)
    assert {next(iter(action)) for action in actions} == {"metaData", "remove", "add"}
    assert {(body["path"], "deletionVector" in body) for body in bodies(actions, "add")} == {
        ("vector", False),
        ("gone", False),
    }
    assert {(body["path"], "deletionVector" in body) for body in bodies(actions, "remove")} == {
        ("vector", True),
        ("new", False),
    }
    [metadata] = bodies(actions, "metaData")
    assert metadata["configuration"] == {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "5",
    }
    after = Snapshot(protocol=there.protocol, metadata=there.metadata, files=dict(there.files))
    after.take(actions)
    assert (after.files.keys(), after.protocol) == (wanted.files.keys(), LISTED)


# --- what is taken out from under what came later ---------------------------------------------------------------------


def clustered(snapshot: Snapshot, by: str) -> Snapshot:
    return replace(snapshot, domains={"delta.clustering": {"domain": "delta.clustering", "configuration": by}})


P, PQ = state(files={"p": None}), state(files={"p": None, "q": None})
MARKED = replace(PQ, domains={"delta.rowTracking": {"domain": "delta.rowTracking", "configuration": "{}"}})
TAKEN_OUT: dict[str, tuple[Snapshot, Snapshot, Snapshot, str | None]] = {
    # before it, as it was made, as it is now, and why what was made cannot be taken out
    "nothing came later": (P, PQ, PQ, None),
    "an append came later": (P, PQ, state(files={"p": None, "q": None, "x": None}), None),
    "row ids were given out": (P, PQ, MARKED, None),
    "what it added is gone": (P, PQ, P, "q, that it added, was removed"),
    "what it added lost rows": (P, PQ, state(files={"p": None, "q": "v"}), "q, that it added, was removed"),
    "what it left is gone": (P, PQ, state(files={"q": None}), "p, that it left"),
    "what it removed is there again": (PQ, P, PQ, "q, which it removed, was added again"),
    "and with a vector": (PQ, P, state(files={"p": None, "q": "v"}), "q, which it removed, was added again"),
    "its vector was replaced": (
        state(files={"p": None}),
        state(files={"p": "v"}),
        state(files={"p": "w"}),
        "p, that it added",
    ),
    "it changed properties": (P, state(files={"p": None}, properties={"a": "1"}), P, "properties were changed by it"),
    "they were changed since": (P, PQ, state(files={"p": None, "q": None}, properties={"a": "1"}), "changed since"),
    "it raised the protocol": (P, state(LISTED, files={"p": None}), state(LISTED, files={"p": None}), "protocol"),
    "it was raised since": (P, PQ, state(LISTED, files={"p": None, "q": None}), "protocol was changed since"),
    "it was clustered since": (P, PQ, clustered(PQ, "id"), "metadata domains was changed since"),
    "it was clustered by it": (P, clustered(PQ, "id"), clustered(PQ, "id"), "metadata domains was changed by it"),
}


@pytest.mark.parametrize("case", TAKEN_OUT)
def test_what_was_made_is_taken_out_where_only_appends_came_later(case: str) -> None:
    before, made, there, expected = TAKEN_OUT[case]
    reason = why_not_taken_out(before, made, there)
    assert reason is None if expected is None else expected in (reason or "")
    if expected is None:
        target = taken_out(before, made, there)
        assert target.files.keys() == before.files.keys() | (there.files.keys() - made.files.keys())
        assert (target.metadata, target.protocol, target.domains) == (there.metadata, there.protocol, there.domains)


COUNTED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
SAME: dict[str, tuple[Snapshot, Snapshot, str]] = {
    # as it was made, as it is now, and what of it is the same
    "nothing came between": (PQ, PQ, "all"),
    "other files": (PQ, P, "none"),
    "more files": (P, PQ, "none"),
    "another vector": (state(files={"p": "v"}), state(files={"p": "w"}), "none"),
    "the same vector": (state(files={"p": "v"}), state(files={"p": "v"}), "all"),
    "row ids were given out": (PQ, MARKED, "all"),
    "ids of columns were given out": (
        state(files={"p": None}, properties=COUNTED),
        state(files={"p": None}, properties={**COUNTED, "delta.columnMapping.maxColumnId": "5"}),
        "all",
    ),
    "other properties": (P, state(files={"p": None}, properties={"a": "1"}), "files"),
    "another protocol": (P, state(LISTED, files={"p": None}), "files"),
    "another clustering": (clustered(P, "a"), clustered(P, "b"), "files"),
    "a batch was recorded": (P, replace(P, transactions={"app": {"appId": "app", "version": 1}}), "all"),
    "features in another order": (
        state({**LISTED, "writerFeatures": ["appendOnly", "invariants"]}, files={"p": None}),
        state({**LISTED, "writerFeatures": ["invariants", "appendOnly"]}, files={"p": None}),
        "all",
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_what_a_table_was_is_told_whatever_its_log_says_in_between(case: str) -> None:
    made, there, expected = SAME[case]
    assert what_is_same(made, there) == expected
