"""Features of tables that nobody here keeps: refused by name, before anything is written."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lockstep.delta.actions import Action
from lockstep.errors import LockstepError, ReadOnlyError, UnsupportedError
from lockstep.tables.layout import Layout, layout_of
from lockstep.tables.opened import OpenLake
from tests.support.lakes import SCHEMA, metadata, stage_new
from tests.support.refused import refused_in


def field(**more: Any) -> Action:
    schema = json.loads(SCHEMA)
    schema["fields"][0]["metadata"] = more
    body = metadata()["metaData"]
    return {"metaData": {**body, "schemaString": json.dumps(schema)}}


def partitioned_by_bytes() -> Action:
    schema = json.loads(SCHEMA)
    schema["fields"][0]["type"] = "binary"
    body = metadata()["metaData"]
    return {"metaData": {**body, "schemaString": json.dumps(schema), "partitionColumns": ["id"]}}


def layout(features: list[str], action: Action, readers: list[str] | None = None) -> Layout:
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    if readers:
        protocol |= {"minReaderVersion": 3, "readerFeatures": readers}
    return layout_of("t", protocol, action["metaData"])


REFUSED: list[tuple[str, Layout]] = [
    ("checkConstraints", layout(["checkConstraints"], metadata(**{"delta.constraints.c": "id % 2 = 0"}))),
    ("generatedColumns", layout(["generatedColumns"], field(**{"delta.generationExpression": "1"}))),
    ("identityColumns", layout(["identityColumns"], field(**{"delta.identity.start": 1}))),
    ("invariants", layout(["invariants"], field(**{"delta.invariants": "{}"}))),
    ("char and varchar", layout([], field(__CHAR_VARCHAR_TYPE_STRING="char(3)"))),
    ("collations", layout([], field(__COLLATIONS={"id": "UTF8_LCASE"}))),
    (
        "typeWidening",
        layout(
            ["typeWidening"],
            field(**{"delta.typeChanges": [{"fromType": "string", "toType": "long"}]}),
            ["typeWidening"],
        ),
    ),
    (
        "columnMapping by id",
        layout(["columnMapping"], metadata(**{"delta.columnMapping.mode": "id"}), ["columnMapping"]),
    ),
    (
        "columnMapping by id",
        layout(["columnMapping"], metadata(**{"delta.columnMapping.mode": "ID"}), ["columnMapping"]),
    ),
    ("partitions by id, a binary column", layout([], partitioned_by_bytes())),
    (
        "manifests for other readers",
        layout([], metadata(**{"delta.compatibility.symlinkFormatManifest.enabled": "true"})),
    ),
    ("rowTracking", layout(["rowTracking", "domainMetadata"], metadata())),
    ("clustering", layout(["clustering", "domainMetadata"], metadata())),
    ("icebergCompatV2", layout(["icebergCompatV2"], metadata())),
    ("catalogManaged", layout(["catalogManaged"], metadata(), ["catalogManaged"])),
    ("variantType", layout(["variantType"], metadata(), ["variantType"])),
    ("featureOfTomorrow", layout(["featureOfTomorrow"], metadata())),
]


@pytest.mark.parametrize(("feature", "table"), REFUSED, ids=[feature for feature, _ in REFUSED])
def test_a_table_with_it_is_not_written(feature: str, table: Layout) -> None:
    for only_appends in (True, False):
        with pytest.raises(UnsupportedError, match=f"uses {feature}"):
            table.check_writable(only_appends=only_appends)


ASLEEP = [
    "checkConstraints",
    "generatedColumns",
    "identityColumns",
    "invariants",
    "allowColumnDefaults",
    "columnMapping",
]


def test_features_that_nothing_acts_through_are_asleep() -> None:
    layout([*ASLEEP, "appendOnly", "changeDataFeed", "vacuumProtocolCheck"], metadata()).check_writable(
        only_appends=False
    )
    legacy = layout_of("t", {"minReaderVersion": 2, "minWriterVersion": 6}, metadata()["metaData"])
    legacy.check_writable(only_appends=False)
    legacy.check_readable()


def test_for_appends_alone() -> None:
    table = layout(["appendOnly"], metadata(**{"delta.appendOnly": "true"}))
    table.check_writable(only_appends=True)
    with pytest.raises(ReadOnlyError):
        table.check_writable(only_appends=False)


@pytest.mark.parametrize("readers", [["variantType"], ["featureOfTomorrow"]])
def test_what_is_not_read(readers: list[str]) -> None:
    with pytest.raises(UnsupportedError, match=readers[0]):
        layout(readers, metadata(), readers).check_readable()


@pytest.mark.parametrize("mode", ["id", "ID"])
def test_columns_mapped_by_id_are_not_read(mode: str) -> None:
    with pytest.raises(UnsupportedError, match="columnMapping by id"):
        layout(["columnMapping"], metadata(**{"delta.columnMapping.mode": mode}), ["columnMapping"]).check_readable()


@pytest.mark.parametrize(("now", "is_on"), [({}, True), ({"delta.enableChangeDataFeed": "false"}, False)])
def test_a_change_feed_by_its_name_of_old(now: dict[str, str], is_on: bool) -> None:
    """Delta tells readers of changes by it, so who writes must tell them, too."""
    assert layout([], metadata(**{"delta.enableChangeDataCapture": "true"}, **now)).has_feed is is_on


def test_a_protocol_that_is_not_known() -> None:
    with pytest.raises(UnsupportedError, match="a protocol that is not known"):
        layout_of("t", {"minReaderVersion": 4, "minWriterVersion": 8}, metadata()["metaData"])


def test_refused_in_a_transaction_which_goes_on(lake: OpenLake) -> None:
    tx = lake.catalog.begin()
    constraint = metadata(**{"delta.constraints.c": "id % 2 = 0"})
    stage_new(lake.catalog, tx, "t", start=({"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}}, constraint))
    lake.catalog.commit(tx)
    with lake.transaction() as mine:
        for change in (
            lambda: mine["t"].append({"id": [1]}),
            mine["t"].delete,
            lambda: mine["t"].overwrite({"id": [1]}),
        ):
            with refused_in(mine, LockstepError) as refused:
                change()
            assert refused.value.sqlstate == "0A000"
        mine.create("other", pa.schema([("id", pa.int64())])).append({"id": [1]})
    assert lake.at()["other"].to_arrow().num_rows == 1
    assert lake.at()["t"].version == 0
