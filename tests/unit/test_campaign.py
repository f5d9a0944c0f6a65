"""The randomized history test's own parts: what journals mean, what scripts do, and that damage to a lake is seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import parse, render
from lockstep.delta.log import commit_path
from tests.support.campaign import Campaign, Outcome, judge, read_journal, run, transactions
from tests.support.history import Add, Read, Transaction
from tests.support.keyed import Delta, Tables
from tests.support.lakes import foreign, named, remove
from tests.support.scripts import Plan, balance, script


@pytest.mark.parametrize(
    ("events", "status", "ended"),
    [
        ("began", "fail", None),
        ("began read", "fail", None),
        ("began committing", "info", None),
        ("began committing ok", "ok", 2),
        ("began committing fail", "fail", 2),
        ("began committing info", "info", None),
        ("began fail", "fail", 1),
        ("began error", "fail", None),
        ("began committing error", "info", None),
        ("began committing error fail", "fail", 3),
    ],
)
def test_what_a_journal_says_of_a_transaction(events: str, status: str, ended: int | None) -> None:
    """Killed before it said `committing`: not committed. After it: nobody knows."""
    lines = [{"tx": "0a.7.0", "event": e, "at": at, "key": "k", "values": []} for at, e in enumerate(events.split())]
    [tx] = transactions(lines)
    assert (tx.status, tx.began, tx.ended, tx.process) == (status, 0, ended, "0a")


def test_journals_are_put_together_by_time_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    lines = [
        {"at": 5, "tx": "b", "event": "began"},
        {"at": 3, "tx": "a", "event": "began"},
        {"at": 6, "tx": "b", "event": "add", "key": "s", "value": "v"},
        {"at": 7, "tx": "b", "event": "read", "key": "s", "values": ["v"]},
    ]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"at": 8, "tx": "a", "ev')
    assert transactions(read_journal(journal)) == [
        Transaction("a", (), "fail", "a", began=3),
        Transaction("b", (Add("s", "v"), Read("s", ("v",))), "fail", "b", began=5),
    ]
    assert list(read_journal(tmp_path / "none")) == []


def test_a_seed_gives_the_same_scripts_with_all_that_there_is_in_them() -> None:
    plan = Plan(root="", journal="", seed=3, client=1)
    scripts = [script(plan, number) for number in range(60)]
    assert scripts == [script(plan, number) for number in range(60)]
    assert scripts != [script(Plan(root="", journal="", seed=4, client=1), number) for number in range(60)]
    assert {verb for steps in scripts for verb, *_ in steps} == {"read", "append", "add", "merge", "transfer"}
    assert {key for _, *keys in scripts[0] for key in keys}.isdisjoint({"t0/list1.0", "t0/set1.0"})


def test_what_is_played_of_delta(tmp_path: Path) -> None:
    """INSERT adds a file and reads nothing, the others rewrite their key's files; a transaction sees its own writes."""
    catalog = run(tmp_path, Campaign(seed=0, isolation="SERIALIZABLE", clients=0, scripts=1)).open()
    tx, tables = catalog.begin(), Tables(catalog.lake.storage)
    before = tables.contents(tx.base.tables.values())
    delta = Delta(catalog, tables, tx)
    delta.insert("t0/set0.0", "a")
    assert tx.reads() == []
    delta.insert("t0/set0.0", "b")
    delta.rewrite("t0/set0.0", "c", "MERGE")
    assert [str(read.name) for read in tx.reads()] == ["default.t0"]
    delta.rewrite("t1/list0.0", "d", "UPDATE")
    assert [delta.read(key) for key in ("t0/set0.0", "t1/list0.0", "t2/set0.0")] == [("a", "b", "c"), ("d",), ()]
    assert balance(delta.read("t3/account")[-1]) == 100
    assert tables.contents(tx.base.tables.values()) == before
    entry = catalog.commit(tx).entry
    assert entry is not None
    written = {write.name.table: write.counts for write in entry.writes}
    assert (written["t0"].files_added, written["t0"].files_removed) == (1, 0)
    assert (written["t1"].files_added, written["t1"].files_removed) == (1, 1)
    assert tables.contents(catalog.database().tables.values()) == before | {
        "t0/set0.0": ("a", "b", "c"),
        "t1/list0.0": ("d",),
    }
    assert tables.contents(tx.base.tables.values()) == before


# --- damage -----------------------------------------------------------------------------------------------------------


def untouched(outcome: Outcome, catalog: TransactionalCatalog) -> None:
    """Leave everything as it is."""


def money_is_gone(outcome: Outcome, catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    Delta(catalog, Tables(catalog.lake.storage), tx).rewrite("t0/account", "x=90", "UPDATE")
    catalog.commit(tx)


def a_commit_says_something_else(outcome: Outcome, catalog: TransactionalCatalog) -> None:
    path = Path(outcome.root) / commit_path(catalog.timeline.head.tables[named("t0")].location, 0)
    path.write_bytes(render([action for action in parse(path.read_bytes()) if "commitInfo" not in action]))


def a_commit_has_lost_a_file(outcome: Outcome, catalog: TransactionalCatalog) -> None:
    path = Path(outcome.root) / commit_path(catalog.timeline.head.tables[named("t0")].location, 0)
    path.write_bytes(render([each for each in parse(path.read_bytes()) if "account" not in json.dumps(each)]))


def a_data_file_is_gone(outcome: Outcome, catalog: TransactionalCatalog) -> None:
    (Path(outcome.root) / catalog.timeline.head.tables[named("t1")].location / "opening.parquet").unlink()


def a_table_is_emptied(outcome: Outcome, catalog: TransactionalCatalog) -> None:
    foreign(catalog, "t1", 1, remove("opening.parquet"))


def a_write_is_claimed(outcome: Outcome, catalog: TransactionalCatalog) -> None:
    outcome.history.append(Transaction("T", (Add("t0/set0.0", "x"),)))


def a_failed_write_is_there(outcome: Outcome, catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    Delta(catalog, Tables(catalog.lake.storage), tx).insert("t0/set0.0", "x")
    catalog.commit(tx)
    outcome.history.append(Transaction("T", (Add("t0/set0.0", "x"),), "fail"))


@pytest.mark.parametrize(
    ("damage", "named_as"),
    [
        (untouched, set()),
        (money_is_gone, {"total", "garbage"}),
        (a_commit_says_something_else, {"error"}),
        (a_commit_has_lost_a_file, {"error"}),
        (a_data_file_is_gone, {"error"}),
        (a_table_is_emptied, {"total", "lost"}),
        (a_write_is_claimed, {"lost"}),
        (a_failed_write_is_there, {"resurrected"}),
    ],
)
def test_what_is_judged_of_a_lake(
    tmp_path: Path, damage: Callable[[Outcome, TransactionalCatalog], None], named_as: set[str]
) -> None:
    outcome = run(tmp_path, Campaign(seed=0, isolation="SERIALIZABLE", clients=0, scripts=1))
    damage(outcome, outcome.open())
    assert {anomaly.name for anomaly in judge(outcome)} == named_as


def test_a_plain_reader_is_compared_with_the_timeline(tmp_path: Path) -> None:
    """A version that no entry knows, and that no look for foreign commits finds: there is a gap before it."""
    outcome = run(tmp_path, Campaign(seed=0, isolation="SERIALIZABLE", clients=0, scripts=1))
    foreign(outcome.open(), "t0", 5, remove("opening.parquet"))
    assert {anomaly.name for anomaly in judge(outcome)} == {"plain-reader"}
