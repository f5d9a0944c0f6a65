"""Tables that are set aside: for whom they are, for how long, and what that costs whoever uses other tables."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ForeignCommitError, UnavailableError
from lockstep.lake import publisher
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    append,
    files,
    foreign,
    log_file,
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


# --- for whom, and for how long ---------------------------------------------------------------------------------------


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
