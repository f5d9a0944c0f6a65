"""What changed between two database versions, by what the timeline says: no log and no data file is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from immutables import Map

from lockstep.errors import ExpiredError, InvalidError
from lockstep.timeline.database import Database
from lockstep.timeline.entry import UNKNOWN_COUNTS, Counts, Entry, Name, Namespace, Table, TableWrite
from lockstep.timeline.known import Known
from lockstep.timeline.placements import Placements
from lockstep.transactions.names import Names


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one table, view or namespace.

    Attributes:
        kind: what it is.
        name: what it is called in the newer version; in the older one, if it is not in the newer.
        change: what happened to it, all in all.
        old_name: what it was called, if it was renamed.
        from_version, to_version: of a table, the versions of its log; None where it was not, or is not, there.
        transactions: how many database versions changed it.
        counts: files and rows that they added and removed together; -1 where that is not known.
    """

    kind: Literal["table", "view", "namespace"]
    name: str
    change: Literal["created", "dropped", "renamed", "written", "altered"]
    old_name: str | None = None
    from_version: int | None = None
    to_version: int | None = None
    transactions: int = 0
    counts: Counts = field(default_factory=Counts)


@dataclass(slots=True)
class Touched:
    """What was touched between two database versions, and how often; of tables, what each time came and went.

    Attributes:
        placements: where commits are that were moved behind plain Delta writers', whose commits they bring with them.
    """

    placements: Placements = field(default_factory=Map)
    tables: dict[str, list[Counts]] = field(default_factory=dict)
    views: dict[Name, int] = field(default_factory=dict)
    namespaces: dict[Namespace, int] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        counts = {write.id: self._counts(entry, write) for write in entry.writes}
        counts |= {id_: Counts() for id_ in {ddl.id for ddl in entry.tables} - counts.keys()}
        for id_, each in counts.items():
            self.tables.setdefault(id_, []).append(each)
        for name in {ddl.name for ddl in entry.views}:
            self.views[name] = self.views.get(name, 0) + 1
        for namespace in {ddl.name for ddl in entry.namespaces}:
            self.namespaces[namespace] = self.namespaces.get(namespace, 0) + 1

    def _counts(self, entry: Entry, write: TableWrite) -> Counts:
        is_behind_others = (write.id, entry.version) in self.placements
        return UNKNOWN_COUNTS if entry.kind == "external" or is_behind_others else write.counts


def diff(timeline: Known, older: int, newer: int) -> list[Change]:
    """Return what changed between two database versions: namespaces, then tables, then views, each by name.

    Raises:
        InvalidError: there is no such version, or the first is the newer.
        ExpiredError: what is between them has expired, though tags may keep the two.
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    if older > newer:
        raise InvalidError(f"version {older} is newer than {newer}: name the older one first")
    kept = timeline.head.expired.first_kept
    if older < newer and older + 1 < kept:
        raise ExpiredError(
            f"what database versions {older + 1} to {min(newer, kept - 1)} changed is not known any more, for they "
            f"have expired: the oldest version to ask from is {kept - 1}. Each that a tag keeps can be read as it was"
        )
    touched = Touched(timeline.placements)
    for entry in timeline.scan(older, newer):
        touched.add(entry)
    return changes_of(timeline.at(older), timeline.at(newer), touched)


def changes_of(before: Database, after: Database | Names, touched: Touched) -> list[Change]:
    """Return what changed of what was touched; `after` may be what a transaction sees that has not committed."""
    namespaces = [_namespace(before, after, name, times) for name, times in touched.namespaces.items()]
    tables = [_table(before.table_by_id(id_), after.table_by_id(id_), counts) for id_, counts in touched.tables.items()]
    views = [_view(before, after, name, times) for name, times in touched.views.items()]
    return [
        change
        for changes in (namespaces, tables, views)
        for change in sorted(filter(None, changes), key=lambda change: change.name)
    ]


def _table(old: Table | None, new: Table | None, counts: list[Counts]) -> Change | None:
    if (table := new or old) is None:
        return None  # it came and went in between
    if old is None:
        change: Literal["created", "dropped", "renamed", "written"] = "created"
    elif new is None:
        change = "dropped"
    else:
        change = "renamed" if old.name != new.name else "written"
    is_renamed = old is not None and new is not None and old.name != new.name
    return Change(
        kind="table",
        name=str(table.name),
        change=change,
        old_name=str(old.name) if is_renamed and old is not None else None,
        from_version=None if old is None else old.version,
        to_version=None if new is None else new.version,
        transactions=len(counts),
        counts=Counts(
            files_added=_sum([each.files_added for each in counts]),
            files_removed=_sum([each.files_removed for each in counts]),
            rows_added=_sum([each.rows_added for each in counts]),
            rows_removed=_sum([each.rows_removed for each in counts]),
        ),
    )


def _sum(counted: list[int]) -> int:
    return -1 if -1 in counted else sum(counted)


def _view(before: Database, after: Database | Names, name: Name, times: int) -> Change | None:
    old, new = before.views.get(name), after.views.get(name)
    if (None if old is None else old.definition) == (None if new is None else new.definition):
        return None
    change: Literal["created", "dropped", "altered"] = (
        "created" if old is None else "dropped" if new is None else "altered"
    )
    return Change(kind="view", name=str(name), change=change, transactions=times)


def _namespace(before: Database, after: Database | Names, name: Namespace, times: int) -> Change | None:
    old, new = before.namespaces.get(name), after.namespaces.get(name)
    if old == new:
        return None
    change: Literal["created", "dropped", "altered"] = (
        "created" if old is None else "dropped" if new is None else "altered"
    )
    return Change(kind="namespace", name=".".join(name), change=change, transactions=times)
