"""What the clients of a schedule did, and were told: the journal, and the database that must follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lockstep.commit.outcomes import Committed
from tests.support.history import Op

Status: TypeAlias = Literal["open", "ok", "fail", "info"]
"""`info`: it was told nothing, or that nobody knows; who asks again is told, and then it is one of the others."""


@dataclass
class Model:
    """A database as it must be.

    Attributes:
        tables: names, with the ids of the tables.
        files: by table id, dropped tables among them, the paths of the files that Lockstep's own commits leave.
        gone: files that were removed, those of plain writers among them.
        views: names, with their definitions.
        tags: names, with the database versions that they name.
    """

    tables: dict[str, str] = field(default_factory=dict)
    files: dict[str, set[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    views: dict[str, str] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)


Effect: TypeAlias = Callable[[Model], None]
"""What one statement does to the database; an assertion of it fails where it cannot have been possible."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a transaction read of a table that it had not written: which version, and which files."""

    database_version: int
    table: str
    table_version: int
    files: frozenset[str]


@dataclass
class Attempt:
    """One transaction, as its client knows it.

    Attributes:
        id: the transaction's; of a plain writer's commit a made-up one.
        base: the database version that it began at.
        ops: for the judge of histories; none of those that a savepoint took back.
        effects: what it does to the database.
        told: what its client was told of it, in order: (status, database version or -1).
        is_plain: it is no transaction of Lockstep's, but one commit of a plain writer of the table `effects` name.
    """

    id: str
    process: str
    base: int
    began: int
    ops: list[Op] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    status: Status = "open"
    version: int = -1
    ended: int | None = None
    told: list[str] = field(default_factory=list)
    is_plain: bool = False

    def settle(self, status: Status, version: int = -1, *, at: int | None = None, why: str = "") -> None:
        """Note what it was told."""
        self.told.append(f"{status} {version} {why}")
        self.status, self.version = status, version
        self.ended = at if self.ended is None else self.ended

    def settle_as_found(self, done: Committed | None) -> None:
        """Note what was found out of it, by whoever asked after it."""
        if done is None:
            self.settle("fail", why="found out")
        else:
            self.settle("ok", done.version, why="found out")


@dataclass
class PlainCommit:
    """A commit that a plain writer put into a table's log."""

    location: str
    version: int
    path: str
    data: bytes


@dataclass
class Journal:
    """Of all clients.

    Attributes:
        contradictions: what cannot have been, as the clients themselves noticed.
    """

    attempts: dict[str, Attempt] = field(default_factory=dict)
    plain: list[PlainCommit] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
