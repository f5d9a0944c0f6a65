"""What takes back one transaction alone, if no later one depends on it. Pure, over entries and commits.

What it touched becomes what it was if nobody has touched it since. A table that it wrote, and to which later ones only
appended, keeps what they appended: it loses the files that the transaction added, and has those again that it removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lockstep.delta.actions import ROW_TRACKING, Action, bodies
from lockstep.errors import InvalidError
from lockstep.recovery.restore import Selection
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Name, Namespace
from lockstep.timeline.functions import said
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction


class Thing(NamedTuple):
    """What an entry changes: a table by its id, a view or a namespace by its name."""

    kind: Literal["table", "view", "namespace"]
    key: str | Name | Namespace


def touched_by(entry: Entry) -> Selection:
    """Return what an entry changed: tables by id, views and namespaces by name."""
    return Selection(
        bare=frozenset(ddl.name for ddl in entry.namespaces),
        views=frozenset(ddl.name for ddl in entry.views),
        ids=frozenset(
            {ddl.id for ddl in entry.tables} | {write.id for write in entry.writes} | {move.id for move in entry.moved}
        ),
    )


def things_of(entry: Entry) -> frozenset[Thing]:
    """Return the same, one by one."""
    touched = touched_by(entry)
    return frozenset(
        {Thing("table", id_) for id_ in touched.ids}
        | {Thing("view", name) for name in touched.views}
        | {Thing("namespace", name) for name in touched.bare}
    )


_MORE = {
    "remove": "removed files of it, or rows by deletion vectors",
    "metaData": "wrote its columns and properties, as each append to identity columns does",
    "protocol": "wrote its protocol",
}
"""What a commit does that has actions of such a kind."""

_WITHOUT_SPARK = ". If later versions only appended, `lockstep revert` and Python's `revert` keep what they appended"


def check_revertible(entry: Entry) -> None:
    """Raise InvalidError if an entry cannot be taken back, whatever came later."""
    if entry.moved:
        raise InvalidError(
            f"database version {entry.version} cannot be reverted: it takes in what a plain Delta writer committed, "
            "and in the table's log an earlier database version stands behind that"
        )
    if not things_of(entry):
        raise InvalidError(f"database version {entry.version} changed no table, view or namespace: nothing to revert")


def why_in_the_way(entry: Entry, other: Entry, thing: Thing, *, beside: bool) -> str | None:
    """Return why a later entry is in the way of taking back an entry; None if its commits of the table are to say.

    It is, unless what both touched is by now as the entry left it: see `is_as_left`.

    Args:
        thing: what both touched.
        beside: whether a table can lose what the entry did to it, and keep what came later.
    """
    what = _called(thing, entry, other)
    if not _only_writes(other, thing):
        return f"changed {what} after it"
    if not _only_writes(entry, thing):
        return f"wrote {what} after it, which it made, dropped or renamed"
    return None if beside else f"changed {what} after it"


def is_as_left(thing: Thing, made: Database, names: Names) -> bool:
    """Tell whether a thing is by now as an entry left it, whatever came in between.

    Of a table this is said of its name alone, if it is there: what its log says is for
    `lockstep.delta.combine.going_back.what_is_same`.

    Args:
        made: the database as the entry left it.
        names: as they are now.
    """
    match thing.key:
        case Name() as name:
            old, new = made.views.get(name), names.views.get(name)
            return (old and old.definition) == (new and new.definition)
        case tuple() as namespace:
            return made.namespaces.get(namespace) == names.namespaces.get(namespace)
        case str() as id_:
            then, now = made.table_by_id(id_), names.table_by_id(id_)
            if then is None or now is None:
                return then is now
            return (then.name, then.location) == (now.name, now.location)


@dataclass(frozen=True, slots=True)
class Culprit:
    """A later database version, by its number, and the transaction that made it."""

    version: int
    transaction: str

    @staticmethod
    def of(entry: Entry) -> Culprit:
        """Return it of an entry."""
        return Culprit(entry.version, entry.transaction.id)


def refused(
    entry: Entry, other: Culprit, why: str, *, only_metadata: bool = False, beside: bool = True
) -> InvalidError:
    """Return that an entry cannot be taken back, for what a later one did.

    Args:
        only_metadata: whether the table has the rows that the entry left, and only its columns or properties differ.
        beside: see `why_in_the_way`.
    """
    restore = f"restore the whole with RESTORE DATABASE … TO VERSION {entry.version - 1}"
    advice = (
        f"The table has the rows that version {entry.version} left, but other columns, properties or features: revert "
        f"what changed those, where that can be, or {restore}"
        if only_metadata
        else f"Revert what came later first, newest first, or {restore}"
    )
    return InvalidError(
        f"database version {entry.version} cannot be reverted: version {other.version} (transaction "
        f"{other.transaction}) {why}. {advice}{'' if beside or only_metadata else _WITHOUT_SPARK}"
    )


def overtaken(entry: Entry, other: Culprit, table: str, versions: Sequence[int]) -> InvalidError:
    """Return that an entry cannot be taken back since a plain writer's commits stand before it in a table's log.

    Its commits were ratified first. What the table was before the entry, it was without them.

    Args:
        other: the entry that takes them in.
        versions: of the table, where the entry's own commits are.
    """
    return InvalidError(
        f"database version {entry.version} cannot be reverted: a plain Delta writer changed table {table}, which "
        f"version {other.version} (transaction {other.transaction}) takes in, and in the table's log that stands "
        f"before what version {entry.version} did, at version {versions[0]}: the table would lose both. Take back by "
        f"DELETE, UPDATE or INSERT what is wrong, or restore the whole with RESTORE DATABASE … TO VERSION "
        f"{entry.version - 1}"
    )


def has_read(other: Entry, id: str, version: int) -> bool:
    """Tell whether an entry read rows of a table, as it was at this version or later; an external one never says."""
    return any(read.id == id and read.predicates != [] and read.version >= version for read in other.reads)


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


def _only_writes(entry: Entry, thing: Thing) -> bool:
    """Tell whether a thing is a table, with which an entry did no more than to write it."""
    more = {ddl.id for ddl in entry.tables} | {move.id for move in entry.moved}
    return thing.kind == "table" and thing.key not in more


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


def _called(thing: Thing, entry: Entry, other: Entry) -> str:
    """Return what a message calls a thing that two entries both touched."""
    match thing.key:
        case Name() as name:
            return said(name)
        case tuple() as namespace:
            return f"namespace {'.'.join(namespace)}"
        case str() as id_:
            names = {each.id: each.name for each in (*entry.writes, *other.writes)}
            names |= {ddl.id: ddl.name for ddl in (*entry.tables, *other.tables)}
            return f"table {names.get(id_, id_)}"
