"""New tables where a statement says that they are to lie, and not in a folder that the lake chooses.

To the timeline that is a table which was adopted before it had any version: it may lie outside of the lake's root, and
its folder is not the lake's to delete. What makes it more: nothing may be in the folder. Of several who find it empty
at once, lakes or transactions of one lake, one makes the table: the one whose claim is there first. A plain Delta
writer asks for no claim. He is found by COMMIT, which looks at the log, or by who publishes, for version 0 is put if
absent.
"""

from __future__ import annotations

from lockstep.adoption.places import Surroundings, place
from lockstep.delta.log import LOG, log_files
from lockstep.errors import DuplicateError, InvalidError
from lockstep.lake.claims import check_unclaimed, claim_new
from lockstep.lake.guests import note_guests
from lockstep.lake.lake import Lake
from lockstep.storage import Found
from lockstep.storage.options import KINDS
from lockstep.storage.outside import around, locations_of
from lockstep.storage.urls import is_outside
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Table
from lockstep.transactions.names import Names

IN_LOGS = ("_lockstep", "_staged_commits", "_sidecars")
"""Folders in the log of a table that Lockstep makes, or Delta does before there is any commit."""


def free_place(lake: Lake, names: Names | Database, name: Name, text: str) -> str:
    """Return where a new table is to lie, as the lake calls the place; nothing is there.

    Args:
        names: what the lake has, to whoever asks.
        name: what the table is to be called.
        text: an absolute path or URL of its folder.

    Raises:
        DuplicateError (42P07): a table of this lake is there, or somebody is about to make one there, or around it.
        InvalidError: no table may lie there, or something is there already.
        LockstepError: there is no store for it, or it failed.
    """
    at = place(lake.storage.url, text, locations_of(lake.storage))
    if (table := names.table_at(at.location)) is not None:
        raise DuplicateError(f"new table {name} cannot lie at {text}: {_taken_by(table)}")
    surroundings = Surroundings(lake.storage, names.tables.values())
    surroundings.look([at], lake.side_by_side)
    if (refusal := surroundings.refusal(at)) is not None:
        said = f"new table {name} cannot lie at {text}: {refusal.text}. Choose another folder"
        raise DuplicateError(said) if refusal.is_claimed else InvalidError(said)
    try:
        check_unclaimed(lake.storage, at.location)
    except DuplicateError as error:
        raise _with_owner(lake, at.location, error) from error
    _check_no_file(lake, name, text, at.url)
    _check_empty(lake, name, text, at.location)
    if (old := _was_there(lake, at.location)) is not None:
        raise InvalidError(
            f"new table {name} cannot lie at {text}: it is where table {old} was, which older database versions have, "
            "and who reads those would be shown the new table. Choose another folder"
        )
    return at.location


def _taken_by(table: Table) -> str:
    return f"it is table {table.name} of this lake already"


def _with_owner(lake: Lake, location: str, error: DuplicateError) -> DuplicateError:
    """Return what to say of a folder that is claimed: the claim of a table that the lake has is nobody's to delete."""
    lake.timeline.refresh()
    table = lake.timeline.head.table_at(location)
    return error if table is None else DuplicateError(f"no new table can lie at {location}: {_taken_by(table)}")


def _check_no_file(lake: Lake, name: Name, text: str, url: str) -> None:
    """Raise InvalidError if a file on a disk is where a folder is to be, or one above it.

    In an object store both may be there, and below a file of HDFS one may not even look.
    """
    scheme, _, path = url.partition("://")
    ends = [len(path), *(place for place in range(len(path) - 1, 0, -1) if path[place] == "/")]
    paths = (f"{scheme}://{path[:end]}" for end in ends if scheme == "file")
    if (file := next(filter(around(lake.storage, url).exists, paths), None)) is not None:
        raise InvalidError(f"new table {name} cannot lie at {text}: {file} is a file, and no folder. Choose another")


def _check_empty(lake: Lake, name: Name, text: str, location: str) -> None:
    """Raise InvalidError if anything is in a folder but others, in which nothing is."""
    if not log_files(lake.storage, location).is_empty:
        raise InvalidError(
            f"new table {name} cannot lie at {text}: a Delta table is there already. CREATE TABLE {name} LOCATION … "
            "alone takes that in as it is, and then it can be filled or replaced; or choose another folder"
        )
    root = location if is_outside(location) else lake.storage.url
    is_azure = KINDS.get(root.partition("://")[0]) == "azure"
    files = (found for found in lake.storage.walk(location) if not _is_marker(found, location, everywhere=is_azure))
    if (found := next(files, None)) is not None:
        is_log = found.path.startswith(f"{location}/{LOG}/")
        what = " (what a transaction that was killed has left)" if is_log else ""
        raise InvalidError(
            f"new table {name} cannot lie at {text}: the folder is not empty, and has no Delta table in it. The first "
            f"file found is {found.path}{what}. Choose another folder, or empty this one if nobody needs what is there"
        )


def _is_marker(found: Found, location: str, *, everywhere: bool = False) -> bool:
    """Tell whether an object is only there to be a folder of a table without any commit.

    In an object store Hadoop makes such, and nobody removes them: a rollback knows what it wrote, and not these. In
    Azure's it makes them `everywhere`, of partitions, too; no data file is empty.
    """
    log = f"{location}/{LOG}"
    inside = any(f"{found.path}/".startswith(f"{log}/{name}/") for name in IN_LOGS)
    return found.size == 0 and (everywhere or inside or found.path in (location, log))


def _was_there(lake: Lake, location: str) -> Name | None:
    """Return what a table was called that readable versions have at a location, and the newest has not.

    It reads the entries of all versions that can be read, so it takes as long as the lake keeps versions for: what
    expired is not read. That is once for each new table with a location, before anything is written.
    """
    timeline, expired = lake.timeline, lake.timeline.head.expired
    for version in (expired.first_kept, *expired.kept):
        if (table := timeline.at(version).table_at(location)) is not None:
            return table.name
    for entry in timeline.past(after=expired.first_kept):
        for ddl in entry.tables:
            if ddl.action == "create" and ddl.location == location:
                return ddl.name
    return None


def hold_new(lake: Lake, transaction: str, location: str) -> None:
    """Claim a folder in which a transaction is about to make a table, and note that it is not the lake's to delete.

    Raises:
        DuplicateError (42P07): another transaction, of this lake or another, was first.
        LockstepError: see `lockstep.lake.claims.claim_new`.
    """
    try:
        claim_new(lake.storage, location, transaction, clock=lake.clock)
    except DuplicateError as error:
        raise _with_owner(lake, location, error) from error
    note_guests(lake.storage, lake.new_id(), [location])
