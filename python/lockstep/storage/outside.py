"""A lake's store that also reaches what lies outside of its root: tables that the lake has where they always were.

A path of a lake is relative to its root, or, of something outside, a whole URL. Whoever has a table's location puts the
names of files behind it either way, so nothing else need know which of the two it is.

    'sales/orders-0f…/_delta_log/00….json'     below the root
    'file:///data/orders/_delta_log/00….json'  outside, on a local disk
    's3://bucket/orders/_delta_log/00….json'   outside, in a bucket, with the settings of the lake's own store
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from lockstep.errors import InvalidError
from lockstep.storage import HDFS, Found, Mine, Names, Storage, Theirs, has_options, is_hdfs, open_storage
from lockstep.storage.proof import prove

_MARK = "://"

_ALIASES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
"""Schemes of the same store."""

OTHER_DOORS = {"webhdfs": "hdfs", "swebhdfs": "hdfs", "viewfs": "hdfs", "wasb": "abfss", "wasbs": "abfss"}
"""Schemes in which no lake lies, by which Hadoop reaches a store that one may lie in."""

_BUCKETS = frozenset({"s3", "gs"})
"""Schemes of URLs whose authority is a bucket, in whose name case counts, and not a host."""

_PORT_OF_HDFS = ":8020"
"""Of a name node, where a URL says none."""

PROBES = "_lockstep_race"
"""A folder beside what is written outside of the root, where writers race first; removed after each race."""


def is_outside(path: str) -> bool:
    """Tell whether a path of a lake is a whole URL: what it names lies outside of the lake's root."""
    return _MARK in path


def url_below(root: str, path: str) -> str:
    """Return the URL of what a path of a lake names.

    Args:
        root: the lake's, as `Storage.url` gives it.
        path: relative to that, or a whole URL.
    """
    return path if is_outside(path) else f"{root}/{path}"


def store_of(scheme: str, authority: str) -> str:
    """Return the URL of a store as a whole, such that two spellings of one store are equal.

    One store is `s3` and `s3a`, `abfs` and `abfss`, a name node with and without the port 8020, a host in capitals, and
    a bucket or a name node with a user in front of it.

    Args:
        scheme: of a URL.
        authority: of a URL; a local disk has none.
    """
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    if scheme == "file":
        return f"{scheme}{_MARK}"
    if scheme in _BUCKETS:
        return f"{scheme}{_MARK}{authority.rpartition('@')[2]}"
    authority = authority.lower()  # Hadoop finds a file system by it without regard to case
    if f"{scheme}{_MARK}" == HDFS:
        authority = authority.rpartition("@")[2].removesuffix(_PORT_OF_HDFS)
    return f"{scheme}{_MARK}{authority}"


def kind_of_store(scheme: str) -> str:
    """Return which kind of store a scheme is of: the scheme of lakes' roots there, as `store_of` spells it."""
    scheme = _ALIASES.get(scheme.lower(), scheme.lower())
    return OTHER_DOORS.get(scheme, scheme)


def comparable(url: str) -> str:
    """Return a URL such that two of the same folder are equal, with links followed."""
    scheme, mark, rest = url.partition(_MARK)
    if scheme.lower() == "file":
        return f"file://{os.path.realpath(rest)}"
    authority, slash, path = rest.partition("/")
    return f"{store_of(scheme, authority)}{slash}{path}".rstrip("/") if mark else url.rstrip("/")


def name_node(url: str) -> str | None:
    """Return how a URL of HDFS names its name node, None for a URL of anything else.

    Two names may be of one name node, as a host's short and its full one are, and nobody can tell that from the names.
    """
    return comparable(url).removeprefix(HDFS).partition("/")[0] if is_hdfs(url) else None


def open_reaching(url: str, *, create: bool = False, options: Mapping[str, str] | None = None) -> Storage:
    """Open the store of a lake, with all that its tables may lie in; see `lockstep.storage.open_storage`.

    Raises:
        LockstepError: as `open_storage` says.
    """
    return OutsideStorage(open_storage(url, create=create, options=options), options)


def opener_of(storage: Storage) -> Callable[[str], Storage]:
    """Return what opens the stores beside a lake's: as the lake's own does, if that reaches them."""
    return storage.beside if isinstance(storage, OutsideStorage) else open_reaching


class OutsideStorage(Storage):
    """The store of a lake's root, and those of what lies outside; which of them a path is in, the path says.

    The others are opened when they are first asked for: one for the local disk, and one for each bucket. Before the
    first conditional write to one of these, writers race there as in the root (`lockstep.storage.proof`).
    """

    def __init__(self, inner: Storage, options: Mapping[str, str] | None = None, *, fsync_data: bool = False) -> None:
        """Take the store of the root, and the settings with which others are opened, see `open_storage`."""
        self._inner = inner
        self._options = options
        self._fsync_data = fsync_data
        self._lock = threading.Lock()
        self._others: dict[str, Storage] = {}
        self._proving = threading.Lock()
        self._proven: set[Storage] = set()
        self.claim = inner.claim
        self.quick = inner.quick

    @property
    def url(self) -> str:
        return self._inner.url

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def is_proven_by_use(self) -> bool:
        return self._inner.is_proven_by_use

    @property
    def looks_first(self) -> bool:
        """Whether conditional writes in the root are a look and then a write; elsewhere they never are."""
        return self._inner.looks_first

    def look_first(self) -> None:
        self._inner.look_first()

    def beside(self, url: str) -> Storage:
        """Open the store of another lake, with the settings of this one."""
        return open_reaching(url, options=self._options if has_options(url) else None)

    def is_writable(self, folder: str) -> bool:
        store, inside, _ = self._at(folder)
        return store.is_writable(inside)

    def flush(self, paths: Iterable[str]) -> None:
        by_store: dict[Storage, list[str]] = {}
        for path in paths:
            store, inside, _ = self._at(path)
            by_store.setdefault(store, []).append(inside)
        for store, files in by_store.items():
            store.flush(files)

    def get(self, path: str) -> bytes | None:
        store, inside, _ = self._at(path)
        return store.get(inside)

    def put_if_absent(self, path: str, data: bytes) -> Mine | Theirs:
        store, inside, _ = self._at(path)
        self._prove(store, inside)
        return store.put_if_absent(inside, data)

    def try_put(self, path: str, data: bytes) -> bool:
        store, inside, _ = self._at(path)
        self._prove(store, inside)
        return store.try_put(inside, data)

    def put(self, path: str, data: bytes) -> None:
        store, inside, _ = self._at(path)
        store.put(inside, data)

    def put_advice(self, path: str, data: bytes, *, over: bool = False) -> bool:
        store, inside, _ = self._at(path)
        return store.put_advice(inside, data, over=over)

    def chunks(self, path: str) -> Iterator[bytes] | None:
        store, inside, _ = self._at(path)
        return store.chunks(inside)

    def put_chunks(self, path: str, chunks: Iterable[bytes | memoryview]) -> None:
        store, inside, _ = self._at(path)
        store.put_chunks(inside, chunks)

    def list(self, folder: str, after: str | None = None) -> Names:
        store, inside, _ = self._at(folder)
        return store.list(inside, after)

    def walk(self, folder: str) -> Iterator[Found]:
        store, inside, prefix = self._at(folder)
        found = store.walk(inside)
        return (replace(each, path=f"{prefix}{each.path}") for each in found) if prefix else found

    def exists(self, path: str) -> bool:
        store, inside, _ = self._at(path)
        return store.exists(inside)

    def delete(self, path: str) -> None:
        store, inside, _ = self._at(path)
        store.delete(inside)

    def delete_all(self, paths: Iterable[str]) -> None:
        paths = list(paths)
        if any(map(is_outside, paths)):
            super().delete_all(paths)
        else:
            self._inner.delete_all(paths)

    def delete_folder(self, path: str) -> None:
        store, inside, _ = self._at(path)
        store.delete_folder(inside)

    def delete_empty_folder(self, path: str) -> None:
        store, inside, _ = self._at(path)
        store.delete_empty_folder(inside)

    def _prove(self, store: Storage, path: str) -> None:
        """Race in a store outside of the root, once for all lakes' processes: what came of it is kept in the root.

        Writers race beside the object that is to be written, since nobody may be allowed to write anywhere else there.

        Raises:
            LockstepError: see `lockstep.storage.proof.prove`.
        """
        if store is self._inner or store in self._proven:
            return
        with self._proving:
            if store not in self._proven:
                prove(store, kept_in=self._inner, folder=f"{path.rpartition('/')[0]}/{PROBES}".lstrip("/"))
                self._proven.add(store)

    def _at(self, path: str) -> tuple[Storage, str, str]:
        """Return the store that a path is in, the path in it, and what its own paths are to be preceded by.

        Raises:
            InvalidError: a URL that names a store as a whole, which nobody may list or delete.
        """
        if not is_outside(path):
            return self._inner, path, ""
        scheme, _, rest = path.partition(_MARK)
        authority, _, inside = rest.partition("/")
        if not inside:
            raise InvalidError(f"{path!r} is not a path in a store: give one below its root")
        root = f"{scheme}{_MARK}{authority}"
        with self._lock:
            if (store := self._others.get(root)) is None:
                # A local disk and HDFS have no options: those of an object store would be refused.
                store = open_storage(
                    f"{root}/", options=self._options if has_options(root) else None, fsync_data=self._fsync_data
                )
                self._others[root] = store
        return store, inside, f"{root}/"
