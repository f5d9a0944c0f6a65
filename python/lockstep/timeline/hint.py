"""The hint: where the timeline ends, as whoever wrote it last knew. It saves looking, and is checked by a look.

It is written after the entry that it names, so one that names an entry that is not there proves that an entry was lost.
"""

from __future__ import annotations

import logging

import msgspec

from lockstep.errors import CorruptTimelineError
from lockstep.storage import Storage
from lockstep.timeline.files import FOLDER, UNREADABLE, entry_path

HINT = f"{FOLDER}/_latest"

CHECKPOINTS = "_lockstep/checkpoints"
"""Where the checkpoints lie: whoever gives entries up for lost must delete these too, for they tell of them."""

_log = logging.getLogger(__name__)


class Hint(msgspec.Struct):
    """What the hint says; fields that a later Lockstep writes are passed over.

    `version` is an entry that is there, `published_through` the last one up to which all commits are published,
    `checkpoint` the version of a checkpoint, if the writer knew of one, and `file` the version that has given the file
    its name which holds the entry, if that is another one. What a Lockstep does not know of these it leaves out.
    """

    version: int
    published_through: int = 0
    checkpoint: int | msgspec.UnsetType = msgspec.UNSET
    file: int | msgspec.UnsetType = msgspec.UNSET

    @property
    def first(self) -> int:
        """The version of the first entry in the file that holds the entry."""
        return self.version if self.file is msgspec.UNSET else self.file


_decode = msgspec.json.Decoder(Hint).decode


def read_hint(storage: Storage) -> Hint | None:
    """Read the hint; None unless it is there and makes sense.

    Raises:
        UnavailableError: as the store says. A hint that cannot be read is none that is not there: it may be all that
            tells of an entry that was lost.
    """
    data = storage.get(HINT)
    try:
        hint = _decode(data or b"")
    except UNREADABLE as error:
        _log.debug("no use of the timeline's hint: %s", error)
        return None
    # Twenty digits are all that a file's name has.
    is_sound = 0 <= hint.published_through <= hint.version < 10**20 and 0 <= hint.first <= hint.version
    return hint if is_sound else None


def write_hint(storage: Storage, hint: Hint) -> None:
    """Write the hint over the one that is there.

    Raises:
        UnavailableError: the store failed.
    """
    storage.put_advice(HINT, msgspec.json.encode(hint), over=True)


def lost_entries(version: int, last: int | None, said_by: str = HINT) -> CorruptTimelineError:
    """Return what to say of a hint, or a checkpoint, that names an entry after the last one that is there.

    Args:
        version: the entry.
        last: the last one that is there; None if there is none.
        said_by: the hint's path, or the checkpoint's.
    """
    ends = "with no entry at all" if last is None else f"with entry {last}"
    effect = (
        "there is no database any more"
        if last is None
        else f"the database then ends with version {last}, and commits that tables' logs have beyond it are taken in "
        "as those of plain Delta writers"
    )
    return CorruptTimelineError(
        f"{entry_path(version)} is gone: {said_by} is written after the entry that it names, so database version "
        f"{version} was committed, and the folder ends {ends}. Put the lost entries back, from a backup or the store's "
        f"old versions of the files. If they are lost for good, delete {HINT} and the folder {CHECKPOINTS}: {effect}"
    )
