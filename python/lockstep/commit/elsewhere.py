"""New tables in folders that statements named: what COMMIT looks at once more, and what ROLLBACK removes.

Such a folder is nobody's alone, as that of other new tables is, so it is never removed as a whole: others may have put
something there since it was found to be empty. What goes is what the transaction's own commits made, and folders that
are empty then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

from lockstep.adoption.making import IN_LOGS, free_place, hold_new
from lockstep.adoption.places import Place, Surroundings, place
from lockstep.conflict.writes import Conflict
from lockstep.delta.actions import Action, parse
from lockstep.delta.combine.collapse import created_paths, created_vectors
from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.delta.log import LOG, log_files, read_staged, staging_folder
from lockstep.delta.real_paths import real_paths
from lockstep.errors import CorruptTimelineError, InvalidError, LockstepError
from lockstep.lake.claims import SETTLED_AFTER, confirm, give_up, read_claim
from lockstep.lake.lake import Lake
from lockstep.storage.outside import locations_of
from lockstep.storage.urls import comparable, url_below
from lockstep.timeline.entry import Name, Table
from lockstep.transactions.creations import Creation
from lockstep.transactions.transaction import Transaction

_log = logging.getLogger(__name__)


def reserve(lake: Lake, tx: Transaction, name: Name, location: str | None = None) -> Creation:
    """Choose where a new table of a transaction will lie, see `Transaction.reserve`.

    Args:
        location: an absolute path or URL of its folder, if the statement says one.

    Raises:
        LockstepError: see `Transaction.check_place`, `free_place`, and `Transaction.reserve`.
    """
    if location is None:
        return tx.reserve(name, lake.new_id())
    tx.check_writable()
    tx.names.check_free(name)
    at = place(lake.storage.url, location, locations_of(lake.storage)).location
    tx.check_place(name, at)
    _check_not_dropped(tx, name, location, at)
    return tx.reserve(name, lake.new_id(), free_place(lake, tx.names, name, location))


def _check_not_dropped(tx: Transaction, name: Name, text: str, location: str) -> None:
    """Raise InvalidError if a table of the lake's lies at a location that the transaction drops: its files stay.

    What it made there itself is not the lake's yet, and its claim, which is its own, says so.
    """
    table = tx.base.table_at(location)
    if table is not None and tx.names.table_at(location) is None:
        raise InvalidError(
            f"new table {name} cannot lie at {text}: table {table.name} lies there, which this transaction drops, and "
            "its files stay where they are. Choose another folder; or ROLLBACK, and replace what is in that table "
            "instead of dropping it"
        )


def hold(lake: Lake, tx: Transaction, location: str, content: str | None = None) -> None:
    """Claim the folder that a statement named for a new table, before its first commit is staged.

    Nothing is done for any other table, nor for a later commit.

    Args:
        content: the commit; the files that it adds are removed if the folder is somebody else's.

    Raises:
        DuplicateError (42P07): another transaction, of this lake or another, was first.
        LockstepError: see `hold_new`.
    """
    if tx.creations.begun_elsewhere(location, tx.names) is None:
        return
    tx.claimed.add(location)  # first, for what failed may have been written: whoever gives it up looks whose it is
    try:
        hold_new(lake, tx.id, location)
    except LockstepError:
        commits = [] if content is None else [real_paths(parse(content))]
        lake.delete_empty(_deepest_first(remove_made(lake, tx.id, location, commits)))
        raise


def surrounded(lake: Lake, made: Sequence[Table | Creation]) -> Conflict | None:
    """Return the conflict with who has made a table, or a lake, around new tables: another lake, or a plain writer.

    For those of this lake are judged by the timeline. It is looked for once, before COMMIT is tried for the first time.
    Inside of them nobody looks, which would be to list all that the tables have, unless a claim is gone, or so old that
    who adopts a table passes it over soon (`lockstep.lake.claims.is_left_behind`).

    Raises:
        LockstepError: nobody can tell.
    """
    if not made:
        return None
    places = [Place(each.location, comparable(url_below(lake.storage.url, each.location))) for each in made]
    surroundings = Surroundings(lake.storage, ())
    surroundings.look(places, lake.side_by_side)
    inside = lake.side_by_side(lambda each: _inside_of_old(lake, each.location), made)
    for each, at, inner in zip(made, places, inside, strict=True):
        if (refusal := surroundings.refusal_above(at)) is not None:
            return _no_more(each, refusal.text)
        if inner is not None:
            return _no_more(each, f"another table lies inside of it ({inner}), which VACUUM would delete")
    return None


def _no_more(made: Table | Creation, reason: str) -> Conflict:
    return Conflict(
        "location-taken",
        f"no table may lie at {made.location} any more, where this transaction makes table {made.name}: {reason}. "
        "Nothing of this transaction was committed; choose another folder.",
        about=str(made.name),
    )


def _inside_of_old(lake: Lake, location: str) -> str | None:
    """Return a file in the log of a table that lies inside of a new one, if that was claimed long ago."""
    claim = read_claim(lake.storage, location)
    # Of two hosts the clocks may differ. A claim that is gone was taken away by a person, who took this one for dead.
    if claim is not None and lake.clock() - claim.claimed_at < SETTLED_AFTER / 2:
        return None
    own = f"{location}/{LOG}/"
    files = (found.path for found in lake.storage.walk(location))
    return next((file for file in files if f"/{LOG}/" in file and not file.startswith(own)), None)


def taken(lake: Lake, transaction: str, made: Sequence[Table | Creation]) -> Conflict | None:
    """Return the conflict with who has made a table where a transaction has claimed a folder for a new one.

    Raises:
        LockstepError: nobody can tell.
    """
    reasons = lake.side_by_side(lambda each: _taken_by(lake, transaction, each.location), made)
    for each, who in zip(made, reasons, strict=True):
        if who is not None:
            return Conflict(
                "location-taken",
                f"{who}, where this transaction makes table {each.name}. Nothing of this transaction was committed; "
                "choose another folder, or take that table in by CREATE TABLE … LOCATION alone.",
                about=str(each.name),
            )
    return None


def _taken_by(lake: Lake, transaction: str, location: str) -> str | None:
    other = confirm(lake.storage, location, transaction, clock=lake.clock)
    if other is not None:
        return f"the lake {other.root} has claimed {location}"
    if not log_files(lake.storage, location).is_empty:
        return f"a plain Delta writer has made a table at {location}"
    return None


def remove_staged(lake: Lake, transaction: str, table: Table, versions: Sequence[int]) -> set[str]:
    """Remove what a transaction wrote of a table that it made elsewhere, at best effort; return folders to look at."""
    try:
        commits = [read_staged(lake.storage, table.location, transaction, version) for version in versions]
    except LockstepError as error:
        _log.warning("files that transaction %s wrote at %s stay: %s", transaction, table.location, error)
        commits = []
    return remove_made(lake, transaction, table.location, commits)


def remove_made(lake: Lake, transaction: str, location: str, commits: Sequence[Sequence[Action]]) -> set[str]:
    """Remove what commits of a new table made, and what was staged, at best effort; return folders to look at.

    Args:
        commits: all of the table's, which nobody has seen.
    """
    files = _files(commits, location, lake.storage.url)
    lake.delete([staging_folder(location, transaction)], files)
    return _folders(location, files)


def give_back(lake: Lake, transaction: str, location: str, folders: Iterable[str] = ()) -> bool:
    """Take back the claim of a folder in which no table was made after all, and remove what is empty in it.

    Nothing is done if the lake has a table there by now, as one that another transaction took in, which needs the
    claim; nor if nobody can tell.

    Returns:
        Whether the transaction has no claim there any more.
    """
    if not is_refreshed(lake) or lake.timeline.head.table_at(location) is not None:
        return False
    log = f"{location}/{LOG}"
    # The claim last: whoever comes next finds the folder free from then on, and begins to fill it.
    lake.delete_empty(_deepest_first({*folders, *(f"{log}/{name}" for name in IN_LOGS)}))
    if is_given_up := give_up(lake.storage, location, transaction):
        lake.delete_empty([log])
    return is_given_up


def is_refreshed(lake: Lake) -> bool:
    """Have the lake look what it has now; tell whether it could: if not, all claims stay."""
    try:
        lake.timeline.refresh()
    except LockstepError as error:
        _log.warning("what a transaction claimed stays, which keeps only new tables from there: %s", error)
        return False
    return True


def _files(commits: Sequence[Sequence[Action]], location: str, root: str) -> set[str]:
    """Return the data, change and deletion vector files that commits made in the table's folder.

    Not all that they name: of a file too many VACUUM asks, and one too few may have been somebody else's.
    """
    files = {f"{location}/{path}" for path in created_paths(commits)}
    for vector in created_vectors(commits):
        with suppress(CorruptTimelineError):
            files.add(file_path(vector, location=location, root=root))
    return files


def _folders(location: str, files: Iterable[str]) -> set[str]:
    """Return the folders that files are in, below a table's."""
    found: set[str] = set()
    for file in files:
        folders = file.removeprefix(f"{location}/").split("/")[:-1]
        found |= {f"{location}/{'/'.join(folders[:count])}" for count in range(1, len(folders) + 1)}
    return found


def _deepest_first(folders: Iterable[str]) -> list[str]:
    return sorted(folders, key=len, reverse=True)
