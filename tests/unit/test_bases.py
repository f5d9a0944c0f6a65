"""Nothing of ours is published, or moved, behind another commit than the one that it was ratified behind.

A log that is set back to an older copy, and written by a plain Delta writer since, has another commit in the place of
ours. What is missing behind it would bring a table about that nobody committed, without what ours said there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.errors import ForeignCommitError
from lockstep.recovery.changes import undrop
from lockstep.storage.outside import open_reaching
from lockstep.timeline.expiry import expire
from lockstep.timeline.hint import HINT
from lockstep.timeline.segment import FOLDER as HISTORY
from tests.support.adopting import adopted, released
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    foreign,
    large,
    location,
    log_file,
    named,
    open_catalog,
    remove,
    stage,
)


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    """A lake with the tables a and b, of which a has the file p."""
    catalog = open_catalog(store)
    create(catalog, "a", "b", files=["p"])
    return catalog


def rename(catalog: TransactionalCatalog, old: str, new: str) -> None:
    catalog.run(lambda tx: tx.change_names(lambda names: names.rename_table(named(old), named(new))))


def drop_and_bring_back(catalog: TransactionalCatalog, *paths: str) -> None:
    """Drop table a, and bring it back in a transaction that adds files to it."""
    catalog.run(lambda tx: tx.changing().drop_table(named("a")))
    tx = catalog.begin()
    undrop(catalog.lake, tx, named("a"))
    for path in paths:
        stage(catalog, tx, "a", add(path))
    catalog.commit(tx)


def expired(catalog: TransactionalCatalog, first_kept: int) -> None:
    catalog.lake.refresh()
    assert expire(catalog.timeline, first_kept=first_kept, wait=lambda: None).first_kept == first_kept


def renamed(catalog: TransactionalCatalog) -> None:
    rename(catalog, "a", "z")
    append(catalog, "b", "between")
    rename(catalog, "z", "a")


BETWEEN: dict[str, Callable[[TransactionalCatalog], None]] = {
    "nothing": lambda _: None,
    "renamed": renamed,
    "undropped": drop_and_bring_back,
    "the base's entry is the oldest that is kept": lambda catalog: expired(catalog, catalog.timeline.head.version),
}
"""What happened to table a between the base and what is behind it."""


def with_between(catalog: TransactionalCatalog, between: Callable[[TransactionalCatalog], None]) -> None:
    append(catalog, "a", "base")
    between(catalog)
    append(catalog, "a", "ours")


def undropped_and_written(catalog: TransactionalCatalog) -> None:
    append(catalog, "a", "base")
    drop_and_bring_back(catalog, "ours")


def base_expired(catalog: TransactionalCatalog) -> None:
    append(catalog, "a", "base")
    expired(catalog, append(catalog, "a", "ours"))


def renamed_and_base_expired(catalog: TransactionalCatalog) -> None:
    append(catalog, "a", "base")
    renamed(catalog)
    append(catalog, "b", "between too")
    expired(catalog, catalog.timeline.head.version - 1)
    append(catalog, "a", "ours")


def several_versions(catalog: TransactionalCatalog) -> None:
    append(catalog, "a", "base")
    tx = catalog.begin()
    for name in ("ours", "ours too"):
        change = {"cdc": {"path": f"_change_data/{name}", "partitionValues": {}, "size": 1, "dataChange": False}}
        stage(catalog, tx, "a", add(name), change)
    catalog.commit(tx)


def base_of_several(catalog: TransactionalCatalog) -> None:
    """The base is the first of two commits of one transaction, and the plain writer's is in its place."""
    tx = catalog.begin()
    for name in ("base", "ours"):
        change = {"cdc": {"path": f"_change_data/{name}", "partitionValues": {}, "size": 1, "dataChange": False}}
        stage(catalog, tx, "a", add(name), change)
    catalog.commit(tx)


def large_base(catalog: TransactionalCatalog) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", large("base"))
    catalog.commit(tx)
    append(catalog, "a", "ours")


LOOKS_UNPUBLISHED = "the base is of the same entry"
"""To who has no hint, since no later entry wrote the table: it is moved behind theirs then, and no row is lost."""

WAYS: dict[str, Callable[[TransactionalCatalog], None]] = {
    **{way: partial(with_between, between=between) for way, between in BETWEEN.items()},
    "undropped and written in one transaction": undropped_and_written,
    "the base's entry has expired": base_expired,
    "renamed, and the base's entry has expired": renamed_and_base_expired,
    "several versions in one entry": several_versions,
    LOOKS_UNPUBLISHED: base_of_several,
    "a large base": large_base,
}


def set_back(catalog: TransactionalCatalog, version: int, *, through: int) -> dict[int, bytes]:
    """Take the versions from this one on out of table a's log; return what they were."""
    catalog.lake.upkeep.settle()
    store, paths = catalog.lake.storage, {v: log_file(catalog, "a", v) for v in range(version, through + 1)}
    taken = {v: store.get(path) or b"" for v, path in paths.items()}
    for path in paths.values():
        store.delete(path)
        store.delete(path.replace(".json", ".crc"))
    return taken


def newest(catalog: TransactionalCatalog) -> int:
    return catalog.timeline.head.tables[named("a")].version


@pytest.mark.parametrize(
    ("way", "hint"), [*((way, True) for way in WAYS), *((way, False) for way in WAYS if way != LOOKS_UNPUBLISHED)]
)
def test_what_is_missing_is_not_published_behind_another_commit_than_ours(
    store: FaultyStorage, catalog: TransactionalCatalog, way: str, hint: bool
) -> None:
    """Whatever happened to the table since its base was written; and where nobody wrote over it, it is published."""
    WAYS[way](catalog)
    held, through = files(catalog, "a"), newest(catalog)
    taken = set_back(catalog, 1, through=through)
    store.put(log_file(catalog, "a", 1), taken[1])
    assert files(open_catalog(store), "a") == held, "ours is there, and what is behind it comes again"
    set_back(catalog, 1, through=through)
    if not hint:
        store.delete(HINT)
    foreign(catalog, "a", 1, add("theirs"))
    for _ in range(2):
        with pytest.raises(ForeignCommitError, match="wrote over version 1"):
            files(open_catalog(store), "a")
    assert not store.exists(log_file(catalog, "a", through))
    assert files(open_catalog(store), "b") >= {"p"}, "other tables go on"
    for version, data in taken.items():
        store.put(log_file(catalog, "a", version), data)
    assert files(open_catalog(store), "a") == held


def test_who_publishes_for_one_that_died_looks_what_is_before_it(
    store: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """The log was set back after ours was ratified and before it was published."""
    append(catalog, "a", "base")
    store.fail("put_if_absent", path=log_file(catalog, "a", 2), times=100)
    append(catalog, "a", "ours")
    store.heal()
    taken = set_back(catalog, 1, through=1)
    foreign(catalog, "a", 1, add("theirs"))
    with pytest.raises(ForeignCommitError, match="wrote over version 1"):
        files(open_catalog(store.inner), "a")
    assert not store.exists(log_file(catalog, "a", 2))
    store.put(log_file(catalog, "a", 1), taken[1])
    assert files(open_catalog(store.inner), "a") == {"p", "base", "ours"}


@pytest.mark.parametrize("between", BETWEEN)
def test_nothing_is_moved_behind_commits_that_stand_on_another_one_than_ours(
    store: FaultyStorage, catalog: TransactionalCatalog, between: str
) -> None:
    """Ours looks as if it had never been published, but what it was ratified behind was written over."""
    append(catalog, "a", "base")
    BETWEEN[between](catalog)
    catalog.lake.refresh()
    catalog.lake.upkeep.settle()
    hint = store.get(HINT) or b""
    append(catalog, "a", "ours")
    catalog.lake.upkeep.settle()
    store.put(HINT, hint)
    for version in (1, 2, 3):
        data = render([{"commitInfo": {"operation": "WRITE", "isBlindAppend": True}}, add(f"theirs {version}")])
        store.put(log_file(catalog, "a", version), data)
    with pytest.raises(ForeignCommitError, match="wrote over version 1"):
        files(open_catalog(store), "a")
    assert not store.exists(log_file(catalog, "a", 4))
    assert open_catalog(store).timeline.moves == {}


@pytest.mark.parametrize("is_the_base", [True, False], ids=["the base", "what the foreign commit stands on"])
def test_what_follows_a_moved_commit_is_told_by_the_transaction_in_it(
    store: FaultyStorage, catalog: TransactionalCatalog, is_the_base: bool
) -> None:
    """Nobody has a digest of the foreign commit that ours was moved behind: that it stands on ours tells enough."""
    append(catalog, "a", "first")
    store.interrupt("put_if_absent", lambda: foreign(catalog, "a", 2, add("theirs")), path=log_file(catalog, "a", 2))
    append(catalog, "a", "moved")
    append(catalog, "a", "ours")
    held = files(catalog, "a")
    assert held == {"p", "first", "theirs", "moved", "ours"}
    taken = set_back(catalog, 1, through=4)
    for version in (1, 2, 3):
        store.put(log_file(catalog, "a", version), taken[version])
    assert files(open_catalog(store), "a") == held
    last = 4 if is_the_base else 3
    set_back(catalog, last, through=4)
    other = last - 1 if is_the_base else 1
    store.put(log_file(catalog, "a", other), render([{"commitInfo": {"operation": "WRITE"}}, add("another")]))
    with pytest.raises(ForeignCommitError, match=f"wrote over version {other}"):
        files(open_catalog(store), "a")
    assert not store.exists(log_file(catalog, "a", 4))


def test_a_table_that_was_adopted_is_compared_with_what_it_came_with(
    store: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """Also where it was given back and adopted again: then it is another table."""
    folder = Path(store.url.removeprefix("file://"), location(catalog, "a"))
    append(catalog, "a", "base")
    for _ in range(2):
        released(catalog, "a")
        adopted(catalog, "a", folder)
    append(catalog, "a", "ours")
    held = files(catalog, "a")
    taken = set_back(catalog, 1, through=2)
    store.put(log_file(catalog, "a", 1), taken[1])
    assert files(open_catalog(store), "a") == held
    set_back(catalog, 1, through=2)
    foreign(catalog, "a", 1, add("theirs"))
    with pytest.raises(ForeignCommitError, match=r"is not the commit that database version .* knows as version 1"):
        files(open_catalog(store), "a")
    assert not store.exists(log_file(catalog, "a", 2))


def test_a_write_over_the_newest_commit_is_noticed_while_its_entry_is_kept(
    store: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """To the last version: the oldest that is kept has its entry yet."""
    version = append(catalog, "a", "ours")
    append(catalog, "b", "later")
    expired(catalog, version)
    catalog.lake.upkeep.settle()
    store.put(log_file(catalog, "a", 1), render([add("theirs")]))
    with pytest.raises(ForeignCommitError, match="wrote over version 1"):
        files(open_catalog(store), "a")


def test_where_nobody_knows_what_was_there_what_is_missing_is_published(
    store: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    """The base's entry has expired, and its history is lost: as docs/limits.md says, this is not noticed."""
    base_expired(catalog)
    set_back(catalog, 1, through=2)
    for name in [*store.list(HISTORY)]:
        store.delete(f"{HISTORY}/{name}")
    foreign(catalog, "a", 1, add("theirs"))
    assert files(open_catalog(store), "a") == {"p", "theirs", "ours"}


def test_the_error_of_a_renamed_table_has_the_name_by_which_it_is_settled(
    store: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    append(catalog, "a", "base")
    append(catalog, "a", "ours")
    rename(catalog, "a", "z")
    catalog.lake.upkeep.settle()
    store.delete(log_file(catalog, "z", 2))
    store.put(log_file(catalog, "z", 1), render([add("theirs")]))
    with pytest.raises(ForeignCommitError, match=r"table default\.z: .*`lockstep settle ROOT default\.z "):
        files(open_catalog(store), "z")


def test_the_error_of_a_table_that_was_renamed_while_it_is_set_aside_has_that_name_too(
    store: FaultyStorage, catalog: TransactionalCatalog
) -> None:
    store.fail("put_if_absent", path=log_file(catalog, "a", 1), times=1)
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"), add("ours"))
    catalog.commit(tx)
    foreign(catalog, "a", 1, remove("p"), add("theirs"))
    other = open_catalog(store)
    rename(other, "a", "z")
    for process in (other, open_catalog(store)):
        with pytest.raises(
            ForeignCommitError, match=r"table default\.z: .*conflict.*`lockstep settle ROOT default\.z "
        ):
            files(process, "z")
