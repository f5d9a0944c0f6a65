"""Random histories of a lake that is looked after: whatever is deleted, every version that is kept reads as it was.

A Hypothesis state machine over the core without Spark. Its model is what each database version has
(`tests.support.retention_model`); after each step all versions that can be read are read back through the tables' logs
(`tests.support.retained`) and by deltalake. `tests/spark/test_retention_machine.py` has Spark read them.
What a person asked to be kept (tags, ages, numbers, open transactions) must be among them, and readers that began a
moment ago keep their files for the grace period. Runs of upkeep are killed at any request, and are run again; a dry run
says what a run then does. deltalake cleans up logs beside it (`tests.support.retention_cleanup`): what tags keep reads
as it was all the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import deltalake
import pyarrow as pa
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from lockstep.catalog import TransactionalCatalog
from lockstep.commit import records
from lockstep.delta.combine.deletion_vectors import file_name
from lockstep.errors import LockstepError
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.importing import import_minimal
from lockstep.exports.promote import Promoter
from lockstep.lake.exports import drop_export, read_exports
from lockstep.lake.kept import check_readable
from lockstep.lake.lake import Lake
from lockstep.recovery.restore import Selection
from lockstep.retention.ages import Retention
from lockstep.retention.expiring import expire_snapshots
from lockstep.retention.horizon import readable
from lockstep.retention.upkeep import Swept, maintain, remove_orphan_files, vacuum
from lockstep.storage import open_storage
from lockstep.tables.opened import OpenLake
from lockstep.tables.restoring import restore
from lockstep.tables.state import States
from lockstep.tables.table import Scope
from lockstep.timeline.entry import ExportMode, Name, Table
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import open_catalog, remove, stage, stage_new
from tests.support.retained import Content, Killed, read_back
from tests.support.retention_beside import Cloning, Copied, Open, Reader
from tests.support.retention_model import DATA, TABLE, TABLES, rows_of, vector
from tests.support.retention_recovery import Recovery

GRACE = timedelta(hours=24)
AGES = st.sampled_from([timedelta(0), timedelta(days=2), timedelta(days=40)])
STEPS_OF_TIME = st.sampled_from([timedelta(minutes=5), timedelta(hours=13), timedelta(days=9), timedelta(days=40)])
NIGHTS = [timedelta(hours=25), timedelta(days=9), timedelta(days=40)]
DEATHS = st.one_of(st.none(), st.integers(min_value=0, max_value=120))


class RetentionMachine(Recovery):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[Reader] = []
        self.open: list[Open] = []
        self.cloning: list[Cloning] = []
        self.copies: list[Copied] = []
        self.read_by_deltalake: tuple[int, set[tuple[str, int]]] = 0, set()

    def teardown(self) -> None:
        super().teardown()
        for each in self.copies:
            each.remove()

    # --- what users do ------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.create(TABLES[0])
        self.create(TABLES[1])

    @precondition(lambda self: len(self.tables) < len(TABLES))
    @rule(name=TABLE)
    def create(self, name: Name) -> None:
        if name in self.tables:
            return
        path, found = self.new_file(), list[str]()

        def make(tx: Transaction) -> None:
            found.append(stage_new(self.catalog, tx, str(name), self.add(path), start=self.new_table(), data=DATA))

        self.commit(make, lambda: {**self.tables, name: (found[0], Content(frozenset({(path, None)})))})

    @rule(name=TABLE)
    def append(self, name: Name) -> None:
        if name in self.tables:
            path = self.new_file()
            self.write(name, [self.add(path)], self.tables[name][1].files | {(path, None)})

    @rule(name=TABLE, data=st.data())
    def delete(self, name: Name, data: st.DataObject) -> None:
        """Remove a file, or rows of it by a vector."""
        if name not in self.tables or not self.tables[name][1].files:
            return
        location, content = self.tables[name]
        path, old = data.draw(st.sampled_from(sorted(content.files, key=str)))
        had = {} if old is None else {"deletionVector": vector(UUID(old))[0]}
        actions, files = [remove(path, deletionTimestamp=self.clock.ms, **had)], content.files - {(path, old)}
        if data.draw(st.booleans()):
            id_ = UUID(int=self.new_number())
            descriptor, contents = vector(id_)
            self.store.put(f"{location}/{file_name(id_)}", contents)
            actions.append(self.add(path, deletionVector=descriptor))
            files |= {(path, str(id_))}
        self.write(name, actions, files)

    @rule(name=TABLE, new=TABLE)
    def rename(self, name: Name, new: Name) -> None:
        if name in self.tables and new not in self.tables:
            tables = {new if each == name else each: table for each, table in self.tables.items()}
            self.commit(lambda tx: tx.changing().rename_table(name, new), tables)

    # --- what is open for long ----------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.open) < 2)
    @rule(name=TABLE, is_recorded=st.booleans())
    def begin_long(self, name: Name, is_recorded: bool) -> None:
        if name not in self.tables or any(each.name == name for each in self.open):
            return
        catalog, path = open_catalog(self.store, clock=self.clock), self.new_file()
        tx = catalog.begin()
        stage(catalog, tx, str(name), self.add(path), data=DATA)
        each = Open(tx, catalog, name, path, is_dead=not is_recorded)
        self.open.append(each)
        self.heartbeat()

    @invariant()
    def heartbeat(self) -> None:
        """Have the keeper of each process that lives say so, as it does every few seconds."""
        for each in self.open:
            if not each.is_dead:
                record = records.record_of(each.tx, now=self.clock.now, process="here")
                records.write(each.catalog.lake, record)
        for clone in self.cloning:
            record = records.record_of(clone.tx, now=self.clock.now, process="here")
            records.write(clone.catalog.lake, record)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commits=st.booleans())
    def end_long(self, data: st.DataObject, commits: bool) -> None:
        each = data.draw(st.sampled_from(self.open))
        self.open.remove(each)
        if not commits:
            each.catalog.rollback(each.tx)
            records.remove(each.catalog.lake, each.tx.id)
            return
        location = each.tx.base.tables[each.name].location
        try:
            version = each.catalog.commit(each.tx).version
        except LockstepError:  # somebody else's change, or it was taken for dead
            records.remove(each.catalog.lake, each.tx.id)
            return
        records.remove(each.catalog.lake, each.tx.id)
        self.fill(version - 1)
        [name] = [name for name, (where, _) in self.tables.items() if where == location]
        files = self.tables[name][1].files | {(each.added, None)}
        self.becomes(version, {**self.tables, name: (location, Content(files))})

    @precondition(lambda self: any(not each.is_dead for each in self.open))
    @rule()
    def kill_a_writer(self) -> None:
        next(each for each in self.open if not each.is_dead).is_dead = True

    @precondition(lambda self: not self.cloning)
    @rule(data=st.data())
    def begin_clone(self, data: st.DataObject) -> None:
        """Stage a clone of a table of an old version, by absolute paths; its folder is in no version."""
        version = data.draw(st.sampled_from(self.whole()[:3]))
        if not self.versions[version]:
            return
        location, content = self.versions[version][data.draw(st.sampled_from(sorted(self.versions[version])))]
        url, adds = f"{self.store.url}/{location}", []
        for path, id_ in sorted(content.files, key=str):
            more: dict[str, Any] = {}
            if id_ is not None:
                of_file = {"storageType": "p", "pathOrInlineDv": f"{url}/{file_name(UUID(id_))}"}
                more = {"deletionVector": {**vector(UUID(id_))[0], **of_file}}
            adds.append(self.add(f"{url}/{path}", **more))
        catalog = open_catalog(self.store, clock=self.clock)
        tx = catalog.begin()
        stage_new(catalog, tx, "clone", *adds, start=self.new_table(), data=DATA)
        self.cloning.append(Cloning(tx, catalog, content.paths(location)))
        self.heartbeat()

    @precondition(lambda self: self.cloning)
    @rule()
    def end_clone(self) -> None:
        each = self.cloning.pop()
        each.catalog.rollback(each.tx)
        records.remove(each.catalog.lake, each.tx.id)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(self.whole()))
        self.readers.append(Reader(self.clock.now, self.versions[version]))

    @rule(name=TABLE)
    def litter(self, name: Name) -> None:
        if name in self.tables:
            self.store.put(f"{self.tables[name][0]}/{self.new_file()}", b"nobody's")

    @rule(name=TABLE)
    def checkpoint(self, name: Name) -> None:
        if name in self.tables:
            deltalake.DeltaTable(str(self.root / self.tables[name][0])).create_checkpoint()

    @rule(at=st.integers(min_value=0, max_value=25))
    def kill_the_next_one(self, at: int) -> None:
        """Have the process of the next change, restore or tag killed at one of its requests."""
        self.next_death = at

    @rule(by=STEPS_OF_TIME)
    def wait(self, by: timedelta) -> None:
        self.clock.now += by

    # --- copies -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.copies) < 3)
    @rule(data=st.data(), mode=st.sampled_from(["full", "partial", "minimal"]), dies_at=DEATHS)
    def export(self, data: st.DataObject, mode: ExportMode, dies_at: int | None) -> None:
        version = data.draw(st.sampled_from(self.whole()))
        asked = Asked(to=self.new_target(), mode=mode, version=version)
        self.survive(lambda lake: Exporter(lake).run(asked), dies_at)
        self.copies.append(Copied(Path(asked.to), mode, version, self.versions[version]))

    @precondition(lambda self: self.clean_ups > 0 and len(self.whole()) < len(self.readable()))
    @rule(data=st.data(), what=st.sampled_from(["tag", "restore", "full", "partial"]))
    def ask_for_what_is_lost(self, data: st.DataObject, what: str) -> None:
        """Ask for a version that a clean-up from outside made unreadable: that is refused, and nothing comes of it."""
        version = data.draw(st.sampled_from(sorted({*self.readable()} - {*self.whole()})))
        before, tx = self.kept().newest, self.catalog.begin()
        to = self.new_target()
        try:
            if what == "tag":
                check_readable(self.catalog.lake, version)
            elif what == "restore":
                restore(Scope(self.catalog, tx, States(self.store)), version, Selection(everything=True))
            else:
                mode: ExportMode = "full" if what == "full" else "partial"
                Exporter(open_catalog(self.store, clock=self.clock).lake).run(Asked(to=to, mode=mode, version=version))
        except LockstepError:
            assert self.kept().newest == before
            return
        finally:
            self.catalog.rollback(tx)
            shutil.rmtree(to, ignore_errors=True)
        raise AssertionError(
            f"{what}: database version {version} is taken for whole, and nothing tells of a table in it"
        )

    @precondition(lambda self: len(self.copies) < 4 and any(each.mode == "minimal" for each in self.copies))
    @rule(data=st.data(), mode=st.sampled_from(["full", "partial"]), dies_at=DEATHS)
    def import_a_minimal_one(self, data: st.DataObject, mode: ExportMode, dies_at: int | None) -> None:
        copy = data.draw(st.sampled_from([each for each in self.copies if each.mode == "minimal"]))
        if self.clean_ups and not self.is_whole(copy.version):
            return  # nothing keeps tables' states for it but a tag
        asked = Asked(to=self.new_target(), mode=mode)
        self.survive(lambda lake: import_minimal(Exporter(lake), str(copy.root), asked), dies_at)
        self.copies.append(Copied(Path(asked.to), mode, copy.version, copy.tables))

    def new_target(self) -> str:
        return str(self.root.with_name(f"{self.root.name}-{self.new_number()}"))

    @precondition(lambda self: self.copies)
    @rule(data=st.data(), dies_at=DEATHS)
    def drop_a_copy(self, data: st.DataObject, dies_at: int | None) -> None:
        """Remove a copy, and have the lake forget it, by a process that may be killed; the next one finishes it."""
        copy = data.draw(st.sampled_from(self.copies))
        self.copies.remove(copy)
        copy.remove()

        def forget(lake: Lake) -> None:
            for record in read_exports(lake.storage):
                if record.target == f"file://{copy.root}":
                    drop_export(lake.storage, record.id)

        self.survive(forget, dies_at)
        assert all(record.target != f"file://{copy.root}" for record in read_exports(self.store))

    @precondition(lambda self: any(each.mode == "partial" and each.tables for each in self.copies))
    @rule(data=st.data(), dies_at=DEATHS)
    def promote(self, data: st.DataObject, dies_at: int | None) -> None:
        """Write into a clone, and promote it; it is made for that alone, and the lake may have gone on since.

        The process may be killed; the next one finishes what it began, or finds that it is done.
        """
        copy = data.draw(st.sampled_from([each for each in self.copies if each.mode == "partial" and each.tables]))
        name = data.draw(st.sampled_from(sorted(copy.tables)))
        clone, path = open_catalog(open_storage(str(copy.root)), clock=self.clock), self.new_file()
        tx = clone.begin()
        stage(clone, tx, str(name), self.add(path), data=DATA)
        clone.commit(tx)
        location, _ = self.versions[copy.version][name]
        copy.tables = {}  # its log has gone on
        landed = None if dies_at is None else self.promote_and_die(clone, location, path, dies_at)
        before = len(self.readable())
        try:
            version = Promoter(clone.lake, open_catalog(self.store, clock=self.clock).lake).run().database_version
        except LockstepError:  # the table is gone, or what came since has expired
            assert landed is None, "it is promoted"
            assert len(self.readable()) == before
            return
        assert version is not None
        if landed is None:
            self.promoted(version, location, path)
        assert landed in (None, version), "it was promoted twice"

    def promote_and_die(self, clone: TransactionalCatalog, location: str, path: str, dies_at: int) -> int | None:
        """Promote a clone by a process that is killed; return which version it became nevertheless."""
        before, origin = self.kept().newest, open_catalog(self.store, clock=self.clock)
        self.store.dies_at = dies_at
        with suppress(Killed, LockstepError):
            Promoter(clone.lake, origin.lake).run()
        self.store.dies_at = None
        self.catalog.lake.newest()  # publishes what the killed one had ratified, as whoever reads does
        entries = self.catalog.timeline.entries(before, self.kept().newest)
        found = [entry.version for entry in entries if entry.batch is not None]
        for version in found:
            self.promoted(version, location, path)
            self.versions |= dict.fromkeys(range(version + 1, entries[-1].version + 1), self.versions[version])
        self.everything_that_is_kept_reads_as_it_was()
        return next(iter(found), None)

    @invariant()
    def copies_read_as_they_were(self) -> None:
        for each in self.copies:
            each.check(deleted=len(self.store.deleted))

    # --- upkeep -------------------------------------------------------------------------------------------------------

    def survive(self, work: Callable[[Lake], object], dies_at: int | None) -> list[int]:
        """Do something in a process of its own, which may be killed; then another one does it, to its end.

        Returns: the versions that can be read when that other one begins; a killed one may have written versions.
        """
        if dies_at is not None:
            lake = open_catalog(self.store, clock=self.clock).lake
            self.store.dies_at = dies_at
            with suppress(Killed, LockstepError):
                work(lake)
            self.store.dies_at = None
            self.everything_that_is_kept_reads_as_it_was()
        left = self.readable()
        work(open_catalog(self.store, clock=self.clock).lake)
        return left

    def sweep(self, work: Callable[[Lake, bool], Swept], dies_at: int | None) -> None:
        """Clean up, and see that a dry run just before it, which changes nothing, says what becomes of what."""
        if dies_at is not None:
            self.survive(lambda lake: work(lake, False), dies_at)
        else:
            before = self.kept().newest, len(self.store.deleted)
            planned = work(open_catalog(self.store, clock=self.clock).lake, True)
            assert (self.kept().newest, len(self.store.deleted)) == before, "a dry run changed something"
            swept = work(open_catalog(self.store, clock=self.clock).lake, False)
            assert (planned.deleted_files, set(planned.paths)) == (swept.deleted_files, set(swept.paths))
            assert (planned.waiting_files, planned.by_kind) == (swept.waiting_files, swept.by_kind)

    @rule(age=AGES, last=st.sampled_from([1, 3, 50]), dies_at=DEATHS)
    def expire(self, age: timedelta, last: int, dies_at: int | None) -> None:
        # What a tag alone kept is older than those that ages and numbers speak of.
        older_than, first, before = self.clock.now - age, self.kept().first, self.readable()
        times = {v: self.catalog.timeline.at(v).committed_at for v in before}
        left = self.survive(
            lambda lake: expire_snapshots(lake, older_than=older_than, retain_last=last, grace=GRACE), dies_at
        )
        after = set(self.readable())
        # Each of the two counts the newest versions that it finds, with what a killed one wrote.
        assert {version for version in before[-last:] if version >= first} <= set(left)
        wanted = {version for version in before if times[version] >= older_than} | set(left[-last:])
        wanted = {version for version in wanted if version >= first}
        kept = {version for version, until in self.tags.values() if until is None or until > self.clock.now}
        pinned = {each.tx.base.version for each in self.open if not each.is_dead}
        pinned |= {each.version for each in self.copies if each.mode != "full"}
        assert (wanted | ((kept | pinned) & set(before))) <= after

    @rule(dies_at=DEATHS, name=st.one_of(st.none(), TABLE))
    def vacuum(self, dies_at: int | None, name: Name | None) -> None:
        table = name if name in self.tables else None
        self.sweep(lambda lake, dry_run: vacuum(lake, Retention.of({}), table=table, dry_run=dry_run), dies_at)

    @rule(dies_at=DEATHS)
    def orphans(self, dies_at: int | None) -> None:
        self.sweep(lambda lake, dry_run: remove_orphan_files(lake, Retention.of({}), dry_run=dry_run), dies_at)

    @rule(dies_at=DEATHS, nights=st.integers(min_value=2, max_value=3), between=st.sampled_from(NIGHTS))
    def maintain(self, dies_at: int | None, nights: int, between: timedelta) -> None:
        """Look after the lake some nights in turn, as a schedule does."""
        settings = Retention.of({"retention-age": "3d", "retention-versions": "1"})
        for _ in range(nights):
            self.clock.now += between
            self.heartbeat()
            self.sweep(lambda lake, dry_run: maintain(lake, settings, dry_run=dry_run).swept, dies_at)
            self.everything_that_is_kept_reads_as_it_was()

    # --- what must be so ----------------------------------------------------------------------------------------------

    @invariant()
    def everything_that_is_kept_reads_as_it_was(self) -> None:
        catalog = open_catalog(self.store, clock=self.clock)
        now = readable(catalog.timeline)
        self.fill(now.newest)
        found: dict[tuple[str, int], Content] = {}
        for version in (v for v in range(now.newest + 1) if now.has(v)):
            database, tables = catalog.timeline.at(version), self.versions[version]
            assert {name: table.location for name, table in database.tables.items()} == {
                name: location for name, (location, _) in tables.items()
            }
            for name, table in database.tables.items():
                key = (table.location, table.version)
                if key not in found:
                    if not self.log_tells(table):
                        self.reads_what_is_kept(version, name, table, tables[name][1])
                        continue
                    found[key] = read_back(self.root, *key)
                    self.deltalake_reads(*key, found[key])
                assert found[key] == tables[name][1], f"{name} in database version {version}"

    def reads_what_is_kept(self, version: int, name: Name, table: Table, content: Content) -> None:
        """See that a table whose log does not tell of a version is read by what is kept for tags, or is refused."""
        kept = {each for each, until in self.tags.values() if until is None or until > self.clock.now}
        is_lost = self.clean_ups > 0 and version not in kept
        assert self.is_told(table) or is_lost, f"nothing tells of {name} in database version {version}"
        lake = OpenLake(open_catalog(self.store, clock=self.clock), {})
        if self.is_told(table):
            rows = lake.at(version)[str(name)].to_arrow(["id"])["id"].to_pylist()
            assert sorted(rows) == sorted(row for _, row in rows_of(content)), f"{name} in database version {version}"
            assert all((self.root / path).is_file() for path in content.paths(table.location))
            return
        try:
            lake.at(version)[str(name)].to_arrow(["id"])
        except LockstepError:
            return
        raise AssertionError(f"{name} is read in database version {version}, of which nothing tells")

    def deltalake_reads(self, location: str, version: int, content: Content) -> None:
        """See that deltalake reads a table's version, if it has not done so since anything was last deleted."""
        if self.read_by_deltalake[0] != len(self.store.deleted):
            self.read_by_deltalake = len(self.store.deleted), set()
        if (location, version) not in self.read_by_deltalake[1]:
            table = deltalake.DeltaTable(str(self.root / location), version=version)
            rows = pa.RecordBatchReader.from_stream(table.scan(columns=["id"])).read_all()["id"].to_pylist()
            assert sorted(rows) == sorted(row for _, row in rows_of(content)), f"version {version} of {location}"
            self.read_by_deltalake[1].add((location, version))

    @invariant()
    def readers_keep_their_files(self) -> None:
        self.readers = [each for each in self.readers if self.clock.now - each.began_at < GRACE]
        for each in self.readers:
            for location, content in each.tables.values():
                missing = [path for path in content.paths(location) if not (self.root / path).is_file()]
                assert not missing, "a reader that began less than the grace period ago has lost files"

    @invariant()
    def transactions_keep_what_they_wrote(self) -> None:
        for each in self.open:
            if not each.is_dead:
                location = each.tx.base.tables[each.name].location
                assert (self.root / location / each.added).is_file()
        for clone in self.cloning:
            gone = [path for path in clone.shared if not (self.root / path).is_file()]
            assert not gone, "an open transaction's clone has lost files of its source"


def live(machine: RetentionMachine, data: st.DataObject, steps: int) -> None:
    """Have a machine live a history in which each rule is as likely as any other.

    Hypothesis itself switches most rules off for each history. That finds more in thousands; of a few, most would
    be dull.
    """
    machine.begin()
    for turn in range(steps):
        possible = [each for each in machine.rules if all(holds(machine) for holds in each.preconditions)]
        # Hypothesis's first history has the first of all choices; so that is another one in each turn.
        step = possible[(data.draw(st.integers(0, len(possible) - 1)) + turn) % len(possible)]
        arguments = {name: data.draw(strategy, label=name) for name, strategy in step.arguments.items()}
        note(f"{step.function.__name__} {arguments}")
        step.function(machine, **arguments)
        for each in machine.invariants:
            each.function(machine)
