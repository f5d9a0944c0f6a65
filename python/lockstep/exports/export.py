"""Exporting a database version, in an order in which a kill at any moment does no harm.

    1  read the tables' logs, and see that every file is there; what cannot be exported is refused by name
    2  record the export in the source: from here on nothing deletes what it needs
    3  see that its version has not expired meanwhile: then nothing of it has been deleted
    4  claim the target: the first of several exports to one target has it
    5  copy the files of a full export, reading each back
    6  write the tables' new logs, and read them back
    7  write the timeline's entry 0: the target is a lake
    8  forget a full export, which needs nothing of the source any more; see that any other has its record yet

Whoever asks for the same again goes on where it ended: what it finds of its own is read, and not written again. Several
may do so at a time, each without knowing of the others. So nobody takes back what keeps files unless he alone can have
needed it: not when a request has failed, and no record that was there before he came.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from lockstep.delta.actions import bodies, logical_file, parse
from lockstep.delta.checksum import advance
from lockstep.delta.log import checksum_path, commit_path
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import CorruptTimelineError, ExpiredError, InvalidError, LockstepError, UnsupportedError
from lockstep.exports.copying import Stores, check_there, copy
from lockstep.exports.files import S3, Copy
from lockstep.exports.keeping import confirm, keep, record_export, settle
from lockstep.exports.plan import TablePlan, plan_entry, plan_table
from lockstep.exports.target import (
    check_target,
    claim,
    claimed,
    first_entry,
    is_lake,
    is_same,
    made_as,
    read_minimal,
    refuse_inside,
    refuse_other,
    refuse_unless_empty,
    taken,
)
from lockstep.lake.exports import (
    FORMAT,
    ExportRecord,
    application_of,
    begun_path,
    forget_export,
    is_recorded,
    read_exports,
)
from lockstep.lake.kept_states import snapshot_of
from lockstep.lake.lake import Lake
from lockstep.storage import Mine, Storage, Theirs, open_storage, url_of
from lockstep.storage.outside import opener_of_files
from lockstep.timeline.clock import to_millisecond
from lockstep.timeline.database import Database
from lockstep.timeline.entry import ExportMode, Table
from lockstep.timeline.files import encode, entry_path
from lockstep.timeline.fold import apply
from lockstep.timeline.log import Timeline
from lockstep.timeline.settlements import refusal
from lockstep.workers import Workers

AT_ONCE = 16
"""So many tables are read, and so many files copied, at a time."""

OpenTarget = Callable[[str, bool], Storage]
"""Opens the store of a URL; the second argument says whether to make a local folder that is not there."""

Progress = Callable[[str, int, int], None]
"""Is told what is done (`tables`, `files`, `logs`), how much of it is, and how much there is."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export holds.

    Attributes:
        id: the export's.
        mode, source, target: as its record has them.
        database_version: of the source.
        tables, files, size: how many tables it has, how many data files those, and their bytes; the last two are None
            where it was whole before.
        is_done: False if nothing was written, because only that was asked for.
    """

    id: str
    mode: ExportMode
    source: str
    target: str
    database_version: int
    tables: int
    files: int | None
    size: int | None
    is_done: bool


@dataclass(frozen=True, slots=True)
class Asked:
    """What an export is asked for.

    Attributes:
        to: the URL or path of the target.
        mode: what it takes along.
        version: the database version; None is that of the export that is at the target, or was interrupted after it
            had claimed it, and the newest where nothing is there.
        author, statement: who asks, and in which words.
        dry_run: whether to see what would be done, and whether it can be, and write nothing.
        database: what the version says, if not the timeline but a file says it, see `lockstep.exports.importing`.
    """

    to: str
    mode: ExportMode
    version: int | None = None
    author: str = ""
    statement: str = ""
    dry_run: bool = False
    database: Database | None = None


def open_other(url: str, create: bool) -> Storage:
    """Open a store by what its environment says."""
    return open_storage(url, create=create)


def no_progress(_: str, __: int, ___: int) -> None:
    """Tell nobody."""


@dataclass(slots=True)
class Exporter:
    """Exports one lake's versions.

    Attributes:
        lake: the source.
        open_target: how stores other than the lake's are opened.
        progress: who is told how far it is; it is called by one thread at a time.
        for_spark: whether Spark is to read what a partial export names, wherever the lake's root is said to be.
    """

    lake: Lake
    open_target: OpenTarget = open_other
    progress: Progress = no_progress
    for_spark: bool = False
    _workers: Workers = field(default_factory=lambda: Workers(AT_ONCE, "lockstep-export"))

    def run(self, asked: Asked) -> Exported:
        """Make an export, or finish one that was interrupted.

        Raises:
            InvalidError: the target is in the lake, around it, or not empty; or there is no such version.
            DuplicateError: the target is a lake or a file already, or another export's.
            UnsupportedError: a table cannot be exported; the message names it.
            MissingFilesError: files of the version are gone; the message names them.
            ForeignCommitError: a table is set aside.
            CorruptTimelineError: a stored file is damaged, or a copy is not what it was copied from.
            UnavailableError: a store failed. Running the same again goes on.
        """
        target = url_of(asked.to)
        check_target(self.lake.storage.url, target)
        if asked.mode != "full":
            self._check_own(asked.mode)
        return self._run_minimal(asked, target) if asked.mode == "minimal" else self._run(asked, target)

    def _check_own(self, mode: ExportMode) -> None:
        """Refuse an export that would name files of a third lake: that one would not know for whom it keeps them."""
        if (made := made_as(self.lake.storage)) is not None and made[0] != "full":
            raise UnsupportedError(
                f"{self.lake.storage.url} is a {made[0]} export of {made[1]} and names files there, which are kept for "
                f"it alone: a {mode} export of it may lose them. Export that lake, or this one in full. Nothing was "
                "written"
            )

    def _run(self, asked: Asked, target: str) -> Exported:
        storage = self._existing(target)
        claimed_by = None if storage is None else claimed(storage)
        begun = self._begun(asked, target, claimed_by, is_there=False)
        database, record = self._meant(asked, target, begun)
        if storage is not None and is_lake(storage, record):
            return self._whole(asked, database, record)
        if claimed_by is None:
            refuse_unless_empty(target, storage, self._look_at)
        plans = self._prepare(asked, database, record, is_new=begun is None)
        if asked.dry_run:
            return exported(record, len(plans), plans, is_done=False)
        storage = self.open_target(target, True)
        if (owner := self._claim(storage, record, is_new=begun is None)) != record:
            record, plans = owner, self._plans(owner, database)
        settle(self.lake, record)
        self._write(storage, record, plans, database)
        return self._finished(record, len(plans), plans)

    def _run_minimal(self, asked: Asked, target: str) -> Exported:
        folder, _, name = target.rpartition("/")
        storage = self._existing(folder)
        data = None if storage is None else storage.get(name)
        begun = self._begun(asked, target, None, is_there=data is not None)
        database, record = self._meant(asked, target, begun)
        if data is not None:
            refuse_other(read_minimal(data, target), record)
            return self._whole(asked, database, record)
        refuse_inside(target, self._look_at)
        plans = self._prepare(asked, database, record, is_new=begun is None)
        if asked.dry_run:
            return exported(record, len(plans), plans, is_done=False)
        entry = plan_entry(record, database)
        settle(self.lake, record)  # first, for once the file is there it is an export
        match self.open_target(folder, True).put_if_absent(name, encode(entry)):
            case Theirs(data):
                try:
                    refuse_other(read_minimal(data, target), record)
                except InvalidError:
                    if begun is None:
                        forget_export(self.lake.storage, record.id)
                    raise
            case Mine():
                pass
        return self._finished(record, len(plans), plans)

    def _whole(self, asked: Asked, database: Database, record: ExportRecord) -> Exported:
        """Return what an export came to that is whole already; one that was dropped since is recorded again."""
        if asked.dry_run:
            return exported(record, len(database.tables), None, is_done=False)
        if record.mode == "full":
            return self._finished(record, len(database.tables), None)
        if not is_recorded(self.lake.storage, record):
            self._check_there(self._plans(record, database))
        # The fence goes for a record that is there, too: who wrote it may have failed before he had asked for one.
        keep(self.lake, record)
        return exported(record, len(database.tables), None)

    def _prepare(self, asked: Asked, database: Database, record: ExportRecord, *, is_new: bool) -> list[TablePlan]:
        """Return what is to be written of each table, all of whose files are there and stay."""
        plans = self._plans(record, database)
        plan_entry(record, database)  # whether it has room
        self._check_there(plans)
        if asked.dry_run:
            return plans
        if is_new:
            self.lake.storage.put(begun_path(record.id), b"")
        record_export(self.lake.storage, record)
        if record.mode != "full":
            confirm(self.lake, record)  # it needs files of the lake for as long as it is there
        return plans

    def _check_there(self, plans: list[TablePlan]) -> None:
        check_there(self._stores(), [place for plan in plans for place in plan.sources], self._workers)

    # --- what is meant ------------------------------------------------------------------------------------------------

    def _existing(self, target: str) -> Storage | None:
        """Return the store of a target; None if that is a local folder which is not there."""
        try:
            return self.open_target(target, False)
        except InvalidError:
            return None

    def _look_at(self, url: str) -> Storage:
        return self.open_target(url, False)

    def _begun(
        self, asked: Asked, target: str, claimed_by: ExportRecord | None, *, is_there: bool
    ) -> ExportRecord | None:
        """Return the record of the export that has a target already, or was about to.

        A clone that has been promoted was whole: if its folder is nobody's now, it was deleted, and what is made there
        is another clone, with an id of its own. By its id the lake knows what was promoted. So it is with one that was
        not promoted, where nobody asks for the same again: who makes a clone in the place of one that he deleted means
        the newest version, if he says none. The record of the old one stays, for it may have been moved.

        Args:
            claimed_by: who has the target, as it says itself.
            is_there: whether something is at the target, else.
        """
        if claimed_by is not None:
            return claimed_by
        batches = self.lake.refresh().batches
        found = [
            record
            for record in read_exports(self.lake.storage)
            if record.target == target and application_of(record) not in batches
        ]
        if not found:
            return None
        if is_there:
            return next((record for record in found if record.database_version == asked.version), found[-1])
        wanted = self._database(None).version if asked.version is None else asked.version
        for record in found:
            if (record.database_version, record.mode) == (wanted, asked.mode):
                return record
        # One that has no target yet may be just about to take it. Where others had one, it was deleted.
        others = [each for each in found if asked.version is not None or each.database_version == wanted]
        return next((each for each in others[::-1] if not is_recorded(self.lake.storage, each)), None)

    def _meant(self, asked: Asked, target: str, begun: ExportRecord | None) -> tuple[Database, ExportRecord]:
        """Return the database version that is to be exported, and the record of that."""
        if begun is not None and begun.source != self.lake.storage.url:
            raise taken(begun)
        version = begun.database_version if asked.version is None and begun is not None else asked.version
        database = self._database(version) if asked.database is None else self._readable(asked.database, version)
        record = ExportRecord(
            format=FORMAT,
            id=self.lake.new_id(),
            database_version=database.version if asked.database is None else asked.version or 0,
            mode=asked.mode,
            source=self.lake.storage.url,
            target=target,
            created_at=to_millisecond(self.lake.clock()),
            author=asked.author,
            statement=asked.statement,
        )
        if begun is None:
            return database, record
        if not is_same(begun, record):
            raise taken(begun)
        return database, begun

    def _database(self, version: int | None) -> Database:
        """Return a database version with the tags that name it now, its tables' logs published."""
        if version is None:
            return self.lake.caught_up(lambda head: head.tables.values())
        head = self.lake.refresh()
        database = self.lake.timeline.at(version)
        for table in database.tables.values():
            head.refuse_aside(table)
            database.refuse_aside(table)
        self.lake.check_past([*database.tables.values()])
        tags = {key: tag for key, tag in head.tags.items() if tag.version == version}
        return structs.replace(database, tags=tags)

    def _readable(self, database: Database, version: int | None) -> Database:
        """Return what a file says of a version of this lake's, if the tables' logs still say what that had.

        A version that has expired is not compared with the logs, for nobody knows what was committed.
        """
        head = self.lake.refresh()
        for table in database.tables.values():
            head.refuse_aside(table)
            if (settled := refusal(head, table)) is not None:
                raise settled
        try:
            known = self.lake.timeline.at(version or 0)  # a file does not say which entry changed a table last
        except ExpiredError:
            return database
        tables = (known.table_by_id(table.id) for table in database.tables.values())
        self.lake.check_past([table for table in tables if table is not None])
        return database

    def _plans(self, record: ExportRecord, database: Database) -> list[TablePlan]:
        """Read the tables' logs, and return what is to be written of each."""
        tables = sorted(database.tables.values(), key=lambda table: table.name)
        tell = Counter(self.progress, "tables", len(tables))
        s3: S3 = "s3a" if self.for_spark or record.source.startswith("s3a://") else "s3"

        def plan(table: Table) -> TablePlan:
            planned = plan_table(record, database, table, self._snapshot(table), s3=s3)
            tell.one_more()
            return planned

        return self._workers.map(plan, tables)

    def _snapshot(self, table: Table) -> Snapshot:
        try:
            return snapshot_of(self.lake.storage, table)
        except LockstepError as error:
            raise error.again(f" (table {table.name} cannot be exported; nothing was written)") from error

    def _stores(self) -> Stores:
        return Stores(self.lake.storage, opener_of_files(self.lake.storage, self._look_at))

    # --- what is written ----------------------------------------------------------------------------------------------

    def _claim(self, storage: Storage, record: ExportRecord, *, is_new: bool) -> ExportRecord:
        """Make the target this export's, or join the one that was faster, if that does the same.

        Args:
            is_new: whether the record is of this run. One that was there may be of an export that has been moved since.
        """
        owner = claim(storage, record)
        if owner == record:
            return record
        if is_same(owner, record):
            record_export(self.lake.storage, owner)  # before ours goes: it keeps the same files
        if is_new:
            forget_export(self.lake.storage, record.id)
        if not is_same(owner, record):
            raise taken(owner)
        return owner

    def _write(self, storage: Storage, record: ExportRecord, plans: list[TablePlan], database: Database) -> None:
        copies = [each for plan in plans for each in plan.copies]
        stores, files, logs = self._stores(), *(self._counter("files", copies), self._counter("logs", plans))

        def copy_one(file: Copy) -> None:
            copy(stores, storage, file)
            files.one_more()

        def write_one(plan: TablePlan) -> None:
            write_log(storage, record, plan)
            logs.one_more()

        self._workers.map(copy_one, copies)
        self._workers.map(write_one, plans)
        put_entry(storage, record, database)
        Timeline.open(storage)

    def _counter(self, what: str, items: Sequence[object]) -> Counter:
        return Counter(self.progress, what, len(items))

    def _finished(self, record: ExportRecord, tables: int, plans: list[TablePlan] | None) -> Exported:
        """Return what an export came to; a full one needs nothing of the source from here on."""
        if record.mode == "full":
            forget_export(self.lake.storage, record.id)
        elif not is_recorded(self.lake.storage, record):  # it was dropped, or marked, meanwhile
            keep(self.lake, record)
        return exported(record, tables, plans)


class Counter:
    """Counts what threads have done, and tells of it."""

    def __init__(self, progress: Progress, what: str, total: int) -> None:
        self._progress, self._what, self._total = progress, what, total
        self._done = 0
        self._lock = threading.Lock()

    def one_more(self) -> None:
        """Note that one more is done."""
        with self._lock:
            self._done += 1
            self._progress(self._what, self._done, self._total)


def write_log(storage: Storage, record: ExportRecord, plan: TablePlan) -> None:
    """Write the first commit of a table's new log, with its checksum, and read the table back.

    Raises:
        InvalidError: the folder has another table.
        CorruptTimelineError: the table that is read is not what was written.
        UnavailableError: the store failed.
    """
    location = plan.table.location
    path = commit_path(location, 0)
    match storage.put_if_absent(path, plan.render()):
        case Theirs(data):
            # That of an attempt before this one: it may name the same files in another order.
            if [info.get("txnId") for info in bodies(parse(data), "commitInfo")] != [record.id]:
                raise InvalidError(f"{storage.url}/{path} is another table's: choose a folder of its own")
        case Mine():
            pass
    if (checksum := advance(None, plan.commit, version=0)) is not None:
        storage.put(checksum_path(location, 0), msgspec.json.encode(checksum))
    found = read_snapshot(storage, location, 0)
    if {key: add["size"] for key, add in found.files.items()} != {
        logical_file(add): add["size"] for add in bodies(plan.commit, "add")
    }:
        raise CorruptTimelineError(
            f"table {plan.table.name}, read back from {storage.url}/{location}, has other files than were exported. "
            "Delete the folder of the export and run the same again"
        )


def put_entry(storage: Storage, record: ExportRecord, database: Database) -> None:
    """Write the timeline's entry 0: from here on there is a lake.

    Raises:
        DuplicateError: there is another one.
        UnavailableError: the store failed.
    """
    entry = plan_entry(record, database)
    apply(None, entry)  # what a reader of it will do
    match storage.put_if_absent(entry_path(0), encode(entry)):
        case Theirs():
            if (first := first_entry(storage)) is not None:
                refuse_other(first, record)
        case Mine():
            _log.info("export %s of database version %d is at %s", record.id, record.database_version, storage.url)


def exported(record: ExportRecord, tables: int, plans: list[TablePlan] | None, *, is_done: bool = True) -> Exported:
    """Return what an export came to, given what was written of each table; None if it was whole before."""
    return Exported(
        id=record.id,
        mode=record.mode,
        source=record.source,
        target=record.target,
        database_version=record.database_version,
        tables=tables,
        files=None if plans is None else sum(plan.files for plan in plans),
        size=None if plans is None else sum(plan.size for plan in plans),
        is_done=is_done,
    )
