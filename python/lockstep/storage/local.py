"""A lake in a local file system (or a mounted one that has hard links and keeps what fsync says)."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from lockstep.errors import InvalidError, UnavailableError
from lockstep.storage import Names, Storage, checked

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""What 'no object at this path' looks like: nothing there, a file where a folder should be, or a folder itself."""


class LocalStorage(Storage):
    """Objects are files. An object is written under a hidden name, fsync'ed, and then given its own name.

    A hard link is what makes `try_put` atomic: it fails when the name is taken, and before it exists the file is
    already whole and on the disk. obstore's own local store links too, but syncs neither the file nor its folder, so a
    ratified commit could vanish, or be an empty file, after a power cut. That is why this class exists.

    A process that dies between the two names leaves a hidden file (`.<32 hex digits>.tmp`), which `list` leaves out
    and which goes with its folder.
    """

    def __init__(self, root: Path) -> None:
        """Use an absolute folder, which exists; it is never made again if someone removes it."""
        self._root = root

    @property
    def url(self) -> str:
        """The root as a URL, not percent-encoded (as Hadoop writes it)."""
        return f"file://{self._root}"

    def get(self, path: str) -> bytes | None:
        with self._reporting("read", path):
            try:
                return self._file(path).read_bytes()
            except _ABSENT:
                return None

    def try_put(self, path: str, data: bytes) -> bool:
        file = self._file(path)
        with self._reporting("write", path):
            # The common loser learns it from one look, without writing its data first. The link still decides.
            is_first = not os.path.lexists(file) and self._linked(file, data)
            # Until its folder is synced, the name itself can be lost. A failure here is a write that may have happened;
            # whoever tries again finds the name taken, perhaps by itself, and counts on it as well.
            _sync_folder(file.parent)
            return is_first

    def _linked(self, file: Path, data: bytes) -> bool:
        """Give data a name that nobody has, and tell whether nobody had it."""
        with self._temp_file(file, data) as temp:
            try:
                file.hardlink_to(temp)
            except FileExistsError:
                return False
            # Any other failure is no proof: over a network the link may be there all the same.
        return True

    def put(self, path: str, data: bytes) -> None:
        file = self._file(path)
        with self._reporting("write", path), self._temp_file(file, data) as temp:
            temp.replace(file)

    def list(self, folder: str, after: str | None = None) -> Names:
        where = self._file(folder) if folder else self._root
        with self._reporting("list", folder):
            try:
                with os.scandir(where) as scan:
                    names = [e.name for e in scan if not _is_temp(e.name) and e.is_file()]
            except _ABSENT:
                # The root is more than a folder of ours: when it is gone, the lake is, and that must not read as empty.
                if not self._root.is_dir():
                    raise
                return []
        return sorted(n for n in names if after is None or n > after)

    def exists(self, path: str) -> bool:
        with self._reporting("look at", path):
            try:
                return stat.S_ISREG(self._file(path).stat().st_mode)
            except _ABSENT:
                return False

    def delete(self, path: str) -> None:
        with self._reporting("delete", path), contextlib.suppress(*_ABSENT):
            self._file(path).unlink()

    def delete_folder(self, path: str) -> None:
        with self._reporting("delete", path):
            _remove_tree(self._file(path))

    def _file(self, path: str) -> Path:
        return self._root / checked(path)

    @contextlib.contextmanager
    def _temp_file(self, file: Path, data: bytes) -> Iterator[Path]:
        """Write the data under a hidden name beside `file`, on the disk before the block runs; remove it after."""
        temp = file.parent / f".{uuid.uuid4().hex}.tmp"
        try:
            with self._reporting("write", f"{file.relative_to(self._root)}", definite=True):
                self._make_folder(file.parent)
                # Not tempfile: its files are readable by their owner alone, and a lake is shared.
                with temp.open("xb") as out:
                    out.write(data)
                    out.flush()
                    os.fsync(out.fileno())
            yield temp
        finally:
            # Garbage that could not be removed hides itself; it must not turn a finished write into an error.
            with contextlib.suppress(OSError):
                temp.unlink()

    def _make_folder(self, folder: Path) -> None:
        """Make a folder below the root, and sync each new one's name: a synced file must also be found again."""
        if folder.is_dir():
            return
        if folder != self._root:
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            _sync_folder(folder.parent)

    @contextlib.contextmanager
    def _reporting(self, verb: str, path: str, *, definite: bool = False) -> Iterator[None]:
        """Raise what the file system says as `UnavailableError`."""
        try:
            yield
        except OSError as error:
            cause = error.strerror or str(error)
            message = f"cannot {verb} {path or '/'} in {self.url}: {cause}"
            raise UnavailableError(message, definite=definite) from error


def open_local(url: str, *, create: bool) -> LocalStorage:
    """Open a folder given as 'file:///a', 'file:/a', '/a' or a relative path; `create` makes it.

    Raises:
        InvalidError: there is no such folder, or a file in its place, or the URL names another host.
        UnavailableError: it cannot be made, or not be read. One that can only be read opens, for readers.
    """
    root = root_of(url)
    try:
        if create and not root.exists():
            root.mkdir(parents=True, exist_ok=True)
            _sync_folder(root.parent)
        if not root.exists():
            raise InvalidError(f"no folder {root}: make a lake with `lockstep init {root}` (in Python: create=True)")
        if not root.is_dir():
            raise InvalidError(f"{root} is a file: the root of a lake is a folder")
        next(root.iterdir(), None)
    except OSError as error:
        raise UnavailableError(f"cannot open the lake's root {root}: {error.strerror or error}") from error
    return LocalStorage(root)


def root_of(url: str) -> Path:
    """Return the folder that a URL or a path names, whether it is there or not.

    Raises:
        InvalidError: it can name none.
    """
    return Path(_path(url)).absolute()


def _path(url: str) -> str:
    """Return the local path that a URL or a plain path means."""
    path = url.removeprefix("file:")
    if path.startswith("//") and path != url:
        host, slash, rest = path[2:].partition("/")
        if host not in {"", "localhost"}:
            raise InvalidError(f"{url!r} names the host {host!r}: a local folder is file:///… with three slashes")
        path = slash + rest
    if not path or "\0" in path or (path != url and not path.startswith("/")):
        raise InvalidError(f"{url!r} names no folder: give the root of a lake, such as /data/lake or file:///data/lake")
    return path


def _is_temp(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _sync_folder(folder: Path) -> None:
    """Put a folder's list of names on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_tree(folder: Path) -> None:
    """Remove a folder and all in it; what another process removes meanwhile is gone too. Links are not followed."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        with os.scandir(folder) as scan:
            entries = list(scan)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(Path(entry.path))
            else:
                Path(entry.path).unlink(missing_ok=True)
        folder.rmdir()
