"""What a change of metadata or protocol asks of commits beside it: nothing but what is listed, all else is `other`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.delta.actions import Action, render
from lockstep.delta.combine.evolution import (
    COLUMNS,
    FEATURES,
    MARKS,
    NOTHING,
    OTHER,
    PROPERTIES,
    UNCLEAR,
    Body,
    Kinds,
    TableState,
    collide,
    evolve,
    metadata_change,
    protocol_change,
    supported,
)
from lockstep.delta.footprint import footprint
from lockstep.delta.log import LOOKED_BACK, checksum_path, commit_path, state_at
from lockstep.storage import Storage, open_storage

MARK = "delta.identity.highWaterMark"


def field(name: str, type: Any = "long", says: Body | None = None, *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": type, "nullable": nullable, "metadata": says or {}}


def ids(mark: int | None, step: int = 1) -> dict[str, Any]:
    said = {"delta.identity.start": 1, "delta.identity.step": step}
    return field("n", says=said if mark is None else {**said, MARK: mark})


def table(*fields: dict[str, Any], properties: dict[str, str] | None = None, **more: Any) -> Body:
    schema = json.dumps({"type": "struct", "fields": fields or [field("a"), field("b")]})
    return {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["a"], "createdTime": 5,
        "schemaString": schema, "configuration": properties or {}, **more,
    }  # fmt: skip


AB = (field("a"), field("b"))
P, C, M = frozenset({PROPERTIES}), frozenset({PROPERTIES, COLUMNS}), frozenset({PROPERTIES, MARKS})
MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
MAPPED_C = field("c", says={"delta.columnMapping.id": 3, "delta.columnMapping.physicalName": "col-3"})


def nested(**says: str) -> dict[str, Any]:
    return field("c", {"type": "struct", "fields": [field("d", says=says, nullable=False)]})


def setting(key: str, value: str = "1") -> Body:
    return table(properties={key: value})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        # properties
        pytest.param(table(), table(), P, id="the same again"),
        pytest.param(table(), setting("owner"), P, id="a user's"),
        pytest.param(setting("owner"), table(), P, id="unset"),
        pytest.param(setting("owner"), setting("owner", "2"), P, id="changed"),
        pytest.param(table(), setting("delta.logRetentionDuration"), P, id="retention"),
        pytest.param(table(), setting("delta.deletedFileRetentionDuration"), P, id="what VACUUM keeps"),
        pytest.param(table(), setting("delta.checkpointInterval"), P, id="checkpoints"),
        pytest.param(table(), setting("delta.autoOptimize.optimizeWrite"), P, id="sizes of files"),
        pytest.param(table(), setting("DELTA.CHECKPOINTINTERVAL"), P, id="in capitals"),
        pytest.param(table(), table(name="n", description="d"), P, id="name and description"),
        pytest.param(table(), table(field("a", says={"comment": "x"}), field("b")), P, id="a column's comment"),
        # Delta's properties with a meaning
        pytest.param(table(), setting("delta.appendOnly", "true"), UNCLEAR, id="append-only"),
        pytest.param(table(), setting("delta.constraints.c", "a > 0"), UNCLEAR, id="a constraint"),
        pytest.param(setting("delta.constraints.c", "a > 0"), table(), UNCLEAR, id="a constraint dropped"),
        pytest.param(table(), setting("delta.enableChangeDataFeed"), UNCLEAR, id="change data feed"),
        pytest.param(table(), setting("delta.enableDeletionVectors"), UNCLEAR, id="deletion vectors"),
        pytest.param(table(), setting("delta.enableRowTracking"), UNCLEAR, id="row tracking"),
        pytest.param(table(), setting("delta.enableInCommitTimestamps"), UNCLEAR, id="in-commit timestamps"),
        pytest.param(table(), setting("delta.columnMapping.mode", "name"), UNCLEAR, id="column mapping"),
        pytest.param(table(), setting("delta.isolationLevel"), UNCLEAR, id="isolation level"),
        pytest.param(table(), setting("delta.dataSkippingNumIndexedCols"), UNCLEAR, id="which statistics"),
        pytest.param(table(), setting("delta.ofTomorrow"), UNCLEAR, id="one of Delta's that nobody knows"),
        pytest.param(table(), setting("Delta.AppendOnly"), UNCLEAR, id="in other letters"),
        # marks
        pytest.param(table(*AB, ids(5)), table(*AB, ids(9)), M, id="raised"),
        pytest.param(table(*AB, ids(None)), table(*AB, ids(9)), M, id="the first ids"),
        pytest.param(table(*AB, ids(-5, -1)), table(*AB, ids(-9, -1)), M, id="downwards, by its step"),
        pytest.param(table(*AB, ids(9)), table(*AB, ids(5)), UNCLEAR, id="lowered"),
        pytest.param(table(*AB, ids(-9, -1)), table(*AB, ids(-5, -1)), UNCLEAR, id="upwards, against its step"),
        pytest.param(table(*AB, ids(9)), table(*AB, ids(None)), UNCLEAR, id="taken away"),
        pytest.param(table(*AB, ids(5)), table(*AB, ids(9, 2)), UNCLEAR, id="another step"),
        pytest.param(table(), table(field("a"), field("b", says={MARK: 9})), UNCLEAR, id="of no identity column"),
        # columns
        pytest.param(table(), table(*AB, field("c")), C, id="one more"),
        pytest.param(table(), table(*AB, field("c"), field("d", says={"comment": "x"})), C, id="two more, one comment"),
        pytest.param(table(), table(*AB, nested()), C, id="a struct"),
        pytest.param(table(), table(*AB, field("c"), properties={"k": "v"}), C, id="and a property"),
        pytest.param(
            table(properties=MAPPED),
            table(*AB, MAPPED_C, properties={**MAPPED, "delta.columnMapping.maxColumnId": "3"}), C, id="mapped",
        ),
        pytest.param(table(), table(*AB, field("c", nullable=False)), UNCLEAR, id="NOT NULL"),
        pytest.param(table(), table(*AB, field("c", says={"CURRENT_DEFAULT": "1"})), UNCLEAR, id="with a default"),
        pytest.param(table(), table(*AB, field("c", says={"delta.invariants": "{}"})), UNCLEAR, id="with an invariant"),
        pytest.param(
            table(), table(*AB, field("c", says={"delta.generationExpression": "a"})), UNCLEAR, id="generated"
        ),
        pytest.param(table(), table(*AB, ids(None)), UNCLEAR, id="an identity column"),
        pytest.param(table(), table(*AB, nested(CURRENT_DEFAULT="1")), UNCLEAR, id="a default inside"),
        pytest.param(table(), table(field("c"), *AB), UNCLEAR, id="in front"),
        pytest.param(table(), table(field("b"), field("a")), UNCLEAR, id="another order"),
        pytest.param(table(), table(field("a")), UNCLEAR, id="one less"),
        pytest.param(table(), table(field("a"), field("c")), UNCLEAR, id="renamed"),
        pytest.param(table(), table(field("a"), field("b", "string")), UNCLEAR, id="another type"),
        pytest.param(table(), table(field("a"), field("b", nullable=False)), UNCLEAR, id="SET NOT NULL"),
        pytest.param(
            table(), table(*AB, field("c"), properties={"delta.appendOnly": "true"}), UNCLEAR, id="and append-only"
        ),
        pytest.param(
            table(properties=MAPPED),
            table(*AB, MAPPED_C, properties={**MAPPED, "delta.columnMapping.maxColumnId": "1"}), UNCLEAR,
            id="ids that go back",
        ),
        pytest.param(
            table(properties=MAPPED),
            table(properties={**MAPPED, "delta.columnMapping.maxColumnId": "3"}), UNCLEAR, id="ids without a column",
        ),
        # another table
        pytest.param(table(), table(id="u"), UNCLEAR, id="another id"),
        pytest.param(table(), table(createdTime=6), UNCLEAR, id="created again"),
        pytest.param(table(), table(partitionColumns=[]), UNCLEAR, id="other partitions"),
        pytest.param(table(), table(surprise=1), UNCLEAR, id="a field that nobody knows"),
        pytest.param(table(), {**table(), "schemaString": "{"}, UNCLEAR, id="no schema"),
        pytest.param(table(), {**table(), "schemaString": '{"fields": 1}'}, UNCLEAR, id="no fields"),
    ],
)  # fmt: skip
def test_metadata_change(before: Body, after: Body, expected: Kinds) -> None:
    assert metadata_change(before, after) == expected


# --- protocol ---------------------------------------------------------------------------------------------------------


def legacy(reader: int, writer: int) -> Body:
    return {"minReaderVersion": reader, "minWriterVersion": writer}


def featured(*features: str, reader: int = 3) -> Body:
    return {**legacy(reader, 7), "readerFeatures": [], "writerFeatures": ["appendOnly", "invariants", *features]}


F = frozenset({FEATURES})


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(legacy(1, 2), legacy(1, 2), F, id="the same again"),
        pytest.param(legacy(1, 2), legacy(1, 3), F, id="legacy: constraints"),
        pytest.param(legacy(1, 2), legacy(2, 6), F, id="legacy: all"),
        pytest.param(legacy(1, 2), featured("deletionVectors"), F, id="to features"),
        pytest.param(featured(), featured("columnMapping", "v2Checkpoint"), F, id="two features"),
        pytest.param(legacy(1, 2), {**legacy(3, 7), "writerFeatures": ["deletionVectors"]}, UNCLEAR, id="and fewer"),
        pytest.param(featured("checkConstraints"), featured(), UNCLEAR, id="a feature dropped"),
        pytest.param(legacy(1, 3), legacy(1, 2), UNCLEAR, id="back"),
        pytest.param(featured(), featured(reader=1), UNCLEAR, id="readers back"),
        pytest.param(featured(), featured("rowTracking"), UNCLEAR, id="row tracking"),
        pytest.param(featured(), featured("catalogManaged"), UNCLEAR, id="a catalog"),
        pytest.param(featured(), featured("clustering"), UNCLEAR, id="clustering"),
        pytest.param(featured(), featured("inCommitTimestamp"), UNCLEAR, id="in-commit timestamps"),
        pytest.param(featured(), featured("icebergCompatV2"), UNCLEAR, id="Iceberg"),
        pytest.param(featured(), featured("ofTomorrow"), UNCLEAR, id="one that nobody knows"),
        pytest.param(legacy(1, 2), legacy(1, 8), UNCLEAR, id="a version that nobody knows"),
    ],
)
def test_protocol_change(before: Body, after: Body, expected: Kinds) -> None:
    assert protocol_change(before, after, table()) == expected


@pytest.mark.parametrize(
    ("feature", "metadata"),
    [
        pytest.param("columnMapping", table(properties=MAPPED), id="a property"),
        pytest.param("checkConstraints", setting("delta.constraints.c", "a > 0"), id="a constraint"),
        pytest.param("invariants", table(field("a", says={"delta.invariants": "{}"})), id="a column"),
        pytest.param("appendOnly", setting("DELTA.APPENDONLY", "true"), id="in capitals"),
    ],
)
def test_a_feature_that_finds_what_it_acts_through_is_no_sleeping_one(feature: str, metadata: Body) -> None:
    before = {**legacy(3, 7), "writerFeatures": []}
    after = {**legacy(3, 7), "writerFeatures": [feature]}
    assert protocol_change(before, after, table()) == F
    assert protocol_change(before, after, metadata) == UNCLEAR


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        pytest.param(legacy(1, 1), set(), id="none"),
        pytest.param(legacy(2, 3), {"appendOnly", "invariants", "checkConstraints"}, id="legacy"),
        pytest.param({**legacy(3, 7), "readerFeatures": ["x"], "writerFeatures": ["x", "y"]}, {"x", "y"}, id="listed"),
        pytest.param(legacy(3, 6), None, id="illegal"),
        pytest.param({"minReaderVersion": "1"}, None, id="no version"),
    ],
)  # fmt: skip
def test_supported(protocol: Body, expected: set[str] | None) -> None:
    assert supported(protocol) == expected


# --- together ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        pytest.param(NOTHING, NOTHING, False, id="rows on both sides"),
        pytest.param(C, NOTHING, False, id="ours beside rows"),
        pytest.param(NOTHING, M, False, id="rows beside theirs"),
        pytest.param(UNCLEAR, NOTHING, True, id="ours matters to rows"),
        pytest.param(NOTHING, frozenset({OTHER, COLUMNS}), True, id="theirs matters to rows"),
        pytest.param(P, P, True, id="both"),
        pytest.param(M, C, True, id="marks and columns"),
    ],
)
def test_collide(ours: Kinds, theirs: Kinds, expected: bool) -> None:
    assert collide(ours, theirs) is expected


STATE = TableState(table(), legacy(1, 2))


@pytest.mark.parametrize(
    ("before", "metadata", "protocols", "expected"),
    [
        pytest.param(STATE, [], [], (NOTHING, NOTHING), id="none"),
        pytest.param(STATE, [table(*AB, field("c"))], [], (C, NOTHING), id="a column"),
        pytest.param(STATE, [], [legacy(1, 3)], (NOTHING, F), id="an upgrade"),
        pytest.param(
            STATE, [setting("k"), table(*AB, field("c"), properties={"k": "1"})], [], (C, NOTHING), id="step by step"
        ),
        pytest.param(
            STATE, [setting("delta.appendOnly", "true"), table()], [], (UNCLEAR, NOTHING), id="taken back"
        ),
        pytest.param(None, [table()], [], (UNCLEAR, NOTHING), id="from nobody knows where"),
        pytest.param(None, [], [legacy(1, 3)], (NOTHING, UNCLEAR), id="an upgrade from nobody knows where"),
    ],
)  # fmt: skip
def test_evolve(
    before: TableState | None, metadata: list[Body], protocols: list[Body], expected: tuple[Kinds, Kinds]
) -> None:
    assert evolve(before, metadata, protocols) == expected


def test_commits_of_rows_alone_do_not_ask_what_the_table_was() -> None:
    found = footprint([{"add": {"path": "x"}}], lambda: pytest.fail("asked"))
    assert found.metadata == found.protocol == NOTHING


# --- where the table before them is found -----------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "lake"), create=True)


def write(store: Storage, version: int, *actions: Action) -> None:
    store.put(commit_path("t", version), render([{"commitInfo": {}}, *actions]))


def checksum(store: Storage, version: int, metadata: Body, protocol: Body) -> None:
    said = {"tableSizeBytes": 0, "numFiles": 0, "metadata": metadata, "protocol": protocol}
    store.put(checksum_path("t", version), json.dumps(said).encode())


START: list[Action] = [{"protocol": dict(legacy(1, 2))}, {"metaData": dict(table())}]


def test_state_is_that_of_the_last_actions(store: Storage) -> None:
    write(store, 0, *START)
    write(store, 1, {"metaData": dict(setting("k"))})
    write(store, 2)
    assert state_at(store, "t", 0) == STATE
    assert state_at(store, "t", 2) == TableState(setting("k"), legacy(1, 2))


def test_state_is_that_of_a_checksum_and_of_what_came_after(store: Storage) -> None:
    checksum(store, 7, setting("k"), legacy(1, 3))
    write(store, 8, {"protocol": dict(legacy(1, 4))})
    assert state_at(store, "t", 7) == TableState(setting("k"), legacy(1, 3))
    assert state_at(store, "t", 8) == TableState(setting("k"), legacy(1, 4))


@pytest.mark.parametrize("version", [-1, 3])
def test_there_is_no_state_of_no_version(store: Storage, version: int) -> None:
    write(store, 0, *START)
    assert state_at(store, "t", version) is None


def test_a_broken_checksum_is_none(store: Storage) -> None:
    write(store, 0, *START)
    store.put(checksum_path("t", 0), b"{")
    assert state_at(store, "t", 0) == STATE


def test_a_short_look_alone_is_taken(store: Storage) -> None:
    write(store, 0, *START)
    for version in range(1, LOOKED_BACK + 1):
        write(store, version)
    assert state_at(store, "t", LOOKED_BACK - 1) == STATE
    assert state_at(store, "t", LOOKED_BACK) is None
