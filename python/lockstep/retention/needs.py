"""Which versions of tables' own logs the readable database versions need: pure, over databases and entries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry


@dataclass(frozen=True, slots=True)
class Need:
    """The versions of one table's log that somebody may read.

    Attributes:
        first: this one and all later ones; None if there is no such run.
        alone: others, in order.
        kept: those of them that are kept for tags beside the log, so that they do not need it, each with the id of its
            table.
        copied: all versions of these tables of which there are copies beside the log, be they needed or not: they can
            be read whatever became of the log.
    """

    first: int | None = None
    alone: tuple[int, ...] = ()
    kept: frozenset[tuple[str, int]] = frozenset()
    copied: frozenset[tuple[str, int]] = frozenset()

    def has_any(self, begin: int, end: int | None) -> bool:
        """Whether one of them is among the versions `begin` … `end` - 1; None is without an end."""
        if self.first is not None and (end is None or end > self.first):
            return True
        place = bisect_left(self.alone, begin)
        return place < len(self.alone) and (end is None or self.alone[place] < end)

    def has(self, version: int) -> bool:
        """Whether a version is one of them."""
        return self.has_any(version, version + 1)

    @property
    def versions(self) -> list[int]:
        """The oldest version of the run, and the others, in order."""
        return sorted({*self.alone, *(() if self.first is None else (self.first,))})

    @property
    def of_log(self) -> list[int]:
        """Those of `versions` that nothing but the table's log tells of."""
        of_log = {*self.alone} - {version for _, version in self.kept}
        return sorted(of_log | ({self.first} if self.first is not None else set()))


NOTHING = Need()


def needs(
    begin: Database,
    entries: Iterable[Entry],
    alone: Iterable[Database],
    kept: Collection[tuple[str, int]] = frozenset(),
    copied: Collection[tuple[str, int]] = frozenset(),
) -> Mapping[str, Need]:
    """Return what is needed of each table that a readable database version has, by its location.

    Args:
        begin: the oldest database version of the unbroken run.
        entries: those after it.
        alone: the older database versions that stay.
        kept: which tables, by their ids, are kept at which versions for tags, so that their logs are not needed.
        copied: of which there are copies, whether or not that is sure enough to do without their logs.
    """
    firsts = {table.location: table.version for table in begin.tables.values()}
    locations = {table.id: table.location for table in begin.tables.values()}
    for entry in entries:
        for ddl in entry.tables:
            if ddl.action == "create":
                version = 0 if ddl.version is None else ddl.version
                firsts[ddl.location] = min(version, firsts.get(ddl.location, version))
                locations[ddl.id] = ddl.location
        for write in entry.writes:
            firsts.setdefault(write.location, 0)
    singles: dict[str, set[tuple[str, int]]] = {}
    for database in alone:
        for table in database.tables.values():
            singles.setdefault(table.location, set()).add((table.id, table.version))
            locations[table.id] = table.location
    copies: dict[str, set[tuple[str, int]]] = {}
    for id_, version in copied:
        if id_ in locations:
            copies.setdefault(locations[id_], set()).add((id_, version))
    return {
        location: replace(
            need_of(singles.get(location, set()), kept),
            first=firsts.get(location),
            copied=frozenset(copies.get(location, ())),
        )
        for location in firsts.keys() | singles.keys()
    }


def need_of(alone: Collection[tuple[str, int]], kept: Collection[tuple[str, int]]) -> Need:
    """Return the need of some versions of the tables in one folder, each with the table's id.

    Args:
        kept: which tables are kept at which versions for tags.
    """
    of_log = {version for id_, version in alone if (id_, version) not in kept}
    return Need(
        alone=tuple(sorted({version for _, version in alone})),
        kept=frozenset((id_, version) for id_, version in alone if version not in of_log),
    )
