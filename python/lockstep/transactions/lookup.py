"""Tables and tags by their names, or errors that say where to look for those that there are."""

from __future__ import annotations

from lockstep.errors import InvalidError, UndefinedError
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Table, Tag
from lockstep.transactions.names import NO_TAG, Names


def find_table(database: Database, name: Name) -> Table:
    """Return a table of a database version.

    Raises:
        UndefinedError: it has none of that name.
        ForeignCommitError, UnavailableError, CorruptTimelineError: set aside, see `lockstep.lake.publisher`.
    """
    if (table := database.tables.get(name)) is None:
        raise UndefinedError(
            f"no table {name} in database version {database.version}: `lockstep tables ROOT --at {database.version}` "
            "lists those that it has"
        )
    database.refuse_aside(table)
    return table


def find_tag(database: Database, name: str) -> Tag:
    """Return a tag of a database version.

    Raises:
        UndefinedError (42704): it has none of that name.
    """
    if (tag := database.tag(name)) is None:
        raise UndefinedError(f"no tag {name}; SHOW TAGS lists those that there are", sqlstate=NO_TAG)
    return tag


def tagged_version(scope: Database | Names, name: str) -> int:
    """Return which database version a tag names.

    Raises:
        UndefinedError (42704): there is none of that name.
        InvalidError: it names what the transaction whose names these are is going to commit.
    """
    if (tag := scope.tag(name)) is None:
        raise UndefinedError(f"no tag {name}; SHOW TAGS lists those that there are", sqlstate=NO_TAG)
    if tag.version is None:
        raise InvalidError(f"tag {tag.name} names what this transaction is going to commit, which is not there yet")
    return tag.version
