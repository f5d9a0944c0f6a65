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

from lockstep.delta.actions import Action, deletion_vector_id, split
from lockstep.delta.combine.deletion_vectors import Descriptor, RowSet
from lockstep.delta.footprint import Footprint
from lockstep.errors import CorruptTimelineError


@dataclass(frozen=True, slots=True)
class RowChange:
    """A `VectorChange` with its vectors read: the rows that were out of a data file, and those that are."""

    before: RowSet
    after: RowSet


def clash(ours: RowChange, theirs: RowChange, file: str) -> str | None:
    """Return what the other did that does not fit what we did, and what that was; None if both may stand.

    Rows that were put back (RESTORE) fit nothing: what we did was to be done to what was there before, or the other way
    round.

    Args:
        file: what the data file is called in that clause, whose subject is the other transaction.
    """
    we_put_back, they_put_back = not ours.before <= ours.after, not theirs.before <= theirs.after
    if we_put_back and they_put_back:
        return f"put back rows of {file}, as this transaction does"
    if they_put_back:
        return f"put back rows of {file}, which this transaction changes, too"
    if we_put_back:
        return f"deleted or updated rows of {file}, of which this transaction puts rows back"
    same = (ours.after - ours.before) & (theirs.after - theirs.before)
    return f"deleted or updated {len(same)} of the same rows of {file}, as this transaction does" if same else None


def vectors_now(ours: Footprint, winners: Sequence[Footprint]) -> dict[str, Descriptor]:
    """Return the vectors that the winners gave the files that we gave vectors too, by path.

    Args:
        ours: what we touched.
        winners: what landed since our snapshot, in order; without a conflict by the rule `file`.

    Raises:
        CorruptTimelineError: one of them replaced another vector than the file had.
    """
    vectors: dict[str, Descriptor] = {}
    for winner in winners:
        for path in ours.vectors.keys() & winner.vectors.keys():
            change = winner.vectors[path]
            old_id = deletion_vector_id(vectors.get(path, ours.vectors[path].before))
            if old_id != (replaced_id := deletion_vector_id(change.before)):
                raise CorruptTimelineError(
                    f"data file {path}: expected a commit that replaces its deletion vector {old_id}, found one that "
                    f"replaces {replaced_id}. What the file's rows are now cannot be told, and nothing was committed: "
                    "restore the commits of the table's log that `lockstep verify` lists"
                )
            vectors[path] = change.after
    return vectors


def merge_vectors(
    commits: Sequence[Sequence[Action]],
    ours: Footprint,
    vectors: Mapping[str, Descriptor],
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
        ours: what they touch.
        vectors: as `vectors_now` returns it; `clash` found nothing.
        load: read a vector.
        save: give a vector a descriptor: the same one for the same rows.
    """
    theirs = {path: load(vector) for path, vector in vectors.items()}

    def merge(path: str, vector: Descriptor | None) -> Descriptor:
        if vector is None or deletion_vector_id(vector) == deletion_vector_id(ours.vectors[path].before):
            return vectors[path]
        return save(load(vector) | theirs[path])

    def landing(action: Action) -> Action:
        kind, body = split(action)
        if kind not in ("add", "remove") or body["path"] not in vectors:
            return action
        new = {**body, "deletionVector": merge(body["path"], body.get("deletionVector"))}
        return {kind: _with_wide_bounds(new) if kind == "add" else new}

    return [[landing(action) for action in commit] for commit in commits]


def _with_wide_bounds(add: dict[str, Any]) -> dict[str, Any]:
    """Say that minima and maxima may be of deleted rows (Protocol, "Per-file Statistics")."""
    if not add.get("stats"):
        return add
    stats = msgspec.json.decode(add["stats"], type=dict[str, msgspec.Raw])
    wide = {**stats, "tightBounds": msgspec.Raw(b"false")}  # raw: a number that is decoded may lose digits
    return {**add, "stats": msgspec.json.encode(wide).decode()}
