"""Statements on tables without Spark: what they do to the rows, and that any Delta reader reads the same."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lockstep
from lockstep.errors import DuplicateError, InvalidError, LockstepError, ReadOnlyError, UndefinedError, UnsupportedError
from lockstep.lake.verify import verify
from lockstep.tables.opened import OpenLake
from tests.support.refused import refused_in

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
VECTORS = {"delta.enableDeletionVectors": "true"}
KINDS: dict[str, dict[str, Any]] = {
    "files": {},
    "vectors": {"properties": VECTORS},
    "partitions": {"partition_by": ["v"]},
    "both": {"partition_by": ["v"], "properties": VECTORS},
}


def make(lake: OpenLake, rows: list[dict[str, Any]], *, schema: pa.Schema = SCHEMA, **more: Any) -> None:
    with lake.transaction() as tx:
        tx.create("t", schema, **more).append(pa.Table.from_pylist(rows, schema=schema))


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def read(lake: OpenLake, name: str = "t") -> list[tuple[Any, ...]]:
    """The rows of a table's newest version, as deltalake reads them; the transaction's own reader says the same."""
    rows = rows_of(lake.at()[name].to_arrow())
    with lake.transaction(read_only=True) as tx:
        assert rows_of(tx[name].to_arrow()) == rows
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_each_statement(lake: OpenLake, kind: str) -> None:
    make(lake, [{"id": i, "v": f"v{i % 3}"} for i in range(9)], **KINDS[kind])
    with lake.transaction() as tx:
        t = tx["t"]
        assert t.append([{"id": 9, "v": None}]) == 1
        assert t.delete("id < 2 OR v IS NULL") == 3
        assert t.update({"v": "v || '!'", "id": "id + 100"}, "id = 4") == 1
        merged = t.merge(pl.DataFrame({"id": [3, 50], "v": ["m", "new"]}), on="id")
        assert merged.when_matched_update_all().when_not_matched_insert_all().execute() == (1, 1, 0)
        seen = rows_of(t.to_arrow())
    expected = {2: "v2", 3: "m", 104: "v1!", 5: "v2", 6: "v0", 7: "v1", 8: "v2", 50: "new"}
    assert seen == read(lake) == sorted(expected.items(), key=repr)
    assert not verify(lake.catalog.lake.storage, lake.catalog.timeline).differences


@pytest.mark.parametrize("kind", KINDS)
def test_overwrite(lake: OpenLake, kind: str) -> None:
    make(lake, [{"id": i, "v": f"v{i % 2}"} for i in range(4)], **KINDS[kind])
    with lake.transaction() as tx:
        assert tx["t"].overwrite({"id": [10], "v": ["v1"]}, where="v = 'v1'") == 1
    assert read(lake) == [(0, "v0"), (10, "v1"), (2, "v0")]
    with pytest.raises(InvalidError, match="1 of the rows") as refused, lake.transaction() as tx:
        tx["t"].overwrite({"id": [11, 12], "v": ["v1", None]}, where="v = 'v1'")
    assert refused.value.sqlstate == "23514"
    with lake.transaction() as tx:
        tx["t"].overwrite({"id": [1], "v": ["x"]})
    assert read(lake) == [(1, "x")]


def test_nothing_found_is_no_commit(lake: OpenLake) -> None:
    make(lake, [{"id": 1, "v": "a"}])
    with lake.transaction() as tx:
        assert tx["t"].delete("id = 7") == 0
        assert tx["t"].update({"v": "'b'"}, "id = 7") == 0
        assert tx["t"].append(SCHEMA.empty_table()) == 0
        assert tx["t"].merge({"id": [9]}, on="id").when_matched_delete().execute() == (0, 0, 0)
    assert tx.version == 1
    assert lake.at()["t"].version == 0


def test_delete_of_all_and_of_all_of_a_file(lake: OpenLake) -> None:
    make(lake, [{"id": 1, "v": "a"}], properties=VECTORS)
    with lake.transaction() as tx:
        tx["t"].append([{"id": 2, "v": "b"}, {"id": 3, "v": "b"}])
        assert tx["t"].delete("id = 1") == 1
    assert len(lake.at()["t"].delta().file_uris()) == 1
    with lake.transaction() as tx:
        assert tx["t"].delete() == 2
    assert read(lake) == []


# --- merge ------------------------------------------------------------------------------------------------------------


def test_clauses_of_a_merge_are_asked_in_turn(lake: OpenLake) -> None:
    make(lake, [{"id": i, "v": "old"} for i in range(6)])
    with lake.transaction() as tx:
        merge = tx["t"].merge({"id": [1, 2, 3, 7, 8], "v": ["delete", "set", "keep", "new", "skip"]}, on=["id"])
        merge.when_matched_delete("source.v = 'delete'").when_matched_update(
            {"v": "source.v || target.v"}, "source.v = 'set'"
        )
        merge.when_not_matched_insert({"id": "source.id * 10"}, "source.v <> 'skip'")
        merge.when_not_matched_by_source_delete("target.id = 0").when_not_matched_by_source_update(
            {"v": "'orphan'"}, "target.id = 5"
        )
        assert merge.execute() == (1, 2, 2)
    assert read(lake) == [(2, "setold"), (3, "old"), (4, "old"), (5, "orphan"), (70, None)]


def test_two_rows_that_change_one_are_refused_but_for_deletes(lake: OpenLake) -> None:
    make(lake, [{"id": 1, "v": "a"}])
    twice = {"id": [1, 1], "v": ["x", "y"]}
    with lake.transaction() as tx:
        with refused_in(tx, InvalidError, match="two rows") as refused:
            tx["t"].merge(twice, on="id").when_matched_update_all().execute()
        assert tx["t"].merge(twice, on="id").when_matched_delete().execute() == (0, 0, 1)
    assert refused.value.sqlstate == "21000"
    assert read(lake) == []


@pytest.mark.parametrize(
    ("on", "why"),
    [
        ("nosuch = 1", "DuckDB"),
        (["nosuch"], "not a column of both"),
        ([], "on no column"),
        ("(SELECT 1)", "a query in it"),
    ],
)
def test_what_a_merge_cannot_be_on(lake: OpenLake, on: Any, why: str) -> None:
    make(lake, [{"id": 1, "v": "a"}])
    with pytest.raises(InvalidError, match=why), lake.transaction() as tx:
        tx["t"].merge({"id": [1]}, on=on).when_matched_delete().execute()


def test_a_merge_by_a_condition(lake: OpenLake) -> None:
    make(lake, [{"id": 1, "v": "a"}, {"id": 5, "v": "b"}])
    with lake.transaction() as tx:
        merge = tx["t"].merge({"low": [4], "high": [6]}, on="target.id BETWEEN source.low AND source.high")
        assert merge.when_matched_update({"v": "'in'"}).execute() == (0, 1, 0)
        with refused_in(tx, InvalidError, match="no column 'id'"):
            tx["t"].merge({"low": [1]}, on="target.id = source.low").when_matched_update_all().execute()
        with refused_in(tx, InvalidError, match="say a clause"):
            tx["t"].merge({"id": [1]}, on="id").execute()
        with refused_in(tx, InvalidError, match="takes all that come after"):
            tx["t"].merge({"id": [1]}, on="id").when_matched_delete().when_matched_delete("true").execute()
    assert read(lake) == [(1, "a"), (5, "in")]


# --- values -----------------------------------------------------------------------------------------------------------

EVERYTHING = pa.schema(
    [
        pa.field("i", pa.int32(), nullable=False),
        ("l", pa.int64()), ("h", pa.int16()), ("y", pa.int8()), ("f", pa.float32()), ("d", pa.float64()),
        ("dec", pa.decimal128(38, 10)), ("s", pa.string()), ("b", pa.binary()), ("o", pa.bool_()), ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("us")),
        ("st", pa.struct([("a", pa.int32()), ("n", pa.struct([("x", pa.string())]))])),
        ("ls", pa.list_(pa.struct([("k", pa.int64())]))), ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ]
)  # fmt: skip

FULL = {
    "i": 1, "l": -(2**63), "h": 32767, "y": -128, "f": 0.1, "d": float("-inf"), "dec": Decimal("-1e-10"),
    "s": "naïve\x00\U0001f600", "b": b"\x00\xff", "o": False, "day": dt.date(1582, 10, 4),
    "ts": dt.datetime(1900, 1, 1, 0, 0, 0, 1, dt.UTC), "ntz": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    "st": {"a": None, "n": {"x": "deep"}}, "ls": [{"k": 1}, None], "m": [("a", [1, None]), ("b", None)],
}  # fmt: skip


@pytest.mark.parametrize("properties", [{}, VECTORS])
def test_values_of_all_types_come_back_whatever_statement_moved_them(
    lake: OpenLake, properties: dict[str, str]
) -> None:
    given_rows = pa.Table.from_pylist([FULL, {"i": 2}, {**FULL, "i": 3, "d": float("nan")}], schema=EVERYTHING)
    with lake.transaction() as tx:
        tx.create("t", EVERYTHING, properties=properties).append(given_rows)
        assert tx["t"].delete("i = 2") == 1
        assert tx["t"].update({"o": "true"}, "i = 3") == 1
    with lake.transaction(read_only=True) as tx:
        ours = tx["t"].to_arrow().sort_by("i")
    theirs = lake.at()["t"].to_arrow().sort_by("i")
    expected = given_rows.take([0, 2]).set_column(9, "o", pa.array([False, True]))
    assert repr(ours.to_pylist()) == repr(expected.to_pylist())
    assert repr(theirs.to_pylist()).replace("zoneinfo.ZoneInfo(key='UTC')", "") == repr(expected.to_pylist()).replace(
        "zoneinfo.ZoneInfo(key='UTC')", ""
    )


PARTS: list[tuple[pa.DataType, list[Any]]] = [
    (
        pa.string(),
        ["", None, "a b", "50%", "a/b", "é", "x=y", "~", ".", "..", "'", '"', "\\", "a\nb", "long" * 80, "%2F", "#?"],
    ),
    (pa.int32(), [-1, 0, None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [dt.date(2024, 2, 29), None]),
    (pa.decimal128(12, 3), [Decimal("-0.010"), Decimal("1e8"), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, 1, 1, 2, 3, 4, dt.UTC), None]),
    (pa.timestamp("us"), [dt.datetime(2024, 1, 1, 1, 2, 3, 4), dt.datetime(1, 1, 1), None]),
]


@pytest.mark.parametrize(("type_", "values"), PARTS, ids=[str(type_) for type_, _ in PARTS])
def test_partition_values(lake: OpenLake, type_: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", type_)])
    rows = pa.table({"id": range(len(values)), "p": pa.array(values, type_)}, schema=schema)
    with lake.transaction() as tx:
        tx.create("t", schema, partition_by=["p"]).append(rows)
    expected = [(i, value or None if value == "" else value) for i, value in enumerate(values)]
    seen = sorted(tuple(row.values()) for row in lake.at()["t"].to_arrow().to_pylist())
    assert seen == expected == sorted(tuple(row.values()) for row in lake.at().sql("FROM t").to_pylist())
    with lake.transaction() as tx:
        assert sorted(tuple(row.values()) for row in tx["t"].to_arrow().to_pylist()) == expected
        assert tx["t"].delete("p IS NOT NULL") == sum(value not in (None, "") for value in values)


def test_an_empty_text_is_null_where_a_table_is_partitioned_by_it(lake: OpenLake) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("p", pa.string(), nullable=False)])
    with lake.transaction() as tx:
        tx.create("t", schema, partition_by=["p"])
        with refused_in(tx, InvalidError, match="NOT NULL") as refused:
            tx["t"].append({"id": [1], "p": [""]})
    assert refused.value.sqlstate == "23502"


@pytest.mark.parametrize(
    ("rows", "sqlstate"),
    [
        ({"id": [1], "nosuch": [2]}, "42703"),
        ({"v": ["x"]}, "23502"),
        ({"id": [None]}, "23502"),
        ({"id": ["1"]}, "42804"),
        ({"id": [1.5]}, "42804"),
        ({"id": pa.array([2**63], pa.uint64())}, "22003"),
        ({"id": [1], "x": [{"a": None}]}, "23502"),
        ({"id": [1], "x": [{"b": 1}]}, "42804"),
        ({"id": [1]}, "23502"),
        ({"id": [1], "x": [{"a": 1}], "ts": [dt.datetime(2024, 1, 1)]}, "42804"),
        (7, "42804"),
    ],
)
def test_rows_that_a_table_does_not_take(lake: OpenLake, rows: Any, sqlstate: str) -> None:
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("v", pa.string()),
            ("x", inner),
            ("ts", pa.timestamp("us", "UTC")),
        ]
    )
    with lake.transaction() as tx:
        tx.create("t", schema)
        with refused_in(tx, InvalidError) as refused:
            tx["t"].append(rows)
    assert refused.value.sqlstate == sqlstate
    assert read(lake) == []


def test_rows_may_come_as_anything_that_is_columns(lake: OpenLake) -> None:
    make(lake, [])
    table = pa.table({"id": pa.array([1], pa.int8()), "v": pa.array(["a"]).dictionary_encode()})
    with lake.transaction() as tx:
        for rows in (
            table,
            table.to_batches()[0],
            table.to_reader(),
            table.to_pandas(),
            pl.DataFrame({"id": [1], "v": ["a"]}),
        ):
            assert tx["t"].append(rows) == 1
    assert read(lake) == [(1, "a")] * 5


# --- names, queries, refusals -----------------------------------------------------------------------------------------


def test_names_and_tables_are_made_in_the_transaction_and_seen_by_version(lake: OpenLake) -> None:
    with lake.transaction(comment="first") as tx:
        tx.create_namespace("sales")
        tx.create("sales.orders", SCHEMA).append({"id": [1]})
        assert [str(name) for name in tx.tables] == ["sales.orders"]
    with lake.transaction() as tx:
        tx.rename("sales.orders", "orders")
        tx.drop_namespace("sales")
    with lake.transaction() as tx:
        tx.drop("orders")
    assert [[str(name) for name in lake.at(version).tables] for version in (1, 2, 3)] == [
        ["sales.orders"],
        ["default.orders"],
        [],
    ]
    assert rows_of(lake.at(1).sql("FROM sales.orders")) == rows_of(lake.at(2)["orders"].to_arrow()) == [(1, None)]
    with pytest.raises(UndefinedError, match=r"no table default.orders in database version 1"):
        lake.at(1)["orders"]


@pytest.mark.parametrize(
    ("schema", "more", "kind"),
    [
        (pa.schema([("a b", pa.int64())]), {}, InvalidError),
        (pa.schema([("a", pa.int64()), ("A", pa.int64())]), {}, InvalidError),
        (pa.schema([]), {}, InvalidError),
        (pa.schema([("a", pa.uint8())]), {}, UnsupportedError),
        (pa.schema([("a", pa.time64("us"))]), {}, UnsupportedError),
        (SCHEMA, {"partition_by": ["nosuch"]}, InvalidError),
        (SCHEMA, {"partition_by": ["id", "v"]}, InvalidError),
        (pa.schema([("a", pa.float64()), ("b", pa.int8())]), {"partition_by": ["a"]}, UnsupportedError),
        (SCHEMA, {"properties": {"delta.enableRowTracking": "true"}}, UnsupportedError),
        (SCHEMA, {"properties": {"delta.columnMapping.mode": "id"}}, UnsupportedError),
        (pa.schema([("__lockstep_row", pa.int64())]), {}, UnsupportedError),
    ],
)
def test_tables_that_cannot_be_made(lake: OpenLake, schema: pa.Schema, more: Any, kind: type[LockstepError]) -> None:
    with lake.transaction() as tx:
        with refused_in(tx, kind):
            tx.create("t", schema, **more)
        assert tx.tables == []
    assert tx.version == 0


@pytest.mark.parametrize(("by", "parts"), [(None, []), ((), []), ("v", ["v"]), (["v"], ["v"]), (("v",), ["v"])])
def test_partitioned_by_a_column_or_several_or_none(lake: OpenLake, by: Any, parts: list[str]) -> None:
    make(lake, [{"id": 1, "v": "a"}], partition_by=by)
    assert lake.at()["t"].delta().metadata().partition_columns == parts
    assert read(lake) == [(1, "a")]


def test_all_columns_at_once_in_a_query(lake: OpenLake) -> None:
    """COLUMNS(*) is no value of one row, and so for queries: it sees the table's columns, and none of Lockstep's."""
    make(lake, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    with lake.transaction() as tx:
        for query, expected in (
            ("SELECT COLUMNS(*) FROM t", [(1, "a"), (2, "b")]),
            ("SELECT max(COLUMNS(*)) FROM t", [(2, "b")]),
            ("SELECT COLUMNS('^i') FROM t", [(1,), (2,)]),
            ("SELECT COLUMNS(* EXCLUDE (id)) FROM t", [("a",), ("b",)]),
        ):
            assert rows_of(tx.sql(query)) == rows_of(lake.at().sql(query)) == expected


def test_a_name_that_is_taken_and_a_namespace_that_is_not_there(lake: OpenLake) -> None:
    make(lake, [])
    with lake.transaction() as tx:
        with refused_in(tx, DuplicateError):
            tx.create("t", SCHEMA)
        with refused_in(tx, UndefinedError) as refused:
            tx.create("nosuch.t", SCHEMA)
    assert refused.value.sqlstate == "3F000"


def test_the_namespace_of_the_system_tables_is_nobodys_to_make(lake: OpenLake) -> None:
    """It would hide them in Spark. A lake that has one of that name from before there were any goes on with it."""
    with lake.transaction() as tx:
        for name in ("system", "System", ("SYSTEM", "x")):
            with refused_in(tx, UnsupportedError) as refused:
                tx.create_namespace(name)
            assert refused.value.sqlstate == "42939"
        tx.create_namespace("systems")
    lake.catalog.run(lambda core: core.changing().create_namespace(("System",), {}))
    with lake.transaction() as tx:
        tx.create_namespace(("System", "x"))
    assert {".".join(name) for name in lake.catalog.database().namespaces} == {
        "default",
        "systems",
        "System",
        "System.x",
    }


def test_queries(lake: OpenLake) -> None:
    make(lake, [{"id": 1, "v": "a"}])
    with lake.transaction() as tx:
        tx["t"].append({"id": [2], "v": ["b"]})
        query = "WITH t2 AS (SELECT id FROM t) SELECT sum(id)::INT FROM t2 JOIN extra USING (id)"
        assert rows_of(tx.sql(query, extra=pa.table({"id": [2]}))) == [(2,)]
        assert rows_of(tx.sql("WITH t AS (SELECT 7 AS x) FROM t")) == [(7,)]
        for query, kind in (
            ("FROM nosuch", UndefinedError),
            ("SELEC 1", InvalidError),
            ("SELECT 1; SELECT 2", InvalidError),
            ("DELETE FROM t", UnsupportedError),
            ("CREATE TABLE x AS SELECT 1", UnsupportedError),
            ("SELECT nosuch FROM t", InvalidError),
            ("FROM read_csv('/etc/passwd')", InvalidError),
        ):
            with pytest.raises(kind):
                tx.sql(query)


def test_what_reads_nothing_but_what_is_recorded(lake: OpenLake) -> None:
    hidden = pa.table({"x": [1]})
    with pytest.raises(UndefinedError, match="hidden"), lake.transaction() as tx:
        tx.sql("FROM hidden")
    assert hidden.num_rows == 1, "a variable of the caller, which DuckDB would find by its name"


def test_read_only_and_append_only(lake: OpenLake) -> None:
    make(lake, [{"id": 1, "v": "a"}], properties={"delta.appendOnly": "true"})
    with pytest.raises(ReadOnlyError), lake.transaction(read_only=True) as tx:
        tx["t"].append({"id": [1]})
    with lake.transaction() as tx:
        assert tx["t"].append({"id": [2]}) == 1
        with refused_in(tx, ReadOnlyError, match="appends alone"):
            tx["t"].delete()


def test_duckdb_and_polars_read_a_version(lake: OpenLake) -> None:
    import duckdb

    make(lake, [{"id": i, "v": "a"} for i in range(3)], properties=VECTORS)
    with lake.transaction() as tx:
        tx["t"].delete("id = 0")
    connection = duckdb.connect()
    lake.at(1).duckdb(connection)
    assert connection.sql("SELECT count(*) FROM t").fetchall() == [(3,)]
    assert connection.sql('SELECT count(*) FROM "default".t').fetchall() == [(3,)]
    lake.at(2).duckdb(connection, ["t"])
    assert connection.sql("SELECT count(*) FROM t").fetchall() == [(2,)]
    assert lake.at(2)["t"].polars().select(pl.len()).collect().item() == 2


def test_duckdb_is_given_no_two_tables_under_one_name(lake: OpenLake) -> None:
    """A namespace of several parts is one name to DuckDB, and `default` is `main`, too."""
    import duckdb

    with lake.transaction() as tx:
        for namespace in (("b",), ("b", "c"), ("b.c",), ("main",)):
            tx.create_namespace(namespace)
            tx.create((*namespace, "t"), pa.schema([("id", pa.int64())])).append({"id": [len(namespace)]})
        tx.create("t", pa.schema([("id", pa.int64())]))
    at, names = lake.at(), [("b",), ("b", "c")]
    for wrong in ([("b", "c"), ("b.c",)], [("main",), ("default",)], [("b", "c"), ("b",), ("b.c",)]):
        with duckdb.connect() as connection, pytest.raises(InvalidError, match="have one name in DuckDB") as refused:
            at.duckdb(connection, [(*namespace, "t") for namespace in wrong])
        assert refused.value.sqlstate == "42702"
    with duckdb.connect() as connection:
        at.duckdb(connection, [(*namespace, "t") for namespace in names])
        assert connection.sql('FROM "b.c".t').fetchall() == [(2,)]


def test_duckdb_reads_each_of_two_tables_whose_names_are_written_alike(lake: OpenLake) -> None:
    """`a`.`b.c` and `a.b`.`c` are two in DuckDB, too: neither view has the other's rows."""
    import duckdb

    names = [("a", "b.c"), ("a", "b", "c")]
    with lake.transaction() as tx:
        tx.create_namespace("a")
        tx.create_namespace(("a", "b"))
        for number, name in enumerate(names):
            tx.create(name, pa.schema([("id", pa.int64())])).append({"id": [number]})
    for wanted in ([names], [[each] for each in names], [[each] for each in reversed(names)]):
        with duckdb.connect() as connection:
            for each in wanted:
                lake.at().duckdb(connection, each)
            assert connection.sql('SELECT x.id, y.id FROM a."b.c" x, "a.b".c y').fetchall() == [(0, 1)]


def test_duckdb_is_given_all_tables_or_none(lake: OpenLake) -> None:
    import duckdb

    make(lake, [{"id": 1, "v": "a"}])
    connection = duckdb.connect()
    with pytest.raises(UndefinedError):
        lake.at(1).duckdb(connection, ["t", "nope"])
    assert connection.sql("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall() == []


# --- any program, against a dictionary --------------------------------------------------------------------------------

KEYS = st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("update"), KEYS),
    st.tuples(st.just("merge"), st.lists(KEYS, unique=True, min_size=1, max_size=3)),
    st.tuples(st.just("commit"), st.none()),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(STEPS, max_size=8))
def test_programs(tmp_path_factory: pytest.TempPathFactory, kind: str, steps: list[tuple[str, Any]]) -> None:
    lake = lockstep.open(str(tmp_path_factory.mktemp("lake")), create=True)
    make(lake, [{"id": i, "v": f"{i % 2}"} for i in range(4)], **KINDS[kind])
    model = {i: f"{i % 2}" for i in range(4)}
    tx = lake.transaction().__enter__()
    for number, (what, key) in enumerate(steps):
        if what == "commit":
            tx.commit()
            tx = lake.transaction().__enter__()
        elif what == "delete":
            assert tx["t"].delete(f"id = {key}") == (key in model)
            model.pop(key, None)
        elif what == "update":
            assert tx["t"].update({"v": f"'u{number}'"}, f"id = {key}") == (key in model)
            model |= {key: f"u{number}"} if key in model else {}
        else:
            merge = tx["t"].merge({"id": key, "v": [f"m{number}"] * len(key)}, on="id")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
            model |= dict.fromkeys(key, f"m{number}")
        assert dict(rows_of(tx["t"].to_arrow())) == model
    tx.commit()
    assert dict(read(lake)) == model
    assert not verify(lake.catalog.lake.storage, lake.catalog.timeline).differences


def test_files_say_no_bounds_of_numbers_among_which_is_nan(lake: OpenLake) -> None:
    """Spark takes NaN for the greatest number, and leaves rows out by bounds in files, in which Arrow has no NaN."""
    schema = pa.schema([("id", pa.int64()), ("d", pa.float64()), ("f", pa.float32())])
    with lake.transaction() as tx:
        tx.create("t", schema).append({"id": [1, 2], "d": [1.0, float("nan")], "f": pa.array([1.0, 2.0], pa.float32())})
    [uri] = lake.at()["t"].delta().file_uris()
    group = pq.ParquetFile(uri.removeprefix("file://")).metadata.row_group(0)
    assert [group.column(i).is_stats_set for i in range(3)] == [True, False, True]


def test_a_plain_reader_needs_nothing(lake: OpenLake, tmp_path: Path) -> None:
    make(lake, [{"id": 1, "v": "a"}])
    table = DeltaTable(lake.at()["t"].uri)
    assert rows_of(pa.table(table.to_pyarrow_table())) == [(1, "a")]
    assert table.history()[0]["operation"] == "TRANSACTION"
