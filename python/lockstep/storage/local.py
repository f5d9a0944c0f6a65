"""A lake in a local file system (or a mounted one that has hard links and keeps what fsync says)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from lockstep.errors import InvalidError, StoreRefusedError, UnavailableError
from lockstep.storage import Found, Names, Storage, checked, time_of
from lockstep.storage.urls import shown
from lockstep.workers import Workers

CHUNK_BYTES = 1024 * 1024
"""The size of a piece of a file that is read in pieces."""

FLUSHED_AT_ONCE = 16
"""So many files are flushed side by side: file systems write what several wait for in one go."""

FOLDERS = 10_000
"""Of so many folders it is remembered that their names are on the disk."""

_names = random.Random()
"""Draws names of hidden files. A fork would draw those of its parent."""
os.register_at_fork(after_in_child=_names.seed)

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

    quick = True
    is_proven_by_use = True

    def __init__(self, root: Path, *, fsync_data: bool = False, fsync: Callable[[int], None] | None = None) -> None:
        """Use an absolute folder, which exists; it is never made again if someone removes it.

        Args:
            fsync_data: see `open_storage`.
            fsync: puts what a handle is open on, a file or a folder, on the disk; `os.fsync` by default.
        """
        self._root = root
        self._prefix = f"{root}/" if root != Path("/") else "/"
        self._fsync_data = fsync_data
        self._fsync = fsync
        self._inside: dict[str, tuple[int, int]] = {}  # folders below the root, as they were when links were followed
        self._named: set[str] = set()  # folders whose names are on the disk, all the way up

    @property
    def url(self) -> str:
        """The root as a URL, not percent-encoded (as Hadoop writes it)."""
        return f"file://{self._root}"

    def get(self, path: str) -> bytes | None:
        with self._reporting("read", path):
            try:
                handle = _not_by_link(self._file(path), os.O_RDONLY)
                try:
                    return _read_all(handle)
                finally:
                    os.close(handle)
            except _ABSENT:
                return None

    def try_put(self, path: str, data: bytes) -> bool:
        file = self._file(path)
        with self._reporting("write", path):
            # The common loser learns it from one look, without writing its data first. The link still decides.
            is_first = not os.path.lexists(file) and self._linked(file, data)
            # Until its folder is synced, the name itself can be lost. A failure here is a write that may have happened;
            # whoever tries again finds the name taken, perhaps by itself, and counts on it as well.
            self._sync_names(_folder_of(file))
            return is_first

    def _linked(self, file: str, data: bytes) -> bool:
        """Give data a name that nobody has, and tell whether nobody had it."""
        with self._temp_file(file, [data]) as temp:
            try:
                os.link(temp, file)
            except FileExistsError:
                return False
            # Any other failure is no proof: over a network the link may be there all the same.
        return True

    def put(self, path: str, data: bytes) -> None:
        file = self._file(path)
        with self._reporting("write", path), self._temp_file(file, [data]) as temp:
            os.replace(temp, file)

    def put_advice(self, path: str, data: bytes, *, over: bool = False) -> bool:
        file = self._file(path)
        with self._reporting("write", path), self._temp_file(file, [data], sync=False) as temp:
            try:
                (os.replace if over else os.link)(temp, file)
            except FileExistsError:
                return False
            return True

    def chunks(self, path: str) -> Iterator[bytes] | None:
        return self._pieces(path) if self.exists(path) else None

    def _pieces(self, path: str) -> Iterator[bytes]:
        with self._reporting("read", path), open(self._file(path), "rb", opener=_not_by_link) as opened:
            while piece := opened.read(CHUNK_BYTES):
                yield piece

    def put_chunks(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        file = self._file(path)
        with self._reporting("write", path), self._temp_file(file, chunks) as temp:
            os.replace(temp, file)
            self._sync_names(_folder_of(file))

    def is_writable(self, folder: str) -> bool:
        where = self._file(folder) if folder else str(self._root)
        while not os.path.lexists(where) and where != str(self._root):
            where = os.path.dirname(where)
        # As the file system would judge a write: a mount that can only be read refuses its owner, too.
        return os.access(where, os.W_OK | os.X_OK, effective_ids=True)

    def flush(self, paths: Iterable[str]) -> None:
        if not self._fsync_data:
            return
        files = sorted({self._file(path) for path in paths})
        if not files:
            return
        Workers(min(FLUSHED_AT_ONCE, len(files)), "lockstep-flush").map(self._flush, files)
        folders = {folder for file in files for folder in self._upwards(os.path.dirname(file))}
        for folder in sorted(folders, key=len, reverse=True):
            self._flush(folder)

    def sync_names(self, folder: str) -> None:
        with self._reporting("flush", folder):
            self._sync_names(self._folder(folder))

    def _flush(self, path: str) -> None:
        """Put a file, or a folder's list of names, on the disk; nothing, where there is none."""
        with self._reporting("flush", path.removeprefix(self._prefix)), contextlib.suppress(FileNotFoundError):
            self._sync(path)

    def _sync_names(self, folder: str) -> None:
        """Put a folder's list of names on the disk, and each folder's above whose name may not be there.

        Spark makes folders too, and syncs none: a file is found again if every folder above it is.
        """
        synced = []
        for each in self._upwards(folder):
            self._sync(each)
            synced.append(each)
            if each in self._named:
                break
        if len(self._named) > FOLDERS:
            self._named.clear()
        self._named.update(synced)

    def _upwards(self, folder: str) -> Iterator[str]:
        """Yield a folder, and those above it up to the root: the name of each is in the next one's list."""
        while len(folder) > len(self._prefix):
            yield folder
            folder = _folder_of(folder)
        yield str(self._root)

    def _sync(self, path: str) -> None:
        """Put a file's content, or a folder's list of names, on the disk."""
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._sync_handle(handle)
        finally:
            os.close(handle)

    def _sync_handle(self, handle: int) -> None:
        (self._fsync or os.fsync)(handle)

    def delete_empty_folder(self, path: str) -> None:
        folder = self._file(path)
        with self._reporting("delete", path):
            self._named.clear()  # as in `delete_folder`
            try:
                os.rmdir(folder)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def list(self, folder: str, after: str | None = None) -> Names:
        where = self._folder(folder)
        with self._reporting("list", folder):
            try:
                with os.scandir(where) as scan:
                    names = [e.name for e in scan if not _is_temp(e.name) and _is_file(e)]
            except _ABSENT:
                # The root is more than a folder of ours: when it is gone, the lake is, and that must not read as empty.
                if not self._root.is_dir():
                    raise
                return []
        return sorted(n for n in names if after is None or n > after)

    def walk(self, folder: str) -> Iterator[Found]:
        waiting = [folder]
        while waiting:
            current = waiting.pop()
            with self._reporting("list", current):
                found, folders = _scanned(Path(self._folder(current)), current)
            yield from found
            waiting += folders

    def exists(self, path: str) -> bool:
        with self._reporting("look at", path):
            try:
                return stat.S_ISREG(os.stat(self._file(path)).st_mode)
            except _ABSENT:
                return False

    def delete(self, path: str) -> None:
        folder, name = os.path.split(self._file(path))
        # Hadoop's checksum of a file goes with it, as where Hadoop deletes one: from a table that was adopted nothing
        # else would ever remove it.
        for each in (name, f".{name}.crc"):
            with self._reporting("delete", path), contextlib.suppress(*_ABSENT):
                os.unlink(os.path.join(folder, each))

    def delete_folder(self, path: str) -> None:
        file = self._file(path)
        with self._reporting("delete", path):
            # Whoever makes it again has to sync it.
            self._named.difference_update([each for each in [*self._named] if f"{each}/".startswith(f"{file}/")])
            _remove_tree(file)

    def _file(self, path: str) -> str:
        """Return where an object's file lies, which may be a link itself: it is replaced or removed, not followed.

        Raises:
            InvalidError: it is no path of ours, or a link on the way to it leads out of the root.
        """
        file = self._prefix + checked(path)
        self._check_inside(_folder_of(file), path)
        return file

    def _folder(self, path: str) -> str:
        """Return where a folder lies whose files are to be listed; '' is the root.

        Raises:
            InvalidError: as `_file` says, or it is such a link itself.
        """
        if not path:
            return str(self._root)
        folder = self._prefix + checked(path)
        self._check_inside(folder, path)
        return folder

    def _check_inside(self, folder: str, path: str) -> None:
        """See that no link leads from a folder out of the root.

        Raises:
            InvalidError: one does.
        """
        try:
            status = os.stat(folder)
        except OSError:
            found = None  # what is not there yet may become a link
        else:
            found = status.st_dev, status.st_ino
            if self._inside.get(folder) == found:
                return
        real_root, real = os.path.realpath(self._root), os.path.realpath(folder)
        if os.path.commonpath([real_root, real]) != real_root:
            raise InvalidError(
                f"{path!r} leads out of {self.url}, by a link to {real}: a lake's files lie below its root. Move "
                "what the link leads to into the lake"
            )
        if found is not None:
            if len(self._inside) > FOLDERS:
                self._inside.clear()
            self._inside[folder] = found

    @contextlib.contextmanager
    def _temp_file(self, file: str, chunks: Iterable[bytes | memoryview], *, sync: bool = True) -> Iterator[str]:
        """Write the data under a hidden name beside `file`, on the disk before the block runs; remove it after."""
        folder = _folder_of(file)
        temp = f"{folder}/.{_names.getrandbits(128):032x}.tmp"
        try:
            with self._reporting("write", file.removeprefix(self._prefix), definite=True):
                handle = self._new_file(temp, folder)
                try:
                    for chunk in chunks:
                        _write(handle, chunk)
                    if sync:
                        self._sync_handle(handle)
                finally:
                    os.close(handle)
            yield temp
        finally:
            # Garbage that could not be removed hides itself; it must not turn a finished write into an error.
            with contextlib.suppress(OSError):
                os.unlink(temp)

    def _new_file(self, path: str, folder: str) -> int:
        """Open a new file for writing, and make its folder if that is not there."""
        # Not tempfile: its files are readable by their owner alone, and a lake is shared.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        for _ in range(_TIMES):
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, flags, 0o666)
            with contextlib.suppress(FileNotFoundError):  # of a folder above it, see `delete_empty_folder`
                self._make_folder(Path(folder))
        return os.open(path, flags, 0o666)

    def _make_folder(self, folder: Path) -> None:
        """Make a folder below the root, and sync each new one's name: a synced file must also be found again."""
        if folder.is_dir():
            return
        if folder != self._root:
            self._make_folder(folder.parent)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
            self._sync(str(folder.parent))
            if folder.parent == self._root or str(folder.parent) in self._named:
                self._named.add(str(folder))

    def _reporting(self, verb: str, path: str, *, definite: bool = False) -> _Reporting:
        """Raise what the file system says as `UnavailableError`."""
        return _Reporting(self, verb, path, definite)


class _Reporting:
    """A block whose OSError becomes an `UnavailableError`; every look at a file is one, so it is no generator."""

    __slots__ = ("_definite", "_path", "_storage", "_verb")

    def __init__(self, storage: Storage, verb: str, path: str, definite: bool) -> None:
        self._storage = storage
        self._verb = verb
        self._path = path
        self._definite = definite

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            cause = error.strerror or str(error)
            message = f"cannot {self._verb} {self._path or '/'} in {self._storage.url}: {cause}"
            raise _meant(error)(message, definite=self._definite) from error


def open_local(url: str, *, create: bool, fsync_data: bool = False) -> LocalStorage:
    """Open a folder given as 'file:///a', 'file:/a', '/a' or a relative path; `create` makes it.

    Raises:
        InvalidError: there is no such folder, or a file in its place, or the URL names another host.
        UnavailableError: it cannot be made, or not be read. One that can only be read opens, for readers.
    """
    root = root_of(url)
    storage = LocalStorage(root, fsync_data=fsync_data)
    try:
        if create and not root.exists():
            absent = [root, *itertools.takewhile(lambda folder: not folder.exists(), root.parents)]
            root.mkdir(parents=True, exist_ok=True)
            for folder in reversed(absent):
                storage._sync(str(folder.parent))  # noqa: SLF001 (it has the name of a folder that was made)
        if not root.exists():
            raise InvalidError(f"no folder {root}: make a lake with `lockstep init {root}` (in Python: create=True)")
        if not root.is_dir():
            raise InvalidError(f"{root} is a file: the root of a lake is a folder")
        next(root.iterdir(), None)
    except OSError as error:
        raise _meant(error)(f"cannot open the lake's root {root}: {error.strerror or error}") from error
    return storage


_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def _meant(error: OSError) -> type[UnavailableError]:
    """Return the error for what the operating system says: of permissions it would say the same again."""
    return StoreRefusedError if error.errno in _NOT_ALLOWED else UnavailableError


_TIMES = 3
"""So often is a folder made for a file: whoever removes empty ones may take it away before the file is in it."""

_SCHEME = re.compile("[A-Za-z][A-Za-z0-9+.-]*:")


def root_of(url: str) -> Path:
    """Return the folder that a URL or a path names, whether it is there or not.

    Raises:
        InvalidError: it can name none.
    """
    return Path(_path(url)).absolute()


def _path(url: str) -> str:
    """Return the local path that a URL or a plain path means."""
    path = url.removeprefix("file:")
    if path == url and (scheme := _SCHEME.match(url)) is not None:
        raise InvalidError(
            f"{shown(url)!r} begins with {scheme[0]!r}, as a URL does, and is none that can be opened: write file:///… "
            f"for a local folder, s3://… for a bucket, or ./{shown(url)} for a folder of that name"
        )
    if path.startswith("//") and path != url:
        host, slash, rest = path[2:].partition("/")
        if host not in {"", "localhost"}:
            raise InvalidError(f"{url!r} names the host {host!r}: a local folder is file:///… with three slashes")
        path = slash + rest
    if not path or "\0" in path or (path != url and not path.startswith("/")):
        raise InvalidError(f"{url!r} names no folder: give the root of a lake, such as /data/lake or file:///data/lake")
    return path


def _scanned(folder: Path, path: str) -> tuple[list[Found], list[str]]:
    """Return the files directly in a folder, and the paths of the folders in it; `path` is its own in the store."""
    found: list[Found] = []
    folders: list[str] = []
    with contextlib.suppress(*_ABSENT), os.scandir(folder) as scan:
        for each in scan:
            below = f"{path}/{each.name}" if path else each.name
            if each.is_dir(follow_symlinks=False):
                folders.append(below)
            elif not _is_temp(each.name) and _is_file(each):
                with contextlib.suppress(FileNotFoundError):  # gone since
                    status = each.stat()
                    found.append(Found(below, status.st_size, time_of(status.st_mtime)))
    return found, folders


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Tell whether a name in a folder is a file's, or a link's that leads to one, and not to itself."""
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _not_by_link(path: str, flags: int) -> int:
    """Open a file that is one; of a link, the system says that there are too many levels of them.

    Raises:
        FileNotFoundError: it is no file: of a pipe it would be waited for who writes it.
    """
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISFIFO(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "it is a pipe", path)
    return handle


def _folder_of(file: str) -> str:
    """Return the folder of a file whose path begins with the root's."""
    return file[: file.rindex("/")] or "/"


def _read_all(handle: int) -> bytes:
    """Return all that is in a file when this begins: one call of the system may read a part of it."""
    size = os.fstat(handle).st_size
    data = os.read(handle, size)
    while len(data) < size and (more := os.read(handle, size - len(data))):
        data += more
    return data


def _is_temp(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _write(handle: int, data: bytes | memoryview) -> None:
    """Write all of the data: one call of the system may write a part of it."""
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _remove_tree(folder: str) -> None:
    """Remove a folder and all in it; what another process removes meanwhile is gone too.

    Links are not followed, the folder itself among them: such a link is removed, and what it leads to stays.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISLNK(os.lstat(folder).st_mode):
            os.unlink(folder)
            return
        with os.scandir(folder) as scan:
            entries = list(scan)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _remove_tree(entry.path)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
        os.rmdir(folder)
