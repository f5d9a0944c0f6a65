"""A table's log is listed no more often than plain Delta lists it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lockstep
from tests.bench.listings import CLUSTER, counts
from tests.support.log_requests import LogRequests
from tests.support.sessions import ROOTS

T = "lake.default.t"
SELECT = f"SELECT * FROM {T}"

pytestmark = pytest.mark.skipif(bool(ROOTS), reason="it counts what is asked of a local disk")


@pytest.fixture
def requests(spark: Any) -> Iterator[LogRequests]:
    """Make a table of two versions, and yield what counts."""
    spark.sql(f"CREATE TABLE {T} AS SELECT id FROM range(3)")
    spark.sql(f"INSERT INTO {T} VALUES (3)")
    with LogRequests(spark) as requests:
        yield requests


def listings(requests: LogRequests, session: Any, text: str) -> int:
    return requests.of(lambda: session.sql(text).collect())["list"]


def test_a_pinned_table_is_listed_once(spark: Any, requests: LogRequests) -> None:
    """By a query outside of a transaction, in one that has not written the table, and where the log is cold."""
    assert listings(requests, spark, SELECT) == 1
    spark.sql("BEGIN")
    assert listings(requests, spark, SELECT) == 1
    spark.sql("COMMIT")
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert listings(requests, spark, SELECT) == 1


def test_an_older_version_is_listed_twice(spark: Any, root: Path, requests: LogRequests) -> None:
    """Once for what the log has now, and once for that version's commits, whoever asks for it."""
    older = lockstep.TransactionalCatalog.open(str(root)).timeline.head.version - 1
    for text in (f"{SELECT} VERSION AS OF 0", f"{SELECT} FOR SYSTEM_VERSION AS OF {older}"):
        assert listings(requests, spark, text) == 2
        assert spark.sql(text).count() == 3


@pytest.mark.deep  # four Sparks, of which two have an executor in a process of its own
@pytest.mark.parametrize("master", ["local[2]", pytest.param(CLUSTER, marks=pytest.mark.cluster)])
def test_no_work_lists_a_log_more_often_than_plain_delta(master: str) -> None:
    """Save in a transaction that has written the table: each listing of its view is one of two folders."""
    ours, plain = counts("lockstep", master), counts("plain", master)
    found = {work: (ours[work].get("list", 0), plain[work].get("list", 0)) for work in ours}
    more = {work: both for work, both in found.items() if both[0] > both[1]}
    assert more.keys() <= {"`INSERT` inside", "a read of what was written inside"}, found
