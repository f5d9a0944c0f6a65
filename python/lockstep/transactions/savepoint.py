"""What a transaction can still take back: the tables that it began to make, and what it had done at its savepoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.timeline.entry import Name, Table
from lockstep.transactions.names import Names


@dataclass(frozen=True, slots=True)
class Creation:
    """A table that is about to be created: its name is taken once its first version is staged."""

    id: str
    name: Name
    location: str
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What a transaction had done when the savepoint was set."""

    name: str
    staged: Mapping[str, tuple[int, ...]]
    names: Names
    creations: Mapping[str, Creation]
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Undone:
    """What going back to a savepoint leaves in the store: nobody sees it once it is gone.

    Attributes:
        cut: tables with staged commits that were undone: the versions that are kept, and those that go.
        folders: folders of tables that were made since.
    """

    cut: list[tuple[Table, list[int], list[int]]]
    folders: list[str]
