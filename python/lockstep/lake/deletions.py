"""Deletions that have begun: what is about to go, written down before any of it goes, for whoever might bring it back.

    <root>/_lockstep/deletions/begun-<id>.json      one `Begun`, of one batch of upkeep; removed when that is done

Nothing that any readable version needs is ever deleted. But a commit that is under way may be about to need what no
version needs yet: a file of an old version of a table's own log, which is restored or cloned; one that a transaction
wrote so long ago that it looks like litter; a table that comes back from a version that expired since. So both look:

    upkeep      writes down what it begins to delete  →  has somebody make the next entry of the timeline (a fence)
                →  reads the entries up to there, and takes out what they need  →  deletes the rest  →  removes that
    a commit    reads the timeline on to version n  →  looks here  →  puts entry n + 1

A commit that looked before it was written down and puts its entry behind the fence loses the put, reads on, and looks
again; one whose entry is before the fence is seen. Only commits that may need such things look: one request each.

However long ago it was written down, it counts: the process may be stopped in the middle of a request, and go on with
it at any time. So the next run of upkeep deletes the rest before it removes what was written down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from lockstep.conflict.lock_policy import Time
from lockstep.errors import UnavailableError
from lockstep.storage import Storage
from lockstep.timeline.entry import Value
from lockstep.timeline.files import UNREADABLE

FOLDER = "_lockstep/deletions"
PREFIX = "begun-"
FORMAT = 3
"""1 was without `head`, 2 without `head_id`. A Lockstep that does not know a field cannot read the record: it
refuses to commit what may be in it, and deletes nothing by it."""
OLD = timedelta(minutes=30)
"""A commit that names a file older than this looks whether that is being deleted."""
YOUNGEST = 2 * OLD
"""No file that was written, or removed from its table, less than this ago is deleted, whatever is asked for."""

LOOKS = 100
"""So often is it listed anew what has begun, as some of it is gone before it is read."""

_log = logging.getLogger(__name__)


class Begun(Value, frozen=True):
    """What one run has begun to delete, all of it or a part.

    Attributes:
        format: 3, or an older one.
        id: of the batch: the run's, and a number.
        began_at: when, UTC, by that process' clock.
        head: the database version by which nobody needs it; -1 if nobody knows.
        head_id: the id of the transaction that made this version: a lake that was set back has others by its number;
            empty if nobody knows.
        files: paths relative to the lake's root, in the order in which they go.
        folders: folders, with all that is in them.
    """

    format: int
    id: str
    began_at: Time
    head: int = -1
    head_id: str = ""
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, id: str, head: int, began_at: datetime, paths: tuple[Iterable[str], Iterable[str]], head_id: str = ""
    ) -> Begun:
        """Return what is written down of files and folders."""
        files, folders = map(tuple, paths)
        return cls(format=FORMAT, id=id, began_at=began_at, head=head, head_id=head_id, files=files, folders=folders)


_decode = msgspec.json.Decoder(Begun).decode


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a commit is about to need that may be going.

    Attributes:
        files: paths relative to the lake's root.
        locations: folders of tables that come back.
        versions: the database versions that they come back from, which may have expired.
        adopted: tables that others made, by their folders and versions: their logs may name files of the lake.
        spellings: all names that such files may have in what is being deleted, see `lockstep.delta.places.may_mean`.
    """

    files: frozenset[str] = frozenset()
    locations: frozenset[str] = frozenset()
    versions: frozenset[int] = frozenset()
    adopted: frozenset[tuple[str, int]] = frozenset()
    spellings: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.files or self.locations or self.spellings)

    def with_files(self, files: frozenset[str]) -> Wanted:
        """Return this and some more files."""
        return replace(self, files=self.files | files)


def begin(storage: Storage, begun: Begun) -> None:
    """Write down what is about to go.

    Raises:
        UnavailableError: the store failed; nothing may be deleted.
        CorruptTimelineError: the id is another's.
    """
    storage.put_once(path_of(begun.id), msgspec.json.encode(begun))


def narrow(storage: Storage, begun: Begun, rest: Begun) -> None:
    """Leave out of what was written down what is needed after all: the rest is written down by itself.

    Another run may take over, finish and forget what was written down, all at once; a commit that looks then is told
    nothing. So that is never written anew: if it is gone, the rest is forgotten, too, and nothing is deleted by it.

    Raises:
        UnavailableError: the store failed; nothing may be deleted.
        CorruptTimelineError: the id is another's.
    """
    begin(storage, rest)
    if not storage.exists(path_of(begun.id)):
        end(storage, rest.id)
    end(storage, begun.id)


def end(storage: Storage, id: str) -> None:
    """Forget what one run began: it is done, or may be begun again.

    Raises:
        UnavailableError: the store failed.
    """
    storage.delete(path_of(id))


def begun(storage: Storage, *, strict: bool = False) -> list[Begun]:
    """Return what has begun, all of it at one moment.

    What is listed and gone when it is read may be written down by another name by then, see `narrow` and who takes
    over, which was not there yet to be listed. So it is listed again.

    Args:
        strict: whether what cannot be read, a newer Lockstep's for one, is an error.

    Raises:
        UnavailableError: the store failed; or, if `strict`, one cannot be read.
    """
    for _ in range(LOOKS):
        names = [name for name in storage.list(FOLDER, after=PREFIX) if name.startswith(PREFIX)]
        read = ((name, storage.get(f"{FOLDER}/{name}")) for name in names)
        files = {name: data for name, data in read if data is not None}
        if len(files) == len(names):
            break
    else:
        raise UnavailableError(f"what is being deleted changes all the time, by {FOLDER}: {LOOKS} looks at it failed")
    found = []
    for name, data in files.items():
        try:
            found.append(_decode(data))
        except UNREADABLE as error:
            if strict:
                raise UnavailableError(
                    f"{FOLDER}/{name} says what is being deleted, and cannot be read: {error}. If a newer Lockstep "
                    "wrote it, upgrade this one; if no upkeep is running, delete that file"
                ) from error
            _log.warning("no use of %s/%s: %s", FOLDER, name, error)
    return found


def going(storage: Storage, wanted: Wanted, more: Callable[[], frozenset[str]] = frozenset) -> str | None:
    """Return what of this is being deleted, for people; None if nothing is.

    Args:
        more: what else is wanted: paths that it takes long to find out, so it is asked only while something goes.

    Raises:
        UnavailableError: the store failed, so nobody knows.
        LockstepError: as `more` says.
    """
    if not wanted or not (found := begun(storage, strict=True)):
        return None
    wanted = wanted.with_files(wanted.spellings | more())
    for each in found:
        if files := wanted.files.intersection(each.files):
            return f"file {min(files)}"
        # Of a table that comes back, or is adopted, nobody here knows which files its log names.
        if wanted.locations and (below := [path for path in each.files if is_in_any(path, wanted.locations)]):
            return f"file {min(below)}"
        for folder in each.folders:
            inside = [path for path in (*wanted.files, *wanted.locations) if f"{path}/".startswith(f"{folder}/")]
            if inside:
                return f"what is in {folder}"
    return None


def is_in_any(path: str, locations: AbstractSet[str]) -> bool:
    """Tell whether a path is below one of some folders."""
    return any(path[:place] in locations for place, char in enumerate(path) if char == "/")


def path_of(id: str) -> str:
    """Return where what a run began is written down, relative to the lake's root."""
    return f"{FOLDER}/{PREFIX}{id}.json"
