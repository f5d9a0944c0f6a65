"""What is wrong where a reader fails: a file that a table's version names is lost, or is not what was written.

deltalake and DuckDB say neither in a way that can be told from what they do not support. So the store is asked, once
somebody has failed: the version's log for what there has to be, and one listing of the table's folder for what there
is. Files outside of that folder, which a shallow clone shares, are not looked for.
"""

from __future__ import annotations

from urllib.parse import unquote

from lockstep.delta.combine.collapse import is_inside
from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.delta.snapshot import Snapshot, read_snapshot
from lockstep.errors import CorruptTimelineError, LockstepError, UnavailableError
from lockstep.storage import Storage
from lockstep.timeline.entry import Table


def damage(storage: Storage, table: Table) -> CorruptTimelineError | None:
    """Return which file of a table's version is lost or damaged; None if none is, as far as sizes tell.

    Raises:
        UnavailableError: the store failed.
    """
    what = f"table {table.name} cannot be read at version {table.version} of its log"
    remedy = "Restore the file from a backup, or RESTORE the table to a version that is whole"
    try:
        snapshot = read_snapshot(storage, table.location, table.version)
    except UnavailableError:
        raise
    except LockstepError as error:
        return CorruptTimelineError(f"{what}: {error.message}. {remedy}")
    there = {found.path: found.size for found in storage.walk(table.location)}
    for path, size in sorted(_needed(storage, table, snapshot).items()):
        if path not in there:
            return CorruptTimelineError(f"{what}: its file {path} is gone. {remedy}")
        if size is not None and size != there[path]:
            return CorruptTimelineError(
                f"{what}: its file {path} has {there[path]} bytes, and the log says {size}. {remedy}"
            )
    return None


def _needed(storage: Storage, table: Table, snapshot: Snapshot) -> dict[str, int | None]:
    """Return the files in a table's folder that a version needs, with their sizes where the log says them."""
    files: dict[str, int | None] = {}
    for add in snapshot.files.values():
        if is_inside(add["path"]):
            files[f"{table.location}/{unquote(add['path'])}"] = add["size"]
        vector = add.get("deletionVector")
        if vector is not None and vector["storageType"] == "u":
            files[file_path(vector, location=table.location, root=storage.url)] = None
    return files
