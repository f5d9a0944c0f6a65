"""Commands that change what a lake keeps or does: what `--dry-run` says, what is asked, and what a no leaves alone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from lockstep.catalog import TransactionalCatalog
from lockstep.cli import arguments
from lockstep.commit.records import keep_ended, open_transactions, record_of, write
from tests.support.commands import ORDERS, lockstep, make_orders, read
from tests.support.lakes import add, create, stage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake with a tag, a dropped table, a clone, and an open transaction of another process."""
    make_orders(tmp_path / "lake")
    read("tag", tmp_path / "lake", "eod", "--at", 2, "--days", 9)
    return tmp_path / "lake"


def catalog(root: Path) -> TransactionalCatalog:
    return TransactionalCatalog.open(str(root))


def everything(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def begun(root: Path) -> str:
    """Begin a transaction that others are told of, and return its id."""
    process = catalog(root)
    tx = process.begin(comment="nightly")
    stage(process, tx, "sales.orders", add("c.parquet", size=2_500))
    record = record_of(tx, now=process.lake.clock(), process="there:1")
    write(process.lake, structs.replace(record, bytes_staged=2_500))
    return tx.id


def cloned(root: Path) -> str:
    return str(read("clone", root, root.parent / "clone", "--at", 1)["id"])


# --- what would be done -----------------------------------------------------------------------------------------------


def test_a_tag_that_would_be_made_is_told_and_not_made(root: Path) -> None:
    before = everything(root)
    assert lockstep("tag", root, "x", "--dry-run").stdout == "tag x would be the database version that this makes\n"
    assert (
        "tag x would be database version 2, kept until"
        in lockstep(*("tag", root, "x", "--at", 2, "--days", 3, "--dry-run")).stdout
    )
    assert read("tag", root, "x", "--at", 2, "--dry-run") == {
        "tag": "x",
        "database_version": 2,
        "retain_until": None,
        "created_by": None,
    }
    assert "42710" in lockstep("tag", root, "EOD", "--dry-run").stderr
    assert "42602" in lockstep("tag", root, "7", "--dry-run").stderr
    assert everything(root) == before


def test_a_tag_that_would_be_dropped_is_told_and_not_dropped(root: Path) -> None:
    before = everything(root)
    told = lockstep("untag", root, "EOD", "--dry-run")
    assert told.stdout == "tag eod would be dropped: database version 2 is kept no more for it\n"
    assert read("untag", root, "EOD", "--dry-run") == {"tag": "EOD", "database_version": 2, "dropped_by": None}
    assert "42704" in lockstep("untag", root, "none", "--dry-run").stderr
    assert everything(root) == before


def test_a_table_that_would_come_back_is_told_and_does_not(root: Path) -> None:
    opened = catalog(root)
    opened.run(lambda tx: tx.changing().drop_table(ORDERS))
    before = everything(root)
    assert lockstep("undrop", root, "sales.orders", "--dry-run").stdout == (
        "table sales.orders would be back at version 1\n"
    )
    planned = read("undrop", root, "sales.orders", "--dry-run")
    assert (planned["table_version"], planned["database_version"]) == (1, None)
    assert "42P01" in lockstep("undrop", root, "sales.none", "--dry-run").stderr
    assert everything(root) == before
    assert {**planned, "database_version": 6} == read("undrop", root, "sales.orders")


def test_a_transaction_that_would_be_ended_is_told_and_goes_on(root: Path) -> None:
    id_ = begun(root)
    before = everything(root)
    told = lockstep("abort", root, id_, "--dry-run").stdout
    assert f"transaction {id_} of " in told
    assert "(there:1) would be ended: begun at " in told
    assert "has written sales.orders, 2,500 bytes" in told
    planned = read("abort", root, id_, "--dry-run")
    assert [planned[key] for key in ("transaction", "process", "bytes_staged", "is_alive", "aborted_by")] == [
        *(id_, "there:1", 2500, True, None)
    ]
    assert "42704" in lockstep("abort", root, "0" * 24, "--dry-run").stderr
    assert everything(root) == before


def test_what_is_open_is_listed_with_its_state_and_what_it_staged(root: Path) -> None:
    id_ = begun(root)
    head, row = lockstep("transactions", root).stdout.splitlines()
    assert head.split()[:2] == ["transaction", "state"]
    [told] = read("transactions", root)
    assert (told["transaction"], told["is_alive"], told["age_seconds"] < 60) == (id_, True, True)
    assert (row.split()[:2], " 2,500 " in row, " 0:00:0" in row) == ([id_, "INFLIGHT"], True, True), row


def test_what_was_rolled_back_is_listed_with_the_reason_and_no_more_as_open(root: Path) -> None:
    assert read("transactions", root, "--ended") == []
    first, second = begun(root), begun(root)
    for id_, reason in ((first, "the load window is over"), (second, "a [bold]mistake")):
        [record] = [each for each in open_transactions(catalog(root).lake) if each.transaction == id_]
        keep_ended(catalog(root).lake, record, reason)  # as upkeep does for a process that is gone
    assert read("transactions", root) == []
    found = read("transactions", root, "--ended")
    assert [(each["transaction"], each["state"]) for each in found] == [
        (second, "ROLLED_BACK"),
        (first, "ROLLED_BACK"),
    ]
    assert "the load window is over" in found[1]["reason"]
    assert (found[1]["message"], found[1]["process"], found[1]["bytes_staged"]) == ("nightly", "there:1", 2500)
    assert found[1]["began_at"] <= found[1]["ended_at"]
    assert [table["table"] for table in found[1]["tables"]] == ["orders"]
    head, *rows = lockstep("transactions", root, "--ended").stdout.splitlines()
    assert head.split()[:6] == ["transaction", "began", "at", "ended", "at", "why"]
    assert [row.split()[0] for row in rows] == [second, first]
    assert "a [bold]mistake" in rows[0]
    assert "the load window is over" in rows[1]
    assert " nightly" in rows[1]


def test_an_export_that_would_be_dropped_is_told_and_kept(root: Path) -> None:
    id_ = cloned(root)
    before = everything(root)
    told = lockstep("drop-export", root, id_, "--dry-run").stdout
    assert told.startswith(f"export {id_} would be dropped: file://{root.parent}/clone will not be readable")
    assert read("drop-export", root, id_, "--dry-run")["id"] == id_
    assert "42704" in lockstep("drop-export", root, "none", "--dry-run").stderr
    assert everything(root) == before


# --- what is asked ----------------------------------------------------------------------------------------------------

ASKING = {"untag": lambda _: "eod", "abort": begun, "drop-export": cloned}


@pytest.mark.parametrize("command", ASKING)
def test_what_takes_protection_or_work_away_asks_first(
    root: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = ASKING[command](root)
    before = everything(root)
    for more in ((), ("--json",)):
        refused = lockstep(command, root, what, *more)
        assert (refused.exit_code, "give --yes" in refused.stderr) == (1, True), refused.output
    monkeypatch.setattr(arguments, "can_ask", lambda: True)
    for no in ("n\n", "\n"):
        done = lockstep(command, root, what, answer=no)
        assert (done.exit_code, "Go on? [y/N]" in done.stdout, "would be" in done.stdout) == (0, True, True)
    assert everything(root) == before
    done = lockstep(command, root, what, answer="y\n")
    assert done.exit_code == 0, done.output
    assert everything(root) != before


@pytest.mark.parametrize("command", ASKING)
def test_yes_is_an_answer(root: Path, command: str) -> None:
    what = ASKING[command](root)
    before = everything(root)
    done = lockstep(command, root, what, "--yes")
    assert (done.exit_code, "would be" in done.stdout) == (0, False), done.output
    assert everything(root) != before


def test_a_tag_that_names_another_version_by_now_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person was asked about is what is dropped: not what somebody has called so meanwhile."""

    def asked() -> bool:
        read("untag", root, "eod", "--yes")
        read("tag", root, "eod", "--at", 1)
        return True

    monkeypatch.setattr(arguments, "can_ask", asked)
    done = lockstep("untag", root, "eod", answer="y\n")
    assert (done.exit_code, "40001" in done.stderr) == (1, True), done.output
    assert [(tag["name"], tag["version"]) for tag in read("tags", root)] == [("eod", 1)]


def test_a_table_that_is_another_one_by_now_is_not_released(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> bool:
        opened = catalog(root)
        opened.run(lambda tx: tx.changing().drop_table(ORDERS))
        create(opened, "sales.orders")
        return True

    monkeypatch.setattr(arguments, "can_ask", asked)
    done = lockstep("release", root, "sales.orders", answer="y\n")
    assert (done.exit_code, "is another table by now" in done.stderr) == (1, True), done.output
    assert ORDERS in catalog(root).database().tables
    monkeypatch.setattr(arguments, "can_ask", lambda: True)
    done = lockstep("release", root, "sales.orders", answer="y\n")
    assert (done.exit_code, ORDERS in catalog(root).database().tables) == (0, False), done.output


def test_a_clone_that_was_changed_while_somebody_was_asked_is_not_promoted(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned(root)
    clone = root.parent / "clone"
    catalog(clone).run(lambda tx: tx.changing().create_namespace(("first",), {}))

    def asked() -> bool:
        catalog(clone).run(lambda tx: tx.changing().create_namespace(("second",), {}))
        return True

    monkeypatch.setattr(arguments, "can_ask", asked)
    done = lockstep("promote", clone, answer="y\n")
    assert (done.exit_code, "was changed since you were asked" in done.stderr) == (1, True), done.output
    assert ("first",) not in catalog(root).database().namespaces
    monkeypatch.setattr(arguments, "can_ask", lambda: True)
    done = lockstep("promote", clone, answer="y\n")
    assert done.exit_code == 0, done.output
    assert {("first",), ("second",)} <= {*catalog(root).database().namespaces}


def test_a_person_at_a_terminal_says_no(root: Path) -> None:
    """With a terminal of its own, as a shell starts it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "lockstep", "untag", str(root), "eod"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        os.close(theirs)
        os.write(ours, b"n\n")
        assert process.stdout is not None
        said = process.stdout.read().decode()
    os.close(ours)
    assert (process.returncode, "Go on? [y/N]" in said) == (0, True), said
    assert [tag["name"] for tag in read("tags", root)] == ["eod"]
