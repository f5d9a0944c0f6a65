"""What a transaction can still take back: what it has done since its savepoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from lockstep.errors import InvalidError, UndefinedError
from lockstep.timeline.entry import Table
from lockstep.transactions.creations import Creation, Creations
from lockstep.transactions.names import Names

MAX_SAVEPOINTS = 1000
NO_SAVEPOINT = "3B001"


@dataclass(frozen=True, slots=True)
class Undone:
    """What going back to a savepoint leaves in the store: nobody sees it once it is gone.

    Attributes:
        cut: tables with staged commits that were undone: the versions that are kept, and those that go.
        folders: folders of tables that were made since.
        made: tables that were made since where statements said, with all their versions.
        elsewhere: where statements have said that tables are to lie which were made since, or begun.
        vectors: files of deletion vectors that were written since.
    """

    cut: list[tuple[Table, list[int], list[int]]]
    folders: list[str]
    made: list[tuple[Table, list[int]]]
    elsewhere: list[str]
    vectors: list[str]


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What a transaction had done when the savepoint was set."""

    name: str
    staged: Mapping[str, tuple[int, ...]]
    names: Names
    creations: Creations
    statements: tuple[str, ...]
    vectors: frozenset[str]

    def undone(
        self,
        staged: Mapping[str, list[int]],
        tables: Mapping[str, Table],
        *,
        since: Iterable[Creation],
        vectors: AbstractSet[str],
    ) -> Undone:
        """Return what going back to it leaves in the store.

        Args:
            staged: by table id, the versions that are staged now.
            tables: those tables by their ids.
            since: what was made since.
            vectors: the files of deletion vectors that are written now.
        """
        by_place: dict[bool, dict[str, str]] = {False: {}, True: {}}
        for creation in since:
            by_place[creation.elsewhere][creation.location] = creation.id
        folders, elsewhere = by_place[False], by_place[True]
        undone = Undone([], [*folders], [], [*elsewhere], sorted(vectors - self.vectors))
        for id, versions in staged.items():
            table, kept = tables[id], list(self.staged.get(id, ()))
            # By its id: what was taken in where a statement failed to make a table has its location, and is another's.
            if elsewhere.get(table.location) == id:
                undone.made.append((table, list(versions)))
            elif len(versions) > len(kept) and table.location not in folders:
                undone.cut.append((table, kept, versions[len(kept) :]))
        return undone


class Savepoints:
    """The savepoints of a transaction, in order. A name that is taken hides the older one until it is released."""

    def __init__(self, transaction: str) -> None:
        """Begin with none; messages name the transaction."""
        self._transaction = transaction
        self._points: list[Savepoint] = []

    def __iter__(self) -> Iterator[Savepoint]:
        return iter(self._points)

    def add(self, point: Savepoint) -> None:
        """Add one behind the others.

        Raises:
            InvalidError: there are `MAX_SAVEPOINTS`.
        """
        if len(self._points) >= MAX_SAVEPOINTS:
            raise InvalidError(f"transaction {self._transaction} has {MAX_SAVEPOINTS} savepoints; RELEASE some")
        self._points.append(point)

    def go_back_to(self, name: str) -> Savepoint:
        """Return a savepoint, and forget those after it.

        Raises:
            UndefinedError (3B001): there is none of this name.
        """
        at = self._find(name)
        del self._points[at + 1 :]
        return self._points[at]

    def release(self, name: str) -> None:
        """Forget a savepoint, and those after it.

        Raises:
            UndefinedError (3B001): there is none of this name.
        """
        del self._points[self._find(name) :]

    def _find(self, name: str) -> int:
        for at in reversed(range(len(self._points))):
            if self._points[at].name == name.casefold():
                return at
        raise UndefinedError(
            f"transaction {self._transaction} has no savepoint {name}; it has "
            f"{', '.join(point.name for point in self._points) or 'none'}",
            sqlstate=NO_SAVEPOINT,
        )
