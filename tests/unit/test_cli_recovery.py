"""The commands about what was, and the one that waits for what comes; all without Spark."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lockstep as library
from lockstep.catalog import TransactionalCatalog
from lockstep.cli import recovery
from tests.support.commands import ORDERS, lockstep, make_orders, read
from tests.support.lakes import tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_orders(tmp_path / "lake")
    return tmp_path / "lake"


def catalog(root: Path) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(root))


def drop(root: Path) -> str:
    opened = catalog(root)
    table = opened.database().tables[ORDERS]
    opened.run(lambda tx: tx.changing().drop_table(ORDERS))
    return table.id


def test_a_tag_is_made_listed_and_dropped(root: Path) -> None:
    assert read("tag", root, "first", "--at", 2, "--comment", "it's") == {
        "tag": "first",
        "database_version": 2,
        "retain_until": None,
        "created_by": 4,
    }
    made = read("tag", root, "now", "--days", 365)
    kept = datetime.fromisoformat(made["retain_until"]) - catalog(root).timeline.head.committed_at
    assert timedelta(days=364) < kept <= timedelta(days=365)
    assert made["database_version"] == catalog(root).timeline.head.version
    assert [(tag["name"], tag["version"], tag.get("comment", "")) for tag in read("tags", root)] == [
        ("first", 2, "it's"),
        ("now", made["database_version"], ""),
    ]
    assert "first" in lockstep("tags", root).stdout
    assert read("untag", root, "FIRST", "--yes")["dropped_by"] == catalog(root).timeline.head.version
    assert [tag["name"] for tag in read("tags", root)] == ["now"]
    [entry] = catalog(root).timeline.entries(catalog(root).timeline.head.version - 1)
    assert entry.transaction.application == "lockstep"
    assert entry.transaction.statements == ["lockstep untag FIRST"]


def test_a_tag_is_not_made_where_data_files_are_gone_unless_that_is_said(root: Path) -> None:
    location = catalog(root).database().tables[ORDERS].location
    (root / location / "a.parquet").unlink()
    for more in ((), ("--at", 2), ("--dry-run",), ("--check",)):
        refused = lockstep("tag", root, "first", *more)
        assert (refused.exit_code, "58P01" in refused.stderr) == (1, True), refused.output
        said = " ".join(refused.stderr.split())
        assert "tag first needs files that are gone" in said
        assert "--no-check" in said
    assert read("tags", root) == []
    assert read("tag", root, "first", "--at", 2, "--no-check")["database_version"] == 2


def test_a_tag_may_name_the_version_of_a_time(root: Path) -> None:
    then = catalog(root).timeline.at(2).committed_at
    assert read("tag", root, "then", "--at-time", then.isoformat())["database_version"] == 2


@pytest.mark.parametrize(
    ("args", "state"),
    [
        (("tag", "7"), "42602"),
        (("tag", "x", "--at", 99), "22023"),
        (("tag", "x", "--days", 0), "22023"),
        (("tag", "x", "--days", 40_000), "22023"),
        (("untag", "x"), "42704"),
        (("undrop", "sales.orders"), "42P01"),
        (("undrop", "sales..orders"), "22023"),
        (("undrop", "sales.orders", "--id", "x"), "42P01"),
        (("diff", "nothing"), "42704"),
        (("diff", "99"), "22023"),
        (("diff", "3", "2"), "22023"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(root: Path, args: tuple[object, ...], state: str) -> None:
    before = catalog(root).timeline.head.version
    command, *more = args
    done = lockstep(command, root, *more)
    assert (done.exit_code, f"SQLSTATE {state}" in done.stderr) == (1, True), done.output
    assert catalog(root).timeline.head.version == before


def test_a_dropped_table_is_listed_and_brought_back(root: Path) -> None:
    id_ = drop(root)
    [found] = read("dropped", root)
    assert (found["id"], found["version"]) == (id_, 4)
    assert id_ in lockstep("dropped", root).stdout
    back = read("undrop", root, "sales.orders")
    assert (back["id"], back["table_version"], back["database_version"]) == (id_, 1, 5)
    assert catalog(root).database().tables[ORDERS].version == 1
    assert read("dropped", root) == []
    drop(root)
    assert "is back at version 1" in lockstep("undrop", root, "sales.again", "--id", id_).stdout
    assert [name.table for name in catalog(root).database().tables] == ["again"]


def test_a_table_whose_files_are_gone_does_not_come_back(root: Path) -> None:
    drop(root)
    [table] = read("dropped", root)
    there = catalog(root)
    dropped = there.timeline.at(table["version"] - 1).tables[ORDERS]
    path = root / dropped.location / "b.parquet"
    path.unlink()
    before = tree(there.lake.storage)
    done = lockstep("undrop", root, "sales.orders")
    assert (done.exit_code, "SQLSTATE 58P01" in done.stderr, path.name in done.stderr) == (1, True, True), done.output
    assert tree(there.lake.storage) == before
    assert catalog(root).timeline.head.version == there.timeline.head.version, "nothing was written"
    path.write_bytes(b"rows")
    assert read("undrop", root, "sales.orders")["table_version"] == 1


def test_what_changed_is_told_by_numbers_tags_and_times(root: Path) -> None:
    then = catalog(root).timeline.at(2).committed_at
    read("tag", root, "made", "--at", 2)
    assert read("diff", root, then.isoformat(), 3) == read("diff", root, 2, 3)
    [change] = read("diff", root, "made", 3)
    assert (change["name"], change["change"], change["counts"]["files_added"]) == ("sales.orders", "written", 1)
    assert [each["kind"] for each in read("diff", root, 0)] == ["namespace", "table"]
    assert "written" in lockstep("diff", root, "made").stdout
    assert read("diff", root, 3, 3) == []


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A lake that Python writes: version 2 fills sales.orders and sales.totals, 3 and 4 delete from each."""
    lake = library.open(str(tmp_path / "written"), create=True)
    with lake.transaction() as tx:
        tx.create_namespace("sales")
    with lake.transaction() as tx:
        for name in ("sales.orders", "sales.totals"):
            tx.create(name, pa.schema([("id", pa.int64())])).append({"id": [1, 2, 3]})
    for name in ("sales.orders", "sales.totals"):
        with lake.transaction() as tx:
            tx[name].delete("id = 1")
    return tmp_path / "written"


def ids(root: Path, table: str) -> list[int]:
    return sorted(row["id"] for row in read("sql", root, f"FROM {table}"))


def test_a_lake_is_restored_whole_or_in_part(written: Path) -> None:
    read("tag", written, "good", "--at", 2)
    before = catalog(written).timeline.head.version
    planned = read("restore", written, "--to-tag", "GOOD", "--dry-run")
    assert (planned["restored_version"], planned["tables_restored"], planned["database_version"]) == (2, 2, None)
    assert catalog(written).timeline.head.version == before
    part = read("restore", written, "--to-version", 2, "--table", "sales.orders", "--yes")
    assert part["tables"] == [{"table": "sales.orders", "to_version": 0}]
    assert [(each["name"], each["change"]) for each in part["changes"]] == [("sales.orders", "written")]
    assert (ids(written, "sales.orders"), ids(written, "sales.totals")) == ([1, 2, 3], [2, 3])
    then = catalog(written).timeline.at(2).committed_at.isoformat()
    done = lockstep("restore", written, "--to-time", then, "--namespace", "sales", "--yes")
    assert "restored to database version 2, 2 tables by their logs, as of database version" in done.stdout
    assert ids(written, "sales.totals") == [1, 2, 3]
    newest = catalog(written).timeline.head.version
    again = lockstep("restore", written, "--to-version", newest, "--yes")
    assert f"already restored to database version {newest}: nothing was changed" in again.stdout
    assert read("restore", written, "--to-version", newest, "--yes")["database_version"] is None
    assert catalog(written).timeline.head.version == newest
    [entry] = catalog(written).timeline.entries(catalog(written).timeline.head.version - 1)
    assert entry.transaction.application == "lockstep"
    assert entry.transaction.statements == ["restore sales to database version 2"]


def test_one_transaction_is_reverted(written: Path) -> None:
    planned = lockstep("revert", written, 3, "--dry-run")
    assert "to be reverted database version 3, 1 table by their logs" in planned.stdout
    assert read("revert", written, 3, "--yes")["reverted_version"] == 3
    assert (ids(written, "sales.orders"), ids(written, "sales.totals")) == ([1, 2, 3], [2, 3])


def test_a_revert_keeps_what_was_appended_behind_and_says_which_versions_the_table_loses(written: Path) -> None:
    with library.open(str(written)).transaction() as tx:
        tx["sales.orders"].append({"id": [9]})
    assert read("revert", written, 3, "--dry-run")["tables"] == [
        {"table": "sales.orders", "to_version": None, "without_versions": [1, 1]}
    ]
    assert lockstep("revert", written, 3, "--yes").exit_code == 0
    assert ids(written, "sales.orders") == [1, 2, 3, 9]
    newest = catalog(written).timeline.head.version
    refused = lockstep("revert", written, 3, "--yes")
    assert (refused.exit_code, f"version {newest} (transaction" in refused.stderr) == (1, True), refused.output


@pytest.mark.parametrize("answer", [True, False])
def test_what_is_done_is_what_was_asked_about(written: Path, answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others commit while a person thinks is in no plan that was shown: it stays."""

    def asked(*_: object, **__: object) -> bool:
        with library.open(str(written)).transaction() as tx:
            tx["sales.orders"].append({"id": [100]})
            tx.create("sales.new", pa.schema([("id", pa.int64())]))
        return answer

    monkeypatch.setattr(recovery, "goes_on", asked)
    done = lockstep("restore", written, "--to-version", 2)
    assert done.exit_code == 0, done.output
    assert ids(written, "sales.orders") == ([1, 2, 3, 100] if answer else [2, 3, 100])
    assert ids(written, "sales.new") == []
    assert ("as of database version" in done.stdout) is answer


def test_a_row_that_is_deleted_while_a_person_thinks_is_a_conflict(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object, **__: object) -> bool:
        with library.open(str(written)).transaction() as tx:
            tx["sales.orders"].delete("id = 2")
        return True

    monkeypatch.setattr(recovery, "goes_on", asked)
    done = lockstep("restore", written, "--to-version", 2, "--table", "sales.orders")
    assert done.exit_code != 0
    assert "40001" in done.stderr
    assert ids(written, "sales.orders") == [3]


@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        (("restore",), 2, "give one of them"),
        (("restore", "--to-version", 1, "--to-tag", "x"), 2, "give one of them"),
        (("restore", "--to-tag", "x", "--yes"), 1, "42704"),
        (("restore", "--to-version", 99, "--yes"), 1, "22023"),
        (("restore", "--to-version", 2, "--table", "a..b", "--yes"), 1, "22023"),
        (("restore", "--to-version", 2, "--table", "nowhere", "--yes"), 1, "42P01"),
        (("restore", "--to-version", 2), 1, "nothing was restored"),
        (("restore", "--to-version", 2, "--json"), 1, "nothing was restored"),
        (("revert", 3), 1, "nothing was reverted"),
        (("revert", 99, "--yes"), 1, "22023"),
        (("revert", 2, "--yes"), 1, "22023"),
    ],
)
def test_a_restore_that_cannot_be_or_was_not_allowed_changes_nothing(
    written: Path, args: tuple[object, ...], code: int, what: str
) -> None:
    before = catalog(written).timeline.head.version
    command, *more = args
    done = lockstep(command, written, *more)
    assert (done.exit_code, what in done.stderr) == (code, True), done.output
    assert catalog(written).timeline.head.version == before


def test_waiting_ends_with_a_newer_version(root: Path) -> None:
    newest = catalog(root).timeline.head.version
    assert read("wait", root, "--after", 1) == {"database_version": newest, "newer": newest - 1}
    threading.Timer(0.3, lambda: drop(root)).start()
    assert read("wait", root, "--timeout", 60) == {"database_version": newest + 1, "newer": 1}


def test_waiting_in_vain_has_an_exit_code_of_its_own(root: Path) -> None:
    done = lockstep("wait", root, "--timeout", 0)
    assert (done.exit_code, done.stdout) == (3, "database version 3: 0 versions after 3\n")
    assert lockstep("wait", root, "--after", 2, "--timeout", 0).exit_code == 0


@pytest.mark.parametrize("seconds", ["nan", "-1"])
def test_waiting_for_no_number_of_seconds_is_refused(root: Path, seconds: str) -> None:
    assert lockstep("wait", root, "--timeout", seconds).exit_code == 2
