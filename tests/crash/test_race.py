"""Two Spark drivers, each with a JVM of its own, on one lake at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from tests.support.driver import Driver

# Slow: two Spark drivers are started, at the same time on two cores, and serve all tests here.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("race") / "lake"


@pytest.fixture(scope="module")
def pair(root: Path) -> Iterator[tuple[Driver, Driver]]:
    TransactionalCatalog.open(str(root), create=True)
    with Driver(root) as one, Driver(root) as two:
        yield one, two


def both(pair: tuple[Driver, Driver], *statements: tuple[str, str]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Run one statement in each at the same time, and then the next."""
    answers = []
    for mine, theirs in statements:
        pair[0].tell({"sql": mine})
        pair[1].tell({"sql": theirs})
        answers.append((pair[0].answer(), pair[1].answer()))
    return answers


def test_appends_to_one_table_all_land(pair: tuple[Driver, Driver], root: Path) -> None:
    pair[0].sql("CREATE TABLE appended (id BIGINT)")
    answers = both(
        pair, *[(f"INSERT INTO appended VALUES ({n})", f"INSERT INTO appended VALUES ({-n})") for n in (1, 2, 3)]
    )
    assert all("rows" in answer for each in answers for answer in each), answers
    for driver in pair:
        assert [row["id"] for row in driver.sql("SELECT id FROM appended ORDER BY id")] == [-3, -2, -1, 1, 2, 3]
    entries = TransactionalCatalog.open(str(root)).timeline.entries(-1)
    assert not any(entry.kind == "external" for entry in entries)


def test_of_conflicting_updates_exactly_one_wins(pair: tuple[Driver, Driver]) -> None:
    pair[0].sql("CREATE TABLE balance (id BIGINT, n BIGINT)", "INSERT INTO balance VALUES (1, 100)")
    update = "UPDATE balance SET n = n - 10 WHERE id = 1"
    begun, updated, committed = both(pair, ("BEGIN", "BEGIN"), (update, update), ("COMMIT", "COMMIT"))
    assert all("rows" in answer for answer in (*begun, *updated))
    [loser] = [answer for answer in committed if "rows" not in answer]
    assert loser["sqlstate"] == "40001"
    assert "balance" in loser["message"]
    for driver in pair:
        assert driver.sql("SELECT n FROM balance") == [{"n": 90}], "no update was lost"
        assert driver.sql("BEGIN", "ROLLBACK"), "and the loser's session is free again"


def test_transactions_on_different_tables_both_land(pair: tuple[Driver, Driver]) -> None:
    pair[0].sql("CREATE TABLE left_side (id BIGINT)", "CREATE TABLE right_side (id BIGINT)")
    answers = both(
        pair,
        ("BEGIN", "BEGIN"),
        ("INSERT INTO left_side VALUES (1)", "INSERT INTO right_side VALUES (1)"),
        ("INSERT INTO left_side VALUES (2)", "INSERT INTO right_side VALUES (2)"),
        ("COMMIT", "COMMIT"),
    )
    assert all("rows" in answer for each in answers for answer in each), answers
    for driver in pair:
        for table in ("left_side", "right_side"):
            assert driver.sql(f"SELECT count(*) AS n FROM {table}") == [{"n": 2}]
