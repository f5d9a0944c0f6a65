"""The catalogs that the sessions of one driver have set up, and the lakes behind them.

Sessions that set a catalog up alike share it. All catalogs of one root, opened with the same settings for its store,
share one lake: its timeline is in memory once. A key of a store that changes makes another lake of the same root, for
what one session may see is not another's to see; so lakes that nobody has used for long are forgotten.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache, partial
from typing import TypeAlias
from weakref import WeakValueDictionary

import msgspec
from cachetools import FIFOCache, LRUCache

from lockstep.arguments import current_user
from lockstep.catalog import TransactionalCatalog
from lockstep.conflict.lock_policy import Resolution
from lockstep.errors import InvalidError, LockstepError
from lockstep.lake.lake import Lake
from lockstep.retention.ages import Retention
from lockstep.retention.floor import NAMES, of_lake, read_floor, retention_of, tell
from lockstep.retry import race_backoff, seconds
from lockstep.settings import (
    ARBITER,
    CATALOG_IDLE_TIMEOUT,
    CATALOG_STATEMENT_TIMEOUT,
    CATALOG_TRANSACTION_TIMEOUT,
    CHECKPOINT_INTERVAL,
    CREATE,
    FSYNC_DATA,
    IDLE_TIMEOUT,
    ISOLATION,
    LOCATIONS,
    LOCATIONS_ONLY,
    MAINTAIN_OPTIMIZE,
    OUTSIDE_WRITES,
    PREFIX_OF_CATALOG,
    RECORD_READS,
    ROOT,
    SESSION_NAMES,
    STATEMENT_TIMEOUT,
    STORE,
    TRANSACTION_TIMEOUT,
    Setting,
    at,
    location_settings,
    store_options,
)
from lockstep.spark.host.same_root import SameRoots
from lockstep.spark.host.uris import Uris, outside_location
from lockstep.storage import url_of
from lockstep.storage.locations import said_in
from lockstep.storage.outside import check_reach
from lockstep.storage.urls import comparable
from lockstep.timeline.entry import Isolation
from lockstep.transactions.creations import Creation

REMEMBERED_CATALOGS = 200
"""Catalogs that are kept although no transaction is open in them, those that were used last: each may hold a lake."""

PENDING_CREATIONS = 10_000
"""New tables that were announced and not yet written."""

_ROOTS = 1000
"""Roots of which it is remembered where they are."""

_Setup: TypeAlias = tuple[str, str]
"""A catalog's name, and the digest of its settings."""

_Place: TypeAlias = tuple[str, str]
"""Where a lake's folders really are, and the digest of how its store is opened."""


@dataclass
class Lakehouse:
    """A catalog as some sessions have it: the lake behind it, how Spark names its folders, and their settings.

    Attributes:
        timeouts: seconds of what sessions do not say themselves, by the setting that they would say; 0 is for ever.
        kept_for: what the catalog's settings say of what is kept for how long; the lake may say longer.
        compacts: whether `maintain` has the tables compacted, where nobody says.
        untold: how many sessions the driver had when the lake could last not be told what is kept; None once it is.
    """

    name: str
    catalog: TransactionalCatalog
    uris: Uris
    allows_outside_writes: bool = False
    timeouts: Mapping[Setting, float] = field(default_factory=dict)
    kept_for: Mapping[str, str] = field(default_factory=dict)
    compacts: bool = True
    untold: int | None = None

    def retention(self) -> Retention:
        """Return what is kept for how long: what the lake says, or the catalog where it says longer.

        Raises:
            UnavailableError, CorruptTimelineError: see `lockstep.retention.floor`.
        """
        return retention_of(self.catalog.lake.storage, self.kept_for)

    def kept_by_lake(self) -> dict[str, str]:
        """Return the settings of retention of which what the lake says counts, and not what the catalog says.

        Raises:
            UnavailableError, CorruptTimelineError: see `lockstep.retention.floor`.
        """
        return of_lake(read_floor(self.catalog.lake.storage), self.kept_for)

    def is_same(self, other: Lakehouse) -> bool:
        """Whether it is the same catalog, whatever is set for it."""
        return self.name == other.name and self.catalog.lake is other.catalog.lake

    @property
    def strictness(self) -> tuple[bool, bool]:
        """How much is asked of its commits, greater where that is more."""
        return self.catalog.isolation == "SERIALIZABLE", self.catalog.record_reads


class Creations:
    """New tables that statements on their own are about to write, by where they will lie.

    They do not go with idle sessions: a statement that takes hours writes its first version at its end. Nor do they
    belong to one lake in memory: the key of the store may have changed by then, and of two catalogs with one root the
    URI that is written does not say which announced it. A failed CREATE leaves its own behind.

    Where a statement says where the table lies, others may say the same, in other lakes too. So a write says which
    creation it carries out; one that does not is told apart by where it writes, as long as that says it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: FIFOCache[str, _Pending] = FIFOCache(PENDING_CREATIONS)

    def add(self, house: Lakehouse, creation: Creation) -> None:
        """Remember one; the oldest of very many is forgotten, and its statement is refused when it writes."""
        with self._lock:
            self._pending[creation.id] = _Pending(creation, house.uris.real(creation.location), house.uris.real(""))

    def take(self, house: Lakehouse, location: str, id: str | None = None) -> Creation | None:
        """Return the one at a location, for the last time: a refused creation's files are removed.

        Args:
            id: the new table's, if it is known.

        Raises:
            InvalidError: it is not, and it may be any of several.
        """
        where = house.uris.real(location)
        with self._lock:
            there = {key: each for key, each in self._pending.items() if each.where == where}
            if id is None and len(there) > 1:
                raise InvalidError(
                    f"{len(there)} statements of this driver are making tables at {where}, and which of them has "
                    "written this is not known; nothing was committed. Run it again, in a transaction"
                )
            key = next(iter(there), None) if id is None else id
            if key not in there or there[key].root != house.uris.real(""):
                return None
            del self._pending[key]
            return there[key].creation

    def has(self, house: Lakehouse, location: str, id: str | None) -> bool:
        """Tell whether a table is about to be made at a location, in the lake of a catalog.

        Args:
            id: the new table's, if it is known.
        """
        where, root = house.uris.real(location), house.uris.real("")
        with self._lock:
            return any(
                (each.where, each.root) == (where, root) and id in (None, k) for k, each in self._pending.items()
            )


@dataclass(frozen=True, slots=True)
class _Pending:
    """A new table that was announced, where it will lie, and its lake's root."""

    creation: Creation
    where: str
    root: str


class Lakehouses:
    """All catalogs of one driver, opened when first used; safe to call from many threads.

    The lock covers the dictionaries alone: while a lake is opened, all others have answers.
    """

    def __init__(self, application: str) -> None:
        """Take the name under which these catalogs commit."""
        self.creations = Creations()
        self.same_roots = SameRoots()
        self._application = application
        self._author = current_user()
        self._lock = threading.Lock()
        self._sessions = 0
        self._catalogs: LRUCache[_Setup, Lakehouse] = LRUCache(REMEMBERED_CATALOGS)
        # A lake is kept by its catalogs, and those by the dictionary above or by the session of a transaction in it. So
        # a transaction's lake is the same one for as long as the transaction is open.
        self._lakes: WeakValueDictionary[_Place, Lake] = WeakValueDictionary()
        self._opening: dict[tuple[_Place, bool], Future[Lake]] = {}
        # Where a relative root is, is settled once: a driver may go to another folder later.
        self._urls = lru_cache(_ROOTS)(url_of)

    def begin_anew(self, application: str) -> None:
        """Take another name to commit under, with which all catalogs are opened again."""
        with self._lock:
            self._application = application
            self._catalogs.clear()

    @property
    def remembered(self) -> tuple[int, int]:
        """How many catalogs, and how many lakes, are in memory."""
        with self._lock:
            return len(self._catalogs), len(self._lakes)

    def __iter__(self) -> Iterator[Lakehouse]:
        """Give the catalogs that are in memory."""
        with self._lock:
            return iter([*self._catalogs.values()])

    def get(self, name: str, options: Mapping[str, str]) -> Lakehouse:
        """Return the catalog of this name, with these settings.

        Raises:
            InvalidError: it has no root, or its settings make no sense.
            LockstepError: its lake cannot be opened, see `TransactionalCatalog.open`.
            LookFirst: it is not known whether Spark sees the same root.
        """
        house = self.opened(name, options)
        self.same_roots.require(house.catalog.lake, name, options)
        return house

    def opened(self, name: str, options: Mapping[str, str]) -> Lakehouse:
        """Return the same, for who asks the timeline alone: it is nothing to Spark.

        Raises:
            InvalidError, LockstepError: as `get` says.
        """
        setup = (name, _digest(options))
        with self._lock:
            house = self._catalogs.get(setup)
            if house is not None and house.untold in (None, self._sessions):
                return house
        if house is None:
            house = self._new_house(name, options)
        self._tell(house)
        with self._lock:
            return self._catalogs.setdefault(setup, house)

    def new_session(self) -> None:
        """Note that a session has begun: in it, what the lakes could not be told of their catalogs is tried again."""
        with self._lock:
            self._sessions += 1

    def _tell(self, house: Lakehouse) -> None:
        """Have a catalog's lake know what the catalog keeps; where that fails, statements go on."""
        with self._lock:
            house.untold = sessions = self._sessions  # others need not try at the same time
        settings = sorted(house.kept_for.items())
        said = ", ".join(f"{PREFIX_OF_CATALOG}{house.name}.{key} = {value}" for key, value in settings)
        is_over = tell(house.catalog.lake, house.kept_for, author=house.catalog.author, statement=said)
        house.untold = None if is_over else sessions

    def of_root(self, url: str, catalogs: Mapping[str, Mapping[str, str]]) -> Lakehouse | None:
        """Return a catalog, of those that a session has, whose lake has its root at a URL; None if there is none.

        Raises:
            LockstepError: that lake cannot be opened.
        """
        for name, options in sorted(catalogs.items()):
            if self.has_root(options, url):
                return self.get(name, options)
        return None

    def has_root(self, options: Mapping[str, str], url: str) -> bool:
        """Whether a catalog with these settings has its root at a URL; it is not opened for that."""
        try:
            root = self._urls(ROOT.value_in(options) or "")
        except LockstepError:  # what is set for it makes no sense; its own statements are told so
            return False
        return comparable(root) == comparable(url)

    def writer(self, uri: str, catalogs: Mapping[str, Mapping[str, str]], creation: str | None = None) -> Lakehouse:
        """Return the catalog, of those that a session has, which an overlay URI lies in: the one with the longest root.

        One that lies in none of them is of a table that one of them has adopted. Of two with the same root it is the
        stricter: the URI does not say which of them the statement named. No other catalog is opened, for whether it can
        be is nothing to this statement.

        Args:
            creation: the id of the table that the statement makes, if it says so.

        Raises:
            InvalidError: there is none.
            LockstepError: one of those with this root cannot be opened.
        """
        roots = {name: uris.real("") for name, options in catalogs.items() if (uris := self._holder(uri, options))}
        if not roots:
            location = outside_location(uri)
            adopters = [name for name, house in self._open_of(catalogs).items() if self._has(house, location, creation)]
            if adopters:
                return max((self.get(name, catalogs[name]) for name in adopters), key=lambda house: house.strictness)
            raise InvalidError(
                f"no Lockstep catalog of this session holds {uri}: that URI is of another session, or of a "
                "transaction that ended. Use the table by its name, as lake.namespace.table"
            )
        longest = max(map(len, roots.values()))
        houses = [self.get(name, catalogs[name]) for name, root in roots.items() if len(root) == longest]
        return max(houses, key=lambda house: house.strictness)

    def _open_of(self, catalogs: Mapping[str, Mapping[str, str]]) -> dict[str, Lakehouse]:
        """Return those of a session's catalogs that are in memory: what another session has under a name is not its."""
        setups = {name: (name, _digest(options)) for name, options in catalogs.items()}
        with self._lock:
            return {name: self._catalogs[setup] for name, setup in setups.items() if setup in self._catalogs}

    def _has(self, house: Lakehouse, location: str, creation: str | None) -> bool:
        """Tell whether a lake has a table at a location outside of its root, or is about to."""
        if creation is None and house.catalog.timeline.head.table_at(location) is not None:
            return True
        return self.creations.has(house, location, creation)

    def _holder(self, uri: str, options: Mapping[str, str]) -> Uris | None:
        """Return the URIs of a catalog with these settings, if this is one of them."""
        try:
            uris = Uris(self._urls(ROOT.value_in(options) or ""))
        except LockstepError:  # no root, or none that anything could lie in; its own statements are told so
            return None
        return uris if uris.holds(uri) else None

    def _new_house(self, name: str, options: Mapping[str, str]) -> Lakehouse:
        try:
            _check_known(options)
            outside = OUTSIDE_WRITES.value_in(options)
            if outside not in OUTSIDE_WRITES.choices:
                raise InvalidError(f"{OUTSIDE_WRITES.name} is {outside!r}: expected refuse or allow")
            isolation = isolation_of(ISOLATION, options) or "SERIALIZABLE"
            record_reads = flag(RECORD_READS, options) or False
            flag(CREATE, options)
            flag(FSYNC_DATA, options)
            flag(SESSION_NAMES, options)
            said_in(options)
            compacts = flag(MAINTAIN_OPTIMIZE, options) or False
            checkpoint_interval(options)
            backoff, resolution = race_backoff(options), Resolution.of(options)
            timeouts = {
                TRANSACTION_TIMEOUT: seconds(CATALOG_TRANSACTION_TIMEOUT, options),
                IDLE_TIMEOUT: seconds(CATALOG_IDLE_TIMEOUT, options),
                STATEMENT_TIMEOUT: seconds(CATALOG_STATEMENT_TIMEOUT, options),
            }
            Retention.of(options)
        except InvalidError as error:
            raise InvalidError(f"catalog {name} ({PREFIX_OF_CATALOG}{name}.…): {error.message}") from error
        root = ROOT.value_in(options)
        if not root:
            raise InvalidError(f"catalog {name} has no root: set {ROOT.of(name)} to a path or URL")
        catalog = TransactionalCatalog(
            self._lake(root, options),
            author=self._author,
            application=self._application,
            isolation=isolation,
            record_reads=record_reads,
            backoff=backoff,
            resolution=resolution,
        )
        uris = Uris(catalog.lake.storage.url, partial(check_reach, catalog.lake.storage))
        kept_for = {key: value for key, value in options.items() if key in NAMES}
        return Lakehouse(name, catalog, uris, outside == "allow", timeouts, kept_for, compacts)

    def _lake(self, root: str, options: Mapping[str, str]) -> Lake:
        """Return the lake of a root and a store's settings; of those who want it opened, one does it for all."""
        store, (locations, only) = store_options(options), said_in(options)
        create, fsync_data = flag(CREATE, options) or False, flag(FSYNC_DATA, options) or False
        url = self._urls(root)
        arbiter = ARBITER.value_in(options)
        opened_with = {FSYNC_DATA.name: str(fsync_data), ARBITER.name: arbiter or "", LOCATIONS_ONLY.name: str(only)}
        registered = {LOCATIONS.name + key: value for key, value in location_settings(options).items()}
        place = (Uris(url).real(""), _digest({**store, **opened_with, **registered}))
        with self._lock:
            if (lake := self._lakes.get(place)) is not None:
                return lake
            opening = self._opening.get((place, create))
            future: Future[Lake] = self._opening.setdefault((place, create), Future())
        if opening is not None:
            return _of_another(opening)
        try:
            new_lake = TransactionalCatalog.open(
                url,
                create=create,
                options=store,
                author=self._author,
                checkpoint_interval=checkpoint_interval(options),
                fsync_data=fsync_data,
                arbiter=arbiter,
                locations=locations,
                locations_only=only,
            ).lake
            with self._lock:
                new_lake = self._lakes.setdefault(place, new_lake)
            future.set_result(new_lake)
            return new_lake
        except BaseException as error:  # an interrupt too: nobody may wait for it for ever
            future.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._opening[place, create]


def _of_another(opening: Future[Lake]) -> Lake:
    """Return the lake that another thread is opening, or raise why it could not."""
    try:
        return opening.result()
    except LockstepError as error:
        raise error.again() from error


def _digest(settings: Mapping[str, str]) -> str:
    """Return what settings are told apart by: keys of a store are among them, which nothing is to be kept under."""
    return hashlib.sha256(msgspec.json.encode(sorted(settings.items()))).hexdigest()


def _check_known(options: Mapping[str, str]) -> None:
    """Raise InvalidError if a catalog has an option that is none of ours: one that is misspelt would change nothing."""
    names = [setting.name for setting in at("catalog")]
    of_stores = (STORE.key.removesuffix("*"), LOCATIONS.key.removesuffix("*"))
    for key in options:
        if key not in names and not key.startswith(of_stores):
            near = get_close_matches(key, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise InvalidError(f"{key} is no setting of a catalog: {hint}")


def isolation_of(setting: Setting, options: Mapping[str, str]) -> Isolation | None:
    """Return the isolation level that a setting says, None if it says nothing.

    Raises:
        InvalidError: there is no such level.
    """
    level = setting.value_in(options)
    match level and level.upper():
        case None | "":
            return None
        case "SNAPSHOT":
            return "SNAPSHOT"
        case "SERIALIZABLE":
            return "SERIALIZABLE"
        case _:
            raise InvalidError(f"{setting.name} is {level!r}: expected SNAPSHOT or SERIALIZABLE")


def flag(setting: Setting, options: Mapping[str, str]) -> bool | None:
    """Return what a setting says that is true or false, None if it says nothing.

    Raises:
        InvalidError: it says something else.
    """
    value = setting.value_in(options)
    if value is not None and value.lower() not in ("true", "false"):
        raise InvalidError(f"{setting.name} is {value!r}: expected true or false")
    return None if value is None else value.lower() == "true"


def checkpoint_interval(options: Mapping[str, str]) -> int:
    """Return after how many versions a checkpoint of the timeline is written.

    Raises:
        InvalidError: the setting is no number.
    """
    text = CHECKPOINT_INTERVAL.value_in(options) or ""
    if not (text.isdecimal() and text.isascii()):
        raise InvalidError(f"{CHECKPOINT_INTERVAL.name} is {text!r}: expected a number, 0 or more")
    return int(text)
