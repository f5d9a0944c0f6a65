"""Tables that Python writes without Spark, and Spark beside it: the same rows to both, one isolation for both."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.functions import col as spark_column

import lockstep
from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import ConflictError, UnsupportedError
from lockstep.spark.raised import from_spark
from lockstep.tables.names import name_of
from lockstep.tables.opened import OpenLake
from tests.support.refused import refused_in

pytestmark = pytest.mark.long

VECTORS = {"delta.enableDeletionVectors": "true"}
NUMBERS = pa.schema([("id", pa.int64()), ("v", pa.int64())])

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("i", pa.int32()), ("h", pa.int16()), ("y", pa.int8()), ("f", pa.float32()), ("d", pa.float64()),
        ("dec", pa.decimal128(38, 10)), ("s", pa.string()), ("b", pa.binary()), ("o", pa.bool_()), ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("us")),
        ("st", pa.struct([("a", pa.int32()), ("n", pa.struct([("x", pa.string())]))])),
        ("ls", pa.list_(pa.struct([("k", pa.int64())]))), ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
    ]
)  # fmt: skip

ROWS: list[dict[str, Any]] = [
    {"id": 0},
    {
        "id": 1, "i": -(2**31), "h": -1, "y": -128, "f": 0.1, "d": float("nan"), "dec": Decimal("-1e-10"), "s": "",
        "b": b"\x00\xff", "o": False, "day": dt.date(1, 1, 1), "ts": dt.datetime(1900, 1, 1, 0, 0, 0, 1, dt.UTC),
        "ntz": dt.datetime(2024, 1, 1, 1, 2, 3, 999999), "st": {"a": None, "n": {"x": "deep"}}, "ls": [{"k": 1}, None],
        "m": [("a", [1, None]), ("b", None)],
    },
    {
        "id": 2, "i": 7, "h": 32767, "y": 0, "f": float("inf"), "d": -0.0, "dec": Decimal(10**27), "s": "é" * 40,
        "day": dt.date(9999, 12, 31), "ts": dt.datetime(2024, 1, 1, 0, 0, 0, 123456, dt.UTC),
        "ntz": dt.datetime(9999, 12, 31, 23, 59, 59, 999999), "st": {"a": 5, "n": None}, "ls": [], "m": [],
    },
    {"id": 3, "f": -1.5, "d": 1e300, "s": "\uffff" * 40, "st": {"a": 6, "n": {"x": "\U0001f600" * 40}}},
]  # fmt: skip


@pytest.fixture
def lake(spark: Any, root: Path) -> OpenLake:
    """The session's lake, opened without Spark."""
    spark.sql("CREATE NAMESPACE lake.py")
    return lockstep.open(str(root))


def plain(value: Any) -> Any:
    """Return a value such that equal ones are equal, NaN among them."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def by_id(table: pa.Table) -> list[Any]:
    return sorted((plain(row) for row in table.to_pylist()), key=lambda row: row["id"])


def query(spark: Any, sql: str) -> list[Any]:
    return [tuple(row) for row in spark.sql(sql).collect()]


def where(name: str, value: Any) -> str:
    """Return a condition that holds of rows with a value, as Spark has it."""
    if value is None:
        return f"{name} IS NULL"
    if isinstance(value, dt.datetime):
        literal = f"TIMESTAMP{'' if value.tzinfo else '_NTZ'} '{value.isoformat(sep=' ')}'"
    elif isinstance(value, dt.date):
        literal = f"DATE '{value.isoformat()}'"
    elif isinstance(value, Decimal):
        literal = f"CAST('{value:f}' AS DECIMAL(38, 10))"
    elif isinstance(value, float):
        literal = f"CAST('{value}' AS DOUBLE)"
    elif isinstance(value, str):
        literal = f"'{value}'"
    else:
        literal = str(value)
    return f"{name} >= {literal} AND {name} <= {literal}"


@pytest.mark.parametrize("properties", [pytest.param({}, marks=pytest.mark.deep), VECTORS])
def test_what_python_wrote_spark_reads(spark: Any, lake: OpenLake, properties: dict[str, str]) -> None:
    """Through Lockstep and by its path, all of it and by each column's values, by which Delta leaves files out."""
    with lake.transaction() as tx:
        tx.create("py.t", SCHEMA, properties=properties)
        for row in (*ROWS, {"id": 99}, {"id": 98}):
            tx["py.t"].append(pa.Table.from_pylist([row], schema=SCHEMA))
        tx["py.t"].append(
            pa.Table.from_pylist([{"id": 97}, *({**row, "id": row["id"] + 10} for row in ROWS)], schema=SCHEMA)
        )
        assert tx["py.t"].delete("id >= 97") == 3
        tx["py.t"].update({"i": "i"}, "id IN (2, 12)")
    expected = by_id(pa.Table.from_pylist([*ROWS, *({**row, "id": row["id"] + 10} for row in ROWS)], schema=SCHEMA))
    assert by_id(spark.table("lake.py.t").toArrow()) == expected
    uri = lake.at()["py.t"].uri
    assert by_id(spark.read.format("delta").load(uri).toArrow()) == expected
    assert by_id(lake.at()["py.t"].to_arrow()) == expected
    for name in ("i", "h", "y", "f", "d", "dec", "s", "day", "ts", "ntz", "st.a", "st.n.x"):
        first, *rest = name.split(".")
        for row in ROWS:
            value = row.get(first)
            for field in rest:
                value = None if value is None else value[field]
            if name == "f" and value is not None:
                value = pa.scalar(value, pa.float32()).as_py()
            found = query(spark, f"SELECT id FROM lake.py.t WHERE {where(name, value)}")
            assert {(row["id"],), (row["id"] + 10,)} <= set(found), (name, value)


def test_partitions_of_python_in_spark(spark: Any, lake: OpenLake) -> None:
    types = (pa.string(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(9, 2), pa.bool_())
    schema = pa.schema([("id", pa.int64()), *zip(("s", "ts", "n", "dec", "o"), types, strict=True)])
    second = dt.datetime(2024, 1, 1, 1, 2, 3)
    rows: list[dict[str, Any]] = [
        {
            "id": i,
            "s": s,
            "ts": second.replace(microsecond=i, tzinfo=dt.UTC),
            "n": second.replace(microsecond=i),
            "dec": Decimal(i) / 4,
            "o": i % 2 == 0,
        }
        for i, s in enumerate(["a b", "50%", "a/b", "é", "x=y", "%2F", "'q'", 'c"d', "a:b", "#?", "~.", "\\"])
    ] + [{"id": 50}]
    with lake.transaction() as tx:
        tx.create("py.p", schema, partition_by=["s", "ts", "n", "dec", "o"]).append(
            pa.Table.from_pylist(rows, schema=schema)
        )
    expected = by_id(pa.Table.from_pylist(rows, schema=schema))
    assert by_id(spark.table("lake.py.p").toArrow()) == expected
    assert query(spark, "SELECT id FROM lake.py.p WHERE s = 'a/b'") == [(2,)]
    assert query(spark, "SELECT id FROM lake.py.p WHERE ts = TIMESTAMP '2024-01-01 01:02:03.000004Z' AND dec = 1") == [
        (4,)
    ]
    spark.sql("UPDATE lake.py.p SET id = id + 100 WHERE s = '50%' OR s IS NULL")
    spark.sql("DELETE FROM lake.py.p WHERE s = 'x=y'")
    assert sorted(lake.at()["py.p"].to_arrow(["id"]).column("id").to_pylist()) == [
        0,
        2,
        3,
        5,
        6,
        7,
        8,
        9,
        10,
        11,
        101,
        150,
    ]
    with lake.transaction() as tx:
        assert tx["py.p"].delete("ts IS NOT NULL AND o") == 5


@pytest.mark.deep  # 260,000 rows, so that vectors are large
def test_deletion_vectors_of_python_lie_where_spark_finds_them_whatever_names_are_in_the_path(
    spark: Any, lake: OpenLake
) -> None:
    """Those of one statement in one file, none in the log; whatever paths take ill."""
    part = "p%é'\"#?~\\.+&x"
    values = ["a b", "50%", "%20", "a/b", "é\u4e16\U0001f600", "'q'", 'c"d', "x=y", "#?&", "~.", "\\", "a+b", None]
    schema = pa.schema([("id", pa.int64()), (part, pa.string())])
    count = 20_000
    ids = [position * count + number for position in range(len(values)) for number in range(count)]
    name = ("py", "t %20é'\"#+ \u4e16")
    with lake.transaction() as tx:
        t = tx.create(name, schema, partition_by=part, properties=VECTORS)
        t.append({"id": ids, part: [value for value in values for _ in range(count)]})
    with lake.transaction() as tx:
        assert tx[name].delete(f"hash(id) % 3 = 0 AND id >= {count}") > count
        assert tx[name].delete("id IN (5, 7)") == 2
        kept = set(tx[name].to_arrow(["id"]).column("id").to_pylist())
    location = lake.catalog.database().tables[name_of(name)].location
    files = read_snapshot(lake.catalog.lake.storage, location, lake.at()[name].version).files.values()
    vectors = [file["deletionVector"] for file in files]
    assert {vector["storageType"] for vector in vectors} == {"u"}
    assert len({vector["pathOrInlineDv"] for vector in vectors}) == 2, "of two statements"
    assert len({vector["offset"] for vector in vectors}) > 2
    quoted, column = f"lake.py.`{name[1]}`", f"`{part}`"
    uri = lake.at()[name].uri
    for rows in (spark.table(quoted), spark.read.format("delta").load(uri)):
        assert {row["id"] for row in rows.select("id").collect()} == kept
    for position, value in enumerate(values):
        found = spark.table(quoted).where(spark_column(column).eqNullSafe(value)).select("id").collect()
        assert {row["id"] for row in found} == {id for id in kept if id // count == position}, value
    spark.sql(f"DELETE FROM {quoted} WHERE id % 2 = 0")
    with lake.transaction() as tx:
        odd = {id for id in kept if id % 2}
        assert set(tx[name].to_arrow(["id"]).column("id").to_pylist()) == odd
        assert tx[name].delete(f"id < {2 * count}") == len([id for id in odd if id < 2 * count])
    assert {row["id"] for row in spark.table(quoted).select("id").collect()} == {id for id in odd if id >= 2 * count}


def test_both_change_one_table(spark: Any, lake: OpenLake) -> None:
    spark.sql(
        "CREATE TABLE lake.py.t (id BIGINT, v STRING, ts TIMESTAMP) TBLPROPERTIES (delta.enableDeletionVectors = true)"
    )
    spark.sql("INSERT INTO lake.py.t SELECT /*+ COALESCE(1) */ id, 'spark', timestamp_micros(id) FROM range(10)")
    spark.sql("DELETE FROM lake.py.t WHERE id = 0")
    with lake.transaction() as tx:
        assert tx["py.t"].delete("id = 1") == 1
        assert tx["py.t"].update({"v": "'python'"}, "id = 2 AND ts < '1970-01-01 00:00:01Z'") == 1
        merge = tx["py.t"].merge(
            {"id": [3, 100], "v": ["m", "n"], "ts": pa.array([None, None], pa.timestamp("us", "UTC"))}, on="id"
        )
        assert merge.when_matched_update_all().when_not_matched_insert_all().execute() == (1, 1, 0)
    spark.sql("BEGIN")
    spark.sql("UPDATE lake.py.t SET v = 'again' WHERE id = 2")
    spark.sql(
        "MERGE INTO lake.py.t USING (SELECT 100 AS id, 'x' AS v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
    )
    spark.sql("COMMIT")
    expected = {2: "again", 3: "m", 100: "x"} | dict.fromkeys(range(4, 10), "spark")
    assert dict(query(spark, "SELECT id, v FROM lake.py.t")) == expected
    assert {row["id"]: row["v"] for row in lake.at()["py.t"].to_arrow().to_pylist()} == expected
    history = spark.sql("DESCRIBE HISTORY lake.py.t").where("engineInfo LIKE 'Lockstep%'")
    assert history.count() == 2, "the commits of both transactions, of Python and of Spark, say whose they are"


def two_tables(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        for name in ("py.a", "py.b"):
            tx.create(name, NUMBERS).append({"id": [1], "v": [1]})


def spark_transaction(spark: Any) -> None:
    spark.sql("BEGIN")
    spark.sql("INSERT INTO lake.py.b SELECT 2, count(*) FROM lake.py.a")


def python_transaction(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        rows = tx.sql("SELECT CAST(3 AS BIGINT) AS id, count(*) AS v FROM py.b")
        tx["py.a"].append(rows)


def test_write_skew_between_spark_and_python_is_refused(spark: Any, lake: OpenLake) -> None:
    """Each counts the rows of one table into the other: whoever is second is refused, whichever it is."""
    two_tables(lake)
    spark_transaction(spark)
    python_transaction(lake)
    with pytest.raises(PySparkException) as refused:
        spark.sql("COMMIT")
    assert isinstance(from_spark(refused.value), ConflictError)

    def python_first() -> None:
        with lake.transaction() as tx:
            tx["py.a"].append(tx.sql("SELECT CAST(4 AS BIGINT) AS id, count(*) AS v FROM py.b"))
            spark_transaction(spark)
            spark.sql("COMMIT")

    with pytest.raises(ConflictError):
        python_first()
    assert query(spark, "SELECT id FROM lake.py.a ORDER BY id") == [(1,), (3,)]
    assert query(spark, "SELECT id FROM lake.py.b ORDER BY id") == [(1,), (2,)]


def refused_by_spark(spark: Any, statement: str, words: str) -> None:
    with pytest.raises((PySparkException, Py4JJavaError), match=words):
        spark.sql(statement)


def test_what_tables_ask_of_rows_holds_whoever_writes_them(spark: Any, lake: OpenLake) -> None:
    """Constraints, defaults, columns that came later and times of commits: Spark's in Python, and Python's in Spark."""
    spark.sql(
        "CREATE TABLE lake.py.c (id BIGINT, n INT DEFAULT 42, s STRING DEFAULT 'it is new', at TIMESTAMP DEFAULT "
        "current_timestamp(), day DATE) TBLPROPERTIES (delta.feature.allowColumnDefaults = 'supported', "
        "delta.enableInCommitTimestamps = true)"
    )
    spark.sql("ALTER TABLE lake.py.c ADD CONSTRAINT few CHECK (id > 0 AND (s IN ('a', 'it is new') OR length(s) <= 2))")
    spark.sql("ALTER TABLE lake.py.c ADD CONSTRAINT young CHECK (day IS NULL OR day >= '2020-01-01')")
    with lake.transaction() as tx:
        t = tx["py.c"]
        t.append({"id": [1]})
        broken: list[Any] = [
            {"id": [0]},
            {"id": [2], "s": ["xyz"]},
            {"id": [2], "day": [dt.date(2019, 1, 1)]},
            {"n": [1]},
        ]
        for each in broken:
            with refused_in(tx, lockstep.errors.InvalidError, "constraint"):
                t.append(each)
        t.append({"id": [2], "n": [None], "note": ["first"]}, schema_mode="merge")
        t.alter.add_constraint({"Low": "n < 100 OR n IS NULL"})
        t.alter.set_table_properties({"team": "ada"})
        t.alter.set_table_description("said in Python")
        t.alter.set_column_comment("note", "since today")
    refused_by_spark(spark, "INSERT INTO lake.py.c (id, n) VALUES (3, 100)", "(?i)check constraint low")
    spark.sql("INSERT INTO lake.py.c (id, note) VALUES (3, 'second')")
    rows = query(spark, "SELECT id, n, s, note, at IS NOT NULL FROM lake.py.c ORDER BY id")
    assert rows == [
        (1, 42, "it is new", None, True),
        (2, None, "it is new", "first", True),
        (3, 42, "it is new", "second", True),
    ]
    described = {row[0]: row[1:] for row in query(spark, "DESCRIBE TABLE EXTENDED lake.py.c")}
    assert described["note"] == ("string", "since today")
    assert described["Comment"][0] == "said in Python"


def test_mapped_columns_are_spark_s_and_python_s(spark: Any, lake: OpenLake) -> None:
    columns = "id BIGINT, p STRING, st STRUCT<a: BIGINT, l: ARRAY<STRUCT<z: STRING>>>, gone INT"
    mapped = "delta.columnMapping.mode = 'name', delta.enableDeletionVectors = true"
    spark.sql(f"CREATE TABLE lake.py.s ({columns}) PARTITIONED BY (p) TBLPROPERTIES ({mapped})")
    spark.sql("ALTER TABLE lake.py.s RENAME COLUMN id TO `the id`")
    spark.sql("ALTER TABLE lake.py.s RENAME COLUMN st.a TO b")
    spark.sql("ALTER TABLE lake.py.s DROP COLUMN gone")
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("x", pa.struct([("y", pa.int64())]))])
    with lake.transaction() as tx:
        tx["py.s"].append(
            {"the id": [1, 2, 3], "p": ["x y", None, "z"], "st": [{"b": 5, "l": [{"z": "é"}]}, None, None]}
        )
        assert tx["py.s"].delete('"the id" = 3') == 1
        assert tx["py.s"].update({"p": "'moved'"}, '"the id" = 2') == 1
        properties = {"delta.columnMapping.mode": "name"}
        t = tx.create("py.m", schema, partition_by="p", properties=properties)
        t.append({"id": [1, 2], "p": ["a", "b"], "x": [{"y": 1}, None]})
        t.alter.rename_column("id", "key")
        t.alter.rename_column("p", "part")
        t.alter.drop_columns("x")
        t.alter.add_columns(pa.schema([("x", pa.struct([("new", pa.string())]))]))
        t.append({"key": [3], "x": [{"new": "n"}]})
    spark.sql("INSERT INTO lake.py.s VALUES (4, 'q', named_struct('b', 6, 'l', array(named_struct('z', 'w'))))")
    expected = [(1, "x y", 5, "é"), (2, "moved", None, None), (4, "q", 6, "w")]
    assert query(spark, "SELECT `the id`, p, st.b, st.l[0].z FROM lake.py.s ORDER BY 1") == expected
    assert query(spark, "SELECT p FROM lake.py.s WHERE `the id` = 1 AND st.b = 5") == [("x y",)], "by statistics"
    spark.sql("UPDATE lake.py.m SET part = 'c' WHERE key = 2")
    spark.sql("ALTER TABLE lake.py.m ADD COLUMN last STRING")
    spark.sql("INSERT INTO lake.py.m (key, part, last) VALUES (5, 'd', 'w')")
    assert query(spark, "SELECT key, part, x.new, last FROM lake.py.m ORDER BY key") == [
        (1, "a", None, None),
        (2, "c", None, None),
        (3, None, "n", None),
        (5, "d", None, "w"),
    ]
    for name in ("py.s", "py.m"):
        with lake.transaction() as tx:
            ours = by_first(tx[name].to_arrow())
        assert ours == by_first(lake.at()[name].to_arrow()) == by_first(spark.table(f"lake.{name}").toArrow())


def test_the_feed_that_python_writes_is_what_spark_reads(spark: Any, lake: OpenLake) -> None:
    feed = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name", **VECTORS}
    with lake.transaction() as tx:
        tx.create("py.feed", pa.schema([("id", pa.int64()), ("v", pa.string())]), partition_by="v", properties=feed)
        tx["py.feed"].append({"id": [1, 2, 3], "v": ["a", "b c", None]})
    with lake.transaction() as tx:
        assert tx["py.feed"].delete("id = 1") == 1
        tx["py.feed"].update({"v": "'é %'"}, "id = 2")
        merge = tx["py.feed"].merge({"id": [3, 4], "v": ["m", "n"]}, on="id")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    first = lake.at(lake.at().version - 1)["py.feed"].version
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first + 1)
    told = reader.load(lake.at()["py.feed"].uri).select("_change_type", "id", "v").collect()
    assert {tuple(row) for row in told} == {
        ("delete", 1, "a"),
        ("update_preimage", 2, "b c"),
        ("update_postimage", 2, "é %"),
        ("update_preimage", 3, None),
        ("update_postimage", 3, "m"),
        ("insert", 4, "n"),
    }
    spark.sql("DELETE FROM lake.py.feed WHERE id = 2")
    assert sorted(query(spark, "SELECT id, v FROM lake.py.feed")) == [(3, "m"), (4, "n")]


def by_first(table: pa.Table) -> list[Any]:
    return sorted((list(row.values()) for row in table.to_pylist()), key=lambda row: row[0])


FEATURES: list[tuple[str, str, Callable[[Any], Any]]] = [
    (
        "columnMapping by id",
        "(id BIGINT) TBLPROPERTIES (delta.columnMapping.mode = 'id')",
        lambda t: t.append({"id": [1]}),
    ),
    ("generatedColumns", "(id BIGINT, g BIGINT GENERATED ALWAYS AS (id % 2))", lambda t: t.append({"id": [1]})),
    ("identityColumns", "(id BIGINT, g BIGINT GENERATED ALWAYS AS IDENTITY)", lambda t: t.update({"id": "1"})),
    ("char and varchar columns", "(id BIGINT, c VARCHAR(3))", lambda t: t.append({"id": [1]})),
]


def test_features_of_spark_tables_are_refused_by_name_and_still_read(spark: Any, lake: OpenLake) -> None:
    for number, (feature, definition, change) in enumerate(FEATURES):
        spark.sql(f"CREATE TABLE lake.py.f{number} {definition}")
        spark.sql(f"INSERT INTO lake.py.f{number} (id) VALUES (7)")
        with lake.transaction() as tx:
            if feature != "columnMapping by id":
                assert tx[f"py.f{number}"].to_arrow(["id"]).to_pylist() == [{"id": 7}], feature
            with refused_in(tx, lockstep.errors.UnsupportedError, match=feature):
                change(tx[f"py.f{number}"])
        assert lake.at()[f"py.f{number}"].to_arrow(["id"]).to_pylist() == [{"id": 7}], feature


@pytest.mark.parametrize("mode", ["LEGACY", "CORRECTED"])
def test_days_that_spark_wrote_by_the_old_calendar_are_not_copied_as_others(
    spark: Any, lake: OpenLake, mode: str
) -> None:
    """Only Spark looks which calendar it was; what is of no such day is read, whatever wrote the file."""
    for kind in ("datetime", "int96"):
        spark.conf.set(f"spark.sql.parquet.{kind}RebaseModeInWrite", mode)
    texts = "SELECT 1 AS id, DATE'1500-01-01' AS day, TIMESTAMP'1500-01-01 00:00:00Z' AS at"
    for name, output in (("micros", "TIMESTAMP_MICROS"), ("int96", "INT96")):
        spark.conf.set("spark.sql.parquet.outputTimestampType", output)
        spark.sql(f"CREATE TABLE lake.py.{name} AS {texts}")
    spark.sql("CREATE TABLE lake.py.young AS SELECT 1 AS id, DATE'1582-10-15' AS day")
    for name, columns in (("micros", ["day"]), ("micros", ["at"]), ("int96", ["at"])):
        with lake.transaction() as tx:
            table = tx[f"py.{name}"]
            if mode == "LEGACY":
                with refused_in(tx, UnsupportedError, "by the old calendar"):
                    table.to_arrow(columns)
                with refused_in(tx, UnsupportedError, "by the old calendar"):
                    table.update({"id": "2"})
            else:
                assert table.to_arrow(["day"])["day"].to_pylist() == [dt.date(1500, 1, 1)]
            assert table.to_arrow(["id"])["id"].to_pylist() == [1]
    with lake.transaction() as tx:
        assert tx["py.young"].update({"id": "2"}) == 1
    assert query(spark, "SELECT id, CAST(day AS STRING) FROM lake.py.young") == [(2, "1582-10-15")]
