"""What there is in a lake, read into values: folders of tables and what is in them, and what their logs say of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from lockstep.delta.actions import TRANSACTION_PARAMETER, Action, bodies, parse
from lockstep.delta.checkpoint_files import can_read, checkpoint_actions
from lockstep.delta.log import LOG, LogFiles, commit_path, log_files_of
from lockstep.errors import CorruptTimelineError, ForeignCommitError, InvalidError, LockstepError, UnsupportedError
from lockstep.lake.kept_states import kept_state, state_path
from lockstep.lake.lake import Lake
from lockstep.retention.files import EPOCH, TableFiles
from lockstep.retention.logs import first_lost, first_told, unreadable
from lockstep.retention.needs import NOTHING, Need
from lockstep.storage import Found, Storage
from lockstep.timeline.entry import Table

OWN = "_lockstep"
"""The folder of the lake's own files."""

KEPT_AT_ONCE = 16
"""So many versions that are kept for tags are read at a time: each is all the paths of a table."""
AT_ONCE = 256
"""So many commits of a log are read at a time."""

LACKS = "{} does not tell of version {} any more, which a database version that is kept has: commit {} is gone"
"""Why nobody can tell what of a table is needed."""

_OF_A_LAKE = re.compile(r".+-[0-9a-f]{24}")
_STAGED = re.compile(rf"{LOG}/_lockstep/([^/]+)/(.+)")
_COMMIT = re.compile(r"\d{20}\.json")


@dataclass
class Folder:
    """A folder of a table, or of what is to become one or was one, and the files in it.

    Attributes:
        location: relative to the lake's root.
        files: all of them.
    """

    location: str
    files: list[Found] = field(default_factory=list)

    @property
    def log(self) -> list[Found]:
        """The files directly in its log."""
        prefix = f"{self.location}/{LOG}/"
        return [found for found in self.files if found.path.startswith(prefix) and "/" not in found.path[len(prefix) :]]

    @property
    def has_no_log(self) -> bool:
        """Whether nothing is there from which a version could be read, be it that a hint or a checksum is left."""
        return log_files_of(found.path.rpartition("/")[2] for found in self.log).is_empty

    @property
    def has_table_inside(self) -> bool:
        """Whether some folder in it has a log: that of a table which nobody here knows."""
        own = f"{self.location}/{LOG}/"
        return any(f"/{LOG}/" in found.path and not found.path.startswith(own) for found in self.files)

    @property
    def newest(self) -> datetime:
        """When the last of its files was written."""
        return max((found.modified_at for found in self.files), default=EPOCH)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(found.size for found in self.files)

    def staged(self) -> Mapping[str, list[Found]]:
        """Return what transactions have staged in its log, by their ids."""
        by_id: dict[str, list[Found]] = {}
        for found in self.files:
            if match := _STAGED.fullmatch(found.path.removeprefix(f"{self.location}/")):
                by_id.setdefault(match[1], []).append(found)
        return by_id


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A table's folder, and what is known of it.

    Attributes:
        folder: what is there.
        state: what its log says of its files.
        log: which commits and checkpoints the log has.
        newest: its version in the newest database version; that of its last commit if it is in none.
        kept_whole: why nobody can tell what of it is needed, so that nothing of it goes; None if somebody can.
        read_from: the version that its log was read from on, a checkpoint's or the first.
        tells: whether `state` has all that its versions which can be read need of other tables' files, as clones do.
        why_not: why it does not tell, for people, where its log is there and cannot be understood here.
        lost: the first needed version that nobody can read, for a clean-up took the beginning of the log, and nothing
            is kept of it for tags; None if there is none.
    """

    folder: Folder
    state: TableFiles
    log: LogFiles
    newest: int
    kept_whole: str | None
    tells: bool = True
    why_not: str | None = None
    read_from: int = 0
    lost: int | None = None

    @property
    def lacks(self) -> str:
        """What its log has lost, for people."""
        missing = None if self.lost is None else self.log.missing_for(self.lost)
        return LACKS.format(f"the log of {self.folder.location}", self.lost, missing)

    def has_lost(self, table: Table) -> bool:
        """Tell whether neither the log nor what is kept for tags tells of the table in the folder, at its version."""
        return (
            self.log.missing_for(table.version) is not None and (table.id, table.version) not in self.state.need.copied
        )


def folders(storage: Storage, known: Iterable[str], below: str = "") -> dict[str, Folder]:
    """Return the folders of tables that there are, by their locations.

    A folder counts as a table's if it is known, or if its name ends in such an id as Lockstep gives to tables. One that
    only has such a name is none where it lies within another table, known or not: that is a partition.

    What has a name that is no Unicode, as files of a local disk may, is left out: no log can name it, nor can it be
    written down that it goes, so it stays.

    Args:
        known: the locations that the timeline has, and those of tables that are not the lake's own.
        below: only those in this folder.

    Raises:
        UnavailableError: the store failed.
    """
    locations = set(known)
    above = {location.rpartition("/")[0] for location in locations}
    above |= {each[:place] for each in above for place, char in enumerate(each) if char == "/"}
    found: dict[str, Folder] = {}
    tables: set[str] = set()
    for each in storage.walk(below):
        if not _is_unicode(each.path):
            continue
        table, log, _ = each.path.partition(f"/{LOG}/")
        if log:
            tables.add(table)
        if (location := _location(each.path, locations, above)) is not None:
            found.setdefault(location, Folder(location)).files.append(each)
    return {each: folder for each, folder in found.items() if each in locations or not _is_within(each, tables)}


def _is_unicode(path: str) -> bool:
    """Tell whether a path can be written down; Python reads bytes that are no UTF-8 as halves of surrogates."""
    return path.isascii() or not any("\ud800" <= char <= "\udfff" for char in path)


def _is_within(location: str, tables: set[str]) -> bool:
    return any(location[:place] in tables for place, char in enumerate(location) if char == "/")


def _location(path: str, locations: set[str], above: set[str]) -> str | None:
    parts = path.split("/")
    if parts[0] == OWN:
        return None
    for count in range(1, len(parts)):
        prefix = "/".join(parts[:count])
        if prefix in locations or (_OF_A_LAKE.fullmatch(parts[count - 1]) and prefix not in above):
            return prefix
    return None


def surveyed(lake: Lake, folder: Folder, need: Need, version: int | None, set_aside: LockstepError | None) -> Surveyed:
    """Read what a table's log says of its files.

    Args:
        need: which versions somebody may read.
        version: the table's in the newest database version; None if it is not in it.
        set_aside: why it cannot be used, if it cannot.

    Raises:
        UnavailableError: the store failed.
    """
    state = TableFiles(folder.location, lake.storage.url, need)
    times = {found.path: found.modified_at for found in folder.log}
    log = log_files_of(path.rpartition("/")[2] for path in times)
    last = max(log.commits | log.checkpoints, default=-1)
    newest = last if version is None else version
    if set_aside is None and (newest > last or last < 0):
        return Surveyed(folder, state, log, newest, f"its log ends before version {newest}", tells=False)
    told = _take_log(lake, state, times, log, min(newest, last))
    why, tells = told.why, told.is_all
    if set_aside is not None:
        why = f"it is set aside: {set_aside.message}"
        # Of a table that has diverged the log does not say what the timeline's commits need of others' files; a commit
        # that is not published may bring back files of others.
        tells = tells and not isinstance(set_aside, ForeignCommitError) and newest <= last
    return Surveyed(folder, state, log, newest, why, tells, told.why_not, told.begin, told.lost)


class _Told(NamedTuple):
    """What came of reading a log.

    Attributes:
        is_all: whether it says all that its versions which can be read need.
        why: why it does not say all that is needed; None if it does.
        why_not, lost: see `Surveyed`.
        begin: the version that it was read from on.
    """

    is_all: bool
    why: str | None = None
    why_not: str | None = None
    begin: int = 0
    lost: int | None = None


def _take_log(lake: Lake, state: TableFiles, times: Mapping[str, datetime], log: LogFiles, newest: int) -> _Told:
    """Take in a table's log, from where its first needed version is read from that can be, and what is kept of it."""
    if newest < 0:
        return _Told(is_all=False)
    need, last = state.need, max(log.commits | log.checkpoints)
    lost = unreadable(log, need, newest)
    lacks = None if lost is None else LACKS.format("its log", lost, log.missing_for(lost))
    first = 0 if lost is None else first_told(log, need)
    if lost is not None and (first is None or first > newest):
        return _Told(False, lacks, LACKS.format(f"the log of {state.location}", lost, log.missing_for(lost)))
    begin = log.needed_from(max(first or 0, min((*need.of_log, newest))))
    if begin > 0 and not can_read() and 0 in log.commits and log.missing_for(newest) is None:
        begin = 0 if all(version in log.commits for version in range(last + 1)) else begin
    try:
        _replay(lake, state, times, begin, last)
        _take_kept(lake, state, begin, need.kept if lost is None else need.kept | need.copied)
    except CorruptTimelineError as error:
        return _Told(False, error.message, f"what the log of {state.location} says cannot be read: {error.message}")
    except UnsupportedError as error:
        return _Told(False, error.message, error.message)
    return _Told(True, lacks, begin=begin, lost=None if lost is None else first_lost(log, need, first or 0))


def _replay(lake: Lake, state: TableFiles, times: Mapping[str, datetime], begin: int, last: int) -> None:
    """Take in a log from a version on: a checkpoint's, or the first."""
    location, storage = state.location, lake.storage
    if begin:
        names = [path.rpartition("/")[2] for path in times]
        state.take(begin, checkpoint_actions(storage, location, begin, names), EPOCH)
        state.begins_at = max(at for path, at in times.items() if path.rpartition("/")[2].startswith(f"{begin:020d}."))
        begin += 1
    numbers = range(begin, last + 1)
    for place in range(0, len(numbers), AT_ONCE):
        some = numbers[place : place + AT_ONCE]
        for version, actions in zip(some, lake.side_by_side(_reader(storage, location), some), strict=True):
            state.take(version, actions, times.get(commit_path(location, version), EPOCH))
    state.finish(max(times.values()))


def _take_kept(lake: Lake, state: TableFiles, begin: int, kept: Iterable[tuple[str, int]]) -> None:
    """Take in which files those versions need that are kept for tags and come before what was read of the log."""
    before = sorted((id_, version) for id_, version in kept if version < begin)
    for place in range(0, len(before), KEPT_AT_ONCE):
        some = before[place : place + KEPT_AT_ONCE]
        for paths in lake.side_by_side(lambda key: kept_files(lake.storage, state.location, *key), some):
            state.needed |= paths
    for path in state.needed:
        state.removed.pop(path, None)


def kept_files(storage: Storage, location: str, id: str, version: int) -> set[str]:
    """Return the files that a version of a table needs, by what is kept of it for tags.

    Args:
        location: the table's folder.

    Returns:
        Paths relative to the lake's root, or URLs of what lies outside of it.

    Raises:
        CorruptTimelineError: what is kept is gone, or cannot be read.
        UnsupportedError: it begins with a checkpoint, and pyarrow is not installed.
        UnavailableError: the store failed.
    """
    if (kept := kept_state(storage, id, version)) is None:
        raise CorruptTimelineError(f"{state_path(id, version)} is gone: a tag kept that version there until just now")
    names = [file.name for file in kept.files]
    log = log_files_of(names)
    state = TableFiles(location, storage.url, Need(alone=(version,)))
    first = max((each for each in log.checkpoints if each <= version), default=-1)
    if first >= 0:
        state.take(first, checkpoint_actions(storage, kept.folder, first, names), EPOCH)
    read = _reader(storage, kept.folder)
    for each in range(first + 1, version + 1):
        state.take(each, read(each), EPOCH)
    state.finish(EPOCH)
    return state.needed


def _reader(storage: Storage, location: str) -> Callable[[int], list[Action]]:
    def read(version: int) -> list[Action]:
        path = commit_path(location, version)
        if (data := storage.get(path)) is None:
            raise CorruptTimelineError(f"{path} is gone, and what follows it needs it")
        try:
            return parse(data)
        except InvalidError as error:
            raise CorruptTimelineError(f"{path}: {error.message}") from error

    return read


def staged_files(storage: Storage, folder: Folder, spared: Callable[[str], bool]) -> frozenset[str] | None:
    """Return the files that staged commits in a folder name, relative to the lake's root.

    Args:
        spared: tells of which transactions.

    Returns:
        None where one of them cannot be read, so that nobody knows.

    Raises:
        UnavailableError: the store failed.
    """
    try:
        return _staged_files(storage, folder, spared)
    except (InvalidError, CorruptTimelineError):
        return None


def _staged_files(storage: Storage, folder: Folder, spared: Callable[[str], bool]) -> frozenset[str]:
    state = TableFiles(folder.location, storage.url, Need(first=0))
    for id_, found in folder.staged().items():
        if not spared(id_):
            continue
        for path in (each.path for each in found if each.path.endswith(".json")):
            if (data := storage.get(path)) is None:
                continue
            state.take(0, [action for action in parse(data) if "add" in action or "cdc" in action], EPOCH)
    state.finish(EPOCH)
    return frozenset(state.needed)


def began_elsewhere(storage: Storage, folder: Folder) -> bool:
    """Tell whether the oldest commit in a folder's log says, or may say, that no transaction of Lockstep made it.

    One without `commitInfo` says nothing, and neither does a log without commits.

    Raises:
        UnavailableError: the store failed.
    """
    commits = sorted(each.path for each in folder.log if _COMMIT.fullmatch(each.path.rpartition("/")[2]))
    if not commits or (data := storage.get(commits[0])) is None:
        return False
    try:
        infos = bodies(parse(data), "commitInfo")
    except InvalidError:
        return True
    return any(TRANSACTION_PARAMETER not in (info.get("operationParameters") or {}) for info in infos)


def nothing_known(folder: Folder, root: str) -> Surveyed:
    """Return a folder of which no database version knows."""
    return Surveyed(folder, TableFiles(folder.location, root, NOTHING), LogFiles(), -1, None)


def named_by(commits: Iterator[list[Action]], location: str, root: str) -> frozenset[str]:
    """Return all files that commits of a table add or change, relative to the lake's root.

    Raises:
        UnsupportedError, CorruptTimelineError: nobody can tell, see `TableFiles.take`.
    """
    state = TableFiles(location, root, Need(first=0))
    for actions in commits:
        kinds = ("protocol", "add", "cdc")
        state.take(0, [{kind: body} for kind in kinds for body in bodies(actions, kind)], EPOCH)
    state.finish(EPOCH)
    return frozenset(state.needed)
