"""Which clone a promotion was of: another copy of it is never told that it is done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import InvalidError
from lockstep.lake.exports import read_exports
from lockstep.timeline.entry import TagDdl
from tests.support.exports import file, paths
from tests.support.faulty import FaultyStorage
from tests.support.lakes import location, remove
from tests.support.promotions import build, change, clone_to, file_names, let_expire, promote


@pytest.fixture
def catalog(store: FaultyStorage) -> TransactionalCatalog:
    return build(store)


def test_no_copy_is_looked_for_before_it_is_written(
    catalog: TransactionalCatalog, store: FaultyStorage, tmp_path: Path
) -> None:
    """No attempt before this one can have had its name."""
    clone = clone_to(catalog, tmp_path / "clone")
    change(clone, "a", file("one"))
    store.calls.clear()
    promote(clone, catalog)
    [copied] = [f"{location(catalog, 'a')}/{path}" for path in paths(catalog, "a") if path.endswith("one")]
    assert next(call for call, path in store.calls if path == copied) == "put"


@pytest.mark.parametrize("commits", [1, 2, 3])
@pytest.mark.parametrize("version", [None, 5])
def test_a_clone_made_again_in_the_folder_of_a_promoted_one_is_another_clone(
    catalog: TransactionalCatalog, tmp_path: Path, commits: int, version: int | None
) -> None:
    """Night by night, in one folder; whether it has fewer commits than the first one, as many, or more."""
    first = clone_to(catalog, tmp_path / "clone")
    for number in range(2):
        change(first, "a", file(f"first{number}"))
    promote(first, catalog)
    change(catalog, "c", file("meanwhile"))
    shutil.rmtree(tmp_path / "clone")
    second = clone_to(catalog, tmp_path / "clone", version)
    for number in range(commits):
        change(second, "b", file(f"second{number}"))
    done = promote(second, catalog)
    assert (done.base_version, done.clone_version) == (5, commits)
    assert file_names(catalog, "b") == ["p", *(f"second{number}" for number in range(commits))]
    assert "first1" in file_names(catalog, "a")
    assert len({record.id for record in read_exports(catalog.lake.storage)}) == 2


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_another_copy_of_a_clone_is_not_told_that_it_is_done(
    catalog: TransactionalCatalog, tmp_path: Path, commits: int
) -> None:
    one = clone_to(catalog, tmp_path / "clone")
    shutil.copytree(tmp_path / "clone", tmp_path / "other")
    other = TransactionalCatalog.open(str(tmp_path / "other"))
    for number in range(2):
        change(one, "a", file(f"one{number}"))
    for number in range(commits):
        change(other, "b", file(f"two{number}"))
    promote(one, catalog)
    for dry_run in (True, False):
        with pytest.raises(InvalidError, match=r"another copy of .* was promoted as database version 4"):
            promote(other, catalog, dry_run=dry_run)
    assert file_names(catalog, "b") == ["p"]
    assert promote(one, catalog).database_version == 4


def test_a_copy_of_a_promoted_clone_is_told_that_it_is_done(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    one = clone_to(catalog, tmp_path / "clone")
    change(one, "a", file("one"))
    shutil.copytree(tmp_path / "clone", tmp_path / "other")
    promote(one, catalog)
    assert promote(TransactionalCatalog.open(str(tmp_path / "other")), catalog).database_version == 4


def test_a_tag_of_the_clone_changes_nothing_that_is_promoted(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    clone = clone_to(catalog, tmp_path / "clone")
    change(clone, "a", file("one"))
    done = promote(clone, catalog)
    clone.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="promoted")))
    assert promote(clone, catalog).database_version == done.database_version


def test_a_clone_of_which_nobody_can_tell_whether_it_was_promoted_is_refused(
    catalog: TransactionalCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = clone_to(catalog, tmp_path / "clone")
    change(clone, "a", file("one"))
    promote(clone, catalog)
    for number in range(2):
        change(clone, "a", file(f"later{number}"))
    let_expire(clone, monkeypatch)
    assert clone.database().expired.first_kept > 1
    with pytest.raises(InvalidError, match="have expired"):
        promote(clone, catalog)


def test_what_was_undone_in_the_lake_stays_undone(catalog: TransactionalCatalog, tmp_path: Path) -> None:
    """As documented: a promotion is done once, and the answer is of that."""
    clone = clone_to(catalog, tmp_path / "clone")
    change(clone, "a", file("one"))
    done = promote(clone, catalog)
    [one] = [path for path in paths(catalog, "a") if path.endswith("/one")]
    change(catalog, "a", remove(one, size=5), operation="RESTORE")
    assert promote(clone, catalog).database_version == done.database_version
    assert file_names(catalog, "a") == ["p", "q%20r"]
