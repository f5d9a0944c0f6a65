"""Which commits a table's log has by the timeline, and whether a file is one of them: pure.

    for commit in known_commits(entries, table.id, table.version, timeline.placements): ...    # the newest first

A table's `since` does not tell who wrote its version: a rename, an undrop and a move set it, too. The write does that
has the version now, in an entry that may be much older, and may have expired. Then the history still names the
transaction, as each commit of ours does in the log, so ours is told from any other without what it said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lockstep.delta.actions import is_by, parse
from lockstep.delta.log import digest
from lockstep.errors import InvalidError
from lockstep.timeline.entry import Commit, Entry, TableWrite
from lockstep.timeline.placements import Placements


@dataclass(frozen=True, slots=True)
class KnownCommit:
    """A version of a table's log, as the timeline knows it.

    Attributes:
        version: the table version.
        entry: what says so: whole, or as the history has it.
        ours: the write that made it, and which of its commits that is; None if a plain Delta writer made it.
        is_moved: whether ours is at another version than it was ratified for, so that it may say something else now.
        digest: of a plain Delta writer's commit; empty if the timeline has none.
    """

    version: int
    entry: Entry
    ours: tuple[TableWrite, int] | None = None
    is_moved: bool = False
    digest: str = ""

    @property
    def is_told(self) -> bool:
        """Whether the timeline tells this commit from any other."""
        return self.ours is not None or bool(self.digest)

    def is_in(self, data: bytes) -> bool:
        """Tell whether a file is this commit, of one that is told."""
        if self.ours is None:
            return digest(data) == self.digest
        write, place = self.ours
        if self.is_moved or not write.commits:
            return is_of(self.entry, data)
        return says(write.commits[place], data)


def known_commits(entries: Iterable[Entry], id: str, through: int, placements: Placements) -> Iterator[KnownCommit]:
    """Yield the commits of a table's log up to a version, the newest first, and one of each entry's.

    What a plain Delta writer did to a table before it was adopted, and in the place of ours, is not among them.

    Args:
        entries: newest first; those of the history will do.
        id: the table's.
        through: the version.
        placements: where moved commits are, by all entries that are known.
    """
    for entry in entries:
        for write in entry.writes:
            if write.id == id and (found := _written(entry, write, through, placements)) is not None:
                yield found
        for ddl in entry.tables:
            if ddl.id == id and ddl.action == "create":
                if ddl.version is not None and ddl.version <= through:
                    yield KnownCommit(ddl.version, entry, digest=ddl.digest)
                if ddl.adopted or ddl.version is None:
                    return


def _written(entry: Entry, write: TableWrite, through: int, placements: Placements) -> KnownCommit | None:
    """Return the newest commit of a write that is at a version or before it."""
    if entry.kind == "external":
        if through < write.to_version:  # of those in between there is no digest
            return KnownCommit(through, entry) if through > write.from_version else None
        return KnownCommit(write.to_version, entry, digest=write.digest)
    commits = ours_of(entry, write, placements)
    return next((commit for commit in reversed(commits) if commit.version <= through), None)


def ours_of(entry: Entry, write: TableWrite, placements: Placements) -> list[KnownCommit]:
    """Return the commits of a write of ours, the oldest first; the history, too, has how many there are."""
    ratified = range(write.from_version + 1, write.to_version + 1)
    versions = placements.get((write.id, entry.version), ratified)
    return [
        KnownCommit(version, entry, ours=(write, place), is_moved=version != ratified[place])
        for place, version in enumerate(versions)
    ]


def says(commit: Commit, data: bytes) -> bool:
    """Tell whether a file is a ratified commit's: one that was staged has a digest in its name (`ratified_path`)."""
    if commit.inline is not None:
        return data == b"".join(bytes(action) + b"\n" for action in commit.inline)
    return (commit.staged or "").endswith(f"-{digest(data)}.json")


def is_of(entry: Entry, data: bytes) -> bool:
    """Tell whether a file is a commit of an entry's transaction, whatever it says: the transaction's name is in it."""
    try:
        return is_by(parse(data), entry.transaction.id)
    except InvalidError:  # no commit at all
        return False
