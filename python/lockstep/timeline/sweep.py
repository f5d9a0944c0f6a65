"""The sweep of checkpoints: those of versions that expired go, and so do parts that no checkpoint names.

    <root>/_lockstep/checkpoints/_unnamed.json      parts that no checkpoint named, and since when that is known

Who writes a checkpoint names parts that are there already, and only then is there a manifest that says so. So a part
goes that no manifest named an hour ago, and that none names now. A writer who takes longer than that over a checkpoint
may find parts of it gone: whoever meets that reads the entries, or the base, instead (`lockstep.timeline.parts`), for
a checkpoint is advice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import msgspec

from lockstep.storage import Storage
from lockstep.timeline.checkpoint import versions
from lockstep.timeline.entry import Expired, Value
from lockstep.timeline.files import UNREADABLE
from lockstep.timeline.layered_map import side_by_side
from lockstep.timeline.manifest import FOLDER, manifest_path
from lockstep.timeline.parts import FOLDER as PARTS
from lockstep.timeline.parts import part_path

UNNAMED = f"{FOLDER}/_unnamed.json"

GRACE = timedelta(hours=1)
"""So long is a part kept that no checkpoint names."""

AT_ONCE = 64
"""So many manifests are read, and looked at, at a time."""

_SUFFIX = ".jsonl"
_DIGEST = re.compile(rb'"([0-9a-f]{64})"')


class _Unnamed(Value, frozen=True):
    """Parts that no checkpoint named at a time."""

    at: datetime
    parts: list[str]


_decode = msgspec.json.Decoder(_Unnamed).decode


@dataclass(frozen=True, slots=True)
class Swept:
    """How many manifests and parts were deleted."""

    checkpoints: int
    parts: int


def sweep(storage: Storage, expired: Expired, now: datetime) -> Swept:
    """Delete the checkpoints of versions that expired, and parts that nobody names.

    Raises:
        UnavailableError: the store failed; calling again is safe.
    """
    every = versions(storage)
    gone = [version for version in every if expired.has(version)]
    side_by_side([partial(storage.delete, manifest_path(version)) for version in gone])
    there = {name.removesuffix(_SUFFIX) for name in storage.list(PARTS) if name.endswith(_SUFFIX)}
    named = _named(storage, [version for version in every if not expired.has(version)])
    unnamed, known = there - named, _known(storage, now)
    is_due = known is not None and now - known.at >= GRACE
    going = unnamed & set(known.parts) if known is not None and is_due else set()
    side_by_side([partial(storage.delete, part_path(digest)) for digest in going])
    if known is None or is_due:
        left = _Unnamed(at=now, parts=sorted(unnamed - going))
        storage.put(UNNAMED, msgspec.json.encode(left))
    return Swept(len(gone), len(going))


def _named(storage: Storage, numbers: Sequence[int]) -> set[str]:
    """Return the parts that the checkpoints of these versions name."""
    named = set[str]()
    for begin in range(0, len(numbers), AT_ONCE):
        named.update(*side_by_side([partial(_digests, storage, n) for n in numbers[begin : begin + AT_ONCE]]))
    return named


def _digests(storage: Storage, version: int) -> set[str]:
    """Return all that may be the digest of a part in a manifest of whatever format; nobody reads a damaged one."""
    return {digest.decode() for digest in _DIGEST.findall(storage.get(manifest_path(version)) or b"")}


def _known(storage: Storage, now: datetime) -> _Unnamed | None:
    try:
        known = _decode(storage.get(UNNAMED) or b"")
    except UNREADABLE:
        return None  # it was never written, or is damaged: it is written anew
    return known if known.at <= now else None  # so is what a clock wrote that was ahead: its hour may never come
