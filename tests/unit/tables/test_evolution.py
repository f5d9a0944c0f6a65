"""Tables that change: columns, properties, comments; and what rows must keep then."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lockstep
from lockstep.delta.actions import Action, bodies
from lockstep.delta.log import read_published
from lockstep.errors import ConflictError, InvalidError, UnsupportedError
from lockstep.lake.verify import verify
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from tests.support.python_tables import made_by_spark, rows
from tests.support.refused import refused_in

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def commit(lake: OpenLake, version: int, name: str = "t") -> list[Action]:
    [table] = [table for table in lake.catalog.database().tables.values() if table.name.table == name]
    return read_published(lake.catalog.lake.storage, table.location, version)


def field(name: str, type_: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": more}


# --- columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, {"delta.enableDeletionVectors": "true"}])
def test_rows_bring_their_columns(lake: OpenLake, properties: dict[str, str]) -> None:
    with lake.transaction() as tx:
        tx.create("t", SCHEMA, properties=properties).append({"id": [1], "v": ["a"]})
    with lake.transaction() as tx:
        t = tx["t"]
        assert t.append({"id": [2], "n": [5], "st": [{"x": 1}]}, schema_mode="merge") == 1
        assert t.append({"id": [3], "n": [6]}, schema_mode="merge") == 1
        assert t.update({"n": "n + 1"}, "id = 3") == 1
        assert t.merge({"id": [1], "n": [9]}, on="id").when_matched_update({"n": "source.n"}).execute() == (0, 1, 0)
        assert t.schema.names == ["id", "v", "n", "st"]
    assert rows(lake) == [
        {"id": 1, "v": "a", "n": 9, "st": None},
        {"id": 2, "v": None, "n": 5, "st": {"x": 1}},
        {"id": 3, "v": None, "n": 7, "st": None},
    ]
    assert lake.at(1)["t"].to_arrow().to_pylist() == [{"id": 1, "v": "a"}]
    assert not verify(lake.catalog.lake.storage, lake.catalog.timeline).differences


def test_an_overwrite_brings_columns_too_and_keeps_those_of_the_table(table: OpenLake) -> None:
    with table.transaction() as tx:
        assert tx["t"].overwrite({"id": [7], "n": [1]}, schema_mode="merge") == 1
    assert rows(table) == [{"id": 7, "v": None, "n": 1}]
    with table.transaction() as tx:
        assert tx["t"].overwrite({"id": [7], "m": [1]}, "id = 7", schema_mode="merge") == 1
    assert rows(table) == [{"id": 7, "v": None, "n": None, "m": 1}]


def test_no_column_is_no_change(table: OpenLake) -> None:
    with table.transaction() as tx:
        tx["t"].append({"id": [2]}, schema_mode="merge")
    assert not bodies(commit(table, 1), "metaData")


@pytest.mark.parametrize(
    ("given_rows", "sqlstate"),
    [
        ({"id": [2], "n": pa.array([1], pa.uint64())}, "0A000"),
        ({"id": [2], "n": pa.nulls(1)}, "0A000"),
        ({"id": [2], "ID": [1]}, "42701"),
        ({"id": [2], "a b": [1]}, "22023"),
        ({"id": ["x"], "n": [1]}, "42804"),
        ({"id": [2], "__lockstep_n": [1]}, "0A000"),
    ],
)
def test_columns_that_a_table_does_not_get(table: OpenLake, given_rows: Any, sqlstate: str) -> None:
    with table.transaction() as tx:
        with refused_in(tx, InvalidError) as refused:
            tx["t"].append(given_rows, schema_mode="merge")
        assert refused.value.sqlstate == sqlstate
        wrong: Any = "overwrite"
        with refused_in(tx, InvalidError, "expected"):
            tx["t"].append({"id": [1]}, schema_mode=wrong)
    assert rows(table) == [{"id": 1, "v": "a"}]


STRICT = pa.struct([("b", pa.int64()), pa.field("a", pa.int64(), nullable=False)])
NOT_NULL_WITHIN = [
    STRICT,
    pa.struct([("deep", STRICT)]),
    pa.list_(STRICT),
    pa.map_(pa.string(), STRICT),
    pa.map_(STRICT, pa.string()),
    pa.struct([("l", pa.list_(pa.list_(STRICT)))]),
]


@pytest.mark.parametrize("type_", NOT_NULL_WITHIN, ids=str)
def test_rows_bring_no_column_with_a_field_that_the_rows_before_them_must_have(
    table: OpenLake, type_: pa.DataType
) -> None:
    given = pa.table({"id": pa.array([2], pa.int64()), "x": pa.nulls(1, type_)})
    with table.transaction() as tx:
        for put in (tx["t"].append, tx["t"].overwrite):
            with refused_in(tx, InvalidError, r"column x\.\S*a cannot be NOT NULL") as refused:
                put(given, schema_mode="merge")
            assert refused.value.sqlstate == "22023"
    assert rows(table) == [{"id": 1, "v": "a"}]


def test_a_table_has_no_fields_that_are_not_null_in_arrays_and_maps(lake: OpenLake) -> None:
    """Delta itself refuses such tables: it would not see to it."""
    with lake.transaction() as tx:
        for type_ in NOT_NULL_WITHIN[2:]:
            with refused_in(tx, InvalidError, r"field x\.\S*a cannot be NOT NULL"):
                tx.create("t", pa.schema([("x", type_)]))


@pytest.mark.parametrize("how", ["append", "overwrite", "update", "merge", "insert of a merge"])
def test_a_struct_that_is_null_has_no_value_in_its_not_null_fields(lake: OpenLake, how: str) -> None:
    """As in Spark, which refuses such rows: a table that has them could not be rewritten there."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.struct([("deep", STRICT)]))])
    given = pa.Table.from_pylist(
        [{"id": 1, "x": {"deep": None}}],
        schema=pa.schema([schema.field(0), ("x", pa.struct([("deep", pa.struct([("a", pa.int64())]))]))]),
    )
    changes: dict[str, Any] = {
        "append": lambda t: t.append(given),
        "overwrite": lambda t: t.overwrite(given.select(["id"])),
        "update": lambda t: t.update({"x": "NULL"}),
        "merge": lambda t: t.merge(given, on="id").when_matched_update_all().execute(),
        "insert of a merge": lambda t: (
            t.merge({"id": [5]}, on="id").when_not_matched_insert({"id": "source.id"}).execute()
        ),
    }
    with lake.transaction() as tx:
        t = tx.create("t", schema)
        t.append([{"id": 1, "x": {"deep": {"a": 1, "b": None}}}])
        with refused_in(
            tx, InvalidError, "column x of table default.t is NOT NULL, and a row has none in a field"
        ) as no:
            changes[how](t)
        assert no.value.sqlstate == "23502"
    assert rows(lake) == [{"id": 1, "x": {"deep": {"a": 1, "b": None}}}]


def test_add_columns_and_what_comes_with_them(table: OpenLake) -> None:
    with table.transaction() as tx:
        alter = tx["t"].alter
        alter.add_columns(pa.field("n", pa.int32()))
        alter.add_columns(pa.schema([("at", pa.timestamp("us")), ("l", pa.list_(pa.int64()))]))
        tx["t"].append({"id": [2], "at": [dt.datetime(2026, 1, 1)]})
        for columns, sqlstate in (
            (pa.field("V", pa.int64()), "42701"),
            (pa.field("x", pa.int64(), nullable=False), "22023"),
            *((pa.field("x", type_), "22023") for type_ in NOT_NULL_WITHIN),
            ([], "22023"),
        ):
            with refused_in(tx, InvalidError) as refused:
                alter.add_columns(columns)
            assert refused.value.sqlstate == sqlstate
    assert rows(table)[1] == {"id": 2, "v": None, "n": None, "at": dt.datetime(2026, 1, 1), "l": None}
    [protocol] = bodies(commit(table, 1), "protocol")
    assert protocol == {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["appendOnly", "invariants", "timestampNtz"],
    }


def test_two_that_add_columns_collide_and_an_append_beside_one_does_not(table: OpenLake) -> None:
    def add(tx: LakeTransaction, name: str) -> None:
        tx["t"].append({"id": [2], name: [1]}, schema_mode="merge")

    one = table.transaction(isolation="SNAPSHOT").__enter__()
    add(one, "n")
    with table.transaction() as tx:
        tx["t"].append({"id": [3]})
    two = table.transaction(isolation="SNAPSHOT").__enter__()
    add(two, "m")
    one.commit()
    with pytest.raises(ConflictError):
        two.commit()
    assert [row["id"] for row in rows(table)] == [1, 2, 3]


# --- properties and comments ------------------------------------------------------------------------------------------


def test_properties_and_comments(table: OpenLake) -> None:
    with table.transaction() as tx:
        alter = tx["t"].alter
        alter.set_table_properties({"team": "ada", "delta.enableDeletionVectors": "true", "gone": "1"})
        alter.unset_table_properties(["gone", "never.there"])
        alter.set_table_description("what it is")
        alter.set_column_comment("v", "a letter")
        assert tx["t"].append({"id": [2, 3]}) == 2
        assert tx["t"].delete("id = 2") == 1
    delta = table.at()["t"].delta()
    assert delta.metadata().configuration == {"team": "ada", "delta.enableDeletionVectors": "true"}
    assert delta.metadata().description == "what it is"
    assert json.loads(delta.schema().to_json())["fields"][1]["metadata"] == {"comment": "a letter"}
    assert [row["id"] for row in rows(table)] == [1, 3]
    with table.transaction() as tx:
        tx["t"].alter.set_table_description(None)
        tx["t"].alter.set_column_comment("v", None)
    delta = table.at()["t"].delta()
    assert delta.metadata().description is None
    assert json.loads(delta.schema().to_json())["fields"][1]["metadata"] == {}


def test_properties_of_delta_s_are_spelled_as_delta_finds_them(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        t = tx.create("t", SCHEMA, properties={"delta.ENABLEdeletionvectors": "true", "My.Own": "1"})
        t.alter.set_table_properties({"DELTA.appendonly": "true"})
    expected = {"delta.enableDeletionVectors": "true", "delta.appendOnly": "true", "My.Own": "1"}
    assert lake.at()["t"].delta().metadata().configuration == expected


@pytest.mark.parametrize("key", ["delta.columnMapping.mode", "delta.enableRowTracking", "delta.constraints.x"])
def test_properties_that_only_spark_changes(table: OpenLake, key: str) -> None:
    for change in ("set_table_properties", "unset_table_properties"):
        with table.transaction() as tx, refused_in(tx, UnsupportedError, key):
            getattr(tx["t"].alter, change)({key: "name"})
    assert table.at()["t"].version == 0


# --- in-commit timestamps ---------------------------------------------------------------------------------------------


def test_commits_of_a_table_with_times_say_later_ones_each(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx.create("t", SCHEMA, properties={"delta.enableInCommitTimestamps": "true"}).append({"id": [1]})
    slow = lake.transaction(isolation="SNAPSHOT").__enter__()
    slow["t"].append({"id": [2]})
    slow["t"].append({"id": [3]})
    with lake.transaction() as tx:
        tx["t"].append({"id": [4]})
        tx["t"].delete("id = 1")
    slow.commit()
    with lake.transaction() as tx:
        tx["t"].alter.set_table_properties({"team": "ada"})
    last = lake.at()["t"].version
    actions = [commit(lake, version) for version in range(last + 1)]
    assert all("commitInfo" in each[0] for each in actions), "the first action, as the protocol asks"
    times = [each[0]["commitInfo"]["inCommitTimestamp"] for each in actions]
    assert times == sorted(set(times))
    assert [row["id"] for row in rows(lake)] == [2, 3, 4]
    assert not verify(lake.catalog.lake.storage, lake.catalog.timeline).differences


def test_times_go_on_from_a_commit_that_was_made_in_the_future(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx.create("t", SCHEMA, properties={"delta.enableInCommitTimestamps": "true"})
    table = next(iter(lake.catalog.database().tables.values()))
    far = 4_102_444_800_000
    info = {"commitInfo": {"inCommitTimestamp": far, "operation": "WRITE", "timestamp": far, "operationParameters": {}}}
    path = f"{table.location}/_delta_log/{1:020d}.json"
    lake.catalog.lake.storage.put_if_absent(path, json.dumps(info).encode())
    with lake.transaction() as tx:
        tx["t"].append({"id": [1]})
    assert commit(lake, 2)[0]["commitInfo"]["inCommitTimestamp"] == far + 1


# --- columns that have other names in files ---------------------------------------------------------------------------

MAPPED = {"delta.columnMapping.mode": "name"}
DEEP = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("st", pa.struct([("a", pa.int64()), ("l", pa.list_(pa.struct([("z", pa.string())])))])),
        ("m", pa.map_(pa.string(), pa.struct([("q", pa.int32())]))),
    ]
)


def data_files(lake: OpenLake) -> set[str]:
    return {found.path for found in lake.catalog.lake.storage.walk("") if found.path.endswith(".parquet")}


def deep(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "p": "x y" if number % 2 else None,
        "st": None if number == 3 else {"a": number, "l": [{"z": "é"}, None]},
        "m": [("k", {"q": number})],
    }


@pytest.mark.parametrize("properties", [MAPPED, MAPPED | {"delta.enableDeletionVectors": "true"}])
@pytest.mark.parametrize("parts", [None, "p"])
def test_columns_are_renamed_and_dropped_and_files_stay(
    lake: OpenLake, properties: dict[str, str], parts: str | None
) -> None:
    with lake.transaction() as tx:
        t = tx.create("t", DEEP, partition_by=parts, properties=properties)
        t.append(pa.Table.from_pylist([deep(number) for number in range(6)], schema=DEEP))
        files = data_files(lake)
        t.alter.rename_column("id", "key")
        t.alter.rename_column("p", "id")
        t.alter.drop_columns(["m"])
        assert data_files(lake) == files
        assert t.delete("key = 0") == 1
        assert t.update({"id": "'moved'"}, "key = 1 AND st.a = 1") == 1
        assert (
            t.merge({"key": [2], "id": ["m"]}, on="key").when_matched_update({"id": "source.id"}).execute().updated == 1
        )
        t.append({"key": [7], "m": [{"q": 5}]}, schema_mode="merge")
    found = lake.at()["t"].to_arrow().sort_by("key")
    with lake.transaction(read_only=True) as tx:
        assert tx["t"].to_arrow().sort_by("key").to_pylist() == found.to_pylist()
    assert found.schema.names == ["key", "id", "st", "m"]
    expected = {1: "moved", 2: "m", 3: "x y", 4: None, 5: "x y", 7: None}
    assert dict(zip(found["key"].to_pylist(), found["id"].to_pylist(), strict=True)) == expected
    assert found["st"].to_pylist() == [None if n in (3, 7) else deep(n)["st"] for n in expected]
    assert found["m"].to_pylist() == [None] * 5 + [{"q": 5}], "another column than the one that was dropped"
    assert not verify(lake.catalog.lake.storage, lake.catalog.timeline).differences


def test_a_name_that_is_another_column_s_in_files_leaves_out_no_file(lake: OpenLake) -> None:
    """As after columns were mapped and renamed, each to the other's name: files are not chosen by the wrong one."""
    mapped = [
        field(name, "long", **{"delta.columnMapping.id": number, "delta.columnMapping.physicalName": stored})
        for number, (name, stored) in enumerate([("a", "b"), ("b", "a")], 1)
    ]
    made_by_spark(lake, mapped, ["columnMapping"], **MAPPED, **{"delta.columnMapping.maxColumnId": "2"})
    with lake.transaction() as tx:
        tx["t"].append({"a": [1], "b": [100]})
        tx["t"].append({"a": [2], "b": [200]})
    with lake.transaction() as tx:
        assert tx["t"].to_arrow(where="a = 1").to_pylist() == [{"a": 1, "b": 100}]
        assert tx["t"].merge({"a": [1]}, on="a").when_matched_update({"b": "7"}).execute().updated == 1
        assert tx["t"].delete("a = 2") == 1
    assert lake.at()["t"].to_arrow().to_pylist() == [{"a": 1, "b": 7}]


def test_files_and_their_statistics_go_by_physical_names_and_numbers(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx.create("t", DEEP, partition_by="p", properties=MAPPED).append(pa.Table.from_pylist([deep(1)], schema=DEEP))
        tx["t"].alter.rename_column("id", "key")
        tx["t"].alter.add_columns(pa.schema([("n", pa.struct([("x", pa.int64())]))]))
    [[add], [metadata]] = (bodies([a for v in range(1) for a in commit(lake, v)], kind) for kind in ("add", "metaData"))
    fields = json.loads(metadata["schemaString"])["fields"]
    names = {field["name"]: field["metadata"]["delta.columnMapping.physicalName"] for field in fields}
    numbers = [field["metadata"]["delta.columnMapping.id"] for field in fields]
    assert numbers == [1, 2, 3, 7, 9]
    assert metadata["configuration"]["delta.columnMapping.maxColumnId"] == "10"
    assert add["partitionValues"] == {names["p"]: "x y"}
    stats = json.loads(add["stats"])
    assert stats["minValues"][names["key"]] == 1
    assert list(stats["nullCount"]) == [names["key"], names["st"]]
    [uri] = lake.at()["t"].delta().file_uris()
    schema = pq.read_schema(uri.removeprefix("file://"))
    assert schema.names == [names["key"], names["st"], names["m"]]
    assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"1", b"3", b"7"]


@pytest.mark.parametrize(
    ("change", "sqlstate"),
    [
        (lambda alter: alter.rename_column("nosuch", "x"), "42703"),
        (lambda alter: alter.rename_column("id", "P"), "42701"),
        (lambda alter: alter.rename_column("id", "a b"), "22023"),
        (lambda alter: alter.rename_column("st", "x"), "0A000"),
        (lambda alter: alter.drop_columns("nosuch"), "42703"),
        (lambda alter: alter.drop_columns("p"), "22023"),
        (lambda alter: alter.drop_columns("st"), "0A000"),
        (lambda alter: alter.drop_columns(["id", "st", "m"]), "0A000"),
    ],
)
def test_what_is_not_renamed_or_dropped(lake: OpenLake, change: Any, sqlstate: str) -> None:
    with lake.transaction() as tx:
        alter = tx.create("t", DEEP, partition_by="p", properties=MAPPED).alter
        alter.add_columns(pa.field("stock", pa.int64()))
        alter.add_constraint({"c": "stock > 0"})
        with refused_in(tx, InvalidError) as refused:
            change(alter)
    assert refused.value.sqlstate == sqlstate


def test_columns_that_are_not_mapped_keep_their_names(table: OpenLake) -> None:
    with table.transaction() as tx:
        for change in (lambda: tx["t"].alter.rename_column("v", "w"), lambda: tx["t"].alter.drop_columns("v")):
            with refused_in(tx, UnsupportedError, r"delta\.columnMapping\.mode = name"):
                change()


def test_a_feed_s_own_columns_are_no_table_s(lake: OpenLake) -> None:
    schema = pa.schema([("id", pa.int64()), ("_change_type", pa.string())])
    with lake.transaction() as tx, refused_in(tx, UnsupportedError, "_change_type"):
        tx.create("t", schema, properties={"delta.enableChangeDataFeed": "true"})


# --- any program, against a model -------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(NAMES, unique=True, max_size=3)),
    st.tuples(st.just("add"), NAMES),
    st.tuples(st.just("update"), NAMES),
    st.tuples(st.just("delete"), st.integers(0, 4)),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("undo"), st.none()),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(STEPS, max_size=9))
def test_programs(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]) -> None:
    lake = lockstep.open(str(tmp_path_factory.mktemp("lake")), create=True)
    with lake.transaction() as tx:
        tx.create("t", pa.schema([("id", pa.int64())]))
    columns: list[str] = ["id"]
    model: list[dict[str, Any]] = []
    tx = lake.transaction().__enter__()
    kept = list(columns), [dict(row) for row in model]
    for number, (what, said) in enumerate(steps):
        if what == "append":
            tx["t"].append({"id": [number], **{name: [number * 10] for name in said}}, schema_mode="merge")
            columns += [name for name in said if name not in columns]
            model.append({"id": number, **dict.fromkeys(said, number * 10)})
        elif what == "add" and said not in columns:
            tx["t"].alter.add_columns(pa.field(said, pa.int64()))
            columns.append(said)
        elif what == "update" and said in columns:
            tx["t"].update({said: "id"})
            model = [{**row, said: row["id"]} for row in model]
        elif what == "delete":
            tx["t"].delete(f"id = {said}")
            model = [row for row in model if row["id"] != said]
        elif what in ("commit", "undo"):
            tx.commit() if what == "commit" else tx.rollback()
            columns, model = (columns, model) if what == "commit" else (list(kept[0]), [dict(row) for row in kept[1]])
            kept = list(columns), [dict(row) for row in model]
            tx = lake.transaction().__enter__()
        expected = [{name: row.get(name) for name in columns} for row in model]
        assert sorted(tx["t"].to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
        assert tx["t"].schema.names == columns
    tx.commit()
    assert rows(lake) == [{name: row.get(name) for name in columns} for row in model]
    assert not verify(lake.catalog.lake.storage, lake.catalog.timeline).differences
