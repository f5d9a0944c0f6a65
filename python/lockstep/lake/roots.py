"""Where a new lake may be: in no other lake, and in no Delta table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lockstep.delta.log import LOG
from lockstep.errors import InvalidError, UnavailableError
from lockstep.storage import open_storage
from lockstep.timeline.files import FOLDER
from lockstep.transactions.folders import check_root


def refuse_unless_free(url: str) -> None:
    """Refuse to make a lake in another lake or in a Delta table, unless there is a lake already.

    What such a folder holds is its owner's to delete: VACUUM of a table removes every file below its folder that the
    table does not name. A folder above that cannot be read is passed over, for nobody can tell what it is.

    Args:
        url: of the root to be, as `lockstep.storage.url_of` gives it; nothing need be there yet.

    Raises:
        InvalidError: the root is in a lake or in a table, or is a table's folder.
    """
    check_root(url)
    if _has_files(url, FOLDER):
        return
    for folder in (url, *_above(url)):
        if folder != url and _has_files(folder, FOLDER):
            raise InvalidError(
                f"{url} is inside the lake {folder}: a lake cannot be in another one, choose a folder of its own"
            )
        if _has_files(folder, LOG):
            where = "is the folder of a Delta table" if folder == url else f"is inside the Delta table {folder}"
            raise InvalidError(f"{url} {where}: VACUUM of that table would delete the lake, choose a folder of its own")


def _above(url: str) -> Iterator[str]:
    """Yield the folders above one, nearest first; of a local one also those above what its links lead to."""
    if url.startswith("file://"):
        path = Path(url.removeprefix("file://"))
        yield from dict.fromkeys(f"file://{folder}" for folder in (*path.parents, *path.resolve().parents))
        return
    scheme, _, rest = url.partition("://")
    parts = rest.split("/")
    yield from (f"{scheme}://{'/'.join(parts[:count])}" for count in range(len(parts) - 1, 0, -1))


def _has_files(folder: str, name: str) -> bool:
    try:
        return bool(open_storage(folder).list(name))
    except InvalidError:  # not there
        return False
    except UnavailableError:  # not ours to read; that it is there may be told all the same
        return folder.startswith("file://") and _is_folder(folder.removeprefix("file://"), name)


def _is_folder(folder: str, name: str) -> bool:
    try:
        return Path(folder, name).is_dir()
    except OSError:
        return False
