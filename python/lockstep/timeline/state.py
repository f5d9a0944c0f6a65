"""What the entries up to a version say together: the database, and where moved commits are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from immutables import Map
from msgspec import structs

from lockstep.storage import Storage
from lockstep.timeline.database import NOTHING_EXPIRED, Database, Index, spelled_of
from lockstep.timeline.entry import Entry, Expired, Value
from lockstep.timeline.fold import apply
from lockstep.timeline.history import History
from lockstep.timeline.placements import Placements, first_moved, placements_after


@dataclass(frozen=True, slots=True)
class State:
    """What the entries up to a version say together.

    Attributes:
        database: the database, as `fold` makes it without amendments.
        placements: where commits are that were moved, as these entries say.
    """

    database: Database
    placements: Placements


def state_after(state: State | None, entries: Iterable[Entry], history: History, storage: Storage) -> State:
    """Return the state after more entries, which follow it; None is before entry 0.

    Raises:
        UnavailableError, CorruptTimelineError: one moves commits of earlier ones, and those cannot be read; or it does
            not fit.
    """
    database = None if state is None else state.database
    places: Placements = Map() if state is None else state.placements
    for entry in entries:
        database = apply(database, entry)
        if entry.moved:
            between = range(first_moved(entry), entry.version)
            places = placements_after(places, entry, history.scan(storage, between, last=entry.version - 1))
    if database is None:
        raise ValueError("no entries, and nothing before them")
    return State(database, places)


def maps_of(state: State) -> dict[str, Mapping[Any, Any]]:
    """Return the maps of a state by their names in a manifest."""
    database, index = state.database, state.database.index
    return {
        "tables": database.tables,
        "views": database.views,
        "namespaces": database.namespaces,
        "batches": database.batches,
        "tags": database.tags,
        "ids": index.ids,
        "locations": index.locations,
        "inside": index.inside,
        "spelled": spelled_of((*database.tables, *database.views)) if index.spelled is None else index.spelled,
        "moved": state.placements,
        "settled": database.settled,
    }


class Header(Value, frozen=True):
    """What a stored state says of itself, beside its maps: its version, and which entry it is of.

    `entry` is the SHA-256 of the file that the version's entry is in, `first` the version that has given that file its
    name, if it is another one. A state in which nothing has expired can be read by Locksteps that know of no expiry.
    """

    format: int
    version: int
    committed_at: datetime
    entry: str
    first: int | None = None
    expired: Expired = NOTHING_EXPIRED


def whole(state: State) -> State:
    """Return a state with all that an index has, also of one that comes from a checkpoint that lacks some of it."""
    if state.database.index.spelled is not None:
        return state
    index = structs.replace(state.database.index, spelled=maps_of(state)["spelled"])
    return State(structs.replace(state.database, index=index), state.placements)


def state_of(header: Header, maps: Mapping[str, Any]) -> State:
    """Return the state that maps make, by their names in a manifest."""
    database = Database(
        version=header.version,
        committed_at=header.committed_at,
        namespaces=maps["namespaces"],
        tables=maps["tables"],
        views=maps["views"],
        batches=maps["batches"],
        tags=maps["tags"],
        expired=header.expired,
        settled=Map(maps["settled"].items()) if "settled" in maps else Map(),
        index=Index(ids=maps["ids"], locations=maps["locations"], inside=maps["inside"], spelled=maps.get("spelled")),
    )
    return State(database, Map(maps["moved"].items()))
