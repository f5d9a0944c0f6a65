"""What a statement that began before a settlement may still write: nothing, whichever side it has read."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from lockstep.commit.outcomes import Taken
from lockstep.commit.scans import Scan
from lockstep.delta.actions import bodies, render
from lockstep.delta.log import commit_path, read_published
from lockstep.errors import InvalidError
from lockstep.recovery.divergence import divergence
from lockstep.recovery.settle import settle
from lockstep.storage.outside import open_reaching
from lockstep.timeline.entry import Isolation
from tests.support.diverged import CASES, SIDES, diverged, put_foreign, settled
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, append, create, files, lay, location, named, open_catalog, remove


@pytest.fixture
def store(tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(open_reaching(str(tmp_path / "lake"), create=True))


@pytest.mark.parametrize("isolation", get_args(Isolation))
@pytest.mark.parametrize("has_scan", [True, False])
def test_a_statement_that_read_ours_does_not_commit_onto_theirs(
    store: FaultyStorage, isolation: Isolation, has_scan: bool
) -> None:
    """Both updated the same rows: the table would have them twice. The next version is taken, and Delta judges."""
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    append(catalog, "t", "ours")
    catalog.lake.upkeep.settle()
    table = catalog.timeline.head.tables[named("t")]
    lay(store, table.location, [add("p2")])
    other = open_catalog(store.inner)
    put_foreign(other, 1, remove("p"), add("theirs"))
    settled(other, "theirs")
    info = {"operation": "UPDATE", "readVersion": 1, "isBlindAppend": False}
    content = render([{"commitInfo": info}, remove("p"), add("p2")]).decode()
    scans = [Scan(table=table.id, version=1, where=None)] if has_scan else []
    outcome = catalog.write(table.location, table.version + 1, content, scans=scans, isolation=isolation)
    assert isinstance(outcome, Taken)
    assert files(open_catalog(store.inner), "t") == {"theirs"}


@pytest.mark.parametrize("keep", SIDES)
@pytest.mark.parametrize("case", ["in conflict", "written over"])
def test_what_settles_a_table_tells_its_metadata_anew(store: FaultyStorage, case: str, keep: str) -> None:
    """Delta takes that for a change of the table, and lets nothing that began before commit behind it."""
    assert case in CASES
    catalog = diverged(store, case)
    newest = divergence(catalog.lake, named("t")).newest
    settled(catalog, "ours" if keep == "ours" else "theirs")
    table = catalog.timeline.head.tables[named("t")]
    assert table.version == newest + 1
    actions = read_published(store, table.location, newest + 1)
    assert len(bodies(actions, "metaData")) == 1
    assert bodies(actions, "commitInfo")[0]["operationParameters"]["settle"] == keep


def test_a_log_that_ends_before_what_statements_have_read_is_not_settled_with_theirs(store: FaultyStorage) -> None:
    """The version of the settling commit would be one that they may take for ours."""
    catalog = open_catalog(store)
    create(catalog, "t", files=["p"])
    append(catalog, "t", "ours")
    append(catalog, "t", "ours2")
    catalog.lake.upkeep.settle()
    put_foreign(catalog, 2, add("theirs"))
    found = divergence(catalog.lake, named("t"))
    version = catalog.timeline.head.version
    for late in (1, 2):
        store.inner.delete(commit_path(location(catalog, "t"), late))
    shorter = type(found)(found.table, found.why, common=-1, newest=0, gone="another table lies there")
    with pytest.raises(InvalidError, match="its log ends at version 0"):
        settle(catalog.lake, shorter, "theirs", lambda do: catalog.run(do).version)
    assert open_catalog(store.inner).timeline.head.version == version
