"""The shim and the host agree on every request: what Spark's statements send is what the protocol says, in full."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.spark.host.protocol import OPERATIONS, decode
from tests.support.interposed import host_of
from tests.support.sparks import is_before

pytestmark = pytest.mark.long

VIEWS = {
    *("views", "create_view", "drop_view", "rename_view"),
    *("function", "functions", "create_function", "drop_function"),
}
"""What no Spark before 4.2 asks."""

OF_PAST_VIEWS = {"version", "system_time_micros"}
"""The fields of a request for a view that no Spark before 4.2 asks for."""

PROCEDURES = {"procedures", "procedure"}
"""What no Spark before 4.1 asks."""

ELSEWHERE = {"lost", "claim", "session_names", "drop_session_schema", "spark_started"}
"""What only a host is told that took over from one that died: `tests/hosts/test_servers.py` kills one.

And one that has a second Spark to answer: `tests/hosts/test_one_place.py`. And what is asked only where conflicts are
settled before COMMIT: `tests/spark/test_waiting.py`; or where a lake stands for Spark's session catalog:
`tests/spark/test_session_names.py`.
"""

OF_CLIENTS = {"user"}
"""The field of every request that only the servers' clients fill: `tests/hosts/test_servers.py` has some."""

STATEMENTS = """
CREATE NAMESPACE s COMMENT 'a namespace'
ALTER NAMESPACE s SET PROPERTIES (colour = 'red')
ALTER NAMESPACE s UNSET PROPERTIES (colour)
DESCRIBE NAMESPACE s
SHOW NAMESPACES
CREATE TABLE t (id INT) USING delta
CREATE TABLE IF NOT EXISTS t (id INT) USING delta
INSERT INTO t VALUES (1)
INSERT INTO t SELECT id + 1 FROM t WHERE id = 1
SHOW TABLES
SET lockstep.on_statement_error = fail
SELECT * FROM t VERSION AS OF 1
SELECT * FROM t FOR SYSTEM_TIME AS OF now()
SELECT * FROM t WITH (startingSystemVersion = 1, endingSystemVersion = 5)
RESTORE TABLE t TO SYSTEM_VERSION AS OF 5
RESTORE TABLE t TO SYSTEM_TIME AS OF '2999-01-01'
CREATE TABLE u USING delta AS SELECT * FROM t
ALTER TABLE u RENAME TO w
DROP TABLE w
BEGIN ISOLATION LEVEL SNAPSHOT READ ONLY COMMENT 'looks'
SELECT * FROM t
ROLLBACK
BEGIN
INSERT INTO t SELECT id + 1 FROM t
SET spark.databricks.delta.commitInfo.userMetadata = {long}
DELETE FROM t WHERE id = 1
RESET spark.databricks.delta.commitInfo.userMetadata
SAVEPOINT one
RELEASE one
SAVEPOINT two
ROLLBACK TO two
COMMIT
DROP NAMESPACE s
CREATE TAG first AS OF VERSION 2
VACUUM t
CALL lake.system.diff(0, to => 1)
BEGIN READ ONLY AS OF VERSION 2
ROLLBACK
BEGIN READ ONLY AS OF TIMESTAMP '2999-01-01'
ROLLBACK
BEGIN READ ONLY AS OF TAG first
ROLLBACK
SELECT * FROM lake.system.files
SELECT * FROM lake.system.settings
SELECT version FROM lake.system.history WHERE version > 1 ORDER BY version DESC LIMIT 2
SELECT * FROM lake.system.tables FOR SYSTEM_VERSION AS OF 2
SELECT * FROM lake.system.tables FOR SYSTEM_TIME AS OF '2999-01-01'
CREATE TABLE spark_catalog.delta.`{plain}` (id INT) USING delta
CREATE TABLE found USING delta LOCATION '{plain}'
"""

OF_PROCEDURES = """
SHOW PROCEDURES IN lake.system
DESCRIBE PROCEDURE lake.system.restore
"""

OF_VIEWS = """
CREATE VIEW v AS SELECT id FROM t
SELECT * FROM v JOIN t USING (id)
SELECT * FROM v FOR SYSTEM_TIME AS OF '2999-01-01'
CREATE TAG viewed
SELECT * FROM v WITH (systemVersionAsOf = 'viewed')
SHOW VIEWS
ALTER VIEW v RENAME TO x
DROP VIEW x
CREATE FUNCTION f(x INT) RETURNS INT RETURN x
CREATE VIEW y AS SELECT f(id) AS n FROM t
SELECT f(n) FROM y FOR SYSTEM_TIME AS OF '2999-01-01'
SHOW USER FUNCTIONS
DROP FUNCTION f
"""


class Requests:
    """Stands before a host, and reads each request as it does: of which operations, and with which fields."""

    def __init__(self, host: Any) -> None:
        self.fields: dict[str, set[str]] = defaultdict(set)
        self._answer = host.call

    def call(self, request: str) -> str:
        op = json.loads(request)["op"]
        decode(request)
        self.fields[op] |= json.loads(request).keys() - {"op"}
        answer: str = self._answer(request)
        return answer


@pytest.fixture
def requests(spark_session: Any, monkeypatch: pytest.MonkeyPatch) -> Requests:
    host = host_of(spark_session)
    requests = Requests(host)
    monkeypatch.setattr(host, "call", requests.call)
    return requests


def run(spark: Any, statements: str) -> None:
    for statement in filter(None, statements.splitlines()):
        spark.sql(statement).collect()


def test_what_statements_send_is_what_the_protocol_says(spark: Any, root: Path, requests: Requests) -> None:
    """Of each operation a request was sent, and each field of it by some statement."""
    # The long metadata makes a commit that is too long for one request.
    run(spark, STATEMENTS.replace("{long}", "x" * 300_000).replace("{plain}", f"{root}-plain"))
    run(spark, "" if is_before("4.1") else OF_PROCEDURES)
    run(spark, "" if is_before("4.2") else OF_VIEWS)
    for refused in (
        "INSERT INTO lake.system.tags TABLE t",
        "SELECT * FROM lake.system.tags TIMESTAMP AS OF '2999-01-01'",
        "CALL lake.system.adopt(schema => 'spark_catalog.nowhere')",
    ):
        with pytest.raises(PySparkException):
            spark.sql(refused)
    with pytest.raises(PySparkException):
        spark.table("nothing")  # before 4.2 a view is asked for where there is no table, and nowhere else
    (newest,) = spark.sql("DESCRIBE HISTORY t LIMIT 1").select("timestamp").first()
    spark.sql(f"SELECT * FROM t TIMESTAMP AS OF '{newest}'").collect()
    old = spark.table("t")
    folder = spark.sql("DESCRIBE DETAIL t").first().location
    with lockstep.transaction(spark, batch=("orders", 7)):
        with pytest.raises(PySparkException, match="25001"):
            old.collect()
        with pytest.raises(PySparkException, match="25001"):
            spark.sql("VACUUM t")
        with pytest.raises(PySparkException, match="0A000"):
            spark.read.format("delta").load(folder)
    abandon(spark)
    clean_up(spark, f"lockstep://head.file{folder.removeprefix('file:')}/_delta_log/{0:020d}.json")
    expected = OPERATIONS.keys() - ELSEWHERE - (VIEWS if is_before("4.2") else set())
    expected -= PROCEDURES if is_before("4.1") else set()
    assert {op: fields - {"within"} for op, fields in requests.fields.items()} == {
        op: {field.encode_name for field in msgspec.structs.fields(OPERATIONS[op])}
        - OF_CLIENTS
        - {"within"}
        - (OF_PAST_VIEWS if op == "view" and is_before("4.2") else set())
        for op in expected
    }
    inside = {op for op, fields in requests.fields.items() if "within" in fields}
    assert inside >= {"resolve", "stage", "staging", "staged", "savepoint", "outside", "by_path", "commit", "rollback"}


def clean_up(spark: Any, file: str) -> None:
    """Try to delete a file of a log, as Delta's clean-up does."""
    path = spark._jvm.org.apache.hadoop.fs.Path(file)
    path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).delete(path, False)


def abandon(spark: Any) -> None:
    """Do to a transaction what is done to a shared one whose clients are all gone."""
    spark.sql("BEGIN")
    shim = spark._jvm.lockstep.spark
    ends, tx = shim.execution.TransactionCommand, shim.transactions.Transactions.of(spark._jsparkSession).get()
    ends.lapse(tx, "deserted", getattr(ends, "lapse$default$3")())
    spark.sql("ROLLBACK")
