"""Tables with row tracking: each row of a new file has an id of its own, and no row loses the one that it has."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from lockstep.delta.actions import Action, bodies, parse
from lockstep.delta.log import commit_path
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import UnsupportedError
from lockstep.tables.layout import with_features
from lockstep.tables.opened import OpenLake
from lockstep.tables.table import TransactionTable
from lockstep.timeline.entry import Table
from tests.support.lakes import named, stage
from tests.support.refused import refused_in

VECTORS = {"delta.enableDeletionVectors": "true"}
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def tracked(
    lake: OpenLake,
    properties: Mapping[str, str] = NO_PROPERTIES,
    *,
    mark: int | None = None,
    vectors: bool = True,
    partition_by: str | None = None,
) -> None:
    """Make an empty table with row tracking, as Spark says it."""
    with lake.transaction() as tx:
        tx.create("t", COLUMNS, partition_by=partition_by, properties=VECTORS if vectors else {})
    before = state(lake)
    configuration = {**before.metadata["configuration"], "delta.enableRowTracking": "true", **properties}
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


MOVED: list[Callable[[TransactionTable], Any]] = [
    lambda t: t.update({"v": "'x'"}, "id = 1"),
    lambda t: t.merge({"id": [1], "v": ["x"]}, on="id").when_matched_update_all().execute(),
]
WITHOUT_VECTORS: list[Callable[[TransactionTable], Any]] = [
    *MOVED,
    lambda t: t.delete("id = 1"),
    lambda t: t.overwrite({"id": [1]}, "id = 1"),
]


@pytest.mark.parametrize("vectors", [True, False])
def test_what_would_move_rows_is_refused_by_name(lake: OpenLake, vectors: bool) -> None:
    tracked(lake, vectors=vectors)
    with lake.transaction() as tx:
        tx["t"].append({"id": [1, 2], "v": ["a", "b"]})
    before = lake.at().version
    with lake.transaction() as tx:
        for change in MOVED if vectors else WITHOUT_VECTORS:
            with refused_in(tx, UnsupportedError, match="uses rowTracking, and rows would be moved"):
                change(tx["t"])
        tx["t"].alter.set_column_comment("v", "said")
    assert lake.at().version == before + 1
    assert ids(lake) == [(0, 2, 2)]
    with pytest.raises(UnsupportedError, match="rowTracking"):
        lake.restore(before - 1)
    with lake.transaction() as tx:
        assert tx["t"].delete("id <= 2") == 2, "a file all of whose rows go is no move"


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
