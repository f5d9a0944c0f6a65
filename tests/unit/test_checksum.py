"""Version checksums follow from the one before and the commit, or are not written."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.delta.actions import Action
from lockstep.delta.checksum import LISTED_FILES, advance

METADATA: Action = {"metaData": {"id": "t", "schemaString": "{}", "partitionColumns": [], "configuration": {}}}
PROTOCOL: Action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}

VECTOR = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1}


def add(path: str, size: int, **more: Any) -> Action:
    return {"add": {"path": path, "size": size, "dataChange": True, **more}}


def remove(path: str, size: int | None, **more: Any) -> Action:
    return {"remove": {"path": path, "dataChange": True, **({} if size is None else {"size": size}), **more}}


OPTIMIZE: Action = {"commitInfo": {"operation": "OPTIMIZE"}}


def merged(again: int) -> Action:
    """Say what `collapse` says of a commit made of several, so many of whose adds are of files that are there."""
    return {"commitInfo": {"operation": "TRANSACTION", "operationMetrics": {"numFilesAddedAgain": str(again)}}}


FIRST = [{"commitInfo": {"txnId": "x"}}, PROTOCOL, METADATA, add("a", 10)]


def first() -> dict[str, Any]:
    made = advance(None, FIRST, version=0)
    assert made is not None
    return made


def test_the_first_version_starts_from_nothing() -> None:
    """Version 0 counts its own files and carries its own metadata and protocol."""
    assert first() == {
        "txnId": "x",
        "tableSizeBytes": 10,
        "numFiles": 1,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": METADATA["metaData"],
        "protocol": PROTOCOL["protocol"],
        "allFiles": [{"path": "a", "size": 10, "dataChange": False}],
    }


def test_a_later_version_adds_what_it_changed() -> None:
    """Sizes and counts move by adds and removes; metadata and protocol stay unless they are in the commit."""
    found = advance(first(), [remove("a", 10), add("b", 7), add("c", 5)], version=1)
    assert found is not None
    assert (found["tableSizeBytes"], found["numFiles"]) == (12, 2)
    assert found["metadata"] == METADATA["metaData"]


def test_a_new_deletion_vector_leaves_the_counts() -> None:
    """A file removed and added again with another vector is one file, of the same size."""
    found = advance(first(), [remove("a", 10), add("a", 10, deletionVector=VECTOR)], version=1)
    assert found is not None
    assert (found["tableSizeBytes"], found["numFiles"]) == (10, 1)


def test_the_files_are_listed_while_they_are_few() -> None:
    """The list follows adds and removes by path and deletion vector, and is left out where it would be long."""
    vector = VECTOR
    one = advance(first(), [remove("a", 10), add("a", 10, deletionVector=vector)], version=1)
    assert one is not None
    assert one["allFiles"] == [{"path": "a", "size": 10, "dataChange": False, "deletionVector": vector}]
    many = advance(one, [add(f"f{i}", 1) for i in range(LISTED_FILES)], version=2)
    assert many is not None
    assert "allFiles" not in many
    later = advance(many, [remove("a", 10, deletionVector=vector)], version=3)
    assert later is not None
    assert "allFiles" not in later


def test_new_metadata_and_protocol_win() -> None:
    """A commit that changes the schema or the protocol says so itself."""
    changed = {"metaData": {**METADATA["metaData"], "schemaString": "{1}"}}
    upgraded = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}}
    found = advance(first(), [upgraded, changed], version=1)
    assert found is not None
    assert (found["metadata"], found["protocol"]) == (changed["metaData"], upgraded["protocol"])


def test_transactions_and_domains_are_kept_by_key() -> None:
    """The last SetTransaction of an application counts, the last of a domain too, and a removed domain is gone."""
    one = advance(
        first(),
        [{"txn": {"appId": "s", "version": 1}}, {"domainMetadata": {"domain": "d", "configuration": "1"}}],
        version=1,
    )
    two = advance(
        one,
        [{"txn": {"appId": "s", "version": 2}}, {"domainMetadata": {"domain": "d", "removed": True}}],
        version=2,
    )
    assert one is not None
    assert two is not None
    assert one["domainMetadata"] == [{"domain": "d", "configuration": "1"}]
    assert two["setTransactions"] == [{"appId": "s", "version": 2}]
    assert two["domainMetadata"] == []


def test_what_was_not_known_before_stays_unknown() -> None:
    """A checksum without the optional lists is advanced without them, never with half of them."""
    partial = {key: value for key, value in first().items() if key not in ("setTransactions", "domainMetadata")}
    found = advance(partial, [{"txn": {"appId": "s", "version": 1}}], version=1)
    assert found is not None
    assert found.keys().isdisjoint({"setTransactions", "domainMetadata"})


def test_the_histogram_moves_with_the_files() -> None:
    """A file counts in the last bin that begins at its size or below; the older field name is read too."""
    bins = {"sortedBinBoundaries": [0, 8, 16], "fileCounts": [0, 1, 0], "totalBytes": [0, 10, 0]}
    found = advance({**first(), "histogramOpt": bins}, [remove("a", 10), add("b", 16), add("c", 7)], version=1)
    assert found is not None
    assert found["fileSizeHistogram"] == {**bins, "fileCounts": [1, 0, 1], "totalBytes": [7, 0, 16]}


def test_a_file_that_is_there_already_is_replaced() -> None:
    """Row ids for a file that stays, and OPTIMIZE of another: one commit, in which both adds change no row."""
    two = advance(first(), [add("b", 7)], version=1)
    again, rewritten = add("a", 10, dataChange=False, baseRowId=0), add("c", 6, dataChange=False)
    found = advance(two, [merged(1), remove("b", 7, dataChange=False), again, rewritten], version=2)
    assert found is not None
    assert (found["numFiles"], found["tableSizeBytes"]) == (2, 16)
    assert {file["path"] for file in found["allFiles"]} == {"a", "c"}


@pytest.mark.parametrize(
    ("info", "known"),
    [
        pytest.param(merged(1), False, id="a merged commit with a file that is there already"),
        pytest.param({"commitInfo": {"operation": "TRANSACTION"}}, False, id="a merged commit that does not say"),
        pytest.param(merged(0), True, id="a merged commit with new files alone"),
        pytest.param(OPTIMIZE, True, id="OPTIMIZE on its own"),
    ],
)
def test_without_a_list_of_files_the_commit_must_say_that_they_are_new(info: Action, known: bool) -> None:
    """Where there are too many files to list them, an add without data change may be of any."""
    many = {key: value for key, value in first().items() if key != "allFiles"}
    found = advance(many, [info, remove("a", 10, dataChange=False), add("b", 9, dataChange=False)], version=1)
    assert (found is not None) is known
    assert found is None or (found["numFiles"], found["tableSizeBytes"]) == (1, 9)


@pytest.mark.parametrize(
    ("previous", "commit", "version"),
    [
        pytest.param(None, [add("b", 1)], 1, id="nothing is known of the version before"),
        pytest.param(first(), [remove("a", None)], 1, id="a remove without a size"),
        pytest.param(first(), [remove("b", 10)], 1, id="a remove of a file that the table has not"),
        pytest.param(
            {**first(), "allFiles": None},
            [add("a", 10, dataChange=False)],
            1,
            id="files that are there are added again",
        ),
        pytest.param(None, [add("a", 1)], 0, id="a first version without metadata"),
    ],
)
def test_no_checksum_without_certainty(previous: dict[str, Any] | None, commit: list[Action], version: int) -> None:
    """Where the commit does not tell what the table is, no checksum is written: Delta replays the log."""
    assert advance(previous, commit, version=version) is None
