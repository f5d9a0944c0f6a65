"""What attempts at a promotion leave, and what upkeep makes of it: no two have one name for a file or a folder."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import StaleCloneError, UnavailableError
from lockstep.exports.promote import Promoter
from lockstep.retention import removing
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import maintain
from lockstep.storage import open_storage
from lockstep.timeline import fence
from tests.support.exports import file
from tests.support.faulty import FaultyStorage
from tests.support.killed import Killed
from tests.support.lakes import add, again, foreign, location, open_catalog, remove, tree
from tests.support.promotions import build, change, check_promoted, clone_to, file_names, promote, rewrite
from tests.support.retained import AgedStorage, Ticking

DAY = timedelta(days=1)
AT_ONCE = Retention(age=90 * DAY, last=100, grace=timedelta(), orphan_age=7 * DAY)
PROMOTION = "00000000000000000004.json"
"""The entry that makes it visible, if upkeep was not there before."""


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def catalog(tmp_path: Path, clock: Ticking, monkeypatch: pytest.MonkeyPatch) -> TransactionalCatalog:
    """The lake of which files are as old as a clock says."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(removing, "SIDE_BY_SIDE", 1)
    return build(AgedStorage(open_storage(str(tmp_path / "lake"), create=True), clock), clock)


@pytest.fixture
def clone(catalog: TransactionalCatalog, tmp_path: Path) -> TransactionalCatalog:
    """A clone of it, in which all kinds of things were changed."""
    clone = clone_to(catalog, tmp_path / "clone")
    rewrite(clone)
    return clone


def killed(clone: TransactionalCatalog, catalog: TransactionalCatalog) -> set[str]:
    """Have a promotion killed at its commit, all copied and staged, and return the files that it leaves."""
    faulty, before = FaultyStorage(catalog.lake.storage), tree(catalog.lake.storage)

    def die() -> None:
        raise Killed

    faulty.interrupt("put_if_absent", die, path=PROMOTION)
    with suppress(Killed):
        promote(clone, open_catalog(faulty, clock=catalog.lake.clock))
    return tree(catalog.lake.storage) - before


@pytest.mark.parametrize("night", [1, 2])
def test_what_upkeep_deletes_late_of_a_killed_promotion_is_not_what_another_made_live(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, clock: Ticking, night: int
) -> None:
    """Two runs of upkeep overlap, and the slower one goes on behind all that the other, and a promotion, have done.

    In the first night what was staged goes, and a table that was made; in the next the copies, which nothing names now.
    """
    assert killed(clone, catalog)
    for _ in range(night - 1):
        clock.now += 9 * DAY
        maintain(again(catalog).lake, AT_ONCE)
    clock.now += 9 * DAY
    slow = FaultyStorage(catalog.lake.storage)

    def meanwhile() -> None:
        maintain(again(catalog).lake, AT_ONCE)
        promote(clone, again(catalog))

    slow.interrupt("delete_folder" if night == 1 else "delete", meanwhile)
    maintain(open_catalog(slow, clock=clock).lake, AT_ONCE)
    assert catalog.lake.refresh().batches
    check_promoted(again(catalog))


def test_what_a_killed_promotion_left_is_litter_that_upkeep_removes(
    catalog: TransactionalCatalog, clone: TransactionalCatalog, clock: Ticking
) -> None:
    """Copies in changed tables, their vectors, a table that was made, what was staged; nothing of another attempt."""
    left = killed(clone, catalog)
    promote(clone, again(catalog))
    assert left <= tree(catalog.lake.storage), "an attempt takes nothing of another's away"
    for _ in range(3):
        clock.now += 9 * DAY
        maintain(again(catalog).lake, AT_ONCE)
    assert not left & tree(catalog.lake.storage)
    check_promoted(again(catalog))


def test_a_promotion_that_fails_takes_back_what_it_copied(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    before, faulty = tree(catalog.lake.storage), FaultyStorage(catalog.lake.storage)
    faulty.fail("put", path="/more")
    with pytest.raises(UnavailableError, match="injected"):
        promote(clone, open_catalog(faulty, clock=catalog.lake.clock))
    assert tree(catalog.lake.storage) == before
    promote(clone, catalog)
    check_promoted(catalog)


def test_a_promotion_that_loses_takes_back_no_file_that_the_lake_has(
    catalog: TransactionalCatalog, clone: TransactionalCatalog
) -> None:
    """A plain writer of the clone may call it an append to say again that the table has a file which it began with."""
    root = catalog.lake.storage.url.removeprefix("file://")
    uri = f"file:{quote(root)}/{location(catalog, 'b')}/p"
    foreign(clone, "c", 2, add(uri, size=5), file("written"))
    clone.lake.storage.put(f"{location(clone, 'c')}/written", b"other")
    faulty = FaultyStorage(catalog.lake.storage)

    def interfere() -> None:
        change(again(catalog), "a", remove("p", size=5), file("theirs"), operation="UPDATE")

    faulty.interrupt("put_if_absent", interfere, path=PROMOTION)
    with pytest.raises(StaleCloneError):
        Promoter(clone.lake, open_catalog(faulty, clock=catalog.lake.clock).lake).run()
    assert file_names(catalog, "b") == ["p"]
    assert catalog.lake.storage.exists(f"{location(catalog, 'b')}/p")
    assert not [path for path in tree(catalog.lake.storage) if path.endswith("/written")]
