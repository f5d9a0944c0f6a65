"""Sidecars of V2 checkpoints: those that no checkpoint names go, once they are old, and none where nobody is sure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.records import record_of, write
from lockstep.delta import checkpoint_files
from lockstep.delta.actions import render
from lockstep.delta.checkpoint_files import checkpoint_actions
from lockstep.delta.log import LOG
from lockstep.delta.snapshot import read_snapshot
from lockstep.lake.kept_states import kept_state
from lockstep.lake.lake import Lake
from lockstep.retention.ages import Retention
from lockstep.retention.sidecars import doomed_sidecars
from lockstep.retention.survey import Folder
from lockstep.retention.upkeep import Maintained, maintain
from lockstep.storage import Storage
from lockstep.timeline.entry import TagDdl
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import again, append, create, foreign, location, metadata, named, open_catalog, stage
from tests.support.retained import AgedStorage, Ticking
from tests.unit.test_snapshot import HEADER, file, parquet

DAY = timedelta(days=1)
RETENTION = Retention(age=30 * DAY, last=1, grace=DAY, orphan_age=7 * DAY)
UUID = "016ae953-37a9-438e-8683-9a9a4a79a395"


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking) -> TransactionalCatalog:
    """A lake whose table a has V2 checkpoints of the versions 1 and 3, a month apart, and is written on."""
    catalog = open_catalog(aged, clock=clock)
    create(catalog, "a", files=["p"])
    append(catalog, "a", "q")
    checkpoint(catalog, 1, "first", "p", "q")
    clock.now += 31 * DAY
    append(catalog, "a", "r")
    append(catalog, "a", "s")
    checkpoint(catalog, 3, "second", "p", "q", "r", "s")
    append(catalog, "a", "t")
    return catalog


def place(catalog: TransactionalCatalog) -> str:
    return f"{location(catalog, 'a')}/{LOG}"


def checkpoint(catalog: TransactionalCatalog, version: int, sidecar: str, *paths: str) -> None:
    """Write one as Delta does: the sidecar, with the checksum that Hadoop puts beside it, and then what names it."""
    storage, log = catalog.lake.storage, place(catalog)
    storage.put(f"{log}/_sidecars/{sidecar}.parquet", parquet(*map(file, paths), kinds=("add",)))
    storage.put(f"{log}/_sidecars/.{sidecar}.parquet.crc", b"crc")
    named = {"sidecar": {"path": f"{sidecar}.parquet", "sizeInBytes": 1}}
    storage.put(f"{log}/{version:020d}.checkpoint.{UUID}.json", render([*HEADER, named]))


def sidecars(catalog: TransactionalCatalog) -> list[str]:
    return catalog.lake.storage.list(f"{place(catalog)}/_sidecars")


def checkpoints(catalog: TransactionalCatalog) -> list[int]:
    names = catalog.lake.storage.list(place(catalog))
    return [int(name[:20]) for name in names if "checkpoint" in name and name[0] != "_"]


def night(catalog: TransactionalCatalog, clock: Ticking, tx: Transaction | None = None) -> Maintained:
    """Have a day and a half pass, with an open transaction that tells others that it is, and look after the lake."""
    clock.now += 1.5 * DAY
    if tx is not None:
        write(catalog.lake, record_of(tx, now=clock(), process="elsewhere:1"))
    return maintain(again(catalog).lake, RETENTION)


def test_a_sidecar_goes_after_the_checkpoint_that_named_it(catalog: TransactionalCatalog, clock: Ticking) -> None:
    both = [".first.parquet.crc", ".second.parquet.crc", "first.parquet", "second.parquet"]
    clock.now += 35 * DAY
    append(catalog, "a", "u")
    seen = []
    for _ in range(5):
        night(catalog, clock)
        seen.append((checkpoints(catalog), sidecars(catalog)))
    assert [log for log, _ in seen] == [[1, 3], [3], [3], [3], [3]]
    assert [left for _, left in seen[:3]] == [both] * 3, (
        "marked behind the checkpoint, and its grace period is not over"
    )
    assert seen[3][1] == seen[4][1] == [".second.parquet.crc", "second.parquet"]
    version = again(catalog).timeline.head.tables[named("a")].version
    snapshot = read_snapshot(catalog.lake.storage, location(catalog, "a"), version)
    assert {path for path, _ in snapshot.files} == {"p", "q", "r", "s", "t", "u"}


@pytest.mark.parametrize("log_retention", ["interval 90 days", None])
def test_a_table_that_keeps_its_log_keeps_its_sidecars(
    catalog: TransactionalCatalog, clock: Ticking, log_retention: str | None
) -> None:
    name, value = ("logRetentionDuration", log_retention) if log_retention else ("enableExpiredLogCleanup", "false")
    tx = catalog.begin()
    stage(catalog, tx, "a", metadata(**{f"delta.{name}": str(value)}))
    catalog.commit(tx)
    catalog.lake.storage.put(f"{place(catalog)}/_sidecars/lone.parquet", b"x")
    clock.now += 35 * DAY
    for _ in range(4):
        night(catalog, clock)
    assert "lone.parquet" in sidecars(catalog)


def lone(catalog: TransactionalCatalog, clock: Ticking) -> str:
    """Put a sidecar that nobody names, 60 days before now."""
    path = f"{place(catalog)}/_sidecars/lone.parquet"
    catalog.lake.storage.put(path, b"x")
    clock.now += 60 * DAY
    return path


def doomed(lake: Lake, catalog: TransactionalCatalog, clock: Ticking, *features: str) -> set[str]:
    at = location(catalog, "a")
    folder = Folder(at, [*lake.storage.walk(at)])
    found = doomed_sidecars(lake.storage, folder, frozenset(features), clock.now - 30 * DAY)
    assert all(each.kind == "log" for each in found)
    return {each.path for each in found}


def damaged(storage: Storage, log: str) -> None:
    storage.put(f"{log}/{2:020d}.checkpoint.{UUID}.parquet", b"PAR1 no")


def unreadable_json(storage: Storage, log: str) -> None:
    storage.put(f"{log}/{2:020d}.checkpoint.{UUID}.json", b"{")


def of_unknown_kind(storage: Storage, log: str) -> None:
    storage.put(f"{log}/{2:020d}.checkpoint.v3.parquet", b"?")


def staged(storage: Storage, log: str) -> None:
    storage.put(f"{log}/_lockstep/tx/{9:020d}.checkpoint.{UUID}.json", render([*HEADER]))


def named_by_its_url(storage: Storage, log: str) -> None:
    named = {"sidecar": {"path": f"s3://bucket/{log}/_sidecars/l%6Fne.parquet", "sizeInBytes": 1}}
    storage.put(f"{log}/{2:020d}.checkpoint.{UUID}.parquet", parquet(*HEADER, named))


def without_a_path(storage: Storage, log: str) -> None:
    storage.put(f"{log}/{2:020d}.checkpoint.{UUID}.json", render([*HEADER, {"sidecar": {"sizeInBytes": 1}}]))


@pytest.mark.parametrize("how", [damaged, unreadable_json, of_unknown_kind, staged, named_by_its_url, without_a_path])
def test_where_some_checkpoint_may_name_it_a_sidecar_stays(
    catalog: TransactionalCatalog, clock: Ticking, how: Callable[[Storage, str], None]
) -> None:
    path = lone(catalog, clock)
    assert path in doomed(catalog.lake, catalog, clock)
    how(catalog.lake.storage, place(catalog))
    assert path not in doomed(catalog.lake, catalog, clock)


def test_a_sidecar_whose_name_looks_encoded_is_what_delta_takes_it_for(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """As it stands. It was looked for decoded, and went though a checkpoint named it. An encoded one stays, too."""
    log, storage = place(catalog), catalog.lake.storage
    for name in ("a%20b", "c d"):
        storage.put(f"{log}/_sidecars/{name}.parquet", parquet(file("p"), kinds=("add",)))
    naming = [{"sidecar": {"path": f"{name}.parquet", "sizeInBytes": 1}} for name in ("a%20b", "c%20d")]
    storage.put(f"{log}/{4:020d}.checkpoint.{UUID}.json", render([*HEADER, *naming]))
    clock.now += 60 * DAY
    assert not [each for each in doomed(catalog.lake, catalog, clock) if " " in each or "%" in each]
    names = [each.rpartition("/")[2] for each in storage.list(log) if "checkpoint" in each]
    adds = [action for action in checkpoint_actions(storage, location(catalog, "a"), 4, names) if "add" in action]
    assert len(adds) == 2
    version = catalog.timeline.head.tables[named("a")].version
    assert version == 4
    catalog.run(lambda tx: tx.changing().create_tag(TagDdl(action="create", name="kept")))
    state = kept_state(storage, catalog.timeline.head.tables[named("a")].id, version)
    assert state is not None
    assert {each.name for each in state.files} >= {"_sidecars/a%20b.parquet", "_sidecars/c d.parquet"}


def test_only_what_is_old_and_is_a_sidecar_goes(catalog: TransactionalCatalog, clock: Ticking) -> None:
    path = lone(catalog, clock)
    log, storage = place(catalog), catalog.lake.storage
    storage.put(f"{log}/_sidecars/young.parquet", b"under way")
    storage.put(f"{log}/{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet", b"a part, which names none")
    storage.put(f"{log}/.{2:020d}.checkpoint.{UUID}.json.tmp", b"what a writer left, or is writing")
    for name in ("notes.txt", "lone.parquet.crc", ".other.parquet"):
        storage.put(f"{log}/_sidecars/{name}", b"x")
        storage.times[f"{log}/_sidecars/{name}"] -= 60 * DAY  # type: ignore[attr-defined]
    assert doomed(catalog.lake, catalog, clock) == {path}
    assert doomed(catalog.lake, catalog, clock, "checkpointProtection") == set()


def test_without_pyarrow_they_stay_beside_a_checkpoint_that_is_parquet(
    catalog: TransactionalCatalog, clock: Ticking, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lone(catalog, clock)
    monkeypatch.setattr(checkpoint_files, "can_read", lambda: False)
    assert doomed(catalog.lake, catalog, clock) == {path}
    classic = f"{place(catalog)}/{2:020d}.checkpoint.parquet"
    catalog.lake.storage.put(classic, parquet(*HEADER))
    assert doomed(catalog.lake, catalog, clock) == set()


def test_a_transaction_that_is_open_keeps_what_was_written_since_it_began(
    catalog: TransactionalCatalog, clock: Ticking
) -> None:
    """A RESTORE in it may have written a checkpoint, whose sidecars lie beside the others."""
    tx = catalog.begin()
    path = lone(catalog, clock)
    for _ in range(3):
        night(catalog, clock, tx)
    assert catalog.lake.storage.exists(path)
    catalog.rollback(tx)
    clock.now += 2 * DAY
    for _ in range(2):
        night(catalog, clock)
    assert not catalog.lake.storage.exists(path)


def test_a_plain_writers_checkpoint_counts_too(catalog: TransactionalCatalog, clock: Ticking) -> None:
    """Behind a version that the timeline does not know yet."""
    path = lone(catalog, clock)
    last = catalog.timeline.head.tables[named("a")].version
    foreign(catalog, "a", last + 1)
    naming = {"sidecar": {"path": "lone.parquet", "sizeInBytes": 1}}
    log = place(catalog)
    catalog.lake.storage.put(f"{log}/{last + 1:020d}.checkpoint.{UUID}.json", render([*HEADER, naming]))
    assert path not in doomed(catalog.lake, catalog, clock)
