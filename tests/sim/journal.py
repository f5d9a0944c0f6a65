"""What the clients of a schedule did, and were told: the journal, and the database that must follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Literal, TypeAlias

from lockstep.commit.outcomes import Committed
from lockstep.delta.actions import LogicalFile
from tests.support.history import Op

SEEN_SECONDS = 23 * 3600.0
"""A transaction whose process writes its record so often keeps what it needs: within a day, but for skewed clocks."""

Status: TypeAlias = Literal["open", "ok", "fail", "info"]
"""`info`: it was told nothing, or that nobody knows; who asks again is told, and then it is one of the others."""


Files: TypeAlias = Mapping[str, frozenset[int]]
"""Paths of files, each with the rows that its deletion vector takes out."""


@dataclass
class Model:
    """A database as it must be.

    Attributes:
        tables: names, with the ids of the tables.
        files: by table id, dropped tables among them, the files that Lockstep's own commits leave.
        gone: files that were removed, those of plain writers among them.
        views: names, with their definitions.
        tags: names, with the database versions that they name, and until when these are kept.
        released: the folders of tables that were given back, and not taken in again.
    """

    tables: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    views: dict[str, str] = field(default_factory=dict)
    tags: dict[str, tuple[int, datetime | None]] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)


Effect: TypeAlias = Callable[[Model], None]
"""What one statement does to the database; an assertion of it fails where it cannot have been possible."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a transaction read of a table that it had not written: which version, and which files."""

    database_version: int
    table: str
    table_version: int
    files: frozenset[LogicalFile]


@dataclass
class Attempt:
    """One transaction, as its client knows it.

    Attributes:
        id: the transaction's; of a plain writer's commit a made-up one.
        base: the database version that it began at.
        ops: for the judge of histories; none of those that a savepoint took back.
        effects: what it does to the database.
        told: what its client was told of it, in order: (status, database version or -1).
        is_one_statement: whether all of it is one statement, which is rolled back if it fails.
        wrote: the files that it wrote.
        at: when it began, in simulated seconds.
        beats: when each of its records was made that others find, and which database version it says.
        told_at: when the first of these was there for certain.
        over_at: when it had done all but to end.
        is_asked_to_end: whether somebody wanted to abort it.
        is_forgotten: whether what it began at has expired, so that nobody can say any more what became of it.
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
    is_one_statement: bool = False
    wrote: set[str] = field(default_factory=set)
    at: float = 0.0
    beats: list[tuple[float, int]] = field(default_factory=list)
    told_at: float | None = None
    over_at: float | None = None
    is_forgotten: bool = False
    is_asked_to_end: bool = False
    is_plain: bool = False

    def settle(self, status: Status, version: int = -1, *, at: int | None = None, why: str = "") -> None:
        """Note what it was told."""
        self.told.append(f"{status} {version} {why}")
        self.status, self.version = status, version
        self.ended = at if self.ended is None else self.ended

    def is_kept(self, now: float) -> bool:
        """Whether it had a record at a time, and its process was seen often enough for that to count, and lately."""
        beats = [beat for beat, _ in self.beats if beat <= now]
        if not beats or self.is_asked_to_end:
            return False
        pauses = [later - before for before, later in pairwise([*beats, now])]
        return max(pauses) < SEEN_SECONDS

    def pinned(self, now: float) -> int:
        """Return which database version its record said at a time."""
        return [version for beat, version in self.beats if beat <= now][-1]

    def settle_as_found(self, done: Committed | None) -> None:
        """Note what was found out of it, by whoever asked after it."""
        if done is None:
            self.settle("fail", why="found out")
        else:
            self.settle("ok", done.version, why="found out")


@dataclass
class PlainCommit:
    """A commit that a plain writer put into a table's log; one that sets a constraint conflicts with any at once."""

    location: str
    version: int
    path: str
    data: bytes

    @property
    def is_constraint(self) -> bool:
        return b"delta.constraints." in self.data


@dataclass
class Run:
    """A run of upkeep, in simulated seconds; one whose process crashed never ended."""

    began: float
    ended: float = float("inf")


@dataclass
class Journal:
    """Of all clients.

    Attributes:
        contradictions: what cannot have been, as the clients themselves noticed.
        unjudged: ids of tables whose rows no history explains: a person had some of them go, or come.
        released: names and folders of tables that somebody wanted to give back.
        runs: all upkeep.
    """

    attempts: dict[str, Attempt] = field(default_factory=dict)
    plain: list[PlainCommit] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    unjudged: set[str] = field(default_factory=set)
    released: list[tuple[str, str]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
