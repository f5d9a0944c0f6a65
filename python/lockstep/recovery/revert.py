"""What takes back one transaction alone, if no later one depends on it. Pure, over entries and commits.

What it touched becomes what it was if nobody has touched it since. A table that it wrote, and to which later ones only
appended, keeps what they appended: it loses the files that the transaction added, and has those again that it removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lockstep.delta.actions import ROW_TRACKING, Action, bodies
from lockstep.errors import InvalidError
from lockstep.recovery.restore import Selection
from lockstep.timeline.entry import Entry, TableWrite
from lockstep.timeline.functions import said
from lockstep.transactions.transaction import Transaction


def touched_by(entry: Entry) -> Selection:
    """Return what an entry changed: tables by id, views and namespaces by name."""
    return Selection(
        bare=frozenset(ddl.name for ddl in entry.namespaces),
        views=frozenset(ddl.name for ddl in entry.views),
        ids=frozenset(
            {ddl.id for ddl in entry.tables} | {write.id for write in entry.writes} | {move.id for move in entry.moved}
        ),
    )


_MORE = {
    "remove": "removed files of it, or rows by deletion vectors",
    "metaData": "wrote its columns and properties, as each append to identity columns does",
    "protocol": "wrote its protocol",
}
"""What a commit does that has actions of such a kind."""

_WITHOUT_SPARK = ". If later versions only appended, `lockstep revert` and Python's `revert` keep what they appended"


@dataclass(frozen=True, slots=True)
class LaterWrite:
    """What a later entry wrote to a table that is to be taken back: by its commits it is judged."""

    entry: Entry
    write: TableWrite

    def has_read(self, version: int) -> bool:
        """Tell whether it read rows of the table, as it was at this version or later; an external entry never says."""
        return any(
            read.id == self.write.id and read.predicates != [] and read.version >= version for read in self.entry.reads
        )


def later_writes(entry: Entry, later: Iterable[Entry], *, beside: bool) -> dict[str, list[LaterWrite]]:
    """Return, by table, what later entries wrote to tables that an entry wrote; their commits are to be judged yet.

    Args:
        beside: whether a table can lose what the entry did to it, and keep what came later.

    Raises:
        InvalidError: a later one changed what it changed, a table, a view or a namespace, in another way.
    """
    mine = touched_by(entry)
    if entry.moved:
        raise InvalidError(
            f"database version {entry.version} cannot be reverted: it takes in what a plain Delta writer committed, "
            "and in the table's log an earlier database version stands behind that"
        )
    if not (mine.bare or mine.views or mine.ids):
        raise InvalidError(f"database version {entry.version} changed no table, view or namespace: nothing to revert")
    found: dict[str, list[LaterWrite]] = {}
    for other in later:
        theirs = touched_by(other)
        ids = theirs.ids & mine.ids
        if not (ids or theirs.views & mine.views or theirs.bare & mine.bare):
            continue
        what = ", ".join(sorted(_shared(entry, other)))
        if theirs.views & mine.views or theirs.bare & mine.bare or not _only_write(ids, other):
            raise refused(entry, other, f"changed {what} after it")
        if not _only_write(ids, entry):
            raise refused(entry, other, f"wrote {what} after it, which it made, dropped or renamed")
        if not beside:
            raise refused(entry, other, f"changed {what} after it", _WITHOUT_SPARK)
        for write in other.writes:
            if write.id in ids:
                found.setdefault(write.id, []).append(LaterWrite(other, write))
    return found


def refused(entry: Entry, other: Entry, why: str, more: str = "") -> InvalidError:
    """Return that an entry cannot be taken back, for what a later one did."""
    return InvalidError(
        f"database version {entry.version} cannot be reverted: version {other.version} (transaction "
        f"{other.transaction.id}) {why}. Revert that one first, newest first, or restore the whole with RESTORE "
        f"DATABASE … TO VERSION {entry.version - 1}{more}"
    )


def why_no_append(commit: Sequence[Action], *, is_external: bool) -> str | None:
    """Return what a commit did to its table that is more than to append to it; None if it did no more.

    Args:
        is_external: whether a plain Delta writer made it: of what that read its commit alone says anything.
    """
    for kind, why in _MORE.items():
        if bodies(commit, kind):
            return why
    if any(domain["domain"] != ROW_TRACKING for domain in bodies(commit, "domainMetadata")):
        return "changed what its features keep in metadata domains"
    if is_external and any(info.get("isBlindAppend") is False for info in bodies(commit, "commitInfo")):
        return "appended to rows that it had read"
    return None


def _only_write(ids: frozenset[str], entry: Entry) -> bool:
    """Tell whether an entry did no more with these tables than to write them."""
    return not ids & ({ddl.id for ddl in entry.tables} | {move.id for move in entry.moved})


def check_untouched(touched: Selection, tx: Transaction) -> None:
    """Raise InvalidError if a transaction has itself changed what is to become what it was: that would be gone."""
    base, names = tx.base, tx.names
    own = [
        *(id_ for id_ in touched.ids if id_ in tx.staged or base.table_by_id(id_) != names.table_by_id(id_)),
        *(str(name) for name in touched.views if base.views.get(name) != names.views.get(name)),
        *(".".join(name) for name in touched.bare if base.namespaces.get(name) != names.namespaces.get(name)),
    ]
    if own:
        found = {id_: str(table.name) for id_ in own if (table := names.table_by_id(id_) or base.table_by_id(id_))}
        what = ", ".join(sorted(found.get(each, each) for each in own))
        raise InvalidError(f"this transaction itself changed {what}: COMMIT or ROLLBACK it first, and revert then")


def _shared(entry: Entry, other: Entry) -> set[str]:
    """Return what two entries both changed, as a message names it."""
    mine, theirs = touched_by(entry), touched_by(other)
    names = {write.id: write.name for write in (*entry.writes, *other.writes)}
    names |= {ddl.id: ddl.name for ddl in (*entry.tables, *other.tables)}
    return (
        {f"table {names.get(id_, id_)}" for id_ in mine.ids & theirs.ids}
        | {said(name) for name in mine.views & theirs.views}
        | {f"namespace {'.'.join(name)}" for name in mine.bare & theirs.bare}
    )
