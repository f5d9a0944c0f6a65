"""Two transactions take rows out of one data file: which pairs of them may both, and what the second then writes.

Where deletion vectors are on, DELETE and UPDATE (and MERGE's) leave a data file where it is and only give it another
vector: a remove of the file with the vector `before`, an add with the vector `after`. Updated rows stand in new files.
So what a transaction did to the rows of the file is `after` minus `before`, and the changes of two transactions that
took out different rows are those of one that took out both.

Delta itself judges by file (ConflictChecker.scala): to it, both removed the file with the vector `before`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from lockstep.delta.actions import Action, Footprint, VectorChange, deletion_vector_id, split
from lockstep.delta.deletion_vectors import Descriptor, RowSet
from lockstep.errors import CorruptTimelineError


@dataclass(frozen=True, slots=True)
class RowChange:
    """A `VectorChange` with its vectors read: the rows that were out of a data file, and those that are."""

    before: RowSet
    after: RowSet


def clash(ours: RowChange, theirs: RowChange) -> str | None:
    """Return what the other did that does not fit what we did, as the middle of a clause; None if both may stand.

    RowSet that were put back (RESTORE) fit nothing: what we did was to be done to what was there before.
    """
    if not (ours.before <= ours.after and theirs.before <= theirs.after):
        return "put back rows of"
    same = (ours.after - ours.before) & (theirs.after - theirs.before)
    return f"deleted or updated {len(same)} of the same rows of" if same else None


def vectors_now(path: str, ours: VectorChange, winners: Sequence[Footprint]) -> Descriptor | None:
    """Return the vector that a data file has behind the winners, `ours.before` if none of them gave it another.

    Args:
        path: the file.
        ours: what we did to it.
        winners: what landed since our snapshot, in order; without a conflict in the rule `file`.

    Raises:
        CorruptTimelineError: one of them replaced another vector than the file had.
    """
    now = ours.before
    for change in (winner.vectors[path] for winner in winners if path in winner.vectors):
        had, replaced = deletion_vector_id(now), deletion_vector_id(change.before)
        if had != replaced:
            raise CorruptTimelineError(
                f"data file {path}: expected a commit that replaces its deletion vector {had}, found one that replaces "
                f"{replaced}; what the file's rows are now cannot be told"
            )
        now = change.after
    return now


def merge(
    commits: Sequence[Sequence[Action]],
    now: Mapping[str, tuple[VectorChange, Descriptor]],
    *,
    load: Callable[[Descriptor], RowSet],
    save: Callable[[RowSet], Descriptor],
) -> list[list[Action]]:
    """Put what others took out of data files into the vectors that these commits give them.

    The first commit then removes a file with the vector that it has now, and each add takes out our rows and theirs. So
    the difference of the vectors, from which Delta computes a feed of changes where there are no change files, is our
    rows alone, and change files say what they said. A file whose last rows go this way stays in the table with all its
    rows deleted, which the protocol allows, until OPTIMIZE.

    Args:
        commits: ours, as `collapse` returns them; left as they are.
        now: by path, what we did to a file, and the vector that it has now; `clash` found nothing.
        load: read a vector.
        save: give a vector a descriptor: the same one for the same rows.
    """
    theirs = {path: load(descriptor) for path, (_, descriptor) in now.items()}

    def merged(path: str, vector: Descriptor | None) -> Descriptor:
        change, descriptor = now[path]
        if vector is None or deletion_vector_id(vector) == deletion_vector_id(change.before):
            return descriptor
        return save(load(vector) | theirs[path])

    def landing(action: Action) -> Action:
        kind, body = split(action)
        if kind not in ("add", "remove") or body["path"] not in now:
            return action
        new = {**body, "deletionVector": merged(body["path"], body.get("deletionVector"))}
        return {kind: _with_wide_bounds(new) if kind == "add" else new}

    return [[landing(action) for action in commit] for commit in commits]


def _with_wide_bounds(add: dict[str, Any]) -> dict[str, Any]:
    """Say that minima and maxima may be of deleted rows (Protocol, "Per-file Statistics")."""
    if not add.get("stats"):
        return add
    stats = msgspec.json.decode(add["stats"], type=dict[str, msgspec.Raw])
    wide = {**stats, "tightBounds": msgspec.Raw(b"false")}  # raw: a number that is decoded may lose digits
    return {**add, "stats": msgspec.json.encode(wide).decode()}
