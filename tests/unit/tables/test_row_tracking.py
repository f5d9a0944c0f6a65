"""Tables with row tracking: each row of a new file has an id of its own, and no row loses the one that it has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lockstep.delta.actions import Action, bodies, parse
from lockstep.delta.log import commit_path
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import ConflictError, UnsupportedError
from lockstep.tables.layout import layout_of, with_features
from lockstep.tables.opened import OpenLake
from lockstep.tables.reading import Files
from lockstep.timeline.entry import Table
from tests.support.lakes import named, stage
from tests.support.refused import refused_in

VECTORS = {"delta.enableDeletionVectors": "true"}
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
PLACES = {
    "delta.rowTracking.materializedRowIdColumnName": "_row-id-col-1",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-commit-version-col-1",
}
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def tracked(
    lake: OpenLake,
    properties: Mapping[str, str] = NO_PROPERTIES,
    *,
    mark: int | None = None,
    vectors: bool = True,
    partition_by: str | None = None,
    mapped: bool = False,
    feed: bool = False,
) -> None:
    """Make an empty table with row tracking, as Spark says it."""
    with lake.transaction() as tx:
        more_properties = {
            **(VECTORS if vectors else {}),
            **({"delta.columnMapping.mode": "name"} if mapped else {}),
            **({"delta.enableChangeDataFeed": "true"} if feed else {}),
        }
        tx.create("t", COLUMNS, partition_by=partition_by, properties=more_properties)
    before = state(lake)
    configuration = {**before.metadata["configuration"], "delta.enableRowTracking": "true", **PLACES, **properties}
    more: list[Action] = [
        {"protocol": with_features(before.protocol, {"rowTracking", "domainMetadata"})},
        {"metaData": {**before.metadata, "configuration": configuration}},
    ]
    if mark is not None:
        said = json.dumps({"rowIdHighWaterMark": mark})
        more.append({"domainMetadata": {"domain": "delta.rowTracking", "configuration": said, "removed": False}})
    core = lake.catalog.begin()
    stage(lake.catalog, core, "t", *more, operation="SET TBLPROPERTIES")
    lake.catalog.commit(core)


def here(lake: OpenLake) -> Table:
    return lake.catalog.database().tables[named("t")]


def state(lake: OpenLake) -> Snapshot:
    return read_snapshot(lake.catalog.lake.storage, here(lake).location, here(lake).version)


def newest(lake: OpenLake) -> list[Action]:
    content = lake.catalog.lake.storage.get(commit_path(here(lake).location, here(lake).version))
    assert content is not None
    return parse(content)


def ids(lake: OpenLake) -> list[tuple[int, int, int]]:
    """Return of each file the first id, how many, and the version that its rows came with."""
    files = state(lake).files.values()
    rows = ((add["baseRowId"], json.loads(add["stats"])["numRecords"], add["defaultRowCommitVersion"]) for add in files)
    return sorted(rows)


def mark(lake: OpenLake) -> int:
    return int(json.loads(state(lake).domains["delta.rowTracking"]["configuration"])["rowIdHighWaterMark"])


@pytest.mark.parametrize(("given", "first"), [(None, 0), (-1, 0), (41, 42)])
def test_rows_that_are_appended_have_ids_above_all_others(lake: OpenLake, given: int | None, first: int) -> None:
    tracked(lake, mark=given)
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2, 3]})
        tx["t"].append({"id": [4]})
    assert ids(lake) == [(first, 3, 2), (first + 3, 1, 2)]
    assert mark(lake) == first + 3
    with lake.transaction() as tx:
        tx["t"].append({"id": [5, 6]})
    assert ids(lake)[-1] == (first + 4, 2, 3)
    [info] = bodies(newest(lake), "commitInfo")
    assert info["tags"] == {"delta.rowTracking.preserved": "true"}


def test_files_of_partitions_have_ids_of_their_own(lake: OpenLake) -> None:
    tracked(lake, partition_by="v")
    with lake.transaction() as tx:
        tx["t"].append({"id": list(range(10)), "v": ["a", "b"] * 5})
    assert ids(lake) == [(0, 5, 2), (5, 5, 2)]


def test_two_that_append_at_once_give_no_id_twice(lake: OpenLake) -> None:
    tracked(lake)
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2]})
        with lake.transaction() as other:
            other["t"].append({"id": [3, 4, 5]})
    assert ids(lake) == [(0, 3, 2), (3, 2, 3)]
    assert mark(lake) == 4


def test_rows_that_stay_keep_their_ids(lake: OpenLake) -> None:
    """When others of their file go by a vector; both removes and adds say which ids a file has."""
    tracked(lake)
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2, 3]})
    with lake.transaction() as tx:
        assert tx["t"].delete("id = 2") == 1
    assert ids(lake) == [(0, 3, 2)]
    [removed] = bodies(newest(lake), "remove")
    assert (removed["baseRowId"], removed["defaultRowCommitVersion"]) == (0, 2)
    assert not bodies(newest(lake), "domainMetadata"), "none was given out"
    with lake.transaction() as tx:
        tx["t"].overwrite({"id": [7, 8]})
    assert ids(lake) == [(3, 2, 4)], "rows that are new have new ids"
    with lake.transaction() as tx:
        assert tx["t"].delete() == 2
    assert mark(lake) == 4, "and those that are gone are given to nobody"
    with lake.transaction() as tx:
        tx["t"].append({"id": [9]})
    assert ids(lake) == [(5, 1, 6)]


def test_rows_that_were_there_before_must_have_been_given_ids(lake: OpenLake) -> None:
    """While Spark gives them, a file of which rows go would be committed without, and be passed over."""
    with lake.transaction() as tx:
        tx.create("t", COLUMNS, properties=VECTORS)
        tx["t"].append({"id": [1, 2, 3]})
    before = state(lake)
    core = lake.catalog.begin()
    more: list[Action] = [{"protocol": with_features(before.protocol, {"rowTracking", "domainMetadata"})}]
    stage(lake.catalog, core, "t", *more, operation="UPGRADE PROTOCOL")
    lake.catalog.commit(core)
    with lake.transaction() as tx:
        with refused_in(tx, UnsupportedError, "no row ids yet"):
            tx["t"].delete("id = 2")
        with refused_in(tx, UnsupportedError, "no row ids yet"):
            tx["t"].overwrite({"id": [2]}, "id = 2")
        assert tx["t"].delete() == 3, "of whole files none stays"


def rows(lake: OpenLake) -> dict[int, tuple[str | None, int, int]]:
    """Return of each row its text, its id and the version that it came with, as the protocol has them."""
    storage, snapshot = lake.catalog.lake.storage, state(lake)
    files = Files(storage, here(lake).location, layout_of("t", snapshot.protocol, snapshot.metadata))
    configuration, found = snapshot.metadata["configuration"], {}
    physical = {
        field["name"]: field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        for field in json.loads(snapshot.metadata["schemaString"])["fields"]
    }
    for add in snapshot.files.values():
        data = storage.get(f"{here(lake).location}/{unquote(add['path'])}")
        assert data is not None
        table = pq.read_table(pa.BufferReader(data))
        gone = files.deleted(add)
        for position, row in enumerate(table.to_pylist()):
            if position not in gone:
                kept, came = (row.get(configuration[key]) for key in PLACES)
                values = {**add["partitionValues"], **row}
                found[values[physical["id"]]] = (
                    values[physical["v"]],
                    add["baseRowId"] + position if kept is None else kept,
                    add["defaultRowCommitVersion"] if came is None else came,
                )
    assert len({id for _, id, _ in found.values()}) == len(found), "no id twice"
    return found


KINDS: list[dict[str, Any]] = [
    {"vectors": True},
    {"vectors": False},
    {"vectors": False, "partition_by": "v"},
    {"vectors": True, "mapped": True},
    {"vectors": False, "mapped": True, "feed": True},
]


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_rows_keep_their_ids_wherever_they_move(lake: OpenLake, kind: int) -> None:
    """A row that is changed comes with its commit, and one that is only copied with the commit that it came with."""
    tracked(lake, **KINDS[kind])
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2, 3, 4], "v": ["a", "b", "c", "d"]})
    before = rows(lake)
    with lake.transaction() as tx:
        assert tx["t"].update({"v": "'x'"}, "id IN (2, 3)") == 2
    first = {1: before[1], 2: ("x", before[2][1], 3), 3: ("x", before[3][1], 3), 4: before[4]}
    assert rows(lake) == first
    assert bodies(newest(lake), "commitInfo")[0]["tags"] == {"delta.rowTracking.preserved": "true"}
    top = mark(lake)
    with lake.transaction() as tx:
        merge = tx["t"].merge({"id": [3, 4, 5], "v": ["y", "z", "new"]}, on="id")
        merge.when_matched_delete("target.id = 4").when_matched_update_all().when_not_matched_insert_all().execute()
    second = rows(lake)
    assert second.pop(5)[1] > top
    assert second == {1: first[1], 2: first[2], 3: ("y", first[3][1], 4)}
    with lake.transaction() as tx:
        assert tx["t"].delete("id = 5") == 1
    with lake.transaction() as tx:
        tx["t"].overwrite({"id": [2], "v": ["again"]}, "id = 2")
    third = rows(lake)
    assert third[2][1] > top
    assert {id: third[id] for id in (1, 3)} == {id: second[id] for id in (1, 3)}
    with lake.transaction() as tx:
        merge = tx["t"].merge({"id": [1]}, on="id")
        merge.when_not_matched_by_source_update({"v": "'old'"}).execute()
    assert rows(lake)[3] == ("old", third[3][1], 7)
    assert rows(lake)[1] == third[1]


def test_no_column_of_ids_is_read_as_a_column(lake: OpenLake) -> None:
    tracked(lake, vectors=False)
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2], "v": ["a", "b"]})
        tx["t"].update({"v": "'x'"}, "id = 2")
        assert tx["t"].to_arrow(where="id > 0").column_names == ["id", "v"]
    assert lake.at()["t"].to_arrow().sort_by("id").to_pylist() == [{"id": 1, "v": "a"}, {"id": 2, "v": "x"}]
    for add in state(lake).files.values():
        assert set(json.loads(add["stats"])["nullCount"]) == {"id", "v"}


def test_rows_that_a_transaction_wrote_and_moved_keep_ids_or_collide(lake: OpenLake) -> None:
    """Their ids stand in a data file, where nobody renumbers them: if others were first, it is run again."""
    tracked(lake)
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2, 3]})
        tx["t"].update({"v": "'x'"}, "id = 2")
        tx["t"].update({"v": "'y'"}, "id = 2")
    assert [id for _, (_, id, _) in sorted(rows(lake).items())] == [0, 1, 2]

    def second() -> None:
        with lake.transaction() as tx:
            tx["t"].append({"id": [7, 8]})
            tx["t"].update({"v": "'x'"}, "id = 7")
            with lake.transaction() as other:
                other["t"].append({"id": [9]})

    with pytest.raises(ConflictError):
        second()
    assert set(rows(lake)) == {1, 2, 3, 9}


def test_two_that_update_other_rows_of_one_file_give_no_id_twice(lake: OpenLake) -> None:
    tracked(lake)
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2, 3]})
    before = rows(lake)
    with lake.transaction(isolation="SNAPSHOT") as tx:
        tx["t"].update({"v": "'x'"}, "id = 1")
        with lake.transaction(isolation="SNAPSHOT") as other:
            other["t"].update({"v": "'y'"}, "id = 2")
            other["t"].append({"id": [5]})
    after = rows(lake)
    assert {id: row[1] for id, row in after.items() if id < 4} == {id: row[1] for id, row in before.items()}
    assert after[5][1] > 2


@pytest.mark.parametrize("lacks", [*PLACES, "delta.enableRowTracking"])
def test_ids_that_have_no_place_are_refused_by_name(lake: OpenLake, lacks: str) -> None:
    """While row tracking is not enabled nobody goes by the ids, and rows that move get others, as in Delta."""
    tracked(lake, {lacks: ""})
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2]})
    before = lake.at().version
    with lake.transaction() as tx:
        if lacks in PLACES:
            with refused_in(tx, UnsupportedError, match="without columns for ids"):
                tx["t"].update({"v": "'x'"}, "id = 1")
        else:
            assert tx["t"].update({"v": "'x'"}, "id = 1") == 1
    if lacks not in PLACES:
        assert "tags" not in bodies(newest(lake), "commitInfo")[0]
        assert mark(lake) == 2
    with pytest.raises(UnsupportedError, match="rowTracking"):
        lake.restore(before - 1)


def test_no_ids_are_given_while_that_is_suspended(lake: OpenLake) -> None:
    tracked(lake, {"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"})
    with lake.transaction() as tx:
        tx["t"].append({"id": [1]})
    [add] = state(lake).files.values()
    assert "baseRowId" not in add
    assert "tags" not in bodies(newest(lake), "commitInfo")[0]
    assert "delta.rowTracking" not in state(lake).domains


def test_ids_are_given_where_it_is_supported_though_not_enabled(lake: OpenLake) -> None:
    tracked(lake, {"delta.enableRowTracking": "false"})
    with lake.transaction() as tx:
        tx["t"].append({"id": [1]})
    assert ids(lake) == [(0, 1, 2)]
    assert "tags" not in bodies(newest(lake), "commitInfo")[0]
