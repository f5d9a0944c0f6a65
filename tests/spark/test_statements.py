"""A statement of Spark or Delta does in a Lockstep catalog what it does on plain Delta: docs/statements.md.

A few run here in every test run; `make statements` runs all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from delta.tables import DeltaTable

from tests.support.matrix import NAMESPACE, Case, Places, differences, with_settings
from tests.support.plain_statements import PlainStatements
from tests.support.sessions import CATALOG, new_session
from tests.support.sparks import since
from tests.support.statement_cases import CASES

ALL = os.environ.get("LOCKSTEP_TEST_STATEMENTS") == "all"

# Each case runs its statement four times, with a table made for each.
pytestmark = [pytest.mark.long, pytest.mark.slow]


@pytest.fixture(scope="module")
def session(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = new_session(spark_session, tmp_path_factory.mktemp("statements") / CATALOG)
    session.sql(f"CREATE NAMESPACE {CATALOG}.{NAMESPACE}")
    # Some statements of a lake's sessions name Spark's own catalog.
    session.sql(f"CREATE NAMESPACE spark_catalog.{NAMESPACE}")
    yield session
    session.sql(f"DROP NAMESPACE spark_catalog.{NAMESPACE} CASCADE")


@pytest.fixture(scope="module")
def places(session: Any) -> Places:
    return Places(session)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainStatements]:
    process = PlainStatements(tmp_path_factory.mktemp("plain"))
    yield process
    process.close()


@pytest.mark.parametrize("case", [case for case in CASES if ALL or case.core], ids=lambda case: case.title[:80])
def test_a_statement_does_what_it_does_on_plain_delta(
    case: Case, session: Any, places: Places, plain: PlainStatements
) -> None:
    with with_settings(session, case):
        found = list(differences(places, case, plain.attempt(case)))
    assert not found, "\n".join(found)


SHOW_PLACES: dict[str, Callable[[Any], str]] = {
    "DESCRIBE DETAIL": lambda s: s.sql("DESCRIBE DETAIL t").first()["location"],
    "DeltaTable.detail": lambda s: DeltaTable.forName(s, "lake.default.t").detail().first()["location"],
    "DESCRIBE EXTENDED": lambda s: s.sql("DESCRIBE EXTENDED t").where("col_name = 'Location'").first()["data_type"],
    "DeltaTable.optimize": lambda s: (
        DeltaTable.forName(s, "lake.default.t").optimize().executeCompaction().first()["path"]
    ),
    "OPTIMIZE": lambda s: s.sql("OPTIMIZE t").first()["path"],
}


def test_what_tells_where_a_table_lies_tells_where_its_files_are(spark: Any, root: Path) -> None:
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    alone = {name: show(spark) for name, show in SHOW_PLACES.items()}
    spark.sql("BEGIN")
    spark.sql("INSERT INTO t VALUES (2)")
    assert {name: show(spark) for name, show in SHOW_PLACES.items()} == alone
    [place] = {urlsplit(shown).path for shown in alone.values()}
    assert Path(place).parent.parent == root
    assert (Path(place) / "_delta_log").is_dir()


@since("4.2", "views in catalogs")
def test_two_part_names_work_where_the_lake_is_the_default_catalog(spark_session: Any, root: Path) -> None:
    session = spark_session.newSession()
    session.conf.set(f"spark.sql.catalog.{CATALOG}.root", str(root))
    # As in a Spark that was started with it: some of Spark's calls take it from the thread's active session.
    sessions = (session, spark_session)
    for each in sessions:
        each.conf.set("spark.sql.defaultCatalog", CATALOG)
    try:
        session.sql("CREATE NAMESPACE sales")
        session.sql("CREATE TABLE sales.t AS SELECT 1 AS id")
        session.sql("CREATE VIEW sales.v AS SELECT id + 1 AS id FROM sales.t")
        session.sql("BEGIN")
        session.sql("INSERT INTO sales.t SELECT id + 10 FROM sales.v")
        session.sql("COMMIT")
        session.sql("CREATE TABLE bare AS SELECT * FROM sales.v")
        session.sql("INSERT INTO bare SELECT * FROM sales.t")
        assert sorted(row[0] for row in session.table(f"{CATALOG}.default.bare").collect()) == [1, 2, 12, 13]
        ((current,),) = session.sql("SELECT current_catalog()").collect()
        assert current == CATALOG
        assert session.catalog.tableExists("sales.t")
    finally:
        for each in sessions:
            each.conf.unset("spark.sql.defaultCatalog")
