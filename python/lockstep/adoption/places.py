"""Where a table lies that is to be adopted, as its lake will call the place, and why it may not lie there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from lockstep.delta.log import LOG
from lockstep.errors import InvalidError, UnavailableError, UnsupportedError
from lockstep.lake.claims import Claim, claim_path, read_claim
from lockstep.storage import Storage, is_local, url_of
from lockstep.storage.locations import NO_LOCATIONS, NOT_REGISTERED, Locations
from lockstep.storage.outside import around
from lockstep.storage.urls import comparable, is_outside, name_node, url_below
from lockstep.timeline.entry import Table
from lockstep.timeline.files import FOLDER
from lockstep.timeline.places import RESERVED_FOLDERS, is_folder_outside, is_table_folder


@dataclass(frozen=True, slots=True)
class Place:
    """A table's folder.

    Attributes:
        location: relative to the lake's root, or a whole URL if it is outside of that.
        url: the whole URL, links followed; two of one folder are equal.
    """

    location: str
    url: str


def place(root: str, text: str, locations: Locations = NO_LOCATIONS) -> Place:
    """Return the place that a path or a URL names.

    Args:
        root: the lake's, as `Storage.url` gives it.
        text: an absolute path or URL; nothing need be there.
        locations: what is registered for the lake.

    Raises:
        InvalidError: it names no folder in which a table may lie: the root or one above it, or one whose name is kept
            for other things; or it is relative to nobody knows what; or it is in no location, and in another kind of
            store than the lake, or tables may lie in locations alone (42501).
        UnsupportedError: there is no store for it; or it is in HDFS, and names another name node than the lake.
    """
    if not text.strip():
        raise InvalidError("its location is empty, which names no folder")
    url, base = comparable(url_of(text)), comparable(root)
    if is_local(text) and not text.startswith(("/", "file:")):  # `url_of` takes it from where the process began
        raise InvalidError(
            f"{text} is a relative path, and nothing says of which folder: give an absolute path or a URL"
        )
    is_registered = locations.of(url) is not None
    if not is_registered and locations.only and not url.startswith(f"{base}/"):
        raise InvalidError(
            f"{text} lies neither below the lake's root, {root}, nor in a location that is registered for the lake, "
            "and locations-only says that tables lie nowhere else. Register the folder that it lies in "
            "(docs/storage.md#locations), or choose another place",
            sqlstate=NOT_REGISTERED,
        )
    if not is_registered and url.partition("://")[0] != base.partition("://")[0]:
        raise InvalidError(
            f"{text} is in another kind of store than the lake {root}, and nothing says how that is reached: register "
            "the folder that it lies in as a location of the lake (docs/storage.md#locations)"
        )
    if name_node(url) not in (None, name_node(base)):
        raise UnsupportedError(
            f"{text} names another name node than the lake {root}: these may be two names of one, and then a folder "
            "could become two tables. Write the name node as the lake's root does"
        )
    if f"{base}/".startswith(f"{url}/"):
        raise InvalidError(f"{text} is the lake {root} itself, or has it inside: give the folder of one table")
    if names := sorted(part for part in url.split("/") if part.lower() in RESERVED_FOLDERS):
        raise InvalidError(f"{text} is in a folder {names[0]}, which holds other things than tables")
    location = url.removeprefix(f"{base}/")
    if not (is_folder_outside if is_outside(location) else is_table_folder)(location):
        raise InvalidError(
            f"{text} cannot be adopted as {location!r}: the path of a table has no control characters, backslashes, "
            "'..' or empty names, does not begin like a URL ('raw:'), and is no longer than 4,096 bytes. "
            "Rename the folder"
        )
    return Place(location, url)


SideBySide: TypeAlias = "Callable[[Callable[[str], Refusal | None], Iterable[str]], list[Refusal | None]]"
"""Returns what a function returns for each item, in order: `Lake.side_by_side`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no table of a lake may lie somewhere.

    Attributes:
        text: goes on from "no table may lie there:".
        is_claimed: whether it is for a claim, which may be given up.
    """

    text: str
    is_claimed: bool = False


@dataclass
class Surroundings:
    """What lies around the tables that one call adopts, or makes; each folder above them is looked at once.

    Attributes:
        storage: the lake's.
        tables: those that the lake has, or is about to have.
        passes_over: tells of a claim and the folder that it is for whether it is nobody's any more. Who makes a new
            table passes over none, see `lockstep.lake.claims`.
    """

    storage: Storage
    tables: Iterable[Table]
    passes_over: Callable[[Claim, str], bool] = lambda *_: False
    _seen: dict[str, Refusal | None] = field(default_factory=dict)
    _stores: dict[str, Storage] = field(default_factory=dict)
    _urls: dict[str, Table] = field(init=False)

    def __post_init__(self) -> None:
        root = self.storage.url
        self._urls = {comparable(url_below(root, table.location)): table for table in self.tables}

    def look(self, places: Iterable[Place], side_by_side: SideBySide) -> None:
        """Look at the folders above places at once, before `refusal` is asked.

        Raises:
            UnavailableError: the store failed.
        """
        folders = {folder: None for place in places for folder in self._above(place)}
        self._seen.update(zip(folders, side_by_side(self._what_is, folders), strict=True))

    def refusal(self, place: Place) -> Refusal | None:
        """Return why a table cannot be adopted for what lies around it, None if it can.

        Raises:
            UnavailableError: the store failed.
        """
        if (table := self._urls.get(place.url)) is not None:
            return Refusal(f"it is table {table.name} of this lake already")
        inside = next((table for url, table in self._urls.items() if url.startswith(f"{place.url}/")), None)
        if inside is not None:
            return Refusal(
                f"table {inside.name} of this lake lies inside of it, and VACUUM of the one would delete the other"
            )
        self._above(place)
        if self._has(place.url, FOLDER):
            return Refusal("it is the root of a lake")
        return self.refusal_above(place)

    def refusal_above(self, place: Place) -> Refusal | None:
        """Return what of `refusal` is about the folders that it lies in.

        Raises:
            UnavailableError: the store failed.
        """
        for folder in self._above(place):
            if (table := self._urls.get(folder)) is not None:  # it may not be in the folder's log yet
                return Refusal(f"it is inside the Delta table {folder}, table {table.name} of this lake")
            if folder not in self._seen:
                self._seen[folder] = self._what_is(folder)
            if (refusal := self._seen[folder]) is not None:
                return refusal
        return None

    def _above(self, place: Place) -> list[str]:
        """Return the folders above a place; they are reached as that is, and so is the place."""
        folders = _above(place.url, comparable(self.storage.url))
        store = around(self.storage, place.url)
        for folder in (place.url, *folders):
            self._stores.setdefault(folder, store)
        return folders

    def _what_is(self, folder: str) -> Refusal | None:
        """Return why no table may lie inside of a folder."""
        try:
            if self._has(folder, LOG):
                return Refusal(f"it is inside the Delta table {folder}")
            if (refusal := self._claimed(folder)) is not None:
                return refusal
            return Refusal(f"it is inside the lake {folder}") if self._has(folder, FOLDER) else None
        except UnavailableError:
            if folder.startswith("file://"):
                raise
            return None  # of a bucket, one may be allowed to read the table's own prefix alone

    def _claimed(self, folder: str) -> Refusal | None:
        """Return a refusal for the table that somebody is about to make at a folder, or never came to make."""
        try:
            claim = read_claim(self._stores[folder], folder)
        except InvalidError as error:
            return Refusal(f"it is inside {folder}, which a lake has claimed for a Delta table: {error.message}", True)
        if claim is None or self.passes_over(claim, folder):
            return None
        text = (
            f"it is inside {folder}, which the lake {claim.root} has claimed for a Delta table, at "
            f"{claim.claimed_at:%Y-%m-%d %H:%M} UTC. Wait for transaction {claim.transaction} there to end; or, if its "
            f"process died, and no lake has a table there, delete {claim_path(folder)}"
        )
        return Refusal(text, is_claimed=True)

    def _has(self, folder: str, name: str) -> bool:
        return bool(self._stores[folder].list(f"{folder}/{name}"))


def _above(url: str, root: str) -> list[str]:
    """Return the folders above one, nearest first: up to the lake's root if it is below that, else all."""
    scheme, _, rest = url.partition("://")
    parts = rest.split("/")
    first = 1 if is_outside(url) and scheme != "file" else 2
    folders = [f"{scheme}://{'/'.join(parts[:count])}" for count in range(len(parts) - 1, first - 1, -1)]
    return folders[: folders.index(root)] if root in folders else folders
