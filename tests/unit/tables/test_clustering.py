"""Tables that Spark has clustered: written where each new file has statistics of those columns, refused else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import CorruptTimelineError, InvalidError, UnsupportedError
from lockstep.tables.layout import with_features
from lockstep.tables.opened import OpenLake
from tests.support.lakes import named, stage
from tests.support.refused import refused_in

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("l", pa.list_(pa.int64())),
        ("st", pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ("v", pa.string()),
    ]
)
MAPPED = {"delta.columnMapping.mode": "name"}


def clustered(lake: OpenLake, columns: Any, **properties: str) -> None:
    """Make a table, and have it clustered by these columns, as Spark says it."""
    with lake.transaction() as tx:
        tx.create("t", COLUMNS, properties=properties).append({"id": [1], "v": ["a"]})
    core = lake.catalog.begin()
    protocol = with_features(state(lake).protocol, {"clustering", "domainMetadata"})
    configuration = columns if isinstance(columns, str) else json.dumps({"clusteringColumns": columns})
    domain = {"domain": "delta.clustering", "configuration": configuration, "removed": False}
    stage(lake.catalog, core, "t", {"protocol": protocol}, {"domainMetadata": domain}, operation="CLUSTER BY")
    lake.catalog.commit(core)


def state(lake: OpenLake) -> Snapshot:
    table = lake.catalog.database().tables[named("t")]
    return read_snapshot(lake.catalog.lake.storage, table.location, table.version)


WRITTEN: list[Sequence[Any]] = [[], ["id"], [["id"]], [["st", "b"]], [["v"], ["st", "a"]]]


@pytest.mark.parametrize("columns", WRITTEN)
def test_files_have_statistics_of_what_a_table_is_clustered_by(lake: OpenLake, columns: Sequence[Any]) -> None:
    clustered(lake, columns, **{"delta.dataSkippingNumIndexedCols": "5"})
    with lake.transaction() as tx:
        t = tx["t"]
        t.append({"id": [2, 3], "st": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], "v": ["b", "c"]})
        assert t.delete("id = 3") == 1
        assert t.update({"v": "'z'"}, "id = 2") == 1
        assert t.merge({"id": [1], "v": ["m"]}, on="id").when_matched_update({"v": "source.v"}).execute() == (0, 1, 0)
    assert state(lake).domains["delta.clustering"]["removed"] is False, "what it is clustered by stays"
    for add in state(lake).files.values():
        stats = json.loads(add["stats"])
        for path in ([column] if isinstance(column, str) else column for column in columns):
            nulls = stats["nullCount"]
            for name in path:
                nulls = nulls[name]
            assert isinstance(nulls, int)


LACKING: list[tuple[Sequence[Any], str, dict[str, str]]] = [
    (["v"], "clustering by v", {"delta.dataSkippingNumIndexedCols": "4"}),
    ([["st", "b"]], r"clustering by st\.b", {"delta.dataSkippingNumIndexedCols": "3"}),
    (["id"], "clustering by id", {"delta.dataSkippingNumIndexedCols": "0"}),
    (["l"], "clustering by l", {}),
    (["gone"], "clustering by gone", {}),
    (["id"], "clustering by id", MAPPED),
]


@pytest.mark.parametrize(("columns", "words", "properties"), LACKING)
def test_what_has_no_statistics_is_named(
    lake: OpenLake, columns: Sequence[Any], words: str, properties: dict[str, str]
) -> None:
    """A column beyond those that are indexed, one without bounds, and one whose name in files is another."""
    clustered(lake, columns, **properties)
    with lake.transaction() as tx:
        for change in (lambda: tx["t"].append({"id": [2]}), tx["t"].delete, lambda: tx["t"].update({"id": "2"})):
            with refused_in(tx, UnsupportedError, match=words):
                change()
        assert tx["t"].to_arrow(["id"]).to_pylist() == [{"id": 1}], "it is read all the same"


def test_a_domain_that_cannot_be_read(lake: OpenLake) -> None:
    clustered(lake, '{"clusteringColumns": "id"}')
    with lake.transaction() as tx, refused_in(tx, CorruptTimelineError, match=r"delta\.clustering that cannot be read"):
        tx["t"].append({"id": [2]})


def test_what_a_table_is_clustered_by_stays_and_keeps_its_statistics(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx.create("t", COLUMNS, properties=MAPPED)
    [field] = [each for each in json.loads(state(lake).metadata["schemaString"])["fields"] if each["name"] == "v"]
    core = lake.catalog.begin()
    said = json.dumps({"clusteringColumns": [[field["metadata"]["delta.columnMapping.physicalName"]]]})
    domain = {"domain": "delta.clustering", "configuration": said, "removed": False}
    protocol = with_features(state(lake).protocol, {"clustering", "domainMetadata"})
    stage(lake.catalog, core, "t", {"protocol": protocol}, {"domainMetadata": domain}, operation="CLUSTER BY")
    lake.catalog.commit(core)
    with lake.transaction() as tx:
        alter = tx["t"].alter
        with refused_in(tx, InvalidError, match="clustered by v, which cannot be dropped"):
            alter.drop_columns("v")
        with refused_in(tx, UnsupportedError, match="of which files have no statistics"):
            alter.set_table_properties({"delta.dataSkippingNumIndexedCols": "1"})
        alter.rename_column("v", "w")
        alter.drop_columns("l")
        alter.set_table_description("said")
        tx["t"].append({"id": [1], "w": ["x"]})
    assert lake.at()["t"].to_arrow(["w"]).to_pylist() == [{"w": "x"}]


def test_a_table_is_not_restored_over_a_change_of_what_it_is_clustered_by(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx.create("other", pa.schema([("id", pa.int64())]))
    clustered(lake, ["id"])
    clustered_at = lake.at().version
    with lake.transaction() as tx:
        tx["t"].delete()
    assert lake.restore(clustered_at).tables, "the same, as it was"
    with pytest.raises(UnsupportedError, match="clustered by was changed since"):
        lake.restore(clustered_at - 1)
