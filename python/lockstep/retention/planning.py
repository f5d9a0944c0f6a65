"""The plan: what of a lake nobody needs. Storage is read here, and what that means is decided by the pure modules.

One decision serves all that deletes: `vacuum`, `remove_orphan_files` and `maintain` differ in what of it they do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from lockstep.commit.records import OpenRecord
from lockstep.commit.remnants import ENDED_BEFORE
from lockstep.delta.log import LOG
from lockstep.lake.claims import claim_path
from lockstep.lake.deletions import YOUNGEST
from lockstep.lake.exports import ABANDONED, lone_marks
from lockstep.lake.guests import guests
from lockstep.lake.kept_states import Kept, kept_states
from lockstep.lake.lake import Lake
from lockstep.retention.ages import CLEANS_LOGS, LOGS, REMOVED, Retention, duration_of
from lockstep.retention.files import Doomed, Kind, doomed_files, unfound
from lockstep.retention.horizon import readable
from lockstep.retention.kept import doomed_states, needed_states
from lockstep.retention.logs import doomed_log
from lockstep.retention.needs import NOTHING, Need, needs
from lockstep.retention.origins import made_here
from lockstep.retention.pins import CLOCKS, Pins, makes_tables, pins
from lockstep.retention.removed import without_log
from lockstep.retention.sidecars import doomed_sidecars
from lockstep.retention.silent import STAGED_UNREAD, check_shared, half_told, settle_silent
from lockstep.retention.since import id_at
from lockstep.retention.survey import Folder, Surveyed, began_elsewhere, folders, nothing_known, staged_files, surveyed
from lockstep.retention.unpublished import not_published
from lockstep.retention.versions import Readable
from lockstep.storage.outside import reaches
from lockstep.storage.urls import is_outside
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Table
from lockstep.transactions.folders import is_own

VACUUM: frozenset[Kind] = frozenset({"data", "log", "litter"})
ORPHANS: frozenset[Kind] = frozenset({"litter", "staging", "folder"})
EVERYTHING = VACUUM | ORPHANS

NOT_OURS = "it was adopted or released, so its files are not the lake's to delete: VACUUM the table"
"""Why nothing of a table's data and log goes that the lake did not make, or has given back."""

NOT_MADE_HERE = "its log begins with a commit that no Lockstep made: adopt it, or move it out of the lake"
NOT_KNOWN = (
    "the history does not say that the lake made it, so it may be another's: adopt it, or move it out of the lake"
)
"""Why a folder with a log stays that is called as the lake calls those of its tables, and that no version has."""

CLAIMED = "a lake says in {} that the table there is its own: release it there, or delete that file"
"""Why such a folder stays where another lake has adopted what lies in it."""

UNFOUND = (
    "its log names {}, which is not there by that name: the file is lost, or names are spelled in two ways here, as "
    "where the case of letters makes no difference. See what `lockstep verify --deep` says"
)
"""Why no data of a table goes where nobody can tell a file of it from litter."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is to be looked at.

    Attributes:
        kinds: which kinds of things may go.
        location: one table's folder; None is the whole lake.
        chosen: of which tables files may go; it is asked with None about one that the newest version does not have.
        orphan_age: so old is litter when it goes; for files in tables' folders what Delta says, where this is None.
        is_everything: whether all that may go is looked at.
    """

    kinds: frozenset[Kind]
    location: str | None = None
    chosen: Callable[[Table | None], bool] = lambda _: True
    orphan_age: timedelta | None = None
    is_everything: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What nobody needs.

    Attributes:
        head: the database version by which this was found.
        head_id: the id of the transaction that made it.
        readable: the versions that were readable then.
        doomed: what may go.
        dead: transactions that staged some of it, and that have to be ended before it goes.
        kept_whole: by location, why nothing of a table goes.
        tables: how many tables were looked at.
        set_aside: by the ids of tables that are set aside, the last version of each log that was looked at.
        is_everything: whether nothing else in the lake may go.
    """

    head: int
    readable: Readable
    doomed: list[Doomed]
    head_id: str = ""
    dead: frozenset[str] = frozenset()
    kept_whole: Mapping[str, str] = field(default_factory=dict)
    tables: int = 0
    set_aside: Mapping[str, int] = field(default_factory=dict)
    is_everything: bool = False


def plan(
    lake: Lake,
    scope: Scope,
    retention: Retention,
    own: Collection[OpenRecord] = (),
    *,
    expired: Readable | None = None,
) -> Plan:
    """Find out what nobody needs.

    Args:
        own: records of this process' open transactions.
        expired: what can be read after an expiry that is only looked at; by default what can be read now.

    Raises:
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    now = lake.clock()  # before anything is looked at: who comes meanwhile is younger, however long that takes
    database = lake.newest()  # a look at each log finds what was written over, and that table is kept whole
    wanted = pins(lake, own)
    can_be_read = readable(lake.timeline) if expired is None else replace(expired, newest=database.version)
    kept = kept_states(lake.storage)
    by_location = _needs(lake, can_be_read, database.version, kept)
    not_ours = guests(lake.storage)
    is_whole = makes_tables(wanted, database)
    found = _found(lake, by_location, not_ours, scope, is_whole=is_whole)
    surveys = _surveys(lake, database, found, by_location, can_be_read)
    gone = without_log(database, found, by_location)
    again = partial(pins, lake, own)
    silent, told_of = settle_silent(
        lake, surveys, by_location.keys(), gone, not_ours=not_ours, can_be_read=can_be_read, wanted=again
    )
    staged = {folder.location: staged_files(lake.storage, folder, lambda _: True) for folder in found.values()}
    silent |= {each: STAGED_UNREAD.format(each) for each, files in staged.items() if files is None}
    needed: list[tuple[str, Iterable[str]]] = [*told_of.items()]
    needed += ((each.folder.location, each.state.needed) for each in surveys)
    needed += ((location, files or ()) for location, files in staged.items())
    elsewhere = frozenset(path for location, paths in needed for path in paths if not path.startswith(f"{location}/"))
    planning = _Planning(
        lake=lake,
        database=database,
        scope=scope,
        retention=retention,
        wanted=wanted,
        elsewhere=elsewhere,
        now=now,
        guests=not_ours,
        silent=silent,
        half_told={location: why for location, (why, _) in half_told(surveys).items()},
        staged_files=staged,
    )
    for each in surveys:
        if scope.location is None or each.folder.location == scope.location:
            planning.look_at(each, is_known=each.folder.location in by_location)
    planning.settle_folders()
    if scope.location is None and "staging" in scope.kinds:
        planning.forget_marks()
        planning.doomed += doomed_states(
            lake, kept, needed_states(lake.timeline, can_be_read), planning.litter_before(retention.orphan_age)
        )
    ended = planning.staged and _ended(lake, planning.staged.values(), database.version)
    return Plan(
        head=database.version,
        head_id=id_at(lake, database.version),
        readable=can_be_read,
        doomed=planning.doomed,
        dead=frozenset(planning.staged) - (ended or frozenset()),
        kept_whole=planning.kept_whole,
        tables=planning.tables,
        set_aside=_set_aside(database, surveys),
        is_everything=scope.is_everything,
    )


def _set_aside(database: Database, surveys: Iterable[Surveyed]) -> dict[str, int]:
    """Return the last versions of the logs of tables that are set aside, by the tables' ids."""
    lasts: dict[str, int] = {}
    for each in surveys:
        table = database.table_at(each.folder.location)
        if table is not None and table.id in database.set_aside:
            lasts[table.id] = max(each.log.commits | each.log.checkpoints, default=-1)
    return lasts


def shared_files(lake: Lake, location: str, own: Collection[OpenRecord] = ()) -> frozenset[str]:
    """Return which files in a table's folder other tables need, in versions that somebody may read.

    They are those of shallow clones. All logs of the lake are read for that, and nothing else.

    Args:
        own: records of this process' open transactions.

    Returns:
        Paths within the folder.

    Raises:
        MissingFilesError: some log cannot be read, or does not tell any more what its table shared, so nobody knows.
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    database = lake.newest()
    can_be_read = readable(lake.timeline)
    by_location = _needs(lake, can_be_read, database.version, kept_states(lake.storage))
    others = {each: need for each, need in by_location.items() if each != location}
    found = _logs(lake, by_location, others)
    surveys = _surveys(lake, database, found, by_location, can_be_read)
    gone = without_log(database, found, others)
    not_ours = guests(lake.storage)
    wanted = partial(pins, lake, own)
    silent, told_of = settle_silent(
        lake, surveys, others.keys(), gone, not_ours=not_ours, can_be_read=can_be_read, wanted=wanted
    )
    check_shared(lake, location, surveys, silent, database)
    within = f"{location}/"
    named = (*(each.state.needed for each in surveys), *told_of.values())
    needed = (path for paths in named for path in paths if path.startswith(within))
    return frozenset(path.removeprefix(within) for path in needed)


def _needs(lake: Lake, can_be_read: Readable, head: int, kept: Kept) -> dict[str, Need]:
    """Return which versions of which folders' tables somebody may read."""
    timeline = lake.timeline
    since = timeline.scan(can_be_read.first, head)
    alone = map(timeline.at, sorted(can_be_read.alone))
    copied = kept.states.keys() - kept.hollow
    return dict(needs(timeline.at(can_be_read.first), since, alone, kept.sure, copied))


def _found(
    lake: Lake, known: Mapping[str, Need], not_ours: frozenset[str], scope: Scope, *, is_whole: bool
) -> dict[str, Folder]:
    """Return the folders to look at; of tables that only may share files with those that are meant, their logs.

    Among them are tables outside of the lake's root, whose data files are not the lake's to delete. Guests count as
    known also where no version has them any more: neither what is above nor what is in them is taken for the lake's.

    Args:
        is_whole: whether all of the lake is listed though one table alone is meant, see `makes_tables`.
    """
    others = (
        location
        for location in known
        if (location != scope.location or is_whole)
        and (not (scope.location is None or is_whole) or is_outside(location))
    )
    below = "" if scope.location is None or is_whole else scope.location
    return folders(lake.storage, {*known, *not_ours}, below) | _logs(lake, known, others)


def _logs(lake: Lake, known: Mapping[str, Need], locations: Iterable[str]) -> dict[str, Folder]:
    """Return the folders of some tables with nothing but their logs.

    What may not be looked at is as if it were away: what such a table needs of others' files nobody knows.
    """
    paths = [f"{location}/{LOG}" for location in locations if reaches(lake.storage, location)]
    found: dict[str, Folder] = {}
    for each in lake.side_by_side(lambda path: folders(lake.storage, known, path), paths):
        found |= each
    return found


def _surveys(
    lake: Lake, database: Database, found: Mapping[str, Folder], known: Mapping[str, Need], can_be_read: Readable
) -> list[Surveyed]:
    """Read what the logs in folders say, and note of which that is not all: some commit is not published yet."""
    missing = not_published(lake, can_be_read)
    surveys = []
    for folder in found.values():
        each = _surveyed(lake, database, folder, known)
        if (reason := missing.get(folder.location)) is not None:
            each = replace(each, kept_whole=each.kept_whole or reason, tells=False)
        surveys.append(each)
    return surveys


def _surveyed(lake: Lake, database: Database, folder: Folder, known: Mapping[str, Need]) -> Surveyed:
    if (need := known.get(folder.location)) is None:
        return nothing_known(folder, lake.storage.url)
    table = database.table_at(folder.location)
    set_aside = None if table is None else database.set_aside.get(table.id)
    newest = None if table is None else table.version
    return surveyed(lake, folder, need, newest, set_aside)


@dataclass
class _Planning:
    """One plan that is being made."""

    lake: Lake
    database: Database
    scope: Scope
    retention: Retention
    wanted: Pins
    elsewhere: frozenset[str]
    now: datetime
    guests: frozenset[str]
    silent: Mapping[str, str]
    half_told: Mapping[str, str]
    staged_files: Mapping[str, frozenset[str] | None]
    doomed: list[Doomed] = field(default_factory=list)
    staged: dict[str, datetime] = field(default_factory=dict)
    kept_whole: dict[str, str] = field(default_factory=dict)
    nobodys: list[Folder] = field(default_factory=list)
    tables: int = 0

    def look_at(self, each: Surveyed, *, is_known: bool) -> None:
        """Take in what of one folder may go."""
        table = self.database.table_at(each.folder.location)
        if not self.scope.chosen(table):
            return
        self.tables += is_known
        if each.kept_whole is not None:
            self.kept_whole[each.folder.location] = each.kept_whole
            return
        is_guest = is_outside(each.folder.location) or each.folder.location in self.guests
        # Once it is not in this lake, what is staged in its log may be another lake's, which has it now.
        is_open = self._staging(each.folder) if table is not None or not is_guest else True
        if is_guest:
            self.kept_whole[each.folder.location] = NOT_OURS
        elif is_known:
            self._table(each)
        elif "folder" in self.scope.kinds and not is_open:
            self._folder(each.folder)

    def litter_before(self, age: timedelta) -> datetime:
        """Return from when on what nobody names may be what an open transaction has written."""
        return self.wanted.before(self.now - max(age, YOUNGEST))

    def _staging(self, folder: Folder) -> bool:
        """Take in what dead transactions staged in a table's log; tell whether others have something there."""
        before = self.litter_before(self.retention.orphan_age)
        is_open = False
        for id_, found in folder.staged().items():
            newest = max(each.modified_at for each in found)
            if id_ in self.wanted.open_ids or newest >= before:
                is_open = True
            elif "staging" in self.scope.kinds:
                path = f"{folder.location}/_delta_log/_lockstep/{id_}"
                size = sum(each.size for each in found)
                self.doomed.append(Doomed(path, "staging", size, newest, len(found)))
                self.staged[id_] = min(newest, self.staged.get(id_, newest))
            else:
                is_open = True
        return is_open

    def _unfound(self, each: Surveyed) -> str | None:
        """Return a file that the newest version has, and that is not there by its name; see `unfound`.

        What a promotion copies is as old as what it is a copy of, and a listing in pages may lack it. So the folder is
        listed again. A store that is asked for one file may know it by another name, and does not tell.
        """
        before = self.now - CLOCKS
        if unfound(each.folder.files, each.state, before) is None:
            return None
        again = self.lake.storage.walk(each.folder.location)
        return unfound([*each.folder.files, *again], each.state, before)

    def _table(self, each: Surveyed) -> None:
        location = each.folder.location
        removed_age = duration_of(each.state.properties, REMOVED)
        log_age = duration_of(each.state.properties, LOGS)
        named = self.staged_files[location]
        if removed_age is None or log_age is None or named is None:
            self.kept_whole[location] = "its retention, or what a transaction staged in it, cannot be read"
            return
        litter_age = removed_age if self.scope.orphan_age is None else self.scope.orphan_age
        found = doomed_files(
            each.folder.files,
            each.state,
            named | self.elsewhere,
            removed_before=self.now - max(removed_age, YOUNGEST),
            litter_before=self.litter_before(litter_age),
        )
        if found and (lost := self._unfound(each)) is not None:
            self.kept_whole[location] = UNFOUND.format(lost)
            found = []
        if found and self._may_be_shared(location):
            found = []
        if each.state.properties.get(CLEANS_LOGS, "true").lower() == "true":
            before = self.now - max(log_age, YOUNGEST)
            need = each.state.need
            found += doomed_log(
                each.folder.log,
                each.log,
                need,
                each.newest,
                before=before,
                features=each.state.features,
                read_from=each.read_from,
            )
            before = min(before, self.litter_before(self.retention.orphan_age))
            found += doomed_sidecars(self.lake.storage, each.folder, each.state.features, before)
        self.doomed += [doomed for doomed in found if doomed.kind in self.scope.kinds]

    def _may_be_shared(self, location: str) -> bool:
        """Tell whether a table of which nobody knows what it needs may share a folder's files, and note it."""
        if self.silent:
            why = next(iter(self.silent.values()))
            self.kept_whole[location] = f"{why}, and that may be a clone which shares files of this one"
        elif location in self.half_told:
            self.kept_whole[location] = self.half_told[location]
        return bool(self.silent) or location in self.half_told

    def _folder(self, folder: Folder) -> None:
        """Take in the folder of a table that no version has, once all in it is old, and no table shares its files."""
        is_shared = any(path.startswith(f"{folder.location}/") for path in self.elsewhere)
        is_old = folder.newest < self.litter_before(self.retention.orphan_age)
        if not is_shared and is_old and not self._may_be_shared(folder.location):
            self.nobodys.append(folder)

    def settle_folders(self) -> None:
        """Decide what becomes of the folders that nobody needs: one that has, or had, a table has to be the lake's own.

        One without a log has none, whoever made it: a process was killed before its first commit.
        """
        made = made_here(self.lake.timeline, [folder.location for folder in self.nobodys if folder.log])
        for folder in self.nobodys:
            if folder.has_table_inside or (folder.log and folder.location not in made):
                self.kept_whole[folder.location] = NOT_KNOWN
            elif began_elsewhere(self.lake.storage, folder):
                self.kept_whole[folder.location] = NOT_MADE_HERE
            elif any(each.path == claim_path(folder.location) for each in folder.files):
                self.kept_whole[folder.location] = CLAIMED.format(claim_path(folder.location))
            else:
                self.doomed.append(Doomed(folder.location, "folder", folder.size, folder.newest, len(folder.files)))

    def forget_marks(self) -> None:
        """Take in marks of exports that nobody has a record of, once no export can be about to write it."""
        before = self.litter_before(max(self.retention.orphan_age, ABANDONED))
        self.doomed += [
            Doomed(mark.path, "litter", mark.size, mark.modified_at)
            for mark in lone_marks(self.lake.storage)
            if mark.modified_at < before
        ]


def _ended(lake: Lake, staged: Iterable[datetime], version: int) -> frozenset[str]:
    """Return the ids of all transactions that had ended by a version, since some time before the oldest of these.

    Who has ended since then may need what it staged: that is asked again before it goes.
    """
    since = min(staged) - ENDED_BEFORE
    ids: set[str] = set()
    # Also what has expired: who committed must not be ended after all.
    for entry in lake.timeline.past(through=version):
        if entry.committed_at < since:
            break
        ids |= {entry.transaction.id, *entry.aborts}
    return frozenset(ids)


def need_at(lake: Lake, location: str) -> Need:
    """Return which versions of the log of the table in a folder somebody may read, by what is known of the timeline.

    All since the oldest readable database version count, so of these only that one is looked at, unless another table
    has come to the folder since: one that was dropped, and adopted again at an older version of its log.

    Raises:
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    timeline = lake.timeline
    can_be_read = readable(timeline)
    table = timeline.at(can_be_read.first).table_at(location)
    alone = [found for version in can_be_read.alone if (found := timeline.at(version).table_at(location))]
    now = timeline.head.table_at(location)
    first = None if table is None else table.version
    if table is None or now is None or now.id != table.id:
        others = _first_since(lake, location, can_be_read.first)
        first = min((version for version in (first, others) if version is not None), default=None)
    return NOTHING if first is None and not alone else Need(first, tuple(sorted({table.version for table in alone})))


def _first_since(lake: Lake, location: str, version: int) -> int | None:
    """Return the first version of a table's log that database versions after one have, which has no table there.

    None if they have none: it may have been made, and dropped, since; or adopted, with versions that are nobody's here.
    """
    table = lake.timeline.head.table_at(location)
    if table is not None and is_own(location, table.id):
        return 0
    if table is not None and (known := lake.adopted_versions.get(table.id)) is not None:
        return known
    made = [
        ddl.version or 0
        for entry in lake.timeline.scan(version)
        for ddl in entry.tables
        if ddl.action == "create" and ddl.location == location
    ]
    if table is not None and made:
        lake.adopted_versions[table.id] = min(made)
    return min(made, default=None)
