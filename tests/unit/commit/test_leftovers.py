"""What is removed behind a COMMIT's answer, and what of that somebody needs yet."""

from __future__ import annotations

import pytest

from lockstep.delta.log import commit_path, staging_folder
from lockstep.errors import ForeignCommitError
from lockstep.recovery.changes import undrop
from tests.support.faulty import FaultyStorage
from tests.support.lakes import (
    add,
    create,
    files,
    foreign,
    large,
    location,
    named,
    open_catalog,
    remove,
    stage,
    stage_new,
)


@pytest.mark.parametrize("is_clone", [True, False])
def test_a_table_made_and_dropped_goes_unless_a_clone_names_its_files(store: FaultyStorage, is_clone: bool) -> None:
    catalog = open_catalog(store)
    tx = catalog.begin()
    place = stage_new(catalog, tx, "a", add("x"))
    path = f"{store.url}/{place}/x" if is_clone else "y"  # absolute, as Delta's SHALLOW CLONE writes it
    stage_new(catalog, tx, "b", add(path))
    tx.changing().drop_table(named("a"))
    catalog.commit(tx)
    catalog.lake.upkeep.settle()
    assert files(catalog, "b") == {path}
    assert store.exists(f"{place}/x") is is_clone


def test_what_another_staged_for_a_table_that_it_changed_nothing_of_goes(store: FaultyStorage) -> None:
    catalog = open_catalog(store)
    create(catalog, "a", "b", files=["p"])
    tx = catalog.begin()
    stage(catalog, tx, "a", add("x"))
    stage(catalog, tx, "b", add("y"))
    stage(catalog, tx, "b", remove("y"))
    places = [location(catalog, name) for name in ("a", "b")]
    catalog.commit(tx)
    catalog.lake.upkeep.settle()
    assert [[*store.list(staging_folder(place, tx.id))] for place in places] == [[], []]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_dropped_table_with_anothers_commit_in_place_of_ours_does_not_come_back(
    store: FaultyStorage, is_large: bool
) -> None:
    """A commit that is too large for the entry stands in the staging folder alone, if it is in no log."""
    catalog = open_catalog(store)
    other = open_catalog(store.inner)
    create(catalog, "a", files=["p"])
    place = location(catalog, "a")
    tx = catalog.begin()
    stage(catalog, tx, "a", remove("p"), large("ours") if is_large else add("ours"))

    def come() -> None:
        foreign(catalog, "a", 1, remove("p"), add("theirs"))
        other.run(lambda tx: tx.changing().drop_table(named("a")))

    store.interrupt("put_if_absent", come, path=commit_path(place, 1))
    committed = catalog.commit(tx)
    catalog.lake.upkeep.settle()
    assert committed.entry is not None
    staged = [f"{place}/{each.staged}" for write in committed.entry.writes for each in write.commits if each.staged]
    assert len(staged) == is_large
    for path in staged:
        assert store.exists(path)
        store.delete(path)  # a person tidied up
    with pytest.raises(ForeignCommitError):
        undrop(catalog.lake, catalog.begin(), named("a"))
