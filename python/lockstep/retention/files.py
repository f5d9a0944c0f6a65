"""Which files of one table may go: pure, over the actions of its log and a listing of its folder.

A data file belongs to the table versions from the commit that adds it to the one before that which removes it; so does
a deletion vector's file to those in which its data file has it. A file of change data belongs to the version of its
commit. A file stays while one of its versions is needed, and as plain Delta's readers are promised it
(`delta.deletedFileRetentionDuration`) from its removal on. What no commit names is litter once it is old enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from lockstep.delta.actions import Action, LogicalFile, logical_file, split
from lockstep.delta.combine.deletion_vectors import may_mean_of
from lockstep.delta.features import IN_ADDS, unknown_in
from lockstep.delta.log import LOG
from lockstep.delta.places import may_mean
from lockstep.errors import UnsupportedError
from lockstep.retention.needs import Need
from lockstep.storage import LATEST, Found, time_of

Kind: TypeAlias = Literal["data", "log", "litter", "staging", "folder"]
"""What goes: a file that no version needs any more, one of a table's log, one that no version ever had, what a dead
transaction staged, or the whole folder of a table that is in no version."""

CHANGES = "_change_data"
ICEBERG = "metadata"
"""The folder in a table's in which Iceberg's metadata lies, where it has UniForm; Delta's VACUUM hides it, too."""
EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Doomed:
    """Something that may go.

    Attributes:
        path: of a file, or of a folder with all that is in it, relative to the lake's root.
        kind: what it is.
        size: in bytes.
        since: since when nothing needs it, as far as is known, UTC; a mark from before that does not count.
        files: how many files it is.
    """

    path: str
    kind: Kind
    size: int
    since: datetime
    files: int = 1

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.kind in ("folder", "staging")


class _Live(NamedTuple):
    """A file of the newest version.

    Attributes:
        begin: the version that added it.
        paths: all that it and its vector may be called.
        of_data: so many of them are the data file's.
        data_at: when that was written, as whoever wrote it says.
        at: when the commit was written that has it so.
    """

    begin: int
    paths: list[str]
    of_data: int
    data_at: datetime
    at: datetime


@dataclass
class TableFiles:
    """What a table's log says of files, taken in version by version.

    Attributes:
        location: the table's folder, relative to the lake's root.
        root: the lake's root as a URL.
        need: which versions are needed.
        needed: paths that have to stay, relative to the lake's root, or URLs of what lies outside of it; those of other
            tables too, which a clone has.
        removed: paths that no needed version has, each with the time when it was removed.
        properties: the table's, as its newest metadata says.
        features: the writer features of its protocol.
        begins_at: when the checkpoint was written that the log begins with; long ago where it begins with version 0.
    """

    location: str
    root: str
    need: Need
    needed: set[str] = field(default_factory=set)
    removed: dict[str, datetime] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    begins_at: datetime = EPOCH
    _live: dict[LogicalFile, _Live] = field(default_factory=dict)

    def take(self, version: int, actions: Sequence[Action], at: datetime) -> None:
        """Take a commit in, or a checkpoint: what it removes, then what it adds.

        Args:
            at: when it was written: no file was removed by it before that.

        Raises:
            UnsupportedError: the table has a feature that is not known, and so what it needs is not.
            CorruptTimelineError: a file has a deletion vector that nobody knows how to find.
        """
        for kind, body in sorted(map(split, actions), key=lambda action: action[0] != "remove"):
            if kind == "remove":
                self._remove(version, body, at)
            elif kind == "add":
                # An add of what is there already (other statistics, a row id) does not make the file any younger.
                key = logical_file(body)
                begin = version if (before := self._live.get(key)) is None else before.begin
                self._live[key] = self._added(body, begin, at)
            elif kind == "cdc":
                paths = may_mean(body["path"], self.location, self.root)
                if self.need.has(version):
                    self.needed.update(paths)
                else:
                    self._note_removed(paths, at)
            elif kind == "metaData":
                self.properties = dict(body.get("configuration") or {})
            elif kind == "protocol":
                if (unknown := unknown_in(body, IN_ADDS)) is not None:
                    # Also where that was given up since: some version that is needed may have it.
                    raise UnsupportedError(
                        f"{self.location} has, or had, {unknown}, and which files that needs a newer Lockstep may know"
                    )
                self.features = frozenset(body.get("writerFeatures") or ())

    def finish(self, at: datetime) -> None:
        """Note that no more commits follow; `at` is when the last one was written."""
        for live in self._live.values():
            if self.need.has_any(live.begin, None):
                self.needed.update(live.paths)
            else:  # of a table that was dropped
                self._note_removed(live.paths, at)
        for path in self.needed:
            self.removed.pop(path, None)

    def _remove(self, version: int, body: dict[str, Any], at: datetime) -> None:
        # Where the log begins with a checkpoint, that may tell of a file's removal alone.
        live = self._live.pop(logical_file(body), None)
        begin, paths = (version, self._paths(body)) if live is None else (live.begin, live.paths)
        if self.need.has_any(begin, version):
            self.needed.update(paths)
            return
        self._note_removed(paths, max(said_at(body.get("deletionTimestamp")), at))

    def _note_removed(self, paths: list[str], at: datetime) -> None:
        for path in paths:
            self.removed[path] = max(at, self.removed.get(path, at))

    def newest_files(self, before: datetime) -> Iterator[list[str]]:
        """Yield the names of each file, data file or vector, that the newest version has in the table's own folder.

        Args:
            before: only what was written before that.
        """
        for live in self._live.values():
            data, vectors = live.paths[: live.of_data], live.paths[live.of_data :]
            for names, written_at in ((data, live.data_at), (vectors, max(live.data_at, live.at))):
                if written_at < before and any(name.startswith(f"{self.location}/") for name in names):
                    yield names

    def _added(self, body: dict[str, Any], begin: int, at: datetime) -> _Live:
        paths = self._paths(body)
        has_vector = body.get("deletionVector") is not None
        of_data = len(may_mean(body["path"], self.location, self.root)) if has_vector else len(paths)
        written_at = said_at(body.get("modificationTime"))
        # What does not say when it was written may have been there for long.
        return _Live(begin, paths, of_data, EPOCH if written_at == LATEST else written_at, at)

    def _paths(self, body: dict[str, Any]) -> list[str]:
        """Return the files of an add or a remove."""
        return may_mean_of(body, self.location, self.root)


def doomed_files(
    listed: Iterable[Found],
    table: TableFiles,
    spared: frozenset[str],
    *,
    removed_before: datetime,
    litter_before: datetime,
) -> list[Doomed]:
    """Return the files of a table's folder that may go, its log's left out.

    Args:
        listed: the folder's files.
        table: what its log says, to the end.
        spared: paths that others need: open transactions, clones.
        removed_before: what was removed later stays.
        litter_before: what no commit names stays if it was written later. Change data that was written after
            `removed_before` does, too: once its commit is behind a checkpoint nothing names it.
    """
    doomed: dict[str, Doomed] = {}
    checksums = []
    for found in listed:
        kind = kind_of(found.path.removeprefix(f"{table.location}/"))
        if kind == "checksum":
            checksums.append(found)
        if kind != "data" or found.path in table.needed or found.path in spared:
            continue
        if (removed_at := table.removed.get(found.path)) is not None:
            if removed_at < removed_before and found.modified_at < removed_before:
                doomed[found.path] = Doomed(found.path, "data", found.size, removed_at)
        elif found.modified_at < (min(litter_before, removed_before) if _is_change(found, table) else litter_before):
            # A log that begins with a checkpoint may not tell of what was removed before that.
            since = max(found.modified_at, table.begins_at)
            doomed[found.path] = Doomed(found.path, "litter", found.size, since)
    for found in checksums:
        folder, _, name = found.path.rpartition("/")
        if (of := doomed.get(f"{folder}/{name[1:-4]}")) is not None:
            doomed[found.path] = Doomed(found.path, of.kind, found.size, of.since)
    return [*doomed.values()]


def unfound(listed: Iterable[Found], table: TableFiles, before: datetime) -> str | None:
    """Return a file that the newest version has in the table's folder, and that a listing has by none of its names.

    Then the listing may spell names otherwise than the log, as where the letters' case makes no difference, and a file
    that looks like litter may be just that one. None where all are found. Only of the newest version: what older ones
    need plain Delta's VACUUM may have taken.

    Args:
        listed: the folder's files.
        table: what its log says, to the end.
        before: what was written later may have come behind the listing.
    """
    there = {found.path for found in listed}
    return next((names[0] for names in table.newest_files(before) if there.isdisjoint(names)), None)


def said_at(milliseconds: Any) -> datetime:
    """Return a time as a commit says it, since 1970; the latest that there is where that is no time."""
    if milliseconds is None:
        return EPOCH
    return time_of(milliseconds / 1000) if isinstance(milliseconds, int | float) else LATEST


def _is_change(found: Found, table: TableFiles) -> bool:
    return found.path.startswith(f"{table.location}/{CHANGES}/")


def kind_of(path: str) -> Literal["data", "checksum", "other"]:
    """Return what a file is by its path in a table's folder: Delta's readers and VACUUM pass over hidden names, too.

    `checksum` is one that Hadoop writes beside each file on a local disk: `.<name>.crc`.
    """
    *folders, name = path.split("/")
    hidden = [part for part in folders if part[:1] in "_." and part != CHANGES and "=" not in part]
    if hidden or LOG in folders or folders[:1] == [ICEBERG]:
        return "other"
    if name.startswith(".") and name.endswith(".crc"):
        return "checksum"
    return "other" if name[:1] in "_." else "data"
