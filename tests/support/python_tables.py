"""Tables written without Spark, as tests make them and read them back."""

from __future__ import annotations

import json
from typing import Any

from lockstep.delta.snapshot import read_snapshot
from lockstep.tables.layout import with_features
from lockstep.tables.opened import OpenLake
from tests.support.lakes import named, stage, stage_new


def rows(lake: OpenLake, name: str = "t") -> list[dict[str, Any]]:
    """The rows of a table, as deltalake, DuckDB and a transaction of ours read them."""
    found = sorted(lake.at()[name].to_arrow().to_pylist(), key=lambda row: row["id"])
    assert sorted(lake.at().sql(f"FROM {name}").to_pylist(), key=lambda row: row["id"]) == found
    with lake.transaction(read_only=True) as tx:
        assert sorted(tx[name].to_arrow().to_pylist(), key=lambda row: row["id"]) == found
    return found


def made_by_spark(lake: OpenLake, fields: list[dict[str, Any]], features: list[str], **properties: str) -> None:
    """Make a table t whose schema and properties Python does not make."""
    schema = json.dumps({"type": "struct", "fields": fields})
    body = {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema, "partitionColumns": [],
        "configuration": properties, "createdTime": 0,
    }  # fmt: skip
    protocol: dict[str, Any] = {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": features}
    tx = lake.catalog.begin()
    stage_new(lake.catalog, tx, "t", start=({"protocol": protocol}, {"metaData": body}))
    lake.catalog.commit(tx)


def widen(lake: OpenLake, name: str, **changes: tuple[str, str]) -> None:
    """Widen the types of columns as Spark does, which Python does not: by column, from which type and to which."""
    tx = lake.catalog.begin()
    table = lake.catalog.table(tx, named(name))
    before = read_snapshot(lake.catalog.lake.storage, table.location, table.version)
    schema = json.loads(before.metadata["schemaString"])
    for column, (given, taken) in changes.items():
        [field] = [field for field in schema["fields"] if field["name"] == column]
        assert field["type"] == given
        field["type"] = taken
        field["metadata"] = {"delta.typeChanges": [{"fromType": given, "toType": taken}]}
    protocol = with_features(before.protocol, {"typeWidening"})
    readers = sorted({*(protocol.get("readerFeatures") or ()), "typeWidening"})
    protocol |= {"minReaderVersion": 3, "readerFeatures": readers}
    metadata = {"metaData": {**before.metadata, "schemaString": json.dumps(schema)}}
    stage(lake.catalog, tx, name, {"protocol": protocol}, metadata, operation="CHANGE COLUMN")
    lake.catalog.commit(tx)
