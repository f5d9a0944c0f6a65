"""A DataFrame that is written later is what it was when it was made, or is refused, whichever writer writes it.

Spark's `writeTo` and `mergeInto` hand on a DataFrame's query as it was before it was analyzed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import lockstep
from tests.support.sampled import sampled

pytestmark = pytest.mark.long

T = "lake.default.t"
NEW, EXPECTED = "lake.default.written", "lake.default.expected"

Made = Callable[[Any], Any]


def by_sql(session: Any) -> Any:
    return session.sql(f"SELECT * FROM {T}")


def by_parameters(session: Any) -> Any:
    return session.sql("SELECT * FROM IDENTIFIER(:t) WHERE id < :most", {"t": T, "most": 1000})


def by_name(session: Any) -> Any:
    return session.table(T)


def by_query(session: Any) -> Any:
    return session.sql(f"WITH c AS (SELECT id FROM {T}) SELECT a.id FROM c a JOIN c b ON a.id = b.id")


def by_windows(session: Any) -> Any:
    return session.sql(f"SELECT max(id) OVER w AS id FROM {T} WINDOW w AS (PARTITION BY id)")


def by_hint(session: Any) -> Any:
    return session.sql(f"SELECT /*+ REPARTITION(1) */ id FROM {T} ORDER BY id")


def by_union(session: Any) -> Any:
    return session.sql(f"SELECT id FROM {T} UNION SELECT id FROM (FROM {T} |> WHERE id > 0)")


def cached(session: Any) -> Any:
    query = by_sql(session).cache()
    query.count()
    return query


def in_a_transaction(session: Any, made: Made, *, end: str) -> Any:
    session.sql("BEGIN")
    session.sql(f"INSERT INTO {T} VALUES (2)")
    query = made(session)
    session.sql(end)
    return query


def in_rolled_back(session: Any, made: Made) -> Any:
    return in_a_transaction(session, made, end="ROLLBACK")


def in_committed(session: Any, made: Made) -> Any:
    return in_a_transaction(session, made, end="COMMIT")


def in_read_only(session: Any, made: Made) -> Any:
    session.sql("BEGIN READ ONLY")
    query = made(session)
    session.sql("COMMIT")
    return query


def at_a_version(session: Any, made: Made) -> Any:
    newest = session.sql("SELECT max(version) FROM lake.system.history").first()[0]
    with lockstep.at(session, newest):
        return made(session)


def before_rollback_to(session: Any, made: Made) -> Any:
    session.sql("BEGIN")
    session.sql("SAVEPOINT s")
    session.sql(f"INSERT INTO {T} VALUES (2)")
    query = made(session)
    session.sql("ROLLBACK TO s")
    return query


def before_begin(session: Any, made: Made) -> Any:
    query = made(session)
    session.sql("BEGIN")
    session.sql(f"INSERT INTO {T} VALUES (2)")
    return query


def outside(session: Any, made: Made) -> Any:
    return made(session)


def create(query: Any) -> None:
    query.writeTo(NEW).using("delta").create()


def create_or_replace(query: Any) -> None:
    query.writeTo(NEW).using("delta").createOrReplace()


def append(query: Any) -> None:
    query.writeTo(NEW).append()


def overwrite_partitions(query: Any) -> None:
    query.writeTo(NEW).overwritePartitions()


def merge(query: Any) -> None:
    query.mergeInto(NEW, functions.lit(False)).whenNotMatched().insertAll().merge()


INTO = (append, overwrite_partitions, merge)
"""Those that write to a table that is there."""
PLACES = [outside, in_rolled_back, in_committed, in_read_only, at_a_version, before_rollback_to, before_begin]
INSIDE = (before_rollback_to, before_begin)
QUERIES = [by_parameters, by_query, by_windows, by_hint, by_union, cached]
CASES = [
    *((place, made, create) for place in PLACES for made in (by_sql, by_name)),
    *((place, made, create) for place in PLACES[:2] for made in QUERIES),
    *((place, by_sql, writer) for place in PLACES[:2] for writer in (create_or_replace, *INTO)),
]


def outcome(work: Callable[[], None], session: Any, table: str) -> list[int] | str | None:
    """Return the rows that were written, or the SQLSTATE with which that was refused."""
    try:
        work()
    except PySparkException as refused:
        return refused.getSqlState()
    return sorted(row.id for row in session.table(table).collect())


@pytest.mark.parametrize(
    ("place", "made", "writer"), sampled((("-".join(each.__name__ for each in case), case) for case in CASES), 3)
)
def test_every_writer_writes_what_a_query_was(
    spark: Any, other: Any, place: Callable[[Any, Made], Any], made: Made, writer: Callable[[Any], None]
) -> None:
    spark.sql(f"CREATE TABLE {T} AS SELECT 1 AS id")
    for table in (NEW, EXPECTED) if writer in INTO else ():
        spark.sql(f"CREATE TABLE {table} (id INT)")
    query = place(spark, made)
    if place not in INSIDE:
        other.sql(f"INSERT INTO {T} VALUES (3)")
    expected = outcome(lambda: query.write.mode("append").saveAsTable(EXPECTED), spark, EXPECTED)
    if place in INSIDE and isinstance(expected, str):  # and the transaction is spoiled
        spark.sql("ROLLBACK")
        query = place(spark, made)
    assert outcome(lambda: writer(query), spark, NEW) == expected
    if (place, made) != (outside, by_name):  # that shows what is newest, to each writer
        assert expected in ([1], [1, 2], "25P01", "25001"), "what others added since is not in it"
