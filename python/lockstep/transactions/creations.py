"""The tables that a transaction began to make: where each is to lie, and who chose that folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from lockstep.errors import DuplicateError, InvalidError
from lockstep.timeline.entry import Name, Table
from lockstep.timeline.places import overlap
from lockstep.transactions.names import Names


@dataclass(frozen=True, slots=True)
class Creation:
    """A table that is about to be created: its name is taken once its first version is staged.

    Attributes:
        elsewhere: whether the statement said where it is to lie: then the folder, and what others have put into it, is
            not the lake's to delete.
    """

    id: str
    name: Name
    location: str
    case_sensitive: bool = True
    elsewhere: bool = False


class Creations:
    """The tables that one transaction began to make, by location; which of them are there its names say."""

    def __init__(self, creations: Iterable[Creation] = ()) -> None:
        self._by_location = {each.location: each for each in creations}

    def copied(self) -> Creations:
        """Return one of its own with the same tables."""
        return Creations(self._by_location.values())

    def add(self, creation: Creation) -> None:
        """Add one, in the place of what was begun at its location before."""
        self._by_location[creation.location] = creation

    def at(self, location: str) -> Creation | None:
        """Return the one that is to lie at a location."""
        return self._by_location.get(location)

    def since(self, earlier: Creations) -> list[Creation]:
        """Return those that were not among the earlier ones."""
        return [each for location, each in self._by_location.items() if earlier.at(location) != each]

    def folders(self) -> list[str]:
        """Return the folders that nobody else knows before the transaction commits: the lake chose them."""
        return [each.location for each in self._by_location.values() if not each.elsewhere]

    def abandoned(self, names: Names) -> list[str]:
        """Return those of these folders that have no table: the CREATE failed, or the table was dropped again."""
        return [location for location in self.folders() if names.table_at(location) is None]

    def is_elsewhere(self, table: Table) -> bool:
        """Whether the transaction made a table where a statement said, be it dropped since."""
        creation = self.at(table.location)
        return creation is not None and creation.elsewhere and creation.id == table.id

    def elsewhere(self, names: Names) -> list[Table]:
        """Return the tables that were made where statements said, and are there."""
        tables = [table for location in self._by_location if (table := names.table_at(location)) is not None]
        return [table for table in tables if self.is_elsewhere(table)]

    def begun_elsewhere(self, location: str, names: Names) -> Creation | None:
        """Return the one that a statement began to make at a location that it named, as long as no table is there."""
        creation = self.at(location)
        is_there = names.table_at(location) is not None
        return None if creation is None or is_there or not creation.elsewhere else creation

    def check_place(self, name: Name, location: str, *, staged: Collection[str], dropped: Iterable[Table]) -> None:
        """Raise unless a new table may lie where a statement says, for what the transaction's others began to make.

        A statement that began to make a table of the same name there may be said again. Those that are made are among
        the names that the transaction sees.

        Args:
            staged: the ids of the tables that have staged commits.
            dropped: those of them that were dropped.

        Raises:
            InvalidError: the transaction made a table there, and dropped it.
            DuplicateError (42P07): another statement of it began to make a table there, inside of it or around it.
        """
        if any(table.location == location and self.is_elsewhere(table) for table in dropped):
            raise InvalidError(
                f"no new table can be made at {location}: this transaction itself has made one there and dropped it, "
                "and its files stay until COMMIT or ROLLBACK. Choose another folder, or ROLLBACK TO a savepoint from "
                "before"
            )
        begun = [each for each in self._by_location.values() if each.id not in staged and each.name != name]
        if (other := next((each for each in begun if overlap(each.location, location)), None)) is not None:
            raise DuplicateError(
                f"new table {name} cannot lie at {location}: this transaction has begun to make table {other.name} at "
                f"{other.location}. Choose another folder; or, if the statement that made it failed, ROLLBACK TO a "
                "savepoint from before it"
            )
