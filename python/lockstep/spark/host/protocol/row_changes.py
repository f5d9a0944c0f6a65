"""The request of the shim for the rows of a table that changed, and its answer."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from lockstep.spark.host.protocol.base import AboutRelation, Answer


class Bound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a range begins or ends. One of `version` and `micros` is said."""

    version: str | None = None
    """A version: a number, or of the database a tag's name."""

    micros: int | None = None
    """A time: microseconds since 1970, UTC."""

    inclusive: bool
    """Whether what was committed there is in the range."""

    def __post_init__(self) -> None:
        """Refuse both and none."""
        if (self.version is None) == (self.micros is None):
            raise ValueError("one of `version` and `micros` is to be said")


class ResolveChanges(AboutRelation, frozen=True, kw_only=True, tag="row_changes"):
    """Ask which commits of a table lie in a range. `protocol.tables.Missing` is the answer where there is no table."""

    of: Literal["database", "table"]
    """Whose versions and times the bounds are: with those of the table, Delta finds the range in its log."""

    start: Bound
    """The older end."""

    end: Bound | None
    """The newer end; None: the newest version that the statement sees."""


class ChangesFound(Answer, frozen=True, kw_only=True):
    """A table, and where in its log the range is."""

    missing: Literal[False] = False
    """What tells it from `Missing`."""

    uri: str
    """Where Delta finds it."""

    name: list[str]
    """Its namespace's parts and its last one, as they are stored."""

    version: int
    """The table version whose columns the rows have: the last one that is seen of it, or that at the range's end."""

    commits: list[tuple[int, int, int, int]]
    """Of the database's range: the first and the last of some consecutive table versions, the database version that
    made them, and when it was committed, in microseconds since 1970, UTC. None in a range of the table's."""

    pin: int | UnsetType = UNSET
    """Outside a transaction: the database version that the statement reads from now on."""


Request: TypeAlias = ResolveChanges
