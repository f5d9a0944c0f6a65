"""What a transaction has seen of its snapshot. A later database version that has the same may take its place.

A plain Delta writer's commit is found when a transaction first uses the table. It is in a later database version then
than the snapshot. If all that the transaction has seen is the same in that version, the transaction cannot tell the two
apart, and goes on with the later one; else it stays with its snapshot, and does not see the commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from lockstep.timeline.entry import Entry, Name, folded


@dataclass
class Seen:
    """What one transaction has seen.

    Attributes:
        transaction: its id.
        application: whose micro-batches it has asked for; None if it is no micro-batch.
        tables: the ids of the tables that it has used.
        names: the names that it has asked for, of tables and views, whether or not there was one; in lower case.
        namespaces: whether it has asked for a namespace, or listed some.
        tags: whether it has asked for a tag, or listed them.
        every_name: whether it depends on all names: it has listed some, or changed any.
        last_version: whether it may have been told which database version is the last that it knows: it has asked for
            one, by number or by time.
    """

    transaction: str
    application: str | None = None
    tables: set[str] = field(default_factory=set)
    names: set[Name] = field(default_factory=set)
    namespaces: bool = False
    tags: bool = False
    every_name: bool = False
    last_version: bool = False

    def add_name(self, name: Name) -> None:
        """Note that the transaction was told what a name means."""
        self.names.add(folded(name))

    def is_same_after(self, entry: Entry) -> bool:
        """Tell whether all that was seen is the same after an entry as before it."""
        if self.last_version:
            return False
        if self.transaction in (entry.transaction.id, *entry.aborts):
            return False  # what ends this transaction is found by COMMIT, among the entries after its snapshot
        if entry.batch is not None and entry.batch.application == self.application:
            return False
        if not self.tables.isdisjoint(_written(entry)):
            return False
        if not (entry.namespaces or entry.tables or entry.views or entry.tags):
            return True
        if self.every_name or (entry.tags and self.tags):
            return False
        if entry.namespaces and (self.namespaces or self.names or self.tables):
            return False
        return self.names.isdisjoint(map(folded, _names(entry))) and self.tables.isdisjoint(
            ddl.id for ddl in entry.tables
        )

    def moved_to(self, entries: Iterable[Entry], version: int, tables: AbstractSet[str]) -> int:
        """Return the database version that a snapshot moves on to for what plain Delta writers did to some tables.

        It is the last one with a commit of theirs, of those in which all that was seen is as it is in the snapshot.

        Args:
            entries: those after the snapshot, in their order, without a gap.
            version: the snapshot's version, which is the answer if there is no such commit.
            tables: their ids.
        """
        for entry in entries:
            if not self.is_same_after(entry):
                break
            if entry.kind == "external" and not tables.isdisjoint(_written(entry)):
                version = entry.version
        return version


def _written(entry: Entry) -> set[str]:
    """Return the ids of the tables that are at another version after an entry."""
    return {write.id for write in entry.writes} | {move.id for move in entry.moved}


def _names(entry: Entry) -> Iterable[Name]:
    """Yield the names that mean something else after an entry that makes, drops or renames tables or views."""
    for ddl in entry.tables:
        yield ddl.name
        if ddl.new_name is not None:
            yield ddl.new_name
    for view in entry.views:
        yield view.name
