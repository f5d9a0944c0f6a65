"""Whether later database versions are in the way of taking back one: they are judged one by one, as they are read.

Few things are in memory at once, however many versions came later: what was touched, and the places of some commits
that no entry holds, which are read side by side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from msgspec import structs

from lockstep.delta.combine.going_back import Same, what_is_same
from lockstep.delta.log import commit_path, parsed
from lockstep.delta.publish import content
from lockstep.errors import LockstepError, UnavailableError
from lockstep.lake.kept_states import snapshot_of
from lockstep.lake.lake import Lake
from lockstep.recovery.revert import (
    Culprit,
    Thing,
    has_read,
    is_as_left,
    overtaken,
    refused,
    things_of,
    why_in_the_way,
    why_no_append,
)
from lockstep.timeline.database import Database
from lockstep.timeline.entry import NEW, Entry, TableWrite
from lockstep.transactions.names import Names

AT_ONCE = 64
"""So many commits are read from tables' logs before they are judged, side by side."""


@dataclass(frozen=True, slots=True)
class _Commit:
    """A commit of a table that is in its log alone."""

    thing: Thing
    table: str
    path: str
    culprit: Culprit
    is_external: bool


@dataclass
class Later:
    """What came behind a database version, as far as it touched the same.

    Attributes:
        entry: what is to be taken back.
        names: as they are now.
        beside: whether a table can lose what the entry did to it, and keep what came later.
        appended: the ids of the tables to which later versions only appended.
    """

    lake: Lake
    entry: Entry
    names: Names
    beside: bool
    appended: set[str] = field(default_factory=set)
    _as_left: set[Thing] = field(default_factory=set)
    _unread: list[_Commit] = field(default_factory=list)

    @cached_property
    def made(self) -> Database:
        """The database as the entry left it: it is only asked for where something came later."""
        return self.lake.timeline.at(self.entry.version)

    def judge(self, entries: Iterable[Entry]) -> None:
        """Judge later entries, the oldest first.

        Raises:
            InvalidError: one of them is in the way: the first of those that are read together.
            UnavailableError, CorruptTimelineError: the timeline or a log cannot be read.
        """
        mine = things_of(self.entry)
        for other in entries:
            self._refuse_overtaken(other)
            for thing in sorted((mine & things_of(other)) - self._as_left, key=repr):
                why = why_in_the_way(self.entry, other, thing, beside=self.beside)
                if why is not None:
                    self._read()
                    self._meet(Culprit.of(other), thing, why)
                elif thing not in self._as_left:
                    self._appends(other, thing)
            if len(self._unread) >= AT_ONCE:
                self._read()
        self._read()

    def _refuse_overtaken(self, other: Entry) -> None:
        """Refuse if a later entry says that others' commits came between what a table was before the entry and its own.

        Raises:
            InvalidError: it does. That the table is as the entry left it is no help: it left it with those.
            UnavailableError, CorruptTimelineError: the timeline cannot be read.
        """
        timeline, mine = self.lake.timeline, self.entry.version
        for id_ in sorted(move.id for move in other.moved if move.entry == mine):
            old, versions = timeline.at(mine - 1).table_by_id(id_), timeline.placements[id_, mine]
            first = NEW + 1 if old is None else old.version + 1
            if versions != tuple(range(first, first + len(versions))):
                [write] = [write for write in self.entry.writes if write.id == id_]
                raise overtaken(self.entry, Culprit.of(other), str(write.name), versions)

    def _appends(self, other: Entry, thing: Thing) -> None:
        """Judge what a later entry wrote to a table by its commits, of which those that it does not hold are noted."""
        culprit, is_external = Culprit.of(other), other.kind == "external"
        [write] = [each for each in other.writes if each.id == thing.key]
        reasons: list[str | None] = []
        for at, version in enumerate(self._versions(write, other)):
            path = commit_path(write.location, version)
            if write.commits and write.commits[at].inline is not None:
                data = content(self.lake.storage, write.location, write.commits[at])
                reasons.append(why_no_append(parsed(path, data), is_external=is_external))
            else:
                self._unread.append(_Commit(thing, str(write.name), path, culprit, is_external))
        then = self.made.table_by_id(write.id)
        assert then is not None, "both only wrote it"
        if has_read(other, write.id, then.version):
            reasons.append("appended to rows that it had read")
        self.appended.add(write.id)
        if (why := next(filter(None, reasons), None)) is not None:
            self._read()
            self._meet(culprit, thing, _changed(str(write.name), why))

    def _versions(self, write: TableWrite, other: Entry) -> Iterable[int]:
        """Return the versions of a table's log that an entry is."""
        if write.commits:
            return self.lake.timeline.versions(write, other.version)
        return range(write.from_version + 1, write.to_version + 1)

    def _read(self) -> None:
        """Judge the commits that are to be read from tables' logs."""
        while self._unread:
            some, self._unread = self._unread[:AT_ONCE], self._unread[AT_ONCE:]
            for commit, why in zip(some, self.lake.side_by_side(self._judged, some), strict=True):
                if why is not None:
                    self._meet(commit.culprit, commit.thing, why)

    def _judged(self, commit: _Commit) -> str | None:
        """Return why a commit is in the way; None if it only appended."""
        if (data := self.lake.storage.get(commit.path)) is None:
            return f"changed table {commit.table} after it, and {commit.path} is gone, which says how"
        why = why_no_append(parsed(commit.path, data), is_external=commit.is_external)
        return None if why is None else _changed(commit.table, why)

    def _meet(self, culprit: Culprit, thing: Thing, why: str) -> None:
        """Pass over a later entry that is in the way if that is undone by now; then nothing else matters either.

        Raises:
            InvalidError: it is not.
        """
        if thing in self._as_left:
            return
        try:
            same = self._same(thing)
        except UnavailableError:
            raise
        except LockstepError as error:  # the log does not tell any more what the table was
            raise refused(self.entry, culprit, why, beside=self.beside) from error
        if same != "all":
            raise refused(self.entry, culprit, why, only_metadata=same == "files", beside=self.beside)
        self._as_left.add(thing)
        if isinstance(thing.key, str):
            self.appended.discard(thing.key)

    def _same(self, thing: Thing) -> Same:
        """Return what of a thing is by now as the entry left it.

        Raises:
            LockstepError: a table's log cannot be read.
        """
        if not is_as_left(thing, self.made, self.names):
            return "none"
        if not isinstance(thing.key, str) or (now := self.names.table_by_id(thing.key)) is None:
            return "all"
        then = self.made.table_by_id(thing.key)
        assert then is not None, "it is as it was left"
        if then.version == now.version:
            return "all"
        old, new = self.lake.side_by_side(
            lambda version: snapshot_of(self.lake.storage, structs.replace(now, version=version)),
            (then.version, now.version),
        )
        return what_is_same(old, new)


def _changed(table: str, why: str) -> str:
    return f"changed table {table} after it: it {why}"
