"""The commit that makes a table what it was at an older version of its log, as values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from lockstep.delta.actions import bodies
from lockstep.delta.combine.going_back import going_back, restored, why_not_restored
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
