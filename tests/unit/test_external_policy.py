"""`lockstep.external_commits` of a table: plain writers' commits are taken in, warned of, or refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import checksum_path, commit_path
from lockstep.errors import ForeignCommitError, InvalidError
from lockstep.lake.policy import POLICIES, PROPERTY, Policies, policy_of
from lockstep.storage import open_storage
from lockstep.timeline.entry import Table
from tests.support.adopting import adopted, written_log
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    PROTOCOL,
    add,
    append,
    create,
    files,
    foreign,
    lay,
    location,
    log_file,
    metadata,
    named,
    open_catalog,
    stage,
    stage_new,
)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_storage(str(tmp_path / "lake"), create=True))


def made(store: FaultyStorage, policy: str) -> TransactionalCatalog:
    """Return a lake with a table of this policy, `t`, and one of which nothing is said, `u`."""
    catalog = open_catalog(store)
    tx = catalog.begin()
    stage_new(catalog, tx, "t", add("p"), start=(PROTOCOL, metadata(**{PROPERTY: policy})))
    catalog.commit(tx)
    create(catalog, "u", files=["p"])
    return catalog


def newest_kinds(catalog: TransactionalCatalog, after: int) -> list[tuple[str, str]]:
    return [(entry.kind, entry.transaction.message) for entry in catalog.timeline.entries(after)]


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        (None, "absorb"),
        ({}, "absorb"),
        ({"other": "refuse"}, "absorb"),
        *(({PROPERTY: policy}, policy) for policy in POLICIES),
        ({PROPERTY: "REFUSE"}, "refuse"),
        ({PROPERTY: "Warn"}, "warn"),
        ({PROPERTY: ""}, "refuse"),
        ({PROPERTY: "ignore"}, "refuse"),
        ({PROPERTY: None}, "absorb"),
        ({PROPERTY: 1}, "refuse"),
        ({"Lockstep.External_Commits": "refuse"}, "refuse"),
        ({"LOCKSTEP.EXTERNAL_COMMITS": "warn", PROPERTY: "absorb"}, "warn"),
        ({"LOCKSTEP.EXTERNAL_COMMITS": "absorb", PROPERTY: "refuse"}, "refuse"),
    ],
)
def test_a_policy_that_nobody_knows_refuses(configuration: dict[str, Any] | None, expected: str) -> None:
    assert policy_of({"configuration": configuration}) == expected


def test_a_property_that_a_plain_writer_set_to_null_holds_nobody_up(store: FaultyStorage) -> None:
    catalog = made(store, "warn")
    null = metadata()
    null["metaData"]["configuration"] = {PROPERTY: None}
    foreign(catalog, "t", 1, null)
    assert files(catalog, "t") == {"p"}
    foreign(catalog, "t", 2, add("theirs"))
    assert files(catalog, "t") == {"p", "theirs"}
    assert catalog.lake.newest().set_aside == {}


def test_another_spelling_of_the_property_is_refused_where_it_is_set(store: FaultyStorage) -> None:
    """Delta tells the two apart, so it would look as if the table were guarded."""
    catalog = made(store, "absorb")
    tx = catalog.begin()
    stage(catalog, tx, "t", metadata(**{"Lockstep.External_Commits": "refuse"}))
    with pytest.raises(InvalidError, match=r"is spelled lockstep\.external_commits"):
        catalog.commit(tx)


def test_another_spelling_of_the_property_counts_where_a_plain_writer_has_set_it(store: FaultyStorage) -> None:
    catalog = made(store, "absorb")
    foreign(catalog, "t", 1, metadata(**{"Lockstep.External_Commits": "refuse"}))
    assert files(catalog, "t") == {"p"}
    foreign(catalog, "t", 2, add("theirs"))
    with pytest.raises(ForeignCommitError, match="'refuse'"):
        files(catalog, "t")


def test_absorbed_is_what_nothing_is_said_of(store: FaultyStorage) -> None:
    catalog = made(store, "absorb")
    version = catalog.timeline.head.version
    for table in ("t", "u"):
        foreign(catalog, table, 1, add("theirs"))
        assert files(catalog, table) == {"p", "theirs"}
    assert newest_kinds(catalog, version) == [("external", ""), ("external", "")]


def test_a_warning_stands_in_the_log_and_in_the_timeline(
    store: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = made(store, "warn")
    version = catalog.timeline.head.version
    path = foreign(catalog, "t", 1, add("theirs"))
    with caplog.at_level(logging.WARNING):
        assert files(catalog, "t") == {"p", "theirs"}
    [(kind, message)] = newest_kinds(catalog, version)
    assert kind == "external"
    assert path in message
    assert message in caplog.text


@pytest.mark.parametrize("knows", [True, False], ids=["the same process", "another process"])
def test_refused_is_each_use_of_the_table_until_the_commit_is_gone(store: FaultyStorage, knows: bool) -> None:
    """Queries, first uses in transactions, statements and COMMIT; BEGIN, older versions and other tables go on."""
    catalog = made(store, "refuse")
    version = catalog.timeline.head.version
    open_before = catalog.begin()
    stage(catalog, open_before, "t", add("ours"))
    path = foreign(catalog, "t", 1, add("theirs"))
    catalog.lake.upkeep.settle()
    user = catalog if knows else open_catalog(store)
    for _ in range(2):
        with pytest.raises(ForeignCommitError, match=rf"{PROPERTY} of the table is 'refuse'"):
            files(user, "t")
    tx = user.begin()
    with pytest.raises(ForeignCommitError, match=path):
        user.look(tx, [named("t")])
    user.rollback(tx)
    content = render([{"commitInfo": {"operation": "WRITE", "readVersion": 0}}, add("alone")]).decode()
    lay(store.inner, location(user, "t"), [add("alone")])
    with pytest.raises(ForeignCommitError, match=path):
        user.write(location(user, "t"), 1, content)
    with pytest.raises(ForeignCommitError, match=path):
        catalog.commit(open_before)
    assert user.as_of(version).tables[named("t")].version == 0
    assert files(user, "u") == {"p"}
    assert catalog.timeline.head.version == version
    store.inner.delete(path)
    catalog.commit(open_before)
    assert files(user, "t") == {"p", "ours"}


@pytest.mark.parametrize("policy", ["warn", "refuse"])
def test_what_another_process_of_lockstep_commits_meanwhile_is_not_foreign(
    store: FaultyStorage, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    """Published between a look at the timeline and one at the table's log, it looks like a plain writer's commit."""
    catalog, other = made(store, policy), open_catalog(store.inner)
    catalog.database([named("t")])
    folder = location(catalog, "t")
    append(other, "t", "x")

    def meanwhile() -> None:
        append(other, "t", "y")

    foreign = catalog.lake._foreign
    real = foreign._newest

    def newest(table: Table) -> int | None:
        if store.exists(commit_path(folder, 1)) and not store.exists(commit_path(folder, 2)):
            meanwhile()
        return real(table)

    foreign._newest = newest  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        foreign.take_in(catalog.timeline.head.tables[named("t")])
    assert store.exists(commit_path(folder, 2)), "it was committed meanwhile"
    assert not caplog.messages
    assert files(catalog, "t") == {"p", "x", "y"}
    assert {entry.kind for entry in catalog.timeline.entries(0)} == {"transaction"}


def test_a_commit_whose_version_was_taken_before_it_was_published_is_not_moved(store: FaultyStorage) -> None:
    """It is committed; its table is set aside, and goes on when the foreign commit is gone."""
    catalog = made(store, "refuse")
    tx = catalog.begin()
    stage(catalog, tx, "t", add("ours"))
    where = location(catalog, "t")
    store.interrupt("put_if_absent", lambda: foreign(catalog, "t", 1, add("theirs")), path=commit_path(where, 1))
    committed = catalog.commit(tx)
    for user in (catalog, open_catalog(store)):
        with pytest.raises(ForeignCommitError, match=f"ours, .* is in entry {committed.version}"):
            files(user, "t")
    assert catalog.timeline.moves == {}
    store.inner.delete(commit_path(where, 1))
    store.inner.delete(checksum_path(where, 1))
    assert files(open_catalog(store), "t") == {"p", "ours"}


def test_a_moved_commit_is_warned_of(store: FaultyStorage) -> None:
    catalog = made(store, "warn")
    version = catalog.timeline.head.version
    tx = catalog.begin()
    stage(catalog, tx, "t", add("ours"))
    where = location(catalog, "t")
    store.interrupt("put_if_absent", lambda: foreign(catalog, "t", 1, add("theirs")), path=commit_path(where, 1))
    catalog.commit(tx)
    assert files(catalog, "t") == {"p", "ours", "theirs"}
    [_, (kind, message)] = newest_kinds(catalog, version)
    assert kind == "external"
    assert "is 'warn'" in message


def test_what_stands_in_for_a_lost_log_is_not_what_the_log_says_once_it_is_back(store: FaultyStorage) -> None:
    """It was remembered, so that a table that refuses took plain writers' commits in as long as the process ran."""
    catalog = made(store, "refuse")
    table = catalog.database().tables[named("t")]
    lost = {path: store.get(path) for path in (log_file(catalog, "t", 0), checksum_path(table.location, 0))}
    for path in lost:
        store.delete(path)
    foreign(catalog, "t", 1, add("theirs"))
    policies = Policies(store)
    assert policies.at(table.id, table.location, 0, 1) == "absorb", "nobody can read the table, either"
    for path, data in lost.items():
        if data is not None:
            store.put(path, data)
    assert policies.at(table.id, table.location, 0, 1) == "refuse"
    assert policies.at(table.id, table.location, 1, 1) == "refuse"


def test_no_foreign_commit_decides_about_itself(store: FaultyStorage) -> None:
    """What a plain writer makes of the property counts from the commit after it."""
    catalog = made(store, "refuse")
    foreign(catalog, "t", 1, metadata(**{PROPERTY: "absorb"}))
    with pytest.raises(ForeignCommitError):
        files(catalog, "t")
    foreign(catalog, "u", 1, metadata(**{PROPERTY: "refuse"}))
    assert files(catalog, "u") == {"p"}
    foreign(catalog, "u", 2, add("theirs"))
    for user in (catalog, open_catalog(store)):
        with pytest.raises(ForeignCommitError):
            files(user, "u")


def test_a_value_that_there_is_not_is_refused_before_anything_is_written(store: FaultyStorage) -> None:
    """In a transaction, and by a statement on its own."""
    catalog = made(store, "absorb")
    version = catalog.timeline.head.version
    tx = catalog.begin()
    stage(catalog, tx, "t", metadata(**{PROPERTY: "ignore"}))
    with pytest.raises(InvalidError, match="'ignore', expected one of absorb, warn, refuse"):
        catalog.commit(tx)
    catalog.rollback(tx)
    info = {"commitInfo": {"operation": "SET TBLPROPERTIES", "readVersion": 0}}
    with pytest.raises(InvalidError, match="'ignore', expected one of absorb, warn, refuse"):
        catalog.write(location(catalog, "t"), 1, render([info, metadata(**{PROPERTY: "ignore"})]).decode())
    assert catalog.timeline.head.version == version
    assert not store.exists(log_file(catalog, "t", 1))


def test_an_adopted_table_brings_its_own(tmp_path: Path) -> None:
    catalog = TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    folder = written_log(tmp_path / "warehouse" / "t", add("p"), **{PROPERTY: "refuse"})
    adopted(catalog, "t", folder)
    (folder / "_delta_log" / f"{1:020d}.json").write_bytes(render([{"commitInfo": {}}, add("theirs")]))
    with pytest.raises(ForeignCommitError, match=PROPERTY):
        files(catalog, "t")


def test_where_no_foreign_commit_is_found_nothing_is_asked(store: FaultyStorage) -> None:
    catalog = made(store, "refuse")
    asked = []
    for table in ("t", "u"):
        catalog.database([named(table)])
        store.calls.clear()
        catalog.database([named(table)])
        asked.append(sorted(operation for operation, _ in store.calls))
    assert asked[0] == asked[1]
    assert len(asked[0]) > 1
