"""Clients of a lake of which copies are made: exports, clones that are changed and promoted, tags and restores.

Beside them others let versions expire, and delete what nobody needs, as `tests.sim.caretakers` does; here nobody minds
what the rows are, but each file that somebody may need must be there (`tests.sim.check_keeping`).

writes      files come and go, tables are made and dropped
restores    the whole database goes back to some version
tags        are made of any version, and dropped
copies      exports of all three kinds; the same is asked for again, be it beside somebody who is at it
clones      are changed, and promoted
drops       the record of an export is dropped, and what was made is deleted
upkeep      `maintain`, `vacuum`, `remove_orphan_files`, and expiry alone, by several processes at once
logs        Delta makes a checkpoint of a table's log, and cleans the log up, as far as Lockstep lets it
time        minutes or weeks pass, wherever everybody stands
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from pyroaring import BitMap64

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import records
from lockstep.delta.combine.deletion_vectors import file_name, serialize
from lockstep.delta.log import LOG, log_files
from lockstep.errors import LockstepError
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.promote import Promoter
from lockstep.exports.tagged import create_tag
from lockstep.lake.exports import drop_export
from lockstep.lake.kept_states import is_whole, snapshot_of
from lockstep.recovery.restore import Selection
from lockstep.retention.expiring import Expired, expire_snapshots
from lockstep.retention.kept import with_kept
from lockstep.retention.planning import need_at
from lockstep.retention.upkeep import Maintained, Swept, maintain, remove_orphan_files, vacuum
from lockstep.tables.restoring import restore
from lockstep.tables.state import States
from lockstep.tables.table import Scope
from lockstep.timeline.entry import ExportMode, Name, TagDdl
from lockstep.transactions.transaction import Transaction
from tests.sim.bucket import BucketStorage
from tests.sim.checkpoints import checkpoint_of
from tests.sim.copies import Copied, KeptWorld
from tests.sim.participant import Participant
from tests.support.exports import snapshot
from tests.support.lakes import add, remove, stage, stage_new
from tests.support.vectors import stored

SIZE = len(b"rows")
PASSES = (
    timedelta(minutes=7),
    timedelta(hours=1, minutes=5),
    timedelta(hours=13),
    timedelta(days=2),
    timedelta(days=9),
)
MOST_TARGETS = 4
MODES: tuple[ExportMode, ...] = ("partial", "partial", "partial", "full", "minimal")


class Keeper(Participant[KeptWorld, BucketStorage]):
    """A process that does some of that.

    Attributes:
        kind: what it is at.
        is_done: whether it has done all that it has to.
    """

    def __init__(self, world: KeptWorld, storage: BucketStorage, kinds: Sequence[str]) -> None:
        super().__init__(world, storage)
        self.kinds = kinds
        self.kind = ""
        self.is_done = False

    def run(self) -> None:
        """Do some of it, one after the other; what is refused, or fails, is only counted."""
        if self.catalog is None:
            self.catalog = self.open()
        for _ in range(self.world.plan.scripts):
            self.kind = kind = self.chance.choice(self.kinds)
            try:
                WORK[kind](self)
                told = "done"
            except LockstepError as error:
                told = type(error).__name__
            except KeyError:
                told = "gone"  # a table that was dropped since this looked
            self.world.counts[f"{kind}: {told}"] += 1
        self.is_done = True

    # --- what changes the lake ----------------------------------------------------------------------------------------

    def writes(self) -> None:
        """Rewrite some files of a table; make one, or drop one."""
        names = sorted(self.there.lake.refresh().tables)
        draw = self.chance.random()
        if names and draw < 0.1:
            self.there.run(lambda tx: tx.changing().drop_table(self.chance.choice(names)))
        elif not names or draw < 0.2:
            self._in_one(self.there, partial(self._make, self.there))
        else:
            self._in_one(self.there, partial(self._rewrite, self.there, name=self.chance.choice(names)))

    def _make(self, catalog: TransactionalCatalog, tx: Transaction) -> None:
        stage_new(catalog, tx, self.world.new_id("t"), self._new_file(catalog), start=self.world.new_table)

    def _rewrite(self, catalog: TransactionalCatalog, tx: Transaction, *, name: Name) -> None:
        files = snapshot(catalog, name.table).files
        there = sorted(key for key in files if "://" not in key[0])
        at = int(catalog.lake.clock().timestamp() * 1000)
        gone = [files[key] for key in self.chance.sample(there, min(len(there), self.chance.randint(0, 2)))]
        vectors = [{"deletionVector": v} if (v := body.get("deletionVector")) else {} for body in gone]
        removed = [
            remove(body["path"], size=SIZE, deletionTimestamp=at, **more)
            for body, more in zip(gone, vectors, strict=True)
        ]
        new = self._new_file(catalog)
        if self.chance.random() < 0.4:
            id_ = UUID(int=self.chance.getrandbits(128))
            descriptor, data = stored(serialize(BitMap64([0])), 1, id_)
            catalog.lake.storage.put(f"{catalog.timeline.head.tables[name].location}/{file_name(id_)}", data)
            new["add"]["deletionVector"] = descriptor
        stage(catalog, tx, name.table, *removed, new)

    def _new_file(self, catalog: TransactionalCatalog) -> dict[str, Any]:
        at = int(catalog.lake.clock().timestamp() * 1000)
        return add(self.world.new_id("f"), size=SIZE, modificationTime=at)

    def restores(self) -> None:
        """RESTORE DATABASE to some version."""
        catalog, everything = self.there, Selection(everything=True)
        version = self._some_version() or catalog.timeline.head.version
        self._in_one(catalog, lambda tx: restore(Scope(catalog, tx, States(self.storage)), version, everything))

    def tags(self) -> None:
        """Make a tag of some version, or drop one."""
        tags = sorted(tag.name for tag in self.there.lake.refresh().tags.values())
        if len(tags) > 3 or (tags and self.chance.random() < 0.4):
            self.there.run(lambda tx: tx.changing().drop_tag(self.chance.choice(tags)))
            return
        tag = TagDdl(action="create", name=self.world.new_id("g"), version=self._some_version())
        self._in_one(self.there, lambda tx: create_tag(self.there.lake, tx, tag))

    def _in_one(self, catalog: TransactionalCatalog, work: Callable[[Transaction], object]) -> None:
        tx = catalog.begin()
        try:
            work(tx)
            catalog.commit(tx)
        finally:
            if tx.is_open and not catalog.lake.storage.process.is_dead:  # type: ignore[attr-defined]
                with suppress(LockstepError):
                    catalog.rollback(tx)

    def _some_version(self) -> int | None:
        head = self.there.timeline.head
        readable = [*head.expired.kept, *range(head.expired.first_kept, head.version + 1)]
        return self.chance.choice([None, readable[0], readable[-1], self.chance.choice(readable)])

    # --- copies -------------------------------------------------------------------------------------------------------

    def copies(self) -> None:
        """Export some version to a place of its own, or where somebody else was, or is, at it."""
        used = self.world.targets
        if len(used) < MOST_TARGETS or self.chance.random() < 0.3:
            target, mode = f"s3://bucket/copy{self.world.new_id('')}", self.chance.choice(MODES)
            used[target] = mode
        else:
            target = self.chance.choice(sorted(used))
            mode = used[target]
        asked = Asked(to=f"{target}/file" if mode == "minimal" else target, mode=mode, version=self._some_version())
        done = Exporter(self.there.lake, open_target=self._open).run(asked)
        self.world.copied(Copied(done.id, target, mode, done.database_version))

    def _open(self, url: str, create: bool) -> BucketStorage:
        if create:
            self.world.bucket.disk(url)
        return self.storage.open(url)

    def drops(self) -> None:
        """Drop the record of an export; nobody needs it any more."""
        if self.world.needed:
            copy = self.chance.choice(sorted(self.world.needed.values(), key=lambda each: each.id))
            self.world.dropped(copy)
            drop_export(self.storage, copy.id)

    def promotes(self) -> None:
        """Change a clone, and promote it."""
        clones = sorted(each.target for each in self.world.needed.values() if each.mode == "partial")
        if not clones:
            return
        clone = self.world.open(self._open(self.chance.choice(clones), create=False))
        names = sorted(clone.database().tables)
        if names and self.chance.random() < 0.7:
            self._in_one(clone, partial(self._rewrite, clone, name=self.chance.choice(names)))
        if not names or self.chance.random() < 0.3:
            self._in_one(clone, partial(self._make, clone))
        Promoter(clone.lake, self.there.lake, open_store=self._open, backoff=self.there.backoff).run()

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def upkeep(self) -> None:
        """One run of what deletes, any of them."""
        lake, kept = self.there.lake, self.world.plan.retention
        older, at_once = lake.clock() - kept.age, {"retain_last": kept.last, "grace": kept.grace}
        runs: list[Callable[[], object]] = [
            partial(maintain, lake, kept),
            partial(maintain, lake, kept),
            partial(vacuum, lake, kept),
            partial(remove_orphan_files, lake, kept),
            partial(expire_snapshots, lake, older_than=older, **at_once),  # type: ignore[arg-type]
            partial(expire_snapshots, lake, older_than=older, **at_once),  # type: ignore[arg-type]
        ]
        done = self.chance.choice(runs)()
        swept = done.swept if isinstance(done, Maintained) else done
        self.world.counts["deleted"] += swept.deleted_files if isinstance(swept, Swept) else 0
        expired = done.expired if isinstance(done, Maintained) else done
        self.world.counts["expired"] += expired.versions if isinstance(expired, Expired) else 0

    def logs(self) -> None:
        """Make a checkpoint of a table's log, as Delta does; or clean up the log, asking before each file."""
        lake = self.there.lake
        tables = sorted(lake.refresh().tables.items())
        if not tables:
            return
        _, table = self.chance.choice(tables)
        if self.chance.random() < 0.5:
            found = snapshot_of(self.storage, table)
            data = checkpoint_of(found.files.values(), self.world.new_table)
            self.storage.put(f"{table.location}/{LOG}/{table.version:020d}.checkpoint.parquet", data)
            return
        there = log_files(self.storage, table.location)
        for version in sorted(each for each in there.commits if each < there.newest_checkpoint):
            if (first := self._log_needed_from(table.location)) is None or version >= first:
                return
            self.storage.delete(f"{table.location}/{LOG}/{version:020d}.json")

    def _log_needed_from(self, location: str) -> int | None:
        """Return from which version on a table's log stays, as Spark's side is told; None for all."""
        lake = self.there.lake
        lake.refresh()
        need, log = need_at(lake, location), log_files(self.storage, location)
        if not need.versions:
            return None
        need = with_kept(lake, location, need)
        told = {version for id_, version in need.kept if not is_whole(self.storage, id_, version)}
        table = lake.timeline.head.table_at(location)
        return min(map(log.needed_from, [*need.of_log, *told] or [0 if table is None else table.version]))

    # --- time ---------------------------------------------------------------------------------------------------------

    def time(self) -> None:
        """Have time pass."""
        self.scheduler.pass_time(self.chance.choice(PASSES).total_seconds() / self.world.rate)


class Told:
    """The keeper of open transactions of a simulated process: a record at the beginning, and none later."""

    @staticmethod
    def watching(lake: Any, tx: Transaction) -> Any:
        """Tell others of a transaction until the block ends."""
        return _Watching(lake, tx)


class _Watching:
    def __init__(self, lake: Any, tx: Transaction) -> None:
        self._lake, self._tx = lake, tx

    def __enter__(self) -> None:
        record = records.record_of(self._tx, now=self._lake.clock(), process=self._lake.storage.process.name)
        with suppress(LockstepError):
            records.write(self._lake, record)

    def __exit__(self, *_: object) -> None:
        with suppress(LockstepError):
            records.remove(self._lake, self._tx.id)


WORK: dict[str, Callable[[Any], None]] = {
    each.__name__: each
    for each in (
        Keeper.writes,
        Keeper.restores,
        Keeper.tags,
        Keeper.copies,
        Keeper.drops,
        Keeper.promotes,
        Keeper.upkeep,
        Keeper.logs,
        Keeper.time,
    )
}
