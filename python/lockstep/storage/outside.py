"""A lake's store that also reaches what lies outside of its root: tables that the lake has where they always were.

A path of a lake is relative to its root, or, of something outside, a whole URL. Whoever has a table's location puts the
names of files behind it either way, so nothing else need know which of the two it is.

    'sales/orders-0f…/_delta_log/00….json'     below the root
    'file:///data/orders/_delta_log/00….json'  outside, on a local disk
    's3://bucket/orders/_delta_log/00….json'   outside, in a bucket

How a place outside is reached the settings say that register it (`lockstep.storage.locations`); what is registered
nowhere is reached as the root is, unless the settings say that nothing else may be.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from lockstep.errors import InvalidError, UnsupportedError
from lockstep.settings import LOCATIONS_FILE, LOCATIONS_ONLY
from lockstep.storage import (
    HDFS,
    Found,
    Mine,
    Names,
    Storage,
    Theirs,
    has_options,
    is_hdfs,
    is_local,
    open_storage,
    url_of,
)
from lockstep.storage.locations import NO_LOCATIONS, NOT_REGISTERED, Location, Locations, Said, is_in, said_in_file
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


def registered(
    root: str, options: Mapping[str, str] | None, said: Said | None = None, *, only: bool = False
) -> Locations:
    """Return the locations of a lake.

    Args:
        root: the lake's, as `Storage.url` gives it.
        options: of the lake's own store.
        said: what is registered; where that is None and not `only`, what `LOCKSTEP_LOCATIONS` says, if anything.
        only: whether that is all.

    Raises:
        InvalidError: one of them is no place beside the root, two are one place, or it has options that its kind of
            store has not.
        UnsupportedError: there is no store for one; or it lies in HDFS, and the root at no such name node.
    """
    from_file = said is None and not only
    if from_file:
        said, only = said_in_file(os.environ.get(LOCATIONS_FILE.name) or "")
    base, found = comparable(root), dict[str, Location]()
    for text, own in (said or {}).items():
        try:
            url = _registrable(text, base)
            if not _are_texts(own or {}):
                raise InvalidError("its options are no mapping of names to texts")  # which may be keys: not shown
            if own and not has_options(url):
                raise InvalidError("it has options of a store, and only object stores have any")
            if url in found:
                raise InvalidError("it is registered twice")
        except InvalidError as error:
            raise type(error)(f"location {_shown(text)}: {error.message}", sqlstate=error.sqlstate) from error
        if is_in(url, base):
            if from_file:  # which may be about several lakes
                continue
            raise InvalidError(f"location {_shown(text)}: it is below the root {root}, whose own store counts there")
        used = own or _options_beside(url, base, options)
        found[url] = _location(url, used, base, options)
    return Locations(tuple(found.values()), only)


def _location(url: str, used: Mapping[str, str], base: str, options: Mapping[str, str] | None) -> Location:
    is_apart = _kind(url) != _kind(base) or used != (options or {})
    return Location(url, dict(used) if has_options(url) else {}, is_apart=is_apart)


def registered_beside(storage: Storage, root: str, options: Mapping[str, str] | None) -> Locations:
    """Return a lake's locations for the lake of another root: each is reached as it is by the first one.

    Args:
        storage: the first lake's.
        root: the other's, a path or a URL.
        options: those of the other's own store, which say nothing of a location.
    """
    base = comparable(url_of(root))
    left = locations_of(storage).beside(base)
    return replace(left, places=tuple(_location(each.url, each.options, base, options) for each in left.places))


def _are_texts(options: object) -> bool:
    return isinstance(options, Mapping) and all(isinstance(each, str) for pair in options.items() for each in pair)


def _registrable(text: str, base: str) -> str:
    if is_local(text) and not text.startswith(("/", "file:")):
        raise InvalidError("it is a relative path, and nothing says of which folder: give an absolute path or a URL")
    url = comparable(url_of(text))
    if url == "file:///":
        raise InvalidError("it is the whole disk: give a folder")
    if name_node(url) not in (None, name_node(base)):
        raise UnsupportedError(
            "in HDFS only a lake has locations whose root names the same name node: tables of other lakes, and of "
            "other name nodes, are not reached there"
        )
    return url


def _shown(text: str) -> str:
    """Return what a person has registered, for a message: nothing that stands where a user or a key might."""
    scheme, _, rest = text.partition(_MARK)
    who, at, _ = rest.partition("/")[0].rpartition("@")
    return f"{scheme}{_MARK}…" if at and (_kind(text) != "abfss" or ":" in who) else text


def _kind(url: str) -> str:
    return kind_of_store(url.partition(_MARK)[0])


def locations_of(storage: Storage) -> Locations:
    """Return the locations that are registered for the lake of a store."""
    return storage.locations if isinstance(storage, OutsideStorage) else NO_LOCATIONS


def options_at(storage: Storage, url: str, options: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return what the store of a place is opened with.

    Args:
        storage: the lake's.
        url: the place's.
        options: those of the lake's own store, which count in its kind of store where no location is registered.
    """
    if (location := _location_at(storage, url)) is not None:
        return location.options
    return _options_beside(url, storage.url, options)


def _options_beside(url: str, root: str, options: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return which options of a lake's own store are for a place outside: none where that is another kind of store."""
    return (options or {}) if _kind(url) == _kind(root) or not has_options(root) else {}


def is_apart(storage: Storage, path: str) -> bool:
    """Tell whether a path of a lake is in a location that is reached otherwise than the lake's root."""
    location = _location_at(storage, path) if is_outside(path) else None
    return location is not None and location.is_apart


def _location_at(storage: Storage, url: str) -> Location | None:
    return storage.location_at(url) if isinstance(storage, OutsideStorage) else None


def reaches(storage: Storage, path: str) -> bool:
    """Tell whether a lake may have something at a path; see `check_reach`."""
    return not isinstance(storage, OutsideStorage) or storage.reaches(path)


def check_reach(storage: Storage, path: str, about: str = "") -> None:
    """Raise unless a lake may have something at a path.

    Args:
        storage: the lake's.
        path: relative to its root, or a whole URL.
        about: what it is, with a blank behind it.

    Raises:
        InvalidError (42501): it lies outside of the root, and only registered locations may be used there.
    """
    if not reaches(storage, path):
        raise InvalidError(
            f"{about}{path} lies neither below the lake's root, {storage.url}, nor in a location that is registered "
            f"for the lake, and {LOCATIONS_ONLY.name} says that nothing else is read, written or deleted. Register the "
            "folder that it lies in (docs/storage.md#locations), if you trust whoever put its name into the lake",
            sqlstate=NOT_REGISTERED,
        )


def around(storage: Storage, url: str) -> Storage:
    """Return a lake's store for looks at what lies above a place that somebody has said, location or not.

    What is above is reached as the place is. It is asked by whole URLs.
    """
    return storage.around(url) if isinstance(storage, OutsideStorage) else storage


def open_reaching(
    url: str,
    *,
    create: bool = False,
    options: Mapping[str, str] | None = None,
    locations: Locations | None = None,
) -> Storage:
    """Open the store of a lake, with all that its tables may lie in; see `lockstep.storage.open_storage`.

    Args:
        locations: where tables may lie; what `LOCKSTEP_LOCATIONS` says by default.

    Raises:
        LockstepError: as `open_storage` and `registered` say.
    """
    storage = open_storage(url, create=create, options=options)
    return OutsideStorage(storage, options, registered(storage.url, options) if locations is None else locations)


def opener_of(storage: Storage) -> Callable[[str], Storage]:
    """Return what opens the stores beside a lake's: as the lake's own does, if that reaches them."""
    return storage.beside if isinstance(storage, OutsideStorage) else open_reaching


def opener_of_files(storage: Storage, otherwise: Callable[[str], Storage]) -> Callable[[str], Storage]:
    """Return what opens the stores of files that a lake's tables name: as its locations say, if there are any.

    Args:
        storage: the lake's.
        otherwise: opens them if there are none.
    """
    return opener_of(storage) if locations_of(storage) != NO_LOCATIONS else otherwise


def _written(url: str) -> str:
    """Return a whole URL with its store as `comparable` has it, and its path as it is written."""
    scheme, mark, rest = url.partition(_MARK)
    authority, slash, inside = rest.partition("/")
    return f"{store_of(scheme, authority)}{slash}{inside}" if mark else url


class OutsideStorage(Storage):
    """The store of a lake's root, and those of what lies outside; which of them a path is in, the path says.

    The others are opened when they are first asked for: one for the local disk, one for each bucket, and one for each
    registered location. Before the first conditional write to one of these, writers race there as in the root
    (`lockstep.storage.proof`).
    """

    def __init__(
        self,
        inner: Storage,
        options: Mapping[str, str] | None = None,
        locations: Locations = NO_LOCATIONS,
        *,
        fsync_data: bool = False,
    ) -> None:
        """Take the store of the root, the settings with which others are opened (`open_storage`), and the locations."""
        self.locations = locations
        self._inner = inner
        self._options = options
        self._fsync_data = fsync_data
        self._root = "" if locations == NO_LOCATIONS else comparable(inner.url)
        self._lock = threading.Lock()
        self._others: dict[tuple[str, str], Storage] = {}
        self._around: dict[str, OutsideStorage] = {}
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
        """Open the store of another lake, with the settings of this one.

        Raises:
            InvalidError (42501): see `check_reach`.
            LockstepError: see `open_storage`.
        """
        where = comparable(url_of(url))
        check_reach(self, where)
        options = options_at(self, where, self._options) if has_options(url) else None
        return open_reaching(url, options=options, locations=self.locations.beside(where))

    def around(self, url: str) -> Storage:
        """Return what reaches all that is above a place as this reaches the place; see `around`."""
        location = self.location_at(url)
        if location is None and not (self.locations.only or self._is_in_root(url)):
            return self
        key = "" if location is None else location.url
        with self._lock:
            if key not in self._around:
                whole = Location("/".join(_written(url).split("/")[:3]), options_at(self, url, self._options))
                everywhere = Locations((whole,)) if location is not None and has_options(url) else NO_LOCATIONS
                self._around[key] = OutsideStorage(self._inner, self._options, everywhere)
            return self._around[key]

    def reaches(self, path: str) -> bool:
        """Tell whether a lake may have something at a path; see `check_reach`."""
        if not (self.locations.only and is_outside(path)):
            return True
        return self._is_in_root(path) or self.location_at(path) is not None

    def location_at(self, url: str) -> Location | None:
        """Return the location that a place is in; None below the root, where its own store counts, and elsewhere."""
        return None if self._is_in_root(url) else self.locations.of(_written(url))

    def _is_in_root(self, url: str) -> bool:
        """Tell whether a place is below the root; only asked where there are locations."""
        return is_in(_written(url), self._root)

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
            InvalidError: a URL that names a store as a whole, which nobody may list or delete; (42501) see
                `check_reach`.
        """
        if not is_outside(path):
            return self._inner, path, ""
        location = None
        if self.locations != NO_LOCATIONS:
            check_reach(self, path)
            url = _written(path)
            if self._is_in_root(url):
                inside = url.removeprefix(self._root).lstrip("/")
                return self._inner, inside, f"{self._root}/"
            if (location := self.location_at(url)) is not None and is_local(location.url):
                # By a store of its own, which follows no link that leads out of the location.
                store = self._other(location.url, location)
                return store, url.removeprefix(location.url).lstrip("/"), f"{location.url}/"
        scheme, _, rest = path.partition(_MARK)
        authority, _, inside = rest.partition("/")
        if not inside:
            raise InvalidError(f"{path!r} is not a path in a store: give one below its root")
        root = f"{scheme}{_MARK}{authority}"
        return self._other(root, location), inside, f"{root}/"

    def _other(self, root: str, location: Location | None) -> Storage:
        key = "" if location is None else location.url
        with self._lock:
            if (store := self._others.get((root, key))) is None:
                options = options_at(self, key or root, self._options)
                # A local disk and HDFS have no options: those of an object store would be refused.
                store = open_storage(
                    f"{root}/", options=options if has_options(root) else None, fsync_data=self._fsync_data
                )
                self._others[root, key] = store
        return store
