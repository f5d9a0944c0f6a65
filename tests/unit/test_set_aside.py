"""Tables that are set aside: for whom they are, for how long, and what that costs whoever uses other tables."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ForeignCommitError, UnavailableError
from lockstep.lake import publisher
from lockstep.lake.policy import PROPERTY
from lockstep.storage import open_storage
from lockstep.timeline.hint import HINT
from tests.support.adopting import adopted, written_log
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    create,
    files,
    foreign,
    location,
    log_file,
    metadata,
    named,
    open_catalog,
    remove,
    stage,
)


def late_failure(store: FaultyStorage, path: str, meanwhile: Callable[[], object]) -> None:
    """Let the next put of a file hang while another thread of the process does something, and fail then."""

    def hang() -> None:
        other = Thread(target=meanwhile)
        other.start()
        other.join()
        raise UnavailableError("injected: no answer for long, and then a failure")

    store.interrupt("put_if_absent", hang, path=path)


def refuse(catalog: TransactionalCatalog) -> None:
    """Raise why table a is set aside, as a driver does whenever Spark loads the table."""
    catalog.lake.publisher.refuse_aside(catalog.timeline.head.tables[named("a")])


def collide(catalog: TransactionalCatalog, store: FaultyStorage, version: int) -> None:
    """Have a plain writer take the version of a commit to table a in the moment before it is published."""
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"), add("mine"))
    store.interrupt(
        "put_if_absent",
        lambda: foreign(catalog, "a", version, remove("p"), add("theirs")),
        path=log_file(catalog, "a", version),
    )
    catalog.commit(tx)


def unpublished(catalog: TransactionalCatalog, store: FaultyStorage, version: int = 1) -> None:
    """Commit to table a what its log does not get: the process dies before."""
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"), add("mine"))
    store.fail("put_if_absent", path=log_file(catalog, "a", version))
    catalog.commit(tx)


# --- for whom, and for how long ---------------------------------------------------------------------------------------


def test_a_table_that_no_store_reaches_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    """Its folder was moved, and a link made to it; or it lies in a location that is not there on this machine."""
    root, raw = tmp_path / "lake", tmp_path / "raw"
    raw.mkdir()
    catalog = TransactionalCatalog.open(str(root), create=True, locations={str(raw): {}})
    create(catalog, "a", "b", files=["p"])
    adopted(catalog, "c", written_log(raw / "c", add("p")))
    for name in "ac":
        append(catalog, name, "q")
    catalog.lake.upkeep.settle()
    (root / HINT).unlink()  # as one does not say yet what was published just before, or cannot, for another table
    (root / location(catalog, "a")).rename(tmp_path / "moved")
    (root / location(catalog, "a")).symlink_to(tmp_path / "moved")
    raw.rename(tmp_path / "unmounted")
    late = TransactionalCatalog.open(str(root), locations={str(raw): {}})
    head = late.lake.refresh()
    tables = {head.tables[named(name)].id: name for name in "abc"}
    assert {tables[id]: error.sqlstate for id, error in head.set_aside.items()} == {"a": "22023", "c": "22023"}
    append(late, "b", "q")
    assert files(late, "b") == {"p", "q"}
    (tmp_path / "unmounted").rename(raw)
    assert files(late, "c") == {"p", "q"}
    assert [*late.lake.refresh().set_aside] == [id for id, name in tables.items() if name == "a"]


def test_who_is_late_to_fail_sets_no_table_aside_that_another_thread_has_published(
    catalog: TransactionalCatalog, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the thread that ratified; it is acknowledged, and what another has put is there."""
    monkeypatch.setattr(publisher, "OWNER_SECONDS", 0)
    late_failure(store, log_file(catalog, "a", 1), catalog.lake.refresh)
    append(catalog, "a", "ours")
    assert catalog.database([named("a")]).set_aside == {}
    refuse(catalog)
    append(catalog, "a", "later")
    refuse(catalog)
    assert files(catalog, "a") == {"p", "ours", "later"}
    assert not catalog.lake.publisher._errors


def test_of_two_readers_of_a_process_the_one_that_fails_is_not_believed_for_ever(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    store.fail("put_if_absent", path=log_file(catalog, "a", 1))
    append(catalog, "a", "ours")  # and its process dies
    driver = open_catalog(store)
    late_failure(store, log_file(catalog, "a", 1), driver.lake.refresh)
    assert driver.lake.refresh().set_aside == {}, "it is there by now"
    refuse(driver)
    assert files(driver, "a") == {"p", "ours"}
    refuse(driver)
    assert not driver.lake.publisher._errors


def test_a_late_failure_does_not_hide_why_a_table_is_set_aside_since(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """An error of a commit that is published by now says nothing of the next one, which cannot be."""
    store.fail("put_if_absent", path=log_file(catalog, "a", 1))
    append(catalog, "a", "ours")
    driver = open_catalog(store)

    def go_on() -> None:
        driver.lake.refresh()
        collide(driver, store, 2)

    late_failure(store, log_file(catalog, "a", 1), go_on)
    driver.lake.refresh()
    for _ in range(2):
        with pytest.raises(ForeignCommitError, match="version 2 was written by a plain Delta writer"):
            refuse(driver)
        driver.lake.refresh()


def test_a_table_may_be_used_as_soon_as_its_log_no_longer_has_what_conflicts(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Why it cannot be published is remembered, and no longer than that is so; no driver is restarted for it."""
    unpublished(catalog, store)
    foreign(catalog, "a", 1, add("before"))
    foreign(catalog, "a", 2, remove("p"), add("theirs"))
    foreign(catalog, "a", 3, add("after"))
    for _ in range(2):
        with pytest.raises(ForeignCommitError, match=r"00002\.json"):
            catalog.database([named("a")])
    for version in (2, 3):
        store.delete(log_file(catalog, "a", version))
    assert files(catalog, "a") == {"before", "mine"}


def test_a_table_that_refuses_plain_writers_may_be_used_as_soon_as_their_commit_is_gone(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", metadata(**{PROPERTY: "refuse"}))
    catalog.commit(tx)
    unpublished(catalog, store, 2)
    path = foreign(catalog, "a", 2, add("theirs"))
    for _ in range(2):
        with pytest.raises(ForeignCommitError, match="'refuse'"):
            catalog.database([named("a")])
    store.delete(path)
    assert files(catalog, "a") == {"mine"}


def test_a_commit_that_another_process_puts_while_it_is_judged_is_not_taken_for_a_foreign_one(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    unpublished(catalog, store)
    path = foreign(catalog, "a", 1, remove("p"), add("theirs"))

    def repair() -> None:
        store.inner.delete(path)
        open_catalog(store.inner).lake.refresh()

    # It is read once to see that it is not ours, and once to judge it.
    store.interrupt("get", lambda: store.interrupt("get", repair, path=path), path=path)
    assert not catalog.lake.refresh().set_aside
    assert files(catalog, "a") == {"mine"}


def test_why_a_table_is_set_aside_is_told_with_the_name_that_it_has_by_now(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """Else what the message says to run would settle no table, or another one."""
    unpublished(catalog, store)
    foreign(catalog, "a", 1, remove("p"), add("theirs"))
    (before,) = catalog.lake.refresh().set_aside.values()
    open_catalog(store).run(lambda tx: tx.change_names(lambda names: names.rename_table(named("a"), named("c"))))
    (after,) = catalog.lake.refresh().set_aside.values()
    assert ("settle ROOT default.a" in before.message, "settle ROOT default.c" in after.message) == (True, True)


# --- what it costs whoever uses other tables --------------------------------------------------------------------------


def cost(catalog: TransactionalCatalog, store: FaultyStorage) -> Counter[str]:
    """Return what a statement about table b asks the store for, while a is set aside."""
    store.calls.clear()
    assert catalog.database([named("b")]).set_aside.keys() == {catalog.timeline.head.tables[named("a")].id}
    return Counter(operation for operation, _ in store.calls)


def test_it_costs_the_others_as_much_however_far_its_log_goes_on(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    unpublished(catalog, store)
    foreign(catalog, "a", 1, remove("p"), add("theirs"))
    cost(catalog, store)
    costs: list[tuple[Counter[str], Counter[str], Counter[str]]] = []
    for last in (10, 100):
        for version in range(2 if last == 10 else 11, last + 1):
            foreign(catalog, "a", version, add(f"t{version}"))
        another = open_catalog(store)
        costs.append((cost(another, store), cost(another, store), cost(catalog, store)))
    assert costs[0] == costs[1]
    assert sum(costs[0][0].values()) < 20, "of the commits behind the first one that conflicts none is read"
    assert sum(costs[0][1].values()) < 8, costs


def test_it_costs_the_others_nothing_that_many_commits_come_before_the_one_that_conflicts(
    catalog: TransactionalCatalog, store: FaultyStorage
) -> None:
    """They are read once, to judge them, and not by each statement."""
    unpublished(catalog, store)
    for version in range(1, 50):
        foreign(catalog, "a", version, add(f"t{version}"))
    foreign(catalog, "a", 50, remove("p"), add("theirs"))
    assert sum(cost(catalog, store).values()) < 50 + 20, "one request a commit"
    for version in range(51, 60):
        foreign(catalog, "a", version, add(f"t{version}"))
        assert sum(cost(catalog, store).values()) < 8


@pytest.mark.parametrize("conflicts", [True, False])
def test_of_the_commits_behind_it_one_is_in_memory_at_a_time(tmp_path: Path, conflicts: bool) -> None:
    peaks: list[int] = []
    for count in (3, 30):
        store = FaultyStorage(open_storage(str(tmp_path / str(count)), create=True))
        catalog = open_catalog(store)
        create(catalog, "a", "b", files=["p"])
        unpublished(catalog, store)
        for version in range(1, count + 1):
            foreign(catalog, "a", version, *(add(f"t{version}-{n}") for n in range(500)))
        if conflicts:
            foreign(catalog, "a", count + 1, remove("p"))
        another = open_catalog(store)
        tracemalloc.start()
        assert bool(another.lake.refresh().set_aside) == conflicts
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 2, peaks


def test_of_many_entries_since_each_table_is_looked_at_a_few_times_and_not_for_each(
    catalog: TransactionalCatalog, store: FaultyStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a table is set aside nobody can say up to which version all is published: who opens the lake looks."""
    monkeypatch.setattr(publisher, "OWNED", 10)
    collide(catalog, store, 1)
    for n in range(35):
        append(catalog, "b", f"f{n}", "SNAPSHOT")
    another = open_catalog(store)
    store.calls.clear()
    another.lake.refresh()
    log = f"{location(another, 'b')}/_delta_log/"
    assert [call for call in store.calls if call[1].startswith(log)] == [
        ("get", log_file(another, "b", version)) for version in (9, 19, 29, 35)
    ]
