"""Whether what a commit needs is being deleted: see `lockstep.lake.deletions`, of which this is the commit's side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from urllib.parse import unquote

from lockstep.commit.files import Gone, missing_files
from lockstep.delta.actions import Action, bodies
from lockstep.delta.combine.deletion_vectors import file_path, may_mean_of
from lockstep.delta.places import below_root, may_mean
from lockstep.errors import CorruptTimelineError, LockstepError, UnavailableError
from lockstep.lake.deletions import OLD, Wanted, going
from lockstep.lake.lake import Lake
from lockstep.lake.shared import files_elsewhere
from lockstep.timeline.database import Database
from lockstep.transactions.transaction import Transaction


def old_files(
    commits: Iterable[Sequence[Action]], location: str, root: str, now: datetime, *, began_at: datetime
) -> Wanted:
    """Return the files that commits add to a table and that are old enough to be deleted.

    What a statement writes is young: these are a restored table's, a clone's, or those of a very long transaction. A
    file that only gets another deletion vector is among them, too, and does no harm there. As `files` each path is read
    as the protocol says, percent-decoded, for these are looked for. What is being deleted may be named otherwise:
    `spellings` are all names by which upkeep, too, keeps such a file.

    Args:
        began_at: when whoever wrote them began. A log does not tell the age of change files: they are no older.

    Raises:
        CorruptTimelineError: a file has a deletion vector of a kind that nobody knows how to find.
    """
    limit = now - OLD
    found: set[str | None] = set()
    spellings: set[str] = set()
    for actions in commits:
        for add in bodies(actions, "add"):
            if not add.get("modificationTime", 0) < limit.timestamp() * 1000:
                continue
            found.add(below_root(unquote(add["path"]), location, root))
            if (vector := add.get("deletionVector")) is not None and vector["storageType"] != "i":
                with suppress(CorruptTimelineError):  # outside the lake: nobody deletes it here
                    found.add(file_path(vector, location=location, root=root))
            spellings.update(may_mean_of(add, location, root))
        if began_at < limit:
            for cdc in bodies(actions, "cdc"):
                found.add(below_root(unquote(cdc["path"]), location, root))
                spellings.update(may_mean(cdc["path"], location, root))
    return Wanted(frozenset(path for path in found if path is not None), spellings=frozenset(spellings))


def wanted_by(tx: Transaction, old: Iterable[Wanted], now: datetime) -> Wanted:
    """Return what a transaction needs that may be going.

    These are old files, the folders of tables that come back, are adopted or are given back, and the folders of new
    tables that are not made for them, or were made so long ago that they may pass for nobody's.

    Args:
        old: what `old_files` says of each table.
    """
    old = list(old)
    returned = [ddl for ddl in tx.names.table_ddl(tx.id) if ddl.action == "create" and ddl.version is not None]
    kept_by = tx.names.kept_by()
    others = [*tx.creations.elsewhere(tx.names), *tx.names.released()]
    locations = {ddl.location for ddl in returned} | {table.location for table in others}
    if tx.began_at < now - OLD:
        locations |= {*tx.creations.folders()}
    return Wanted(
        files=frozenset[str]().union(*(each.files for each in old)),
        spellings=frozenset[str]().union(*(each.spellings for each in old)),
        locations=frozenset(locations),
        versions=frozenset(kept_by[ddl.id] for ddl in returned if ddl.id in kept_by),
        adopted=frozenset((ddl.location, ddl.version) for ddl in returned if ddl.adopted and ddl.version is not None),
    )


def adopted_files(lake: Lake, wanted: Wanted) -> frozenset[str]:
    """Return the files of the lake that tables name which others made.

    Raises:
        UnavailableError: the log of one of them cannot be read, so nobody knows.
    """

    def read(table: tuple[str, int]) -> frozenset[str]:
        location, version = table
        try:
            return files_elsewhere(lake.storage, location, version)
        except LockstepError as error:
            raise UnavailableError(
                f"files of this lake are being deleted, and whether {location} names one of them cannot be told: "
                f"{error.message}. Nothing was committed; adopt it when the upkeep that is under way has ended"
            ) from error

    return frozenset[str]().union(*lake.side_by_side(read, wanted.adopted))


def check(
    lake: Lake, wanted: Wanted, head: Database, who: str, more: Callable[[], frozenset[str]] = frozenset
) -> Gone | None:
    """Look whether any of this is being deleted, or is gone; None if it is not.

    Files are looked for behind the look for what has begun: what was begun and is done already is not written down.

    Args:
        head: the newest database version, by a look before this one.
        who: needs it, for the message.
        more: what else it needs, see `going`; these files are not looked for.

    Raises:
        UnavailableError: the store does not say, or a table's log that is adopted.
    """
    if expired := [version for version in wanted.versions if head.expired.has(version)]:
        what: str | None = f"database version {min(expired)}"
    elif (what := going(lake.storage, wanted, more)) is None:
        return missing_files(lake.storage, wanted.files, who)
    return Gone(
        f"{what}, which {who} needs, is being deleted: no database version that is kept needs it. Nothing was "
        "committed. A tag made in time keeps a version, and `retention-age` and `retention-versions` say how many are "
        "kept without one"
    )
