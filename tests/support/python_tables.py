"""Tables written without Spark, as tests make them and read them back."""

from __future__ import annotations

import json
from typing import Any

from lockstep.tables.opened import OpenLake
from tests.support.lakes import stage_new


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
