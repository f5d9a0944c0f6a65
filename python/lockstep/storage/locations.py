"""Locations: places beside a lake's root that its settings register, each with options of a store of its own.

    locations = Locations((Location("s3://archive/warehouse", {"endpoint": …}, is_apart=True),), only=True)
    locations.of("s3://archive/warehouse/orders/_delta_log")    # that one
    locations.of("s3://archive/warehouse2/orders")              # None: it is another folder

Which of them a place is in is told by whole names of folders, and the longest one counts. An entry of the timeline says
a whole URL of what lies outside of the root, and nothing of how it is reached: that is told by settings alone.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from lockstep.errors import InvalidError, UnsupportedError
from lockstep.settings import LOCATIONS, LOCATIONS_FILE, LOCATIONS_ONLY, location_settings
from lockstep.storage import has_options, is_local, url_of
from lockstep.storage.urls import comparable, kind_of, name_node, shown

Said: TypeAlias = Mapping[str, Mapping[str, str] | None]
"""What a person registers: by the URL, or the path, of a folder, the options of its store; none, or None, for those of
the lake's own."""

NOT_REGISTERED = "42501"
"""PostgreSQL's SQLSTATE of what one may not do."""


@dataclass(frozen=True, slots=True)
class Location:
    """A folder with all that is below it.

    Attributes:
        url: as `lockstep.storage.urls.comparable` has it.
        options: what its store is opened with. They may have keys, and nothing shows them.
        is_apart: whether it is reached otherwise than the lake's root: by options of its own, or in another kind of
            store. What two lakes call by one URL may then be two places.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_apart: bool = False


@dataclass(frozen=True, slots=True)
class Locations:
    """All that are registered for a lake.

    Attributes:
        places: each of them.
        only: whether nothing of the lake may lie anywhere else than below its root and in these.
    """

    places: tuple[Location, ...] = ()
    only: bool = False

    def of(self, url: str) -> Location | None:
        """Return the one that a place is in, of several the innermost; None if it is in none.

        Args:
            url: as `comparable` has it, or of a file below such a folder.
        """
        around = [each for each in self.places if is_in(url, each.url)]
        return max(around, key=lambda each: len(each.url)) if around else None

    def beside(self, root: str) -> Locations:
        """Return what is left of them for the lake of another root: below that, its own store counts.

        Args:
            root: as `comparable` has it.
        """
        return Locations(tuple(each for each in self.places if not is_in(each.url, root)), self.only)


NO_LOCATIONS = Locations()


def is_in(url: str, folder: str) -> bool:
    """Tell whether a place is a folder, or below it."""
    return url == folder or url.startswith(f"{folder}/")


# --- what a person says -----------------------------------------------------------------------------------------------


def said_in(settings: Mapping[str, str]) -> tuple[dict[str, dict[str, str]], bool]:
    """Return what the settings of a catalog register, and whether that is all.

    Raises:
        InvalidError: one of them is none, or says no folder, or two say one. No message has a value of a store's.
    """
    prefix, parts = LOCATIONS.key.removesuffix("*"), dict[str, dict[str, str]]()
    for key, value in location_settings(settings).items():
        name, _, what = key.partition(".")
        if not name.replace("-", "").replace("_", "").isalnum() or not (
            what == _URL or (what.startswith(_STORE) and what != _STORE)
        ):
            raise InvalidError(
                f"{prefix}{key} is no setting of a location: there are {prefix}<name>.{_URL}, which says its folder, "
                f"and {prefix}<name>.{_STORE}<option>, which say how that is reached"
            )
        parts.setdefault(name, {})[what] = value
    said: dict[str, dict[str, str]] = {}
    for name, each in parts.items():
        url = each.pop(_URL, "")
        if not url:
            raise InvalidError(f"location {name} has no folder: set {prefix}{name}.{_URL} to a path or a URL")
        if url in said:
            raise InvalidError(f"location {name} is at the same folder as another one: leave one of them out")
        said[url] = {key.removeprefix(_STORE): value for key, value in each.items()}
    only = LOCATIONS_ONLY.value_in(settings) or ""
    if only.lower() not in ("true", "false"):
        raise InvalidError(f"{LOCATIONS_ONLY.name} is {only!r}: expected true or false")
    return said, only.lower() == "true"


_URL, _STORE = "url", "store."


def said_in_file(path: str) -> tuple[dict[str, dict[str, str]], bool]:
    """Return what a file in TOML registers, which says it by the names of a catalog's settings; nothing without a path.

    Raises:
        InvalidError: it cannot be read, or says anything else. No message has any of what it says.
    """
    if not path:
        return {}, False
    try:
        found = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # of what it says a parser may show a part
        kind = error.strerror if isinstance(error, OSError) else "it is no TOML"
        raise InvalidError(f"{LOCATIONS_FILE.name} is {path}, which cannot be read: {kind}") from None
    flat = _flat("", found)
    names = (LOCATIONS.key.removesuffix("*"), LOCATIONS_ONLY.key)
    if unknown := sorted(key for key in flat if key != names[1] and not key.startswith(names[0])):
        raise InvalidError(f"{path}: {unknown[0]} is none of {names[0]}<name>.… and {names[1]}")
    try:
        return said_in(flat)
    except InvalidError as error:
        raise InvalidError(f"{path}: {error.message}") from error


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= _flat(f"{name}.", value)
        else:
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


# --- what is registered of it -----------------------------------------------------------------------------------------


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
            raise type(error)(f"location {shown(text)}: {error.message}", sqlstate=error.sqlstate) from error
        if is_in(url, base):
            if from_file:  # which may be about several lakes
                continue
            raise InvalidError(f"location {shown(text)}: it is below the root {root}, whose own store counts there")
        used = own or options_beside(url, base, options)
        found[url] = location_of(url, used, base, options)
    return Locations(tuple(found.values()), only)


def location_of(url: str, used: Mapping[str, str], base: str, options: Mapping[str, str] | None) -> Location:
    """Return a location of the lake of a root.

    Args:
        url, base: the location's and the root's, as `comparable` has them.
        used: what the location is reached with.
        options: what the root is reached with.
    """
    is_apart = kind_of(url) != kind_of(base) or used != (options or {})
    return Location(url, dict(used) if has_options(url) else {}, is_apart=is_apart)


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


def options_beside(url: str, root: str, options: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return which options of a lake's own store are for a place outside: none where that is another kind of store."""
    return (options or {}) if kind_of(url) == kind_of(root) or not has_options(root) else {}
