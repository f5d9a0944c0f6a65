"""The fold: what a run of timeline entries makes of the database. Pure, and the one judge of what an entry may say.

    fold([])            nothing: a database begins with entry 0
    fold([e0, e1, e2])  == apply(apply(apply(None, e0), e1), e2)

An entry that does not fit the database before it raises `CorruptTimelineError`; since a writer applies its entry before
it writes it, only a damaged or foreign file can do that.

**Amendments.** A commit is ratified under one table version and may be pushed to a later one, before it is published,
by a plain Delta writer. A later `external` entry says so in `moved`. From then on every older database version sees
the table where the commit really is: `amendments` (`lockstep.timeline.placements`) collects what a timeline says, and
`apply` and `fold` take it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec
from immutables import Map

from lockstep.errors import CorruptTimelineError
from lockstep.timeline.ahead import fetch_for
from lockstep.timeline.database import Database, Index, tag_key
from lockstep.timeline.entry import (
    NEW,
    Batch,
    Entry,
    Expired,
    Expiry,
    Moved,
    Name,
    Namespace,
    NamespaceDdl,
    Table,
    TableDdl,
    TableWrite,
    Tag,
    TagDdl,
    View,
    ViewDdl,
    folded,
)
from lockstep.timeline.layered_map import Changing, fetch
from lockstep.timeline.placements import NOT_MOVED, Moves, misfit
from lockstep.timeline.places import is_below, is_folder_outside, is_table_folder

DEFAULT_NAMESPACE: Namespace = ("default",)

FETCHED_FOR = 64
"""For so many entries, what they need of a checkpoint's parts is read at once."""


def apply(db: Database | None, entry: Entry, moves: Moves = NOT_MOVED) -> Database:
    """Return the database after one more entry; `db` is None before entry 0, and never changed.

    Args:
        db: the database version before, made with the same amendments.
        entry: the next entry.
        moves: what entries after this one say about it, see `amendments`.

    Raises:
        CorruptTimelineError: the entry does not fit; the message names its version and what was expected.
    """
    state = _State(db, moves)
    state.apply(entry)
    return state.database()


def fold(entries: Iterable[Entry], moves: Moves = NOT_MOVED, *, after: Database | None = None) -> Database:
    """Return the database after all the entries, which begin with entry 0, or follow a database version.

    Args:
        entries: without a gap.
        moves: amendments from the whole timeline, of which `entries` may be a part.
        after: the database version before them, as `amended` with the same amendments; None before entry 0.

    Raises:
        CorruptTimelineError: an entry does not fit those before it, or there is none.
    """
    remaining = iter(entries)
    while some := list(islice(remaining, FETCHED_FOR)):
        fetch_for(after, some)
        state = _State(after, moves)
        for entry in some:
            state.apply(entry)
        after = state.database()
    return _State(after, moves).database()


def amended(db: Database, moves: Moves) -> Database:
    """Return a database version that was folded without amendments as it is with them."""
    ids = {id_ for id_, entry in moves if entry <= db.version}
    fetch((db.index.ids, ids))
    fetch((db.tables, {name for id_ in ids if (name := db.index.ids.get(id_)) is not None}))
    state = _State(db, moves)
    state.amend()
    return state.database()


_NOTHING: Map[Any, Any] = Map()


class _State:
    """A database in the making; it costs what the entries say, not what the lake holds. Good for one `database`."""

    def __init__(self, db: Database | None, moves: Moves) -> None:
        self._version = -1 if db is None else db.version
        self._committed_at = None if db is None else db.committed_at
        self._namespaces = Changing(_NOTHING if db is None else db.namespaces)
        self._tables = Changing(_NOTHING if db is None else db.tables)
        self._views = Changing(_NOTHING if db is None else db.views)
        self._batches = Changing(_NOTHING if db is None else db.batches)
        self._tags = Changing(_NOTHING if db is None else db.tags)
        self._expired = Expired() if db is None else db.expired
        self._settled = Changing(_NOTHING if db is None else db.settled)
        index = Index() if db is None else db.index
        self._names = Changing(index.ids)
        self._locations = Changing(index.locations)
        self._inside = Changing(index.inside)
        self._spelled = None if index.spelled is None else Changing(index.spelled)
        self._moves = moves

    def database(self) -> Database:
        """Return the state as a value."""
        if self._committed_at is None:
            raise CorruptTimelineError("no timeline entries: a database begins with entry 0")
        return Database(
            version=self._version,
            committed_at=self._committed_at,
            namespaces=self._namespaces.finish(),
            tables=self._tables.finish(),
            batches=self._batches.finish(),
            views=self._views.finish(),
            tags=self._tags.finish(),
            expired=self._expired,
            settled=self._settled.finish(),
            index=Index(
                ids=self._names.finish(),
                locations=self._locations.finish(),
                inside=self._inside.finish(),
                spelled=None if self._spelled is None else self._spelled.finish(),
            ),
        )

    def apply(self, entry: Entry) -> None:
        """Take one entry in, in its order of meaning; after an error the state is of no use."""
        self._check_header(entry)
        for namespace in entry.namespaces:
            self._change_namespace(entry, namespace)
        for view in entry.views:
            if view.action == "drop":
                self._drop_view(entry, view)
        for ddl in entry.tables:
            self._change_table(entry, ddl)
        for view in entry.views:
            if view.action != "drop":
                self._define_view(entry, view)
        for write in entry.writes:
            self._write(entry, write)
        for move in entry.moved:
            self._move(entry, move)
        if entry.batch is not None:
            self._record(entry, entry.batch)
        self._inherit([] if entry.origin is None else entry.origin.batches)
        for tag in entry.tags:
            self._change_tag(entry, tag)
        if entry.expires is not None:
            self._expire(entry, entry.expires)
        self._check_result(entry)
        self._version = entry.version
        self._committed_at = entry.committed_at

    def amend(self) -> None:
        """Put each table where the last of its commits up to this version is now."""
        for (id_, entry), to_version in self._moves.items():
            name = self._names.get(id_) if entry <= self._version else None
            if name is not None and (table := self._tables[name]).version < to_version:
                self._tables[name] = msgspec.structs.replace(table, version=to_version, digest="")

    def _check_header(self, entry: Entry) -> None:
        """See that the entry is the next one, and of a kind that may say what it says."""
        if entry.version != self._version + 1:
            raise misfit(entry, f"expected entry {self._version + 1}")
        if self._committed_at is not None and entry.committed_at <= self._committed_at:
            at, previous = entry.committed_at.isoformat(), self._committed_at.isoformat()
            raise misfit(entry, f"committed at {at}: expected a time after {previous}, its predecessor's")
        _check_create(entry)
        if entry.version > 0 and not -1 < entry.transaction.base_version < entry.version:
            base = entry.transaction.base_version
            raise misfit(entry, f"is based on database version {base}: expected one from 0 to {entry.version - 1}")
        _check_kind(entry)
        ids = [write.id for write in entry.writes]
        if len(set(ids)) != len(ids):
            raise misfit(entry, "writes a table twice: expected one write for each table")

    def _change_namespace(self, entry: Entry, ddl: NamespaceDdl) -> None:
        name = ".".join(ddl.name)
        if not ddl.name or not all(ddl.name):
            raise misfit(entry, f"names a namespace {name!r}: expected no empty part")
        exists = ddl.name in self._namespaces
        if ddl.action == "create" and exists:
            raise misfit(entry, f"creates namespace {name}: expected no such namespace before")
        if ddl.action != "create" and not exists:
            raise misfit(entry, f"has {ddl.action} of namespace {name}: expected it to exist")
        if ddl.action == "drop":
            del self._namespaces[ddl.name]
        else:
            self._namespaces[ddl.name] = dict(ddl.properties)

    def _change_table(self, entry: Entry, ddl: TableDdl) -> None:
        if ddl.right_through is not None and ddl.action != "drop":
            raise misfit(entry, f"has {ddl.action} of table {ddl.name} with right_through: expected it of a drop only")
        if ddl.action == "create":
            self._create(entry, ddl)
            return
        table = self._table(entry, ddl.id, ddl.name, ddl.action)
        del self._tables[ddl.name]
        self._count(ddl.name, -1)
        if ddl.action == "drop":
            del self._names[ddl.id]
            del self._locations[table.location]
            if ddl.right_through is not None:
                self._settled[ddl.id] = ddl.right_through
            return
        if ddl.new_name is None:
            raise misfit(entry, f"renames table {ddl.name}: expected a new name")
        self._take_name(entry, ddl.new_name)
        self._count(ddl.new_name, 1)
        self._put(msgspec.structs.replace(table, name=ddl.new_name, since=entry.version))

    def _create(self, entry: Entry, ddl: TableDdl) -> None:
        self._take_name(entry, ddl.name)
        if not ddl.id or ddl.id in self._names:
            raise misfit(entry, f"creates table {ddl.name} with id {ddl.id!r}: expected a new one")
        is_adopted_outside = (ddl.adopted or ddl.version is not None) and is_folder_outside(ddl.location)
        if not (is_table_folder(ddl.location) or is_adopted_outside) or ddl.location in self._locations:
            what = "a folder of its own, below the root"
            raise misfit(entry, f"creates table {ddl.name} at {ddl.location!r}: expected {what}")
        self._count(ddl.name, 1)
        self._put(
            Table(
                id=ddl.id,
                name=ddl.name,
                location=ddl.location,
                version=NEW if ddl.version is None else ddl.version,
                since=entry.version,
                digest=ddl.digest,
            )
        )

    def _take_name(self, entry: Entry, name: Name, what: str = "table") -> None:
        if name in self._tables or name in self._views or not name.table:
            raise misfit(entry, f"gives a {what} the name {name}: expected one that is free")
        if name.namespace not in self._namespaces:
            raise misfit(entry, f"gives a {what} the name {name}: expected its namespace to exist")

    def _drop_view(self, entry: Entry, ddl: ViewDdl) -> None:
        self._check_view(entry, ddl)
        if ddl.definition is not None:
            raise misfit(entry, f"drops view {ddl.name} and defines it: expected one of the two")
        del self._views[ddl.name]
        self._count(ddl.name, -1)

    def _define_view(self, entry: Entry, ddl: ViewDdl) -> None:
        if ddl.definition is None:
            raise misfit(entry, f"has {ddl.action} of view {ddl.name}: expected its definition")
        if ddl.action == "create":
            self._take_name(entry, ddl.name, "view")
            self._count(ddl.name, 1)
        else:
            self._check_view(entry, ddl)
        self._views[ddl.name] = View(name=ddl.name, definition=ddl.definition, since=entry.version)

    def _check_view(self, entry: Entry, ddl: ViewDdl) -> None:
        if ddl.name not in self._views:
            raise misfit(entry, f"has {ddl.action} of view {ddl.name}: expected it to exist")

    def _write(self, entry: Entry, write: TableWrite) -> None:
        table = self._table(entry, write.id, write.name, "write")
        if write.location != table.location:
            raise misfit(entry, f"writes table {write.name} at {write.location!r}: expected {table.location!r}")
        if write.from_version != table.version and not self._was_moved(table):
            raise misfit(entry, f"writes table {write.name} from {write.from_version}: expected {table.version}")
        if write.to_version <= write.from_version:
            raise misfit(entry, f"writes table {write.name} to {write.to_version}: expected past {write.from_version}")
        commits = 0 if entry.kind == "external" else write.to_version - write.from_version
        if len(write.commits) != commits:
            raise misfit(entry, f"has {len(write.commits)} commits of table {write.name}: expected {commits}")
        if any((commit.inline is None) == (commit.staged is None) for commit in write.commits):
            raise misfit(entry, f"writes table {write.name}: expected each commit to be inline or staged, and not both")
        if any(commit.staged is not None and not is_below(commit.staged) for commit in write.commits):
            raise misfit(entry, f"writes table {write.name}: expected staged commits below its folder")
        version = max(write.to_version, self._moves.get((write.id, entry.version), NEW), table.version)
        digest = write.digest if version == write.to_version else ""
        self._tables[table.name] = msgspec.structs.replace(table, version=version, since=entry.version, digest=digest)

    def _inherit(self, batches: Iterable[Batch]) -> None:
        """Take over what an export's source knew of streaming applications."""
        for batch in batches:
            self._batches[batch.application] = batch.number

    def _record(self, entry: Entry, batch: Batch) -> None:
        if entry.kind != "transaction":
            raise misfit(entry, f"is of kind {entry.kind!r} and records {batch}: expected that of 'transaction' only")
        last = self._batches.get(batch.application)
        if last is not None and batch.number <= last:
            raise misfit(entry, f"records {batch}: expected a number above {last}, the last one")
        self._batches[batch.application] = batch.number

    def _change_tag(self, entry: Entry, ddl: TagDdl) -> None:
        tag = self._tags.get(tag_key(ddl.name))
        if ddl.action == "drop":
            if tag is None:
                raise misfit(entry, f"drops tag {ddl.name}: expected it to exist")
            del self._tags[tag_key(ddl.name)]
            return
        if tag is not None:
            raise misfit(entry, f"creates tag {ddl.name}: expected no such tag before")
        version = entry.version if ddl.version is None else ddl.version
        if version > entry.version or self._expired.has(version):
            raise misfit(entry, f"creates tag {ddl.name} of database version {version}: expected one that there is")
        self._tags[tag_key(ddl.name)] = Tag(
            name=ddl.name,
            version=version,
            since=entry.version,
            created_at=entry.committed_at,
            retain_until=ddl.retain_until,
            comment=ddl.comment,
        )

    def _expire(self, entry: Entry, expiry: Expiry) -> None:
        """Let versions expire; what has expired stays so."""
        before = self._expired
        if not before.first_kept <= expiry.first_kept <= self._version:
            raise misfit(
                entry,
                f"lets versions below {expiry.first_kept} expire: expected {before.first_kept} to {self._version}",
            )
        in_order = sorted(set(expiry.keep)) == expiry.keep and all(0 <= v < expiry.first_kept for v in expiry.keep)
        if not in_order or any(map(before.has, expiry.keep)):
            raise misfit(entry, f"keeps {expiry.keep}: expected versions that there are, in order and below the first")
        self._expired = Expired(first_kept=expiry.first_kept, kept=tuple(expiry.keep))

    def _was_moved(self, table: Table) -> bool:
        """Tell whether the table is where an amendment put it: then an entry after that may not have known it yet."""
        return any(id_ == table.id and to_version == table.version for (id_, _), to_version in self._moves.items())

    def _move(self, entry: Entry, move: Moved) -> None:
        """Put the table where its moved commits are; `amendments` has judged whether the move itself makes sense."""
        if move.entry >= entry.version:
            raise misfit(entry, f"moves a commit of entry {move.entry}: expected an earlier entry")
        name = self._names.get(move.id)
        if name is None:  # It has been dropped since; the versions before the drop still see it, moved.
            return
        table = self._tables[name]
        version = max(table.version, move.to_version)
        digest = table.digest if version > move.to_version else ""
        self._tables[name] = msgspec.structs.replace(table, version=version, since=entry.version, digest=digest)

    def _check_result(self, entry: Entry) -> None:
        """See that the whole entry leaves no table without a version, and nothing without a namespace."""
        created_ids = {ddl.id for ddl in entry.tables if ddl.action == "create"}
        for id_ in created_ids:
            if id_ in self._names and self._tables[self._names[id_]].version == NEW:
                raise misfit(entry, f"creates table {self._names[id_]}: expected a write of its first version")
        for namespace in {ddl.name for ddl in entry.namespaces if ddl.action == "drop"}:
            if namespace in self._inside and namespace not in self._namespaces:
                names = (*self._tables.finish(), *self._views.finish())
                remainder = min(str(name) for name in names if name.namespace == namespace)
                raise misfit(entry, f"drops namespace {'.'.join(namespace)}: expected nothing in it, not {remainder}")
        is_empty = entry.kind == "create" and entry.origin is None
        if is_empty and (len(self._namespaces), self._namespaces.get(DEFAULT_NAMESPACE)) != (1, {}):
            namespaces = dict(self._namespaces.finish())
            raise misfit(entry, f"creates namespaces {namespaces}: expected 'default' alone, without properties")

    def _table(self, entry: Entry, id_: str, name: Name, action: str) -> Table:
        """Return the table that has this name and this id."""
        table: Table | None = self._tables.get(name)
        if table is None:
            raise misfit(entry, f"has {action} of table {name}: expected it to exist")
        if table.id != id_:
            raise misfit(entry, f"has {action} of table {name} with id {id_}: expected id {table.id}")
        return table

    def _put(self, table: Table) -> None:
        self._tables[table.name] = table
        self._names[table.id] = table.name
        self._locations[table.location] = table.name

    def _count(self, name: Name, by: int) -> None:
        """Note that a name is in its namespace now, or is no more."""
        number = self._inside.get(name.namespace, 0) + by
        if number:
            self._inside[name.namespace] = number
        else:
            del self._inside[name.namespace]
        if self._spelled is not None and (key := folded(name)) != name:
            others = [each for each in self._spelled.get(key, ()) if each != name]
            if spelled := sorted([*others, name] if by > 0 else others):
                self._spelled[key] = tuple(spelled)
            else:
                del self._spelled[key]


def _check_create(entry: Entry) -> None:
    """See that entry 0, and no other, begins a database: an empty one, or what an export holds."""
    if (entry.kind == "create") != (entry.version == 0):
        raise misfit(entry, f"is of kind {entry.kind!r}: expected 'create' in entry 0 and only there")
    if entry.arbiter is not None and entry.kind != "create":
        raise misfit(entry, f"is of kind {entry.kind!r} and names an arbiter: expected that of 'create' only")
    if entry.origin is not None and entry.kind != "create":
        raise misfit(entry, f"is of kind {entry.kind!r} and has an origin: expected that of 'create' only")
    if entry.kind == "create" and (entry.moved or (_touches(entry) and entry.origin is None)):
        raise misfit(entry, "touches tables or views: expected an empty database")
    if entry.kind == "create" and (entry.writes or entry.reads or entry.view_reads):
        raise misfit(entry, "writes or reads tables: expected none before there is a database")


def _check_kind(entry: Entry) -> None:
    """See that what an entry says is what those of its kind may say."""
    if entry.moved and entry.kind != "external":
        raise misfit(entry, f"is of kind {entry.kind!r} and moves commits: expected that of 'external' only")
    if (entry.kind == "abort") != bool(entry.aborts):
        raise misfit(entry, f"is of kind {entry.kind!r} and aborts {entry.aborts}: expected ids with 'abort' only")
    if entry.kind == "abort" and (entry.namespaces or _touches(entry)):
        raise misfit(entry, "aborts transactions and touches tables or views: expected one of the two")
    if (entry.kind == "expiry") != (entry.expires is not None):
        raise misfit(entry, f"is of kind {entry.kind!r}: expected what expires with 'expiry' only")
    if entry.kind == "expiry" and (entry.namespaces or _touches(entry)):
        raise misfit(entry, "lets versions expire and touches tables or views: expected one of the two")


def _touches(entry: Entry) -> bool:
    """Tell whether an entry changes or reads tables or views."""
    return bool(entry.tables or entry.views or entry.writes or entry.reads or entry.view_reads or entry.tags)
