"""A table's state at a version, read of its log: of commits, of checkpoints of each kind, and of both."""

from __future__ import annotations

import sys
from io import BytesIO
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lockstep.delta.actions import Action, render
from lockstep.delta.log import LOG, commit_path
from lockstep.delta.snapshot import Snapshot, checkpoint_names, read_snapshot
from lockstep.errors import CorruptTimelineError, MissingFilesError, UnsupportedError
from lockstep.storage import Storage
from tests.support.lakes import NEW_TABLE, add, remove

UUID = "016ae953-37a9-438e-8683-9a9a4a79a395"
OTHER = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"

PROTOCOL = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
METADATA = pa.struct(
    [
        *(("id", pa.string()), ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string()))),
        ("configuration", pa.map_(pa.string(), pa.string())),
    ]
)
VECTOR = pa.struct([("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32())])
ADD = pa.struct(
    [
        *(("path", pa.string()), ("partitionValues", pa.map_(pa.string(), pa.string())), ("size", pa.int64())),
        *(("stats", pa.string()), ("deletionVector", VECTOR), ("baseRowId", pa.int64())),
        ("stats_parsed", pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("id", pa.int64())]))])),
    ]
)
SIDECAR = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64())])
KINDS = {"protocol": PROTOCOL, "metaData": METADATA, "add": ADD, "sidecar": SIDECAR}


def parquet(*rows: Action, kinds: tuple[str, ...] = ("protocol", "metaData", "add", "sidecar")) -> bytes:
    """Return a checkpoint's file: a row for each action, null for all kinds but its own."""
    table = pa.table({kind: pa.array([row.get(kind) for row in rows], KINDS[kind]) for kind in kinds})
    out = BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def file(path: str, **more: Any) -> Action:
    return {"add": {"path": path, "partitionValues": {"p": None}, "size": 3, **more}}


HEADER: tuple[Action, ...] = (
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {"metaData": {"id": "m", "schemaString": "{}", "partitionColumns": ["p"], "configuration": {"a": "b"}}},
)


def name(version: int, rest: str) -> str:
    return f"t/{LOG}/{version:020d}.{rest}"


def commit(store: Storage, version: int, *actions: Action) -> None:
    store.put(commit_path("t", version), render([{"commitInfo": {}}, *actions]))


def paths(snapshot: Snapshot) -> list[str]:
    return sorted(path for path, _ in snapshot.files)


def test_commits_add_up(store: Storage) -> None:
    commit(store, 0, *NEW_TABLE, add("a"), add("b"), {"txn": {"appId": "s", "version": 1}})
    commit(store, 1, add("a", dataChange=False, stats="{}"), remove("b"), {"txn": {"appId": "s", "version": 2}})
    commit(store, 2, add("c"))
    snapshot = read_snapshot(store, "t", 1)
    assert paths(snapshot) == ["a"]
    assert snapshot.files["a", None]["stats"] == "{}"
    assert snapshot.transactions["s"]["version"] == 2
    assert paths(read_snapshot(store, "t", 2)) == ["a", "c"]


def put_classic(store: Storage) -> None:
    store.put(name(5, "checkpoint.parquet"), parquet(*HEADER, file("a"), file("b")))


def put_parts(store: Storage) -> None:
    store.put(name(5, "checkpoint.0000000001.0000000002.parquet"), parquet(*HEADER, file("a")))
    store.put(name(5, "checkpoint.0000000002.0000000002.parquet"), parquet(file("b")))


def put_v2_json(store: Storage) -> None:
    sidecar: Action = {"sidecar": {"path": f"{OTHER}.parquet", "sizeInBytes": 1}}
    store.put(name(5, f"checkpoint.{UUID}.json"), render([{"checkpointMetadata": {"version": 5}}, *HEADER, sidecar]))
    store.put(f"t/{LOG}/_sidecars/{OTHER}.parquet", parquet(file("a"), file("b"), kinds=("add",)))


def put_v2_parquet(store: Storage) -> None:
    sidecar: Action = {"sidecar": {"path": f"{OTHER}.parquet", "sizeInBytes": 1}}
    store.put(name(5, f"checkpoint.{UUID}.parquet"), parquet(*HEADER, file("a"), sidecar))
    store.put(f"t/{LOG}/_sidecars/{OTHER}.parquet", parquet(file("b"), kinds=("add",)))


CHECKPOINTS = [put_classic, put_parts, put_v2_json, put_v2_parquet]


@pytest.mark.parametrize("put", CHECKPOINTS)
def test_a_checkpoint_of_any_kind_stands_for_the_commits_before_it(store: Storage, put: Any) -> None:
    put(store)
    commit(store, 6, add("c"), remove("a"))
    assert paths(read_snapshot(store, "t", 5)) == ["a", "b"]
    snapshot = read_snapshot(store, "t", 6)
    assert paths(snapshot) == ["b", "c"]
    assert snapshot.files["b", None] == {"path": "b", "partitionValues": {"p": None}, "size": 3}
    assert snapshot.metadata["configuration"] == {"a": "b"}
    with pytest.raises(MissingFilesError, match=r"00000000000000000000\.json is gone"):
        read_snapshot(store, "t", 4)
    with pytest.raises(MissingFilesError, match=r"00000000000000000007\.json is gone"):
        read_snapshot(store, "t", 7)


def test_nulls_are_left_out_and_statistics_kept_as_far_as_they_must_be(store: Storage) -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": None}
    row = file("a", deletionVector=vector, baseRowId=7, stats_parsed={"numRecords": 4, "minValues": {"id": 1}})
    store.put(name(5, "checkpoint.parquet"), parquet(*HEADER, row))
    [body] = read_snapshot(store, "t", 5).files.values()
    assert body["deletionVector"] == {"storageType": "u", "pathOrInlineDv": "x"}
    assert body["baseRowId"] == 7
    assert msgspec.json.decode(body["stats"]) == {"numRecords": 4}
    assert "stats_parsed" not in body


def test_a_part_that_is_missing_is_no_checkpoint() -> None:
    of_two = [f"{5:020d}.checkpoint.{n:010d}.{2:010d}.parquet" for n in (1, 2)]
    assert checkpoint_names(of_two, 5) == of_two
    assert checkpoint_names(of_two[:1], 5) == []
    assert checkpoint_names(of_two, 4) == []
    assert checkpoint_names([*of_two[:1], f"{5:020d}.checkpoint.parquet"], 5) == [f"{5:020d}.checkpoint.parquet"]


def test_what_is_damaged_or_gone_is_named(store: Storage) -> None:
    store.put(name(5, "checkpoint.parquet"), b"PAR1 no")
    with pytest.raises(CorruptTimelineError, match=r"checkpoint\.parquet: expected a checkpoint"):
        read_snapshot(store, "t", 5)
    put_v2_json(store)
    store.delete(name(5, "checkpoint.parquet"))
    store.delete(f"t/{LOG}/_sidecars/{OTHER}.parquet")
    with pytest.raises(MissingFilesError, match=OTHER):
        read_snapshot(store, "t", 5)


def test_without_pyarrow_a_log_of_commits_is_read_all_the_same(store: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    commit(store, 0, *NEW_TABLE, add("a"))
    assert paths(read_snapshot(store, "t", 0)) == ["a"]
    put_classic(store)
    with pytest.raises(UnsupportedError, match=r"lockstep-delta\[parquet\]"):
        read_snapshot(store, "t", 5)
