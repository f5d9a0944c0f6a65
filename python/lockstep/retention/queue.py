"""The queue: what may go is marked first, and goes when it is still not needed after a grace period.

    <root>/_lockstep/deletions/marked-<id>.json     one `Marks`: paths, and since when they are marked

So whoever began to read a file before nobody needed it keeps it for that long at least. A mark is no promise and no
decision: what goes is what a later run finds to be needed by nobody, and finds marked for long enough. A mark from
before a file was removed the last time does not count. All marks may be deleted at any time, and are made again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from msgspec import structs

from lockstep.conflict.lock_policy import Time
from lockstep.lake.deletions import FOLDER
from lockstep.retention.files import Doomed
from lockstep.storage import Storage
from lockstep.timeline.entry import Value
from lockstep.timeline.files import UNREADABLE

PREFIX = "marked-"
FORMAT = 1
MOST_PATHS = 10_000
"""So many paths are in one file of marks."""
OLD = timedelta(days=90)
"""So long after their grace period nobody is about to use marks any more: who makes them looks more often."""

_log = logging.getLogger(__name__)


class Marks(Value, frozen=True):
    """Paths that were marked at one time.

    Attributes:
        format: 1.
        marked_at: when, UTC, by the clock of whoever did it.
        paths: relative to the lake's root.
    """

    format: int
    marked_at: Time
    paths: list[str]


_decode = msgspec.json.Decoder(Marks).decode


@dataclass(frozen=True, slots=True)
class Queue:
    """What is marked, by path since when, and the files that say so, each with its paths."""

    since: Mapping[str, datetime]
    files: Mapping[str, Marks]


def read_queue(storage: Storage) -> Queue:
    """Return what is marked; a file that cannot be read marks nothing.

    Raises:
        UnavailableError: the store failed.
    """
    since: dict[str, datetime] = {}
    files: dict[str, Marks] = {}
    for name in storage.list(FOLDER, after=PREFIX):
        if not name.startswith(PREFIX) or (data := storage.get(f"{FOLDER}/{name}")) is None:
            continue
        try:
            marks = files[f"{FOLDER}/{name}"] = _decode(data)
        except UNREADABLE as error:
            _log.warning("no use of %s/%s: %s", FOLDER, name, error)
            continue
        for path in marks.paths:
            since[path] = max(marks.marked_at, since.get(path, marks.marked_at))
    return Queue(since, files)


def split(
    doomed: Sequence[Doomed], since: Mapping[str, datetime], now: datetime, grace: timedelta
) -> tuple[list[Doomed], list[Doomed]]:
    """Return what may go now, and what has to be marked.

    Args:
        doomed: what nobody needs.
        since: what is marked, and since when.
        now: the time.
        grace: how long it has to be marked.
    """
    marked = {each.path for each in doomed if (at := since.get(each.path)) is not None and at >= each.since}
    due = [each for each in doomed if (since[each.path] if each.path in marked else now) + grace <= now]
    return due, [each for each in doomed if each.path not in marked]


def mark(storage: Storage, doomed: Sequence[Doomed], now: datetime, id: str) -> None:
    """Mark what nobody needs.

    Raises:
        UnavailableError: the store failed; some of it may be marked.
    """
    for number, begin in enumerate(range(0, len(doomed), MOST_PATHS)):
        marks = Marks(format=FORMAT, marked_at=now, paths=[each.path for each in doomed[begin : begin + MOST_PATHS]])
        storage.put(f"{FOLDER}/{PREFIX}{id}-{number}.json", msgspec.json.encode(marks))


def forget(storage: Storage, queue: Queue, doomed: AbstractSet[str]) -> None:
    """Take from all marks what some version has come to need: once it needs that no more, the grace period begins anew.

    Args:
        queue: what was marked before.
        doomed: all of the lake that nobody needs.

    Raises:
        UnavailableError: the store failed.
    """
    for path, marks in queue.files.items():
        if left := still(marks, doomed):
            storage.put(path, msgspec.json.encode(left))


def still(marks: Marks, doomed: AbstractSet[str]) -> Marks | None:
    """Return marks without what somebody needs; None where they stay as they are."""
    if doomed >= set(marks.paths):
        return None
    return structs.replace(marks, paths=[path for path in marks.paths if path in doomed])


def over(
    queue: Queue,
    waiting: AbstractSet[str],
    gone: AbstractSet[str],
    now: datetime,
    grace: timedelta,
    *,
    is_everything: bool,
) -> list[str]:
    """Return the files of marks that are of no use any more.

    Args:
        queue: what was marked before.
        waiting: what was looked at and stays marked.
        gone: what was deleted.
        now: the time.
        grace: how long a path has to be marked before it goes.
        is_everything: whether all that may go was looked at. Else what is not waiting may be what somebody else marked
            who looks at other things, `vacuum` beside `remove_orphan_files`: then only what is gone is over, or is old.
    """

    def is_over(marks: Marks) -> bool:
        if not waiting.isdisjoint(marks.paths):
            return False
        return is_everything or gone >= set(marks.paths) or now - marks.marked_at > OLD + grace

    return [path for path, marks in queue.files.items() if is_over(marks)]
