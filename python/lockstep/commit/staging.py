"""How a commit's actions become part of an entry."""

from __future__ import annotations

import msgspec

from lockstep.delta.actions import Action, render
from lockstep.delta.log import digest, ratified_path
from lockstep.lake.lake import Lake
from lockstep.timeline.entry import INLINE_BYTES, Commit


def store(lake: Lake, location: str, transaction: str, version: int, actions: list[Action]) -> Commit:
    """Make a commit's actions part of an entry: inline, or in a staged file if they are many."""
    data = render(actions)
    if len(data) <= INLINE_BYTES:
        return Commit(inline=[msgspec.Raw(line) for line in data.split(b"\n")[:-1]])
    # Its content is part of its name: another attempt may come to another result, and an entry that names the first one
    # may still be on its way.
    path = ratified_path(transaction, version, digest(data))
    lake.storage.put_once(f"{location}/{path}", data)
    return Commit(staged=path)
