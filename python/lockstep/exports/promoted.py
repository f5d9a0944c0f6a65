"""What is to be promoted of a clone: of each table, and in all."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from lockstep.commit.drafts import Draft, draft_of
from lockstep.delta.actions import Action, bodies, render
from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.delta.places import is_absolute
from lockstep.exports.files import Copy, Place
from lockstep.exports.promotion import NameChanges
from lockstep.lake.exports import ExportRecord
from lockstep.lake.lake import Lake
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Table
from lockstep.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Promoted:
    """What a promotion came to.

    Attributes:
        clone, origin: the URLs of the two lakes.
        clone_version: the clone's database version that is promoted.
        base_version: the origin's version that the clone was made of.
        database_version: the one that it made in the origin; None if it made none, because only that was asked for, or
            nothing was changed.
        tables: how many tables were changed, made, dropped or renamed.
        files, size: how many files were to be copied, and their bytes as far as logs say.
        is_done: False if nothing was written because only that was asked for.
    """

    clone: str
    origin: str
    clone_version: int
    base_version: int
    database_version: int | None
    tables: int
    files: int
    size: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What is to be promoted of one table.

    Attributes:
        home: the table in the origin; at version `NEW`, if it is made there.
        table: the table in the clone.
        commits: as on top of `home`.
        own: the files of the clone's that they name, see `Moved`.
        sizes: by such a path, what the commits say of data files.
        copies: what is to be copied, of a new table; of others it follows from what is left of the commits.
    """

    home: Table
    table: Table
    commits: Sequence[list[Action]]
    own: dict[str, str]
    sizes: dict[str, int]
    copies: Sequence[Copy] = ()


@dataclass(slots=True)
class Plan:
    """What a promotion is to do.

    Attributes:
        record, clone: what the clone was made of, and its database version.
        tx: the origin's transaction.
        changes: what became of names.
        staged: the commits that are to be staged, with the table as the transaction sees it and the table version.
        drafts: what is left of them, by table.
        copies: the files that are to be copied.
    """

    record: ExportRecord
    clone: Database
    tx: Transaction
    changes: NameChanges
    staged: list[tuple[Table, int, list[Action]]] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)

    def take(self, origin: Lake, part: Part, root: str) -> None:
        """Take what is to be promoted of a table into the transaction.

        Args:
            root: the clone's, as a URL.

        Raises:
            LockstepError: see `draft_of` and `Transaction.stage`.
        """
        table = self.tx.names.table_at(part.home.location) or part.home
        draft = draft_of(origin, self.tx, table, part.commits)
        if draft is None:
            return
        self.drafts.append(draft)
        for actions in part.commits:
            version = self.tx.next_version(table.location)
            self.tx.stage(table.location, version, render(actions).decode())
            self.staged.append((table, version, actions))
        self.copies += part.copies
        # Not `draft.files`: it leaves out what a commit says that the table has, which is true in the clone alone.
        for below in sorted(part.own.keys() & named_below(draft.commits, table.location, origin.storage.url)):
            place = Place(root, f"{part.table.location}/{part.own[below]}")
            self.copies.append(Copy(place, f"{table.location}/{below}", part.sizes.get(below)))

    def result(self, *, is_done: bool) -> Promoted:
        """Return what it comes to, but for the version that it makes."""
        changes = self.changes
        # Of a table that the clone made there is a draft, by the id that it has in the origin.
        touched = {t.id for t in (*changes.dropped, *changes.renamed)} | {draft.table.id for draft in self.drafts}
        return Promoted(
            clone=self.record.target,
            origin=self.record.source,
            clone_version=self.clone.version,
            base_version=self.record.database_version,
            database_version=None,
            tables=len(touched),
            files=len(self.copies),
            size=sum(copy.size or 0 for copy in self.copies),
            is_done=is_done,
        )


def named_below(commits: Iterable[Sequence[Action]], location: str, root: str) -> set[str]:
    """Return the files below a table's folder that commits bring or name: data, changes and deletion vectors.

    Returns:
        Paths relative to that folder.
    """
    files: set[str] = set()
    actions = [*itertools.chain.from_iterable(commits)]
    for body in (*bodies(actions, "add"), *bodies(actions, "cdc")):
        if not is_absolute(body["path"]):
            files.add(unquote(body["path"]))
        vector = body.get("deletionVector")
        if vector is not None and vector["storageType"] == "u":
            files.add(file_path(vector, location=location, root=root).removeprefix(f"{location}/"))
    return files
