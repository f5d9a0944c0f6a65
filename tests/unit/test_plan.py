"""What statements read and write, by their text, and which have to wait for which."""

from __future__ import annotations

import logging

import pytest

from lockstep.errors import InvalidError
from lockstep.scripts import plan as module
from lockstep.scripts.plan import Planned, Relation, plan
from lockstep.scripts.script import read


def planned(script: str) -> list[Planned]:
    return plan(read("x.sql", script).steps)


def uses(script: str) -> str:
    """Return what the last statement uses: reads r(…), mentions m(…), writes w(…), defines d(…), or why everything."""
    found = planned(script)[-1].uses
    kinds = {"r": found.reads, "m": found.mentions, "w": found.writes, "d": found.defines}
    said = [f"{kind}({','.join(sorted(map(str, names)))})" for kind, names in kinds.items() if names]
    return found.everything or " ".join(said)


SESSION = "it is about the session, or the plan does not know it"
TRANSACTION = "it begins or ends a transaction, or a part of one"
NOT_PARSED = "sqlglot cannot parse it"
OF_SYSTEM = "it reads a system table, which tells of all that there is"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        # queries
        ("SELECT 1", ""),
        ("SELECT * FROM a.b.t, u", "r(a.b.t,u)"),
        ("SELECT * FROM `a b`.`t;`", "r(a b.t;)"),
        ("SELECT (SELECT max(x) FROM s) FROM t WHERE EXISTS (SELECT 1 FROM u)", "r(s,t,u)"),
        ("SELECT * FROM t JOIN LATERAL (SELECT * FROM u WHERE u.a = t.a)", "r(t,u)"),
        ("SELECT * FROM t LATERAL VIEW explode(t.xs) e AS x", "r(t)"),
        ("SELECT /*+ BROADCAST(x) */ * FROM t JOIN u AS x USING (a)", "r(t,u)"),
        ("SELECT 1 UNION SELECT * FROM t EXCEPT (SELECT * FROM u)", "r(t,u)"),
        ("FROM t |> WHERE a IN (SELECT b FROM u) |> SELECT a", "r(t,u)"),
        ("VALUES (1), (2)", ""),
        ("SELECT * FROM range(3), explode(array(1)), VALUES (1)", ""),
        ("SELECT * FROM delta.`/data/t`", "r(delta./data/t)"),
        ("SELECT * FROM table_changes('lake.bank.t', 0)", "r(lake.bank.t)"),
        ("DESCRIBE TABLE EXTENDED t", "r(t)"),
        # system tables
        ("SELECT * FROM lake.System.history", OF_SYSTEM),
        ("INSERT INTO t SELECT * FROM system.tables JOIN u", OF_SYSTEM),
        ("CREATE TEMP VIEW v AS SELECT * FROM lake.system.locks; SELECT * FROM v", OF_SYSTEM),
        ("USE lake.system; SELECT * FROM history", OF_SYSTEM),
        ("SELECT * FROM system", "r(system)"),
        # WITH
        ("WITH c AS (SELECT * FROM s) SELECT * FROM c, t", "r(s,t)"),
        ("WITH a AS (SELECT * FROM s), b AS (SELECT * FROM A) SELECT * FROM b", "r(s)"),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", "r(t)"),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", "r(b)"),
        ("WITH c AS (SELECT 1) SELECT * FROM lake.c", "r(lake.c)"),
        ("SELECT * FROM (WITH c AS (SELECT 1) SELECT * FROM c), c", "r(c)"),
        ("SELECT * FROM t WHERE a IN (WITH t AS (SELECT 1) SELECT * FROM t)", "r(t)"),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT n + 1 FROM r JOIN t) SELECT * FROM r", "r(t)"),
        ("WITH RECURSIVE a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", "r(b)"),
        # old versions
        ("SELECT * FROM t FOR SYSTEM_VERSION AS OF 5, u", "r(u) m(t)"),
        ("SELECT * FROM t system_version /* */ AS OF '5' AS x", "m(t)"),
        ("SELECT * FROM t VERSION AS OF 5, u FOR VERSION AS OF 5", "m(t,u)"),
        ("SELECT * FROM t TIMESTAMP AS OF '2026-03-01'", "m(t)"),
        ("SELECT * FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '2026-03-01'", "m(t)"),
        ("SELECT * FROM t SYSTEM_TIME AS OF '2026-03-01'", "m(t)"),
        ("SELECT * FROM t FOR SYSTEM_TIME AS OF current_timestamp()", "r(t)"),
        ("SELECT * FROM t FOR SYSTEM_VERSION AS OF 5 JOIN t USING (a)", "r(t) m(t)"),
        ("SELECT system_version, 'SYSTEM_VERSION AS OF 5' FROM t", "r(t)"),
        # writes
        ("INSERT INTO t VALUES (1)", "w(t)"),
        ("INSERT INTO t (a, b) SELECT * FROM s", "r(s) w(t)"),
        ("INSERT INTO t SELECT * FROM t", "r(t) w(t)"),
        ("INSERT INTO t BY NAME TABLE s", "r(s) w(t)"),
        ("INSERT INTO t PARTITION (p = 1) SELECT * FROM s", "r(s) w(t)"),
        ("INSERT OVERWRITE t SELECT * FROM s", "r(s) w(t)"),
        ("INSERT INTO t REPLACE WHERE a IN (SELECT b FROM u) SELECT * FROM s", "r(s,u) w(t)"),
        ("WITH c AS (SELECT * FROM s) INSERT INTO t SELECT * FROM c", "r(s) w(t)"),
        ("INSERT INTO t WITH t AS (SELECT * FROM s) SELECT * FROM t", "r(s) w(t)"),
        ("FROM s INSERT INTO a SELECT x INSERT OVERWRITE b SELECT y", "r(s) w(a,b)"),
        ("UPDATE t SET a = (SELECT max(x) FROM s) WHERE b IN (SELECT c FROM u)", "r(s,t,u) w(t)"),
        ("DELETE FROM t WHERE a IN (SELECT b FROM s)", "r(s,t) w(t)"),
        ("MERGE INTO t AS x USING (SELECT * FROM s) y ON x.a = y.a WHEN MATCHED THEN DELETE", "r(s,t) w(t)"),
        ("TRUNCATE TABLE t", "w(t)"),
        # DDL
        ("CREATE TABLE t (a INT REFERENCES u (b)) CLUSTER BY (a)", "r(u) d(t)"),
        ("CREATE OR REPLACE TABLE t AS WITH c AS (SELECT * FROM s) SELECT * FROM c", "r(s) d(t)"),
        ("CREATE TABLE IF NOT EXISTS t LIKE s", "r(s) d(t)"),
        ("CREATE TABLE t SHALLOW CLONE s", "r(s) d(t)"),
        ("CREATE OR REPLACE VIEW v AS SELECT * FROM s", "m(s) d(v)"),
        ("ALTER VIEW v AS SELECT * FROM s", "m(s) d(v)"),
        ("ALTER TABLE t ADD COLUMN b INT", "d(t)"),
        ("ALTER TABLE a.t RENAME TO u", "d(a.t,a.u)"),
        ("ALTER TABLE a.t RENAME TO b.u", "d(a.t,b.u)"),
        ("DROP TABLE IF EXISTS a.t", "d(a.t)"),
        ("DROP VIEW v", "d(v)"),
        ("COMMENT ON TABLE t IS 'x'", "d(t)"),
        ("CREATE NAMESPACE lake.bank", "d(lake.bank)"),
        ("DROP SCHEMA lake.bank CASCADE", "d(lake.bank)"),
        # everything
        ("BEGIN", TRANSACTION),
        ("BEGIN TRANSACTION ISOLATION LEVEL SNAPSHOT, COMMENT 'x'", TRANSACTION),
        ("START TRANSACTION READ ONLY", TRANSACTION),
        ("COMMIT", TRANSACTION),
        ("ROLLBACK TO s", TRANSACTION),
        ("SAVEPOINT s", TRANSACTION),
        ("BEGIN INSERT INTO t VALUES (1); COMMIT; END", "it is a block of statements"),
        ("BEGIN ATOMIC INSERT INTO t VALUES (1); END", "it is a block of statements"),
        ("USE lake", SESSION),
        ("SET a.b = 1", SESSION),
        ("SET VAR x = (SELECT max(a) FROM t)", SESSION),
        ("DECLARE x INT", SESSION),
        ("CACHE TABLE t", SESSION),
        ("SHOW TABLES", NOT_PARSED),
        ("OPTIMIZE t", NOT_PARSED),
        ("RESTORE TABLE t TO VERSION AS OF 1", NOT_PARSED),
        ("EXECUTE IMMEDIATE 'DROP TABLE t'", NOT_PARSED),
        ("INSERT OVERWRITE DIRECTORY '/x' USING parquet SELECT * FROM s", NOT_PARSED),
        ("SELECT FROM WHERE", NOT_PARSED),
        ("SELECT * FROM (TABLE t)", NOT_PARSED),
        ("WITH c AS (TABLE t) SELECT * FROM c", NOT_PARSED),
        ("SELECT * FROM STREAM t", NOT_PARSED),
        ("DROP FUNCTION f", "the plan does not know what uses a function"),
        ("SELECT * FROM IDENTIFIER('t')", "a name in it is computed by IDENTIFIER"),
        ("SELECT * FROM parquet.`${env:HOME}/x`", "it has a variable that Spark replaces"),
        ("SELECT * FROM ${spark.table}", "it has a variable that Spark replaces"),
        ("SELECT * FROM mine(1)", "nobody knows what mine reads"),
        ("SELECT * FROM table_changes(concat('a', 'b'), 0)", "the plan does not find whose changes it reads"),
    ],
)  # fmt: skip
def test_what_a_statement_uses(statement: str, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        assert uses(statement) == expected
    assert not caplog.records, "the plan says what is not understood, and nothing else does"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("USE lake.bank; SELECT * FROM t, other.t", "r(lake.bank.t,other.t)"),
        ("USE lake.bank; SET a.b = 1; SELECT * FROM t", "r(lake.bank.t)"),
        ("USE lake.bank; BEGIN; SELECT * FROM t", "r(lake.bank.t)"),
        ("USE DATABASE bank; SELECT * FROM t", "r(bank.t)"),
        ("USE NAMESPACE bank; SELECT * FROM t", "r(bank.t)"),
        ("USE lake.bank; USE lake; SELECT * FROM t", "r(t)"),
        ("USE lake.bank; USE CATALOG lake; SELECT * FROM t", "r(t)"),
        ("USE lake.bank; SET CATALOG lake; SELECT * FROM t", "r(t)"),
        ("USE lake.bank; EXECUTE IMMEDIATE 'USE lake.x'; SELECT * FROM t", "r(t)"),
        ("USE lake.bank; BEGIN USE lake.x; END; SELECT * FROM t", "r(t)"),
        ("CREATE VIEW v AS SELECT * FROM t; SELECT * FROM v", "r(t,v)"),
        ("CREATE VIEW v AS SELECT * FROM t; CREATE VIEW w AS SELECT * FROM v; SELECT * FROM w", "r(t,v,w)"),
        ("CREATE VIEW w AS SELECT * FROM v; CREATE VIEW v AS SELECT * FROM t; SELECT * FROM w", "r(t,v,w)"),
        ("CREATE VIEW v AS SELECT * FROM t; ALTER VIEW v RENAME TO w; SELECT * FROM w", "r(t,w)"),
        ("CREATE VIEW v AS SELECT * FROM t; COMMENT ON VIEW v IS 'x'; SELECT * FROM v", "r(t,v)"),
        ("CREATE VIEW v AS SELECT * FROM t; ALTER VIEW v AS SELECT * FROM u; SELECT * FROM v", "r(u,v)"),
        ("CREATE VIEW a.v AS SELECT * FROM t; SELECT * FROM b.v", "r(b.v)"),
        ("USE a.b; CREATE VIEW v AS SELECT * FROM t; USE a.c; SELECT * FROM b.v", "r(a.b.t,b.v)"),
        ("USE a.b; CREATE TEMP VIEW v AS SELECT * FROM t; USE a.c; SELECT * FROM v", "r(a.b.t,a.c.v)"),
        ("CREATE VIEW v AS SELECT * FROM t; INSERT INTO x SELECT * FROM v", "r(t,v) w(x)"),
        ("CREATE FUNCTION a.f() RETURNS INT RETURN 1; SELECT F()", "it calls F, a function that this script makes"),
        ("CREATE FUNCTION f() RETURNS INT RETURN 1; SELECT g() FROM t", "r(t)"),
    ],
)  # fmt: skip
def test_what_statements_before_it_made_of_names(script: str, expected: str) -> None:
    assert uses(script) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("t", "t", True),
        ("t", "T", True),
        ("t", "u", False),
        ("t", "lake.bank.t", True),
        ("bank.t", "lake.bank.t", True),
        ("bank.t", "lake.shop.t", False),
        ("lake.bank.t", "prod.bank.t", False),
        ("bank.*", "lake.bank.t", True),
        ("lake.bank.*", "bank.t", True),
        ("lake.bank.*", "t", True),
        ("lake.bank.*", "shop.t", False),
        ("lake.a.*", "lake.a.b.t", True),
        ("lake.a.*", "lake.b.a.t", False),
        ("lake.a.*", "lake.a.b.*", True),
        ("lake.a.*", "a.*", True),
        ("lake.a.*", "lake.b.*", False),
    ],
)
def test_names_that_may_be_the_same(one: str, other: str, expected: bool) -> None:
    relations = [
        Relation(tuple(name.removesuffix(".*").split(".")), is_namespace=name.endswith("*")) for name in (one, other)
    ]
    assert relations[0].may_be(relations[1]) is expected
    assert relations[1].may_be(relations[0]) is expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", []),
        ("INSERT INTO a SELECT 1; INSERT INTO b SELECT 1", [(1, ()), (1, ())]),
        ("INSERT INTO a SELECT 1; INSERT INTO A SELECT 1", [(1, ()), (2, (1,))]),
        ("SELECT * FROM a; SELECT * FROM a", [(1, ()), (1, ())]),
        ("SELECT * FROM a; DELETE FROM a", [(1, ()), (2, (1,))]),
        ("DELETE FROM a; SELECT * FROM a", [(1, ()), (2, (1,))]),
        ("DELETE FROM a; SELECT * FROM a VERSION AS OF 1", [(1, ()), (1, ())]),
        ("DROP TABLE a; SELECT * FROM a VERSION AS OF 1", [(1, ()), (2, (1,))]),
        ("SELECT * FROM a VERSION AS OF 1; DROP TABLE a", [(1, ()), (2, (1,))]),
        ("CREATE NAMESPACE n; CREATE TABLE n.t (a INT); CREATE TABLE m.t (a INT)", [(1, ()), (2, (1,)), (1, ())]),
        ("CREATE VIEW v AS SELECT * FROM t; INSERT INTO t SELECT 1; SELECT * FROM v", [(1, ()), (1, ()), (2, (1, 2))]),
        ("DELETE FROM a; DELETE FROM a; SELECT * FROM a", [(1, ()), (2, (1,)), (3, (2,))]),
        ("SELECT 1; SHOW TABLES; SELECT 2; COMMIT; SELECT 3", [(1, ()), (2, (1,)), (3, (2,)), (4, (3,)), (5, (4,))]),
        (
            "INSERT INTO a SELECT 1; INSERT INTO b SELECT 1; INSERT INTO c SELECT * FROM a, b; SELECT * FROM b",
            [(1, ()), (1, ()), (2, (1, 2)), (2, (2,))],
        ),
    ],
)
def test_stages_and_what_each_statement_waits_for(script: str, expected: list[tuple[int, tuple[int, ...]]]) -> None:
    assert [(found.stage, found.after) for found in planned(script)] == expected


def test_more_statements_than_a_plan_takes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STATEMENTS_AT_MOST", 1)
    assert len(planned("SELECT 1")) == 1
    with pytest.raises(InvalidError, match="a plan takes at most 1 statements, and these are 2"):
        planned("SELECT 1; SELECT 2")
