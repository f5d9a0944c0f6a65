"""The database that a run of timeline entries makes, as a value: what the entries 0..n say together.

`lockstep.timeline.fold` makes it. Its parts are the values of `lockstep.timeline.entry`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from immutables import Map

from lockstep.errors import ForeignCommitError, LockstepError
from lockstep.timeline.entry import Batch, Expired, Name, Namespace, Table, TableWrite, Tag, Value, View, folded
from lockstep.timeline.layered_map import LayeredMap


class Index(Value, frozen=True):
    """What finds things in a `Database` without a look at all of them; it follows from `tables` and `views`.

    `ids` and `locations` are the names of the tables by id and by location, `inside` says how many tables and views a
    namespace has, if any. `spelled` are the names with capital letters in them, of tables and views, by `folded`; None
    if nobody knows them: then all names are to be looked at. All are persistent maps, see `Database`.
    """

    ids: Mapping[str, Name] = Map()
    locations: Mapping[str, Name] = Map()
    inside: Mapping[Namespace, int] = Map()
    spelled: Mapping[Name, tuple[Name, ...]] | None = Map()

    @classmethod
    def of(cls, tables: Mapping[Name, Table], views: Iterable[Name]) -> Index:
        """Index these tables and views."""
        views = list(views)
        return cls(
            ids=Map((table.id, name) for name, table in tables.items()),
            locations=Map((table.location, name) for name, table in tables.items()),
            inside=Map(Counter(name.namespace for name in (*tables, *views))),
            spelled=spelled_of((*tables, *views)),
        )


def spelled_of(names: Iterable[Name]) -> Map[Name, tuple[Name, ...]]:
    """Return what an index has as `spelled` of these names."""
    found: dict[Name, list[Name]] = {}
    for name in names:
        if (key := folded(name)) != name:
            found.setdefault(key, []).append(name)
    return Map((key, tuple(sorted(several))) for key, several in found.items())


PAIR_BYTES = 600
VIEW_BYTES = 4_000
"""What a pair of one of the maps, and a view with its definition, take in memory as a rule."""

NOT_INDEXED = Index()
NOTHING_EXPIRED = Expired()


class Database(Value, frozen=True):
    """The whole catalog at one database version; a value, never changed in place.

    `tables` and `views` are by name, and have none in common; `namespaces` maps each namespace to its properties,
    `batches` each streaming application to the number of its last micro-batch, `tags` each tag's name, as `tag_key`
    has it, to the tag. All are persistent maps, in no order:
    two versions share what is the same in both. They are `immutables.Map`s, or, in a database that comes from a
    checkpoint, `LayeredMap`s: then a lookup may have to read a part of the checkpoint, and raises UnavailableError, or
    CorruptTimelineError where the part is damaged and so are the entries. Whoever makes a value may give any mappings,
    and no `index`.

    `expired` says which of the versions up to this one there still are, `settled` by table id up to which version the
    log is right of a table that is no more, for it had diverged and was settled.

    `set_aside` says by table id why a table cannot be used at this version, as far as whoever read the version knows:
    what was ratified for it could not be published, and may end at another table version than this value says.
    """

    version: int
    committed_at: datetime
    namespaces: Mapping[Namespace, dict[str, str]]
    tables: Mapping[Name, Table]
    views: Mapping[Name, View] = {}
    batches: Mapping[str, int] = {}
    tags: Mapping[str, Tag] = {}
    expired: Expired = NOTHING_EXPIRED
    settled: Mapping[str, int] = {}
    set_aside: dict[str, LockstepError] = msgspec.field(default_factory=dict)
    index: Index = NOT_INDEXED

    def __post_init__(self) -> None:
        for field in ("namespaces", "tables", "views", "batches", "tags", "settled"):
            if not isinstance(value := getattr(self, field), Map | LayeredMap):
                msgspec.structs.force_setattr(self, field, Map(value.items()))
        if self.index is NOT_INDEXED:
            msgspec.structs.force_setattr(self, "index", Index.of(self.tables, self.views))

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory, beside the parts of checkpoints, which are kept by themselves.

        What it shares with other versions counts as its own.
        """
        index = (self.index.ids, self.index.locations, self.index.inside, self.index.spelled or Map())
        maps = (self.namespaces, self.tables, self.batches, self.tags, self.settled, *index)
        return sum(_size(values, PAIR_BYTES) for values in maps) + _size(self.views, VIEW_BYTES)

    def refuse_aside(self, table: Table, more: str = "") -> None:
        """Raise why a table is set aside, if it is; the message ends with `more`."""
        if (error := self.set_aside.get(table.id)) is not None:
            raise error.again(more) from error

    def refuse_to_tag(self, table: Table) -> None:
        """Raise why no tag can keep a table, if it is set aside. A side is given up only where it has diverged."""
        has_diverged = isinstance(self.set_aside.get(table.id), ForeignCommitError)
        remedy = "settle it, or DROP TABLE, first" if has_diverged else "it has to be published first"
        self.refuse_aside(table, f". A tag would keep what nobody can read: {remedy}")

    def has_batch(self, batch: Batch) -> bool:
        """Tell whether this micro-batch, or a later one of its application, is recorded."""
        return batch.number <= self.batches.get(batch.application, -1)

    def like(self, key: Name) -> list[Name]:
        """Return the names of tables and views that are `key` where case does not count, as `folded` has it."""
        if self.index.spelled is None:
            return [name for name in (*self.tables, *self.views) if folded(name) == key]
        found = (key, *self.index.spelled.get(key, ()))
        return [name for name in found if name in self.tables or name in self.views]

    def tag(self, name: str) -> Tag | None:
        """Return the tag of this name, in whatever case."""
        return self.tags.get(tag_key(name))

    def table_by_id(self, id: str) -> Table | None:
        """Return the table with this id, whatever it is called now."""
        return None if (name := self.index.ids.get(id)) is None else self.tables[name]

    def current_name(self, table: Table | TableWrite) -> Name:
        """Return what a table is called now; of one that is no more, what it was called."""
        return self.index.ids.get(table.id, table.name)

    def table_at(self, location: str) -> Table | None:
        """Return the table whose data lies in this folder."""
        return None if (name := self.index.locations.get(location)) is None else self.tables[name]


def _size(values: Mapping[Any, Any], each: int) -> int:
    if isinstance(values, LayeredMap):
        return each * len(values.changes) + values.base.size
    return each * len(values)


def tag_key(name: str) -> str:
    """Return a tag's name as it is told from others: case does not count."""
    return name.casefold()
