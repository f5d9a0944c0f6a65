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

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from lockstep.errors import InvalidError
from lockstep.forks import Lock
from lockstep.settings import LOCATIONS_ONLY
from lockstep.storage import Found, Mine, Names, Storage, Theirs, has_options, is_local, open_storage, url_of
from lockstep.storage.locations import (
    NO_LOCATIONS,
    NOT_REGISTERED,
    Location,
    Locations,
    is_in,
    location_of,
    options_beside,
    registered,
)
from lockstep.storage.proof import prove
from lockstep.storage.urls import MARK, comparable, is_outside, written

PROBES = "_lockstep_race"
"""A folder beside what is written outside of the root, where writers race first; removed after each race."""


def settings_beside(
    storage: Storage, root: str, options: Mapping[str, str] | None, about: str = ""
) -> tuple[Mapping[str, str] | None, Locations]:
    """Return the options and the locations of the lake of another root: each place is reached as by the first lake.

    Args:
        storage: the first lake's.
        root: the other's, a path or a URL.
        options: those of the first lake's own store.
        about: see `check_reach`.

    Raises:
        InvalidError (42501): see `check_reach`.
    """
    base = comparable(url_of(root))
    check_reach(storage, base, about)
    found = options_at(storage, base, options) if has_options(root) else None
    left = locations_of(storage).beside(base)
    places = tuple(location_of(each.url, each.options, base, found) for each in left.places)
    return found, replace(left, places=places)


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
    return options_beside(url, storage.url, options)


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
        self._lock = Lock()
        self._others: dict[tuple[str, str], Storage] = {}
        self._around: dict[str, OutsideStorage] = {}
        self._proving = Lock()
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
        options, locations = settings_beside(self, url, self._options)
        return open_reaching(url, options=options, locations=locations)

    def around(self, url: str) -> Storage:
        """Return what reaches all that is above a place as this reaches the place; see `around`."""
        location = self.location_at(url)
        if location is None and not (self.locations.only or self._is_in_root(url)):
            return self
        key = "" if location is None else location.url
        with self._lock:
            if key not in self._around:
                whole = Location("/".join(written(url).split("/")[:3]), options_at(self, url, self._options))
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
        return None if self._is_in_root(url) else self.locations.of(written(url))

    def _is_in_root(self, url: str) -> bool:
        """Tell whether a place is below the root; only asked where there are locations."""
        return is_in(written(url), self._root)

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

    def sync_names(self, folder: str) -> None:
        store, inside, _ = self._at(folder)
        store.sync_names(inside)

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
            url = written(path)
            if self._is_in_root(url):
                inside = url.removeprefix(self._root).lstrip("/")
                return self._inner, inside, f"{self._root}/"
            if (location := self.location_at(url)) is not None and is_local(location.url):
                # By a store of its own, which follows no link that leads out of the location.
                store = self._other(location.url, location)
                return store, url.removeprefix(location.url).lstrip("/"), f"{location.url}/"
        scheme, _, rest = path.partition(MARK)
        authority, _, inside = rest.partition("/")
        if not inside:
            raise InvalidError(f"{path!r} is not a path in a store: give one below its root")
        root = f"{scheme}{MARK}{authority}"
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
