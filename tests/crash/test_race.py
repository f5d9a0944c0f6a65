"""Two Spark drivers, each with a JVM of its own, on one lake at the same moment; on one with an arbiter, too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from tests.support import on_hdfs
from tests.support.driver import Driver
from tests.support.lakes import named
from tests.support.placed import matching, root_in
from tests.support.runner import Failure, Result
from tests.support.valkey import running

# Slow: two Spark drivers are started, at the same time on two cores, and serve all tests here.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["store", pytest.param("valkey", marks=pytest.mark.deep)])
def arbiter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """The arbiter of the lake, if it has one."""
    if request.param == "store":
        yield None
        return
    with running(tmp_path_factory.mktemp("valkey")) as server:
        yield server.address()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, arbiter: str | None) -> str:
    """Return the root of a lake that is there."""
    on_hdfs.connected()
    root = root_in(tmp_path_factory.mktemp("race"))
    TransactionalCatalog.open(root, create=True, arbiter=arbiter)
    return root


@pytest.fixture(scope="module")
def pair(root: str, arbiter: str | None) -> Iterator[tuple[Driver, Driver]]:
    told = ["tests.support.driver", arbiter] if arbiter else []
    with Driver(root, *told) as one, Driver(root, *told) as two:
        yield one, two


def both(pair: tuple[Driver, Driver], *statements: tuple[str, str]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Run one statement in each at the same time, and then the next."""
    answers = []
    for mine, theirs in statements:
        pair[0].tell({"sql": mine})
        pair[1].tell({"sql": theirs})
        answers.append((pair[0].answer(), pair[1].answer()))
    return answers


def test_appends_to_one_table_all_land(pair: tuple[Driver, Driver], root: str) -> None:
    pair[0].sql("CREATE TABLE appended (id BIGINT)")
    answers = both(
        pair, *[(f"INSERT INTO appended VALUES ({n})", f"INSERT INTO appended VALUES ({-n})") for n in (1, 2, 3)]
    )
    assert all("rows" in answer for each in answers for answer in each), answers
    for driver in pair:
        assert [row["id"] for row in driver.sql("SELECT id FROM appended ORDER BY id")] == [-3, -2, -1, 1, 2, 3]
    entries = TransactionalCatalog.open(root).timeline.entries(-1)
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


def test_of_two_tables_made_in_one_folder_one_is_there(pair: tuple[Driver, Driver], tmp_path: Path) -> None:
    """By statements on their own, and in transactions: the loser is told, and leaves nothing of its own."""
    place = root_in(tmp_path)
    make = "CREATE TABLE {{}} USING delta LOCATION '{}' AS SELECT {{}} AS id"
    for number in range(2):
        alone, inside = (
            make.format(f"{place}/{kind}{number}".replace("s3://", "s3a://")) for kind in ("alone", "inside")
        )
        names = f"one{number}", f"two{number}"
        scripts = [
            [(alone.format(names[0], 1), alone.format(names[1], 2))],
            [
                ("BEGIN", "BEGIN"),
                (inside.format(f"in_{names[0]}", 1), inside.format(f"in_{names[1]}", 2)),
                ("COMMIT", "COMMIT"),
            ],
        ]
        for script, folder, prefix in zip(scripts, ("alone", "inside"), ("", "in_"), strict=True):
            answers = both(pair, *script)
            lost = [each["sqlstate"] for mine, theirs in answers for each in (mine, theirs) if "rows" not in each]
            told = {"42P07", "40001", "22023", "42601"}  # the last is Delta's, who found the winner's first file there
            assert set(lost) <= {*told, "25P02"}, answers
            assert told & {*lost}, "one was told why"
            found = [pair[0].ask({"sql": f"SELECT id FROM {prefix}{name}"}).get("rows") for name in names]
            [rows] = [each for each in found if each is not None]
            files = matching(f"{place}/{folder}{number}", "*.parquet")
            assert (len(files), pair[1].sql(f"SELECT id FROM {prefix}{names[found.index(rows)]}")) == (
                1,
                [{"id": rows[0][0]}],
            )
            for driver in pair:
                driver.ask({"sql": "ROLLBACK"})


@pytest.mark.deep
def test_a_restore_beside_a_writer_is_whole_or_refused(pair: tuple[Driver, Driver], root: str) -> None:
    """A transaction writes two tables alike, and RESTORE DATABASE comes at each point of it: no version tears them."""
    one, two = pair
    one.sql("CREATE TABLE twin AS SELECT 0 AS id", "CREATE TABLE other_twin AS SELECT 0 AS id", "CREATE TAG twins")
    restore, begin, commit = "RESTORE DATABASE lake TO TAG twins", "BEGIN", "COMMIT"
    change = "{} {{}} {}"
    kinds = [("INSERT INTO", "VALUES ({})"), ("DELETE FROM", "WHERE id < {}")]
    refused: list[str] = []
    for number, (verb, rest) in enumerate(kinds, start=1):
        statement = change.format(verb, rest.format(number))
        script = [begin, statement.format("twin"), statement.format("other_twin"), commit]
        for at in range(number % 2, len(script), 2):
            for place, theirs in enumerate(script):
                [(mine, answer)] = both(pair, (restore if place == at else "SELECT 1", theirs))
                refused += [each["sqlstate"] for each in (mine, answer) if "rows" not in each]
            two.ask({"sql": "ROLLBACK"})
    assert set(refused) <= {"40001"}, refused
    for version in range(one.sql("CALL lake.system.tags()")[0]["database_version"], _newest(root) + 1):
        twins = [
            one.sql(f"SELECT id FROM {name} FOR SYSTEM_VERSION AS OF {version} ORDER BY id")
            for name in ("twin", "other_twin")
        ]
        assert twins[0] == twins[1], f"database version {version}"
    for driver in pair:
        assert driver.sql(restore, "SELECT id FROM twin") == [{"id": 0}]


@pytest.mark.deep  # each clean-up waits ten seconds; tests/crash/test_upkeep.py has it without Spark
def test_what_a_transaction_reads_stays_while_another_driver_lets_it_expire_and_vacuums(
    pair: tuple[Driver, Driver], arbiter: str | None, tmp_path: Path
) -> None:
    """What it began with is replaced, expires and is vacuumed, before its statements and beside each of them."""
    place = root_in(tmp_path)
    catalog = TransactionalCatalog.open(place, create=True, arbiter=arbiter)
    cleaner, writer = (driver.connect(place) for driver in pair)
    cleaner.sql(
        "CALL lake.system.retention(age => '0s', versions => 1, grace => '0s')",
        "SET spark.databricks.delta.retentionDurationCheck.enabled = false",
        "CREATE TABLE read_beside AS SELECT id FROM range(3)",
        "CREATE TABLE written_beside (id BIGINT)",
    )
    clean_up = [
        "INSERT OVERWRITE read_beside SELECT id FROM read_beside",
        "CALL lake.system.expire_snapshots()",
        "VACUUM read_beside RETAIN 0 HOURS",
    ]
    read, copy = "SELECT id FROM read_beside ORDER BY id", "INSERT INTO written_beside SELECT id FROM read_beside"
    script = [read, copy, read, "COMMIT"]
    rows = 0
    for early in range(len(clean_up), -2, -1):
        writer.sql("BEGIN", "INSERT INTO written_beside VALUES (-1)")  # from now on the others can know of it
        cleaner.sql(*clean_up[: max(early, 0)])
        beside = ["SELECT 1"] * -early + clean_up[max(early, 0) :]
        for mine, theirs in itertools.zip_longest(beside, script, fillvalue="SELECT 1"):
            cleaner.tell(mine)
            writer.tell(theirs)
            cleaned, answer = cleaner.answer(), writer.answer()
            assert isinstance(cleaned, Result), cleaned
            if theirs == "COMMIT" and isinstance(answer, Failure):
                assert answer.sqlstate == "40001", answer
                continue
            assert isinstance(answer, Result), answer
            assert theirs != read or answer.rows == [[0], [1], [2]]
            rows += 4 * (theirs == "COMMIT")
    cleaner.sql(*clean_up)
    for session in (cleaner, writer):
        assert session.sql("SELECT count(*) AS n FROM written_beside") == [{"n": rows}]
        assert session.sql(read) == [{"id": 0}, {"id": 1}, {"id": 2}]
    location = catalog.database().tables[named("read_beside")].location
    assert len(matching(f"{place}/{location}", "part-*.parquet")) == 1, "what nobody needed any more is gone"


def _newest(root: str) -> int:
    return TransactionalCatalog.open(root).database().version
