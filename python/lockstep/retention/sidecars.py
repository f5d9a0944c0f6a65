"""Which sidecars of a table's V2 checkpoints may go: those that no checkpoint in its log names, once they are old.

    _delta_log/_sidecars/<uuid>.parquet      most of what a checkpoint says; the checkpoint's own file names it

A checkpoint is removed with the log behind a newer one (`lockstep.retention.logs`), and says nothing of its sidecars
then. Delta removes those only in a clean-up in which it has removed a checkpoint itself. Here they go in a run after
that which removed the checkpoint, and only where all checkpoints that are there could be read: each may name some. A
checkpoint's writer writes its sidecars before it, so what is young may belong to one that is under way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from lockstep.delta.checkpoint_files import sidecars_of
from lockstep.delta.log import LOG
from lockstep.delta.snapshot import SIDECARS
from lockstep.errors import CorruptTimelineError
from lockstep.retention.files import Doomed
from lockstep.retention.logs import CHECKPOINT_PROTECTION
from lockstep.retention.survey import Folder
from lockstep.storage import Found, Storage

_SIDECAR = re.compile(r"(\.?)([^/.][^/]*\.parquet)((?:\.crc)?)")
"""A sidecar, or the checksum that Hadoop writes beside it on a local disk: hidden, and with an ending."""

_PART = re.compile(r"\d{20}\.checkpoint\.\d{10}\.\d{10}\.parquet")
"""One of several parts of a checkpoint, which never name sidecars."""


def doomed_sidecars(storage: Storage, folder: Folder, features: frozenset[str], before: datetime) -> list[Doomed]:
    """Return the sidecars of a table that may go.

    Args:
        features: the writer features of the table's protocol.
        before: what was written later stays: a checkpoint, or a transaction, that is under way may name it.

    Raises:
        UnavailableError: the store failed.
    """
    place = f"{folder.location}/{LOG}/"
    found = [each for each in folder.files if each.path.startswith(f"{place}{SIDECARS}/")]
    if CHECKPOINT_PROTECTION in features or not unnamed(found, frozenset(), before):
        return []
    in_log = [each.path.removeprefix(place) for each in folder.files if each.path.startswith(place)]
    named = _named(storage, place, in_log)
    return [] if named is None else unnamed(found, named, before)


def unnamed(found: Iterable[Found], named: frozenset[str], before: datetime) -> list[Doomed]:
    """Return those of the files beside a log that are old and belong to no sidecar of these names."""
    return [
        Doomed(each.path, "log", each.size, each.modified_at)
        for each in found
        if (match := _SIDECAR.fullmatch(each.path.rpartition("/")[2]))
        and bool(match[1]) == bool(match[3])
        and match[2] not in named
        and each.modified_at < before
    ]


def _named(storage: Storage, place: str, names: Iterable[str]) -> frozenset[str] | None:
    """Return the sidecars that checkpoints in a log name; None where that is not all, for one of them cannot be read.

    So it is where a transaction has staged a checkpoint: what becomes of that, this does not know.
    """
    named: set[str] = set()
    for name in names:
        folder, _, file = name.rpartition("/")
        if ".checkpoint." not in file or file.startswith(".") or folder == SIDECARS:
            continue
        if folder:
            return None
        if _PART.fullmatch(file):
            continue
        try:
            some = sidecars_of(storage, place + file)
        except CorruptTimelineError:
            return None
        if some is None:
            return None
        named.update(name for spellings in some for name in spellings)
    return frozenset(named)
