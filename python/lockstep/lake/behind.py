"""Whether a ratified commit may come after a plain Delta writer's that took its table version, and where it is then."""

from __future__ import annotations

import logging

from lockstep.conflict.serializable import judge
from lockstep.conflict.writes import Changes, Conflict, first_conflict
from lockstep.delta.footprint import Footprint
from lockstep.delta.log import commit_path
from lockstep.delta.pruning.row_sets import EVERY_ROW, NO_ROW
from lockstep.delta.publish import Displaced
from lockstep.errors import ForeignCommitError
from lockstep.lake.changes import reads_of
from lockstep.lake.policy import undecided
from lockstep.timeline.entry import Entry, Moved, TableWrite

_log = logging.getLogger(__name__)


def place_behind(entry: Entry, write: TableWrite, displaced: Displaced, ours: Footprint) -> Moved:
    """Return where a ratified commit is once it comes after the foreign ones that took its version.

    Args:
        entry, write: the commit.
        displaced: what took its version.
        ours: what the commit touched.

    Raises:
        ForeignCommitError: it cannot come after them, for the two conflict.
    """
    mine = Changes(
        entry.transaction.id,
        writes={write.id: ours},
        reads=reads_of(entry, {write.id: ours}),
        names={write.id: write.name},
        isolation=entry.transaction.isolation,
    )
    theirs = Changes(
        "of a plain Delta writer",
        writes={write.id: displaced.foreign},
        reads={write.id: NO_ROW if displaced.foreign.blind else EVERY_ROW},
        names=mine.names,
    )
    if (conflict := first_conflict(mine, theirs)) is not None:
        raise ForeignCommitError(
            f"table {write.name}: version {displaced.first} was written by a plain Delta writer while database "
            f"version {entry.version} (transaction {entry.transaction.id}), ratified for the same table version, "
            f"was about to be published, and the two conflict ({conflict.rule}). Neither is lost: the foreign "
            f"commit is {commit_path(write.location, displaced.first)}, ours is in timeline entry {entry.version}. "
            f"{undecided(write.name)}"
        )
    # Ours is committed, theirs never asked, and the table is sound with both: to stop it would undo neither.
    if mine.isolation == "SERIALIZABLE" and isinstance(judge(mine, [theirs]), Conflict):
        _log.warning(
            "table %s: version %d was written by a plain Delta writer while database version %d (transaction %s) "
            "was about to be published. Both stay. Each may have read what the other changed, so there may be no "
            "order of the two that gives the same",
            write.name,
            displaced.first,
            entry.version,
            entry.transaction.id,
        )
    kept = displaced.kept  # these are in the log, and have been read there
    return Moved(id=write.id, entry=entry.version, to_version=displaced.last + len(write.commits) - kept, kept=kept)
