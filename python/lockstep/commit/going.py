"""Whether what a commit needs is being deleted: see `lockstep.lake.deletions`, of which this is the commit's side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from urllib.parse import unquote

from lockstep.commit.files import Gone, missing_files
from lockstep.delta.actions import Action, bodies
from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.delta.places import below_root
from lockstep.errors import CorruptTimelineError
from lockstep.lake.deletions import OLD, Wanted, going
from lockstep.lake.lake import Lake
from lockstep.timeline.database import Database
from lockstep.transactions.transaction import Transaction


def old_files(
    commits: Iterable[Sequence[Action]], location: str, root: str, now: datetime, *, with_changes: bool = False
) -> frozenset[str]:
    """Return the files that commits add to a table and that are old enough to be deleted, relative to the lake's root.

    What a statement writes is young: these are a restored table's, a clone's, or those of a very long transaction. A
    file that only gets another deletion vector is among them, too, and does no harm there. Each path is read as the
    protocol says, percent-decoded, for these files are looked for.

    Args:
        with_changes: whether change files may be old, which a log does not tell: an attempt before this one wrote them.
    """
    limit = (now - OLD).timestamp() * 1000
    found: set[str | None] = set()
    for actions in commits:
        for add in bodies(actions, "add"):
            if not add.get("modificationTime", 0) < limit:
                continue
            found.add(below_root(unquote(add["path"]), location, root))
            if (vector := add.get("deletionVector")) is not None and vector["storageType"] != "i":
                with suppress(CorruptTimelineError):  # outside the lake: nobody deletes it here
                    found.add(file_path(vector, location=location, root=root))
        if with_changes:
            found |= {below_root(unquote(cdc["path"]), location, root) for cdc in bodies(actions, "cdc")}
    return frozenset(path for path in found if path is not None)


def wanted_by(tx: Transaction, files: Iterable[frozenset[str]]) -> Wanted:
    """Return what a transaction needs that may be going: old files, and tables that come back."""
    returned = [ddl for ddl in tx.names.table_ddl(tx.id) if ddl.action == "create" and ddl.version is not None]
    kept_by = tx.names.kept_by()
    return Wanted(
        files=frozenset[str]().union(*files),
        locations=frozenset(ddl.location for ddl in returned),
        versions=frozenset(kept_by[ddl.id] for ddl in returned if ddl.id in kept_by),
    )


def check(lake: Lake, wanted: Wanted, head: Database, who: str) -> Gone | None:
    """Look whether any of this is being deleted, or is gone; None if it is not.

    Files are looked for behind the look for what has begun: what was begun and is done already is not written down.

    Args:
        head: the newest database version, by a look before this one.
        who: needs it, for the message.

    Raises:
        UnavailableError: the store does not say.
    """
    if expired := [version for version in wanted.versions if head.expired.has(version)]:
        what: str | None = f"database version {min(expired)}"
    elif (what := going(lake.storage, wanted)) is None:
        return missing_files(lake.storage, wanted.files, who)
    return Gone(
        f"{what}, which {who} needs, is being deleted: no database version that is kept needs it. Nothing was "
        "committed. A tag made in time keeps a version, and `retention-age` and `retention-versions` say how many are "
        "kept without one"
    )
