"""Tags, UNDROP and upkeep without Spark: statements of a transaction, and transactions of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lockstep.errors import (
    DuplicateError,
    ExpiredError,
    FailedTransactionError,
    InvalidError,
    MissingFilesError,
    ReadOnlyError,
    UndefinedError,
)
from lockstep.retention.floor import set_floor
from lockstep.tables.opened import OpenLake
from tests.support.restored import ROWS, SCHEMA, make, rows


def test_a_tag_names_the_version_that_it_makes(lake: OpenLake) -> None:
    make(lake)
    made = lake.tag("eod", days=30, comment="closed")
    [tag] = lake.tags
    assert (tag.name, tag.version, tag.comment) == ("eod", made, "closed")
    assert tag.retain_until is not None
    assert abs(tag.retain_until - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=1)
    with lake.transaction() as tx:
        tx["t"].delete()
    assert lake.at("EOD")["t"].to_arrow().num_rows == 4


def test_a_tag_may_name_an_older_version_or_what_another_tag_names(lake: OpenLake) -> None:
    then = make(lake)
    with lake.transaction() as tx:
        tx["t"].delete()
    assert lake.tag("first", then) == then
    assert lake.tag("again", "first") == then
    assert lake.tag("late", datetime.now(UTC)) == then + 3
    assert [(tag.name, tag.version) for tag in lake.tags] == [("again", then), ("first", then), ("late", then + 3)]


def test_a_transaction_tags_what_it_makes(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append(ROWS)
        tx.tag("loaded")
        tx["t"].append(ROWS)
    with lake.transaction() as later:
        later["t"].delete()
    assert lake.at("loaded").version == tx.version
    assert lake.at("loaded")["t"].to_arrow().num_rows == 8


def test_a_tag_that_cannot_be_is_refused_and_nothing_is_made(lake: OpenLake, tmp_path: Path) -> None:
    then = make(lake)
    lake.tag("eod")
    refused: list[tuple[type[Exception], dict[str, object]]] = [
        (DuplicateError, {"name": "EOD"}),
        (InvalidError, {"name": "7"}),
        (InvalidError, {"name": "x", "days": 0}),
        (InvalidError, {"name": "x", "when": 999}),
        (InvalidError, {"name": "x", "when": datetime(2026, 1, 1)}),
        (UndefinedError, {"name": "x", "when": "nowhere"}),
    ]
    for error, given in refused:
        with pytest.raises(error):
            lake.tag(**given)  # type: ignore[arg-type]
    for file in data_files(tmp_path):
        file.unlink()
    with pytest.raises(MissingFilesError):
        lake.tag("x")
    assert lake.catalog.database().version == then + 1
    assert lake.tag("x", check=False) == then + 2


def data_files(root: Path) -> list[Path]:
    return [*root.rglob("*.parquet")]


def test_a_tag_that_is_dropped_is_gone(lake: OpenLake) -> None:
    make(lake)
    made = lake.tag("eod")
    assert lake.untag("Eod") == made + 1
    assert lake.tags == []
    with pytest.raises(UndefinedError, match="eod"):
        lake.untag("eod")


def test_a_dropped_table_comes_back(lake: OpenLake) -> None:
    make(lake)
    with lake.transaction() as tx:
        tx.drop("t")
    [dropped] = lake.dropped()
    assert (str(dropped.name), dropped.version) == ("default.t", tx.version)
    assert tx.version is not None
    assert lake.undrop("t", comment="a mistake") == tx.version + 1
    assert len(rows(lake)) == 4
    assert lake.dropped() == []


def test_an_older_table_of_the_name_comes_back_under_another(lake: OpenLake) -> None:
    make(lake)
    with lake.transaction() as tx:
        tx.drop("t")
    make(lake)
    with lake.transaction() as tx:
        tx["t"].delete()
        tx.drop("t")
    _, older = lake.dropped()
    assert [str(each.name) for each in lake.dropped(1)] == ["default.t"]
    with lake.transaction() as tx:
        tx.undrop("older", id=older.id)
        tx["older"].append({"id": [5], "v": ["e"]})
    assert len(rows(lake, "older")) == 5
    with pytest.raises(DuplicateError):
        lake.undrop("older", id=lake.dropped()[0].id)


def test_what_the_transaction_itself_dropped_comes_back_by_its_savepoint(lake: OpenLake) -> None:
    make(lake)
    with lake.transaction() as tx:
        tx.savepoint("s")
        tx.drop("t")
        with pytest.raises(InvalidError):
            tx.undrop("t")
        with pytest.raises(FailedTransactionError):
            tx["t"].delete()
        tx.rollback_to("s")
        tx["t"].append({"id": [5], "v": ["e"]})
    assert len(rows(lake)) == 5


def test_a_table_whose_files_are_gone_does_not_come_back(lake: OpenLake, tmp_path: Path) -> None:
    make(lake)
    with lake.transaction() as tx:
        tx.drop("t")
    for file in data_files(tmp_path):
        file.unlink()
    with pytest.raises(MissingFilesError):
        lake.undrop("t")
    assert lake.catalog.database().version == tx.version


def test_none_of_it_is_done_in_a_read_only_transaction(lake: OpenLake) -> None:
    make(lake)
    for statement in (lambda tx: tx.tag("x"), lambda tx: tx.untag("x"), lambda tx: tx.undrop("x")):
        with lake.transaction(read_only=True) as tx, pytest.raises(ReadOnlyError):
            statement(tx)


def test_upkeep_lets_go_what_no_tag_keeps(lake: OpenLake) -> None:
    then = make(lake)
    lake.tag("kept", then)
    for number in range(3):
        with lake.transaction() as tx:
            tx["t"].append({"id": [number], "v": ["x"]})
    said = {"retention-age": "0d", "retention-versions": "1", "deletion-grace": "0s"}
    set_floor(lake.catalog.lake, said, author="somebody", statement="a test")
    planned = lake.maintain(dry_run=True)
    assert lake.at(then + 2)["t"].to_arrow().num_rows == 5
    done = lake.maintain()
    assert done.expired.versions == planned.expired.versions > 0
    assert lake.at("kept")["t"].to_arrow().num_rows == 4
    with pytest.raises(ExpiredError):
        lake.at(then + 2)
    assert len(rows(lake)) == 7
