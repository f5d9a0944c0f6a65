"""Whether the files are there that a commit is about to add.

A file that is in no version of the table is litter to VACUUM, which deletes it once it is older than its retention. So
a transaction that is open for longer than that, or beside a VACUUM with a short retention, may have lost what it wrote,
and its commit would leave a table that nobody can read. So each commit looks first, that of a statement on its own too.
Between the look and the commit is a moment that nothing can close: VACUUM asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from lockstep.delta.actions import Action, bodies, changes_rows, only_recommits
from lockstep.delta.combine.collapse import is_inside
from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.storage import Storage
from lockstep.workers import Workers, begin

PROBES = 128
"""How many looks are under way at a time: one request a file, and no listing of folders that may hold millions."""

NAMED = 3
"""How many missing files a message names."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Files that were written for a commit are not there any more; nothing was committed.

    Attributes:
        message: which, and what to do.
    """

    message: str


def added_files(commits: Iterable[Sequence[Action]], location: str, root: str) -> set[str]:
    """Return the files that commits bring into a table, relative to the lake's root: data, changes, deletion vectors.

    Left out is what the table had before: a file that only gets another vector or other statistics. So are absolute
    paths (SHALLOW CLONE), which are another table's to keep.
    """
    files: set[str] = set()
    for commit in commits:
        recommits = only_recommits(commit)
        adds = [add for add in bodies(commit, "add") if changes_rows(add) or not recommits]
        removed_paths = {remove["path"] for remove in bodies(commit, "remove")}
        new_paths = {body["path"] for body in (*adds, *bodies(commit, "cdc"))} - removed_paths
        files |= {f"{location}/{unquote(path)}" for path in new_paths if is_inside(path)}
        vectors = [add["deletionVector"] for add in adds if add.get("deletionVector")]
        files |= {file_path(each, location=location, root=root) for each in vectors if each["storageType"] == "u"}
    return files


def look_for(storage: Storage, files: Iterable[str], who: str) -> Future[Gone | None]:
    """Begin to look for files as `missing_files` does, and return without waiting; the answer is the future's."""
    paths = list(files)
    return begin(partial(missing_files, storage, paths, who), "lockstep-look", now=storage.quick or not paths)


def missing_files(storage: Storage, files: Iterable[str], who: str) -> Gone | None:
    """Look for files, many at a time; None if all are there.

    Args:
        who: what wrote them, for the message.

    Raises:
        UnavailableError: the store does not say.
    """
    paths = sorted(files)
    if not paths:
        return None
    looks = Workers(min(PROBES, len(paths)), "lockstep-probe").map(storage.exists, paths, quick=storage.quick)
    missing_paths = [path for path, is_there in zip(paths, looks, strict=True) if not is_there]
    if not missing_paths:
        return None
    more = f" and {len(missing_paths) - NAMED} more" if len(missing_paths) > NAMED else ""
    return Gone(
        f"{len(missing_paths)} of the {len(paths)} files that {who} wrote are gone: "
        f"{', '.join(missing_paths[:NAMED])}{more}. To a VACUUM, files that are not committed yet are files that no "
        "version names, and it deletes them when they are older than its retention. Nothing was committed; run it "
        "again, and keep VACUUM's retention longer than that takes."
    )
