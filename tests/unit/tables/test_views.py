"""Views that are made without Spark: which columns they give, what they name, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lockstep.delta.snapshot import read_snapshot
from lockstep.errors import ConflictError, DuplicateError, InvalidError, LockstepError, UndefinedError, UnsupportedError
from lockstep.tables.layout import with_features
from lockstep.tables.opened import OpenLake
from lockstep.tables.transaction import LakeTransaction
from lockstep.timeline.entry import Name, ViewDefinition
from tests.support.lakes import named, stage
from tests.support.refused import refused_in
from tests.support.view_queries import COLUMNS, EXPRESSIONS, NO_SPARK, QUERIES


@pytest.fixture
def tables(lake: OpenLake) -> OpenLake:
    """A lake with two tables of all types."""
    with lake.transaction() as tx:
        tx.create_namespace("sales")
        tx.create("t", COLUMNS)
        tx.create("sales.u", COLUMNS)
    return lake


def definition(lake: OpenLake, name: str) -> ViewDefinition:
    return lake.catalog.database().views[named(name)].definition


def fields(view: ViewDefinition) -> list[tuple[str, Any, bool]]:
    return [(each["name"], each["type"], each["nullable"]) for each in json.loads(view.schema)["fields"]]


def test_expressions_have_the_types_that_spark_finds(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        for number, expression in enumerate(EXPRESSIONS):
            tx.create_view(f"v{number}", f"SELECT {expression} AS c FROM t")
    found = {text: fields(definition(tables, f"v{number}")) for number, text in enumerate(EXPRESSIONS)}
    assert found == {text: [("c", *expected)] for text, expected in EXPRESSIONS.items()}


def test_comparisons_within_one_another_take_no_longer_than_their_texts(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        tx.create_view("v", f"SELECT {'(' * 40}o{' = o)' * 40} AS c FROM t")
    assert fields(definition(tables, "v")) == [("c", "boolean", True)]


def test_a_view_is_recorded_as_spark_records_it(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        text = "SELECT id, x AS y2 FROM t;\n"
        tx.create_view("sales.v", text, comment="few", properties={"team": "me"}, catalog="house")
    view = tables.catalog.database().views[Name(namespace=("sales",), table="v")].definition
    assert view.text == "SELECT id, x AS y2 FROM t"
    assert (view.catalog, view.namespace, view.mode) == ("house", ["default"], "COMPENSATION")
    assert view.query_columns == ["id", "y2"]
    assert view.configs == {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    assert view.properties.items() >= {"team": "me", "comment": "few", "table_type": "VIEW"}.items()
    assert fields(view) == [("id", "long", False), ("y2", "string", True)]


def test_outer_joins_give_nulls(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        for name, query in QUERIES.items():
            tx.create_view(name, query)
    assert fields(definition(tables, "joined")) == [
        ("id", "long", False),
        ("other", "long", True),
        ("y", "date", True),
        ("day", "date", False),
    ]
    assert [nullable for _, _, nullable in fields(definition(tables, "right"))] == [True, False]
    assert [nullable for _, _, nullable in fields(definition(tables, "full"))] == [True, True, False]
    assert fields(definition(tables, "of_a_view")) == [("n", "long", True), ("up", "string", True)]


UNJUDGED = [
    *NO_SPARK,
    "SELECT i + 1 FROM t",
    "SELECT current_date() AS c FROM t",
    "SELECT rand() AS c FROM t",
    "SELECT my_function(i) AS c FROM t",
    "SELECT try_cast(i AS BIGINT) AS c FROM t",
    "SELECT CAST(x AS INT) AS c FROM t",
    "SELECT CAST(y AS TIMESTAMP) AS c FROM t",
    "SELECT CAST(i AS VARCHAR(3)) AS c FROM t",
    "SELECT CAST(i AS VARCHAR) AS c FROM t",
    "SELECT d + 1L AS c FROM t",
    "SELECT CAST('2020-02-30' AS DATE) AS c FROM t",
    "SELECT d / 3 AS c FROM t",
    "SELECT e * e AS c FROM t",
    "SELECT i % 2 AS c FROM t",
    "SELECT x + 1 AS c FROM t",
    "SELECT i = x AS c FROM t",
    "SELECT x = z AS c FROM t",
    "SELECT CAST(id AS DECIMAL(38,0)) = CAST(b AS DECIMAL(38,18)) AS c FROM t",
    "SELECT CAST(b AS DECIMAL(38,30)) IN (1, 2) AS c FROM t",
    "SELECT CAST(b AS DECIMAL(38,30)) BETWEEN 1 AND 2 AS c FROM t",
    "SELECT DATE('2020-01-01') AS c FROM t",
    "SELECT 1 > 1.5 AS c FROM t",
    "SELECT CAST(NULL AS TIMESTAMP) AS c FROM t",
    "SELECT i = 1 = o AS c FROM t",
    "SELECT i IS NULL IS NULL AS c FROM t",
    "SELECT NULL AS c FROM t",
    "SELECT st.a AS c FROM t",
    "SELECT ar[0] AS c FROM t",
    "SELECT coalesce(i, id) AS c FROM t",
    "SELECT coalesce(NULL, st) AS c FROM t",
    "SELECT nvl(NULL, ar) AS c FROM t",
    "SELECT CASE WHEN o THEN NULL ELSE m END AS c FROM t",
    "SELECT CASE i WHEN 1 THEN 2 END AS c FROM t",
    "SELECT sum(x) AS c FROM t",
    "SELECT max(st) AS c FROM t",
    "SELECT count(i, x) AS c FROM t",
    "SELECT sum(DISTINCT i) AS c FROM t",
    "SELECT sum(count(*)) AS c FROM t",
    "SELECT sum(i) OVER (PARTITION BY x) AS c FROM t",
    "SELECT sum(i) FILTER (WHERE o) AS c FROM t",
    "SELECT x, sum(i) AS c FROM t",
    "SELECT x + 1 AS c, sum(i) AS n FROM t GROUP BY o",
    "SELECT * FROM t GROUP BY x",
    "SELECT x, count(*) AS n FROM t GROUP BY 1",
    "SELECT x, count(*) AS n FROM t GROUP BY ALL",
    "SELECT x, count(*) AS n FROM t GROUP BY x HAVING count(*) > 1",
    "SELECT x FROM t GROUP BY CUBE (x)",
    "SELECT count(*) AS n FROM t GROUP BY m",
    "SELECT DISTINCT m FROM t",
    "SELECT DISTINCT * FROM t",
    "SELECT id FROM t ORDER BY id",
    "SELECT id FROM t LIMIT 1",
    "SELECT id FROM t TABLESAMPLE (10 PERCENT)",
    "SELECT id FROM t WHERE sum(i) > 1",
    "SELECT id FROM t WHERE x",
    "SELECT id FROM t WHERE id IN (SELECT id FROM sales.u)",
    "SELECT id FROM (SELECT id FROM t)",
    "WITH w AS (SELECT id FROM t) SELECT id FROM w",
    "SELECT id FROM t UNION ALL SELECT id FROM sales.u",
    "SELECT t.id, u.id FROM t JOIN sales.u ON t.id = u.id",
    "SELECT t.id FROM t JOIN sales.u USING (id)",
    "SELECT t.id FROM t NATURAL JOIN sales.u",
    "SELECT t.id FROM t LEFT SEMI JOIN sales.u ON t.id = u.id",
    "SELECT t.id FROM t JOIN t ON true",
    "SELECT id FROM t JOIN sales.u ON t.id = u.id",
    "SELECT unknown AS c FROM t",
    "SELECT i AS a, a + 1 AS b FROM t",
    "SELECT 1 AS one",
    "SELECT id FROM t AS w(id)",
    "SELECT * EXCEPT (id) FROM t",
    "SELECT x = '\\\\' AS c FROM t",
    "SELECT /*+ BROADCAST(t) */ id FROM t",
    "SELECT id FROM t LATERAL VIEW explode(ar) AS a",
    "SELECT id AS union FROM t",
    "FROM t SELECT TRANSFORM(id) USING 'cat' AS c",
    "SELECT 1e3 AS c FROM t",
    "SELECT 1L AS c FROM t",
    "SELECT interval 1 day AS c FROM t",
    "SELECT id FROM range(5)",
    "SELECT id FROM t VERSION AS OF 1",
    "SELECT id FROM t FOR SYSTEM_VERSION AS OF 1",
    "SELECT id FROM system.tables",
    "SELECT id FROM lake.t",
    "SELECT id FROM spark_catalog.t",
    "SELECT :p AS c FROM t",
    "SELECT id FROM t WHERE",
    "SELECT id FROM t $1 AT",
    "MAP ( PRAGMA",
    f"SELECT id{' + 1' * 2000} AS c FROM t",
]


def test_what_is_not_certain_is_refused_by_name(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        for query in UNJUDGED:
            with refused_in(tx, UnsupportedError) as refused:
                tx.create_view("v", query)
            assert refused.value.sqlstate == "0A000", query
        assert not tx.views


REFUSED: list[tuple[Callable[[LakeTransaction], Any], type[LockstepError], str]] = [
    (lambda tx: tx.create_view("t", "SELECT id FROM sales.u"), DuplicateError, "42P07"),
    (lambda tx: tx.create_view("t", "SELECT id FROM sales.u", replace=True), DuplicateError, "42P07"),
    (lambda tx: tx.create_view("old", "SELECT id FROM t"), DuplicateError, "42P07"),
    (lambda tx: tx.create("old", COLUMNS), DuplicateError, "42P07"),
    (lambda tx: tx.create_view("no.v", "SELECT id FROM t"), UndefinedError, "3F000"),
    (lambda tx: tx.create_view("v", "SELECT id FROM none"), UndefinedError, "42P01"),
    (lambda tx: tx.create_view("v", "SELECT id FROM sales.t"), UndefinedError, "42P01"),
    (lambda tx: tx.create_view("v", "SELECT id FROM delta.`/tmp/t`"), UndefinedError, "42P01"),
    (lambda tx: tx.create_view("v", "DROP TABLE t"), InvalidError, "42601"),
    (lambda tx: tx.create_view("v", "SELECT id FROM t; SELECT id FROM t"), InvalidError, "42601"),
    (lambda tx: tx.create_view("v", ""), InvalidError, "42601"),
    (lambda tx: tx.create_view("old", "SELECT id FROM old", replace=True), InvalidError, "42P17"),
    (lambda tx: tx.create_view("old", "SELECT id FROM newer", replace=True), InvalidError, "42P17"),
    (lambda tx: tx.create_view("v", "SELECT id FROM v"), InvalidError, "42P17"),
    (lambda tx: tx.create_view("v", "SELECT id FROM V"), InvalidError, "42P17"),
    (lambda tx: tx.create_view("old", "SELECT id FROM NEWER", replace=True), InvalidError, "42P17"),
    (
        lambda tx: tx.create_view(
            "v", "WITH v AS (SELECT id FROM v) SELECT id FROM v", schema=pa.schema([("id", pa.int64())])
        ),
        InvalidError,
        "42P17",
    ),
    (
        lambda tx: tx.create_view(
            "old",
            "WITH newer AS (SELECT id FROM newer) SELECT id FROM newer",
            replace=True,
            schema=pa.schema([("id", pa.int64())]),
        ),
        InvalidError,
        "42P17",
    ),
    (lambda tx: tx.create_view("v", "SELECT id FROM t", catalog=" "), InvalidError, "22023"),
    (lambda tx: tx.create_view("v", "SELECT id FROM t", properties={"Owner": "me"}), InvalidError, "22023"),
    (lambda tx: tx.create_view("v", "SELECT id FROM t", properties={"view.x": "me"}), InvalidError, "22023"),
    (lambda tx: tx.create_view("v", "SELECT id FROM t", schema=pa.schema([("id", pa.int32())])), InvalidError, "42804"),
    (lambda tx: tx.create_view("v", "SELECT id FROM t", schema=pa.schema([("n", pa.int64())])), InvalidError, "42804"),
]


def test_what_is_wrong_is_refused(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        tx.create_view("old", "SELECT id FROM t")
        tx.create_view("newer", "SELECT id FROM old")
        for number, (change, kind, sqlstate) in enumerate(REFUSED):
            with refused_in(tx, kind) as refused:
                change(tx)
            assert refused.value.sqlstate == sqlstate, number
        assert len(tx.views) == 2


def test_a_view_that_reads_what_is_gone_is_not_read(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        tx.create_view("old", "SELECT id FROM t")
        tx.create_view("newer", "SELECT id FROM old")
        tx.drop_view("old")
        with refused_in(tx, UndefinedError, match="old"):
            tx.create_view("v", "SELECT id FROM newer")
        with refused_in(tx, InvalidError, match="would read itself"):
            tx.create_view("old", "SELECT id FROM newer")


def test_names_are_found_whatever_their_case(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        tx.create_view("V", "SELECT id FROM lake.SALES.U")
        tx.create_view("w", "SELECT ID FROM v", schema=pa.schema([("ID", pa.int64())]))
        tx.drop("t")
        with refused_in(tx, UndefinedError):
            tx.create_view("x", "SELECT id FROM T")
    assert fields(definition(tables, "w")) == [("ID", "long", False)]


def test_columns_that_are_not_judged_are_said(tables: OpenLake) -> None:
    schema = pa.schema([("day", pa.date32()), ("n", pa.decimal128(38, 2))])
    query = "WITH w AS (SELECT y, d FROM t) SELECT date_add(y, 1) AS day, sum(d * 2.5) AS n FROM w GROUP BY y"
    with tables.transaction() as tx:
        tx.create_view("v", query, schema=schema)
        tx.create_view("same", "WITH same AS (SELECT 1 AS day) SELECT day FROM same", schema=schema.remove(1))
        nested = "WITH a AS (SELECT y FROM t), b AS (SELECT y AS day FROM a) SELECT day FROM (SELECT day FROM b)"
        tx.create_view("nested", nested, schema=schema.remove(1))
        with refused_in(tx, UndefinedError):
            tx.create_view("w", nested.replace("FROM t", "FROM b"), schema=schema.remove(1))
        for names in (["day", "m"], ["n", "day"], ["day"]):
            with refused_in(tx, InvalidError) as refused:
                tx.create_view("w", query, schema=pa.schema([(name, pa.date32()) for name in names]))
            assert refused.value.sqlstate == "42804"
        with refused_in(tx, InvalidError):
            tx.create_view("w", "SELECT *, 1 % 2 AS c FROM t", schema=pa.schema([("c", pa.int32())]))
        with refused_in(tx, UndefinedError):
            tx.create_view("w", "SELECT id % 2 AS c FROM none", schema=pa.schema([("c", pa.int64())]))
        with refused_in(tx, UnsupportedError):
            tx.create_view("w", "SELECT id AS c FROM range(5)", schema=pa.schema([("c", pa.int64())]))
        with refused_in(tx, UnsupportedError, match="a variable"):
            tx.create_view("w", "SELECT '${since}' AS c FROM t LIMIT 5", schema=pa.schema([("c", pa.string())]))
    assert fields(definition(tables, "v")) == [("day", "date", True), ("n", "decimal(38,2)", True)]
    assert definition(tables, "v").query_columns == ["day", "n"]


def test_what_spark_tells_apart_in_no_query_is_not_grouped_by(tables: OpenLake) -> None:
    table = tables.catalog.database().tables[named("t")]
    before = read_snapshot(tables.catalog.lake.storage, table.location, table.version)
    schema = json.loads(before.metadata["schemaString"])
    schema["fields"].append({"name": "v", "type": "variant", "nullable": True, "metadata": {}})
    core = tables.catalog.begin()
    protocol = {"protocol": with_features(before.protocol, {"variantType"})}
    metadata = {"metaData": {**before.metadata, "schemaString": json.dumps(schema)}}
    stage(tables.catalog, core, "t", protocol, metadata, operation="ADD COLUMNS")
    tables.catalog.commit(core)
    with tables.transaction() as tx:
        tx.create_view("w", "SELECT v, v IS NULL AS n FROM t")
        for query in ("DISTINCT v FROM t", "count(*) AS n FROM t GROUP BY v", "count(DISTINCT v) AS n FROM t"):
            with refused_in(tx, UnsupportedError):
                tx.create_view("none", f"SELECT {query}")
    assert fields(definition(tables, "w")) == [("v", "variant", True), ("n", "boolean", False)]


UNNAMED = {
    "st['a']": "a",
    "CAST(st.a AS STRING)": "a",
    "CAST(CAST(y AS STRING) AS INT)": "y",
    "CAST('a' AS INT)": "a",
    "DATE '2020-01-01'": "2020-01-01",
    "named_struct('a', i).a": "a",
    "ar[0]": "0",
}
"""What has no name of its own, though other dialects give it this one: Spark calls it by the whole expression."""

NAMED = {
    "x": "x",
    "(t.x)": "x",
    "st.a": "a",
    "t.st.a": "a",
    "x `other`": "other",
    "CAST(t.x AS INT)": "x",
    "CAST((x) AS INT)": "x",
    "CAST(l.c AS STRING)": "c",
    "x::INT": "x",
    "'a'": "a",
}


def test_columns_that_are_said_have_the_names_that_spark_gives_them(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        for expression, name in UNNAMED.items():
            with refused_in(tx, InvalidError, match="give each its name there, with AS"):
                tx.create_view("v", f"SELECT {expression} FROM t LIMIT 5", schema=pa.schema([(name, pa.string())]))
        for number, (expression, name) in enumerate(NAMED.items()):
            query = f"SELECT {expression} FROM t LATERAL VIEW explode(ar) l AS c LIMIT 5"
            tx.create_view(f"v{number}", query, schema=pa.schema([(name, pa.string())]))
        assert len(tx.views) == len(NAMED)


def test_a_view_goes_with_its_transaction(tables: OpenLake) -> None:
    with tables.transaction() as tx:
        tx.create_view("v", "SELECT id FROM t")
        tx.rollback()
    with tables.transaction() as tx:
        assert not tx.views
        tx.savepoint("s")
        tx.create_view("v", "SELECT id FROM t")
        with tables.transaction() as other:
            assert not other.views
        tx.rollback_to("s")
        assert not tx.views
        tx.create_view("v", "SELECT id FROM t")
        tx.create_view("v", "SELECT x FROM t", replace=True)
    assert fields(definition(tables, "v")) == [("x", "string", True)]


OTHERS: dict[str, tuple[Callable[[LakeTransaction], Any], bool]] = {
    "a table of its name": (lambda tx: tx.create("v", COLUMNS), True),
    "a view of its name": (lambda tx: tx.create_view("v", "SELECT x FROM sales.u"), True),
    "columns of its table": (lambda tx: tx["t"].alter.add_columns(pa.schema([("new", pa.int32())])), False),
    "its table dropped": (lambda tx: tx.drop("t"), False),
    "rows of its table": (
        lambda tx: tx["t"].append({"id": [1], "b": [1], "e": [Decimal(1)], "y": [date(2026, 3, 2)]}),
        False,
    ),
    "the view that it reads": (lambda tx: tx.create_view("old", "SELECT i FROM t", replace=True), False),
    "another view": (lambda tx: tx.create_view("w", "SELECT id FROM t"), False),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_others_did_meanwhile(tables: OpenLake, what: str) -> None:
    """Two of one name collide. What is done to a table comes after the view: so it could have been, one by one."""
    with tables.transaction() as tx:
        tx.create_view("old", "SELECT id FROM t")
    change, is_refused = OTHERS[what]

    def both() -> None:
        with tables.transaction() as tx:
            tx.create_view("v", "SELECT t.id, old.id AS other FROM t JOIN old ON t.id = old.id")
            with tables.transaction() as other:
                change(other)

    if is_refused:
        with pytest.raises(ConflictError):
            both()
    else:
        both()
        assert named("v") in tables.catalog.database().views
