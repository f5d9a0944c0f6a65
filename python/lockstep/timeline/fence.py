"""The fence: which entries may be gone because their versions expired, as the store itself says.

    <root>/_lockstep/expired/00000000000000000900.json      entries below 900 may be deleted

It is written before the first entry is deleted, one file for each time that versions expired, and never overwritten: so
the newest never goes back, whoever races. It tells "expired" from "lost", and keeps a process from a wrong answer that
stands on an old version: the name after it may be free again, and would read as the end of the timeline.

**How a process knows that a free name is the end.** It looked at some time, `sure_at`, and the name was free, or it
asked for the fence then, and that was not beyond its head. What comes after its head can have expired only since; and
who deletes entries waits for `GRACE_SECONDS` after the fence is written. So up to `GRACE_SECONDS` after `sure_at`
nothing that comes after the head was deleted, and a free name is the end. Later than that, the fence is asked again.
"""

from __future__ import annotations

import time
from typing import Protocol

from lockstep.errors import SnapshotTooOldError
from lockstep.storage import Names, Storage

FOLDER = "_lockstep/expired"

GRACE_SECONDS = 10.0
"""Between the fence and the first deletion; so long may a process count on what it saw of the timeline's end."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Lists(Protocol):
    """What the fence is looked for in."""

    def list(self, folder: str, after: str | None = None) -> Names:
        """Return the names in a folder, sorted, that sort after one."""
        ...


def now() -> float:
    """Return seconds that go on while the machine sleeps, from some moment on."""
    return time.clock_gettime(_CLOCK)


def counts_on(sure_at: float) -> bool:
    """Tell whether a process may count yet on what it saw of the timeline's end."""
    return now() - sure_at < GRACE_SECONDS


def wait() -> None:
    """Wait until no process counts any more on what it saw before the fence."""
    time.sleep(GRACE_SECONDS)


def fence_path(first_kept: int) -> str:
    """Return where it is said that entries below a version may be gone."""
    return f"{FOLDER}/{first_kept:020d}.json"


def fence(storage: Lists, after: int = 0) -> int:
    """Return below which version entries may be gone; 0 if that is not beyond `after`.

    Raises:
        UnavailableError: the store failed.
    """
    names = storage.list(FOLDER, f"{after:020d}.json")
    return max((int(name[:20]) for name in names if name[:20].isdecimal() and name[20:] == ".json"), default=0)


def raise_fence(storage: Storage, first_kept: int) -> None:
    """Say that entries below a version may be gone.

    Raises:
        UnavailableError: the store failed.
    """
    storage.put_once(fence_path(first_kept), b'{"first_kept":%d}\n' % first_kept)


def lower_fences(storage: Storage) -> None:
    """Delete what older times said: the newest says it, too.

    Raises:
        UnavailableError: the store failed.
    """
    newest = fence(storage)
    for name in storage.list(FOLDER):
        if name < f"{newest:020d}.json":
            storage.delete(f"{FOLDER}/{name}")


def left_behind(version: int, first_kept: int) -> SnapshotTooOldError:
    """Return what to say to a process that stands on a version of which nobody can tell what came after it."""
    return SnapshotTooOldError(
        f"what was committed after database version {version}, the newest that this process knew, has expired: entries "
        f"below {first_kept} are gone. Nothing of this was committed: run it again"
    )
