"""What a transaction does to bring back what was: the timeline is read here, and what that means is decided elsewhere.

Each is a part of a transaction: nothing of it is visible before COMMIT. Names come back at once; what is to be restored
in tables' logs is returned: in Spark Delta does it (`RESTORE TABLE`), else `lockstep.tables.restoring`. Each looks for
every file first.

What plain Delta writers did to the tables in question is taken in before anything is decided: the timeline alone would
call a table unchanged that they have written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from msgspec import structs

from lockstep.adoption.adopt import check_held, hold
from lockstep.delta.log import commit_path, digest, was_published
from lockstep.delta.publish import contents
from lockstep.errors import ExpiredError, ForeignCommitError, InvalidError, MissingFilesError, UndefinedError
from lockstep.lake import snapshots
from lockstep.lake.kept_states import told_at
from lockstep.lake.known_commits import is_of
from lockstep.lake.lake import Lake
from lockstep.recovery.dropped import find_dropped, last_state, last_states
from lockstep.recovery.later import Later
from lockstep.recovery.restore import Selection, TableRestore, gone, restore
from lockstep.recovery.revert import check_revertible, check_untouched, touched_by
from lockstep.timeline.database import NOT_INDEXED, Database
from lockstep.timeline.entry import Entry, Name, Table, folded
from lockstep.timeline.settlements import refusal, successors
from lockstep.transactions.names import Names, own_drop
from lockstep.transactions.transaction import Transaction


def undrop(
    lake: Lake,
    tx: Transaction,
    name: Name,
    *,
    id: str | None = None,
    dry_run: bool = False,
    look: Callable[[Table], object] = lambda _: None,
) -> Table:
    """Bring back the table of a name that was dropped last, or the one with an id under this name.

    Args:
        dry_run: see `restore_to`.
        look: raises if the table is not whole; in Spark the shim looks, by Delta's own means.

    Returns:
        How it was last, which is how it is again.

    Raises:
        UndefinedError: no such table was dropped; no such namespace (3F000).
        DuplicateError, InvalidError: see `Names.undrop_table`.
        MissingFilesError: its log is gone. ForeignCommitError: its log has another's commit in place of its last one.
        UnavailableError, CorruptTimelineError: the timeline cannot be read.
    """
    if id is None:
        _refuse_own_drop(tx, name)
    dropped = find_dropped(lake.timeline, name, id=id, case_sensitive=tx.case_sensitive)
    table = last_state(lake.timeline, dropped)
    _check_log(lake, table)
    look(table)

    def bring_back(names: Names) -> None:
        names.undrop_table(table, name if id is not None else table.name, kept_by=dropped.version - 1)
        if dry_run:
            check_held(lake, [table])
        else:
            hold(lake, tx, [table])

    tx.change_names(bring_back)
    return table


def restore_to(
    lake: Lake, tx: Transaction, then: Database, selection: Selection, *, dry_run: bool = False
) -> list[TableRestore]:
    """Take a transaction's view of the database, or a part of it, back to an older version; see `restore`.

    Args:
        dry_run: whether the transaction will not be committed: then nothing is claimed for it.

    Raises:
        UndefinedError: the selection names what is neither there nor was.
        LockstepError: see `restore`, `Transaction.changing` and `Known`.
    """
    then = _by_newer_ids(lake, tx, then, selection)
    for name in sorted(selection.names):
        if not any(name in each for scope in (then, tx.names) for each in (scope.tables, scope.views)):
            raise UndefinedError(f"no table or view {name} now, nor in database version {then.version}")
    for namespace in sorted(selection.namespaces):
        if namespace not in then.namespaces and namespace not in tx.names.namespaces:
            raise UndefinedError(f"no namespace {'.'.join(namespace)} now, nor in database version {then.version}")
    ids = {table.id for scope in (then, tx.names) for table in scope.tables.values() if selection.has_table(table)}
    _look(lake, tx, ids)
    restores = _restore(lake, tx, then, selection, dry_run=dry_run)
    if tx.isolation == "SERIALIZABLE":  # else that is not judged, and would only make the entry long
        _read_what_stays(tx, then, selection)
    return restores


def _read_what_stays(tx: Transaction, then: Database, selection: Selection) -> None:
    """Note what needs no restoring as read: who changes that meanwhile has seen what is taken back, or comes later."""
    for old in then.tables.values():
        table = tx.base.table_by_id(old.id)
        if table is None or table.version != old.version or old.id in tx.staged:
            continue
        if selection.has_table(old) or selection.has_table(table):
            tx.read(table)
    for name, view in then.views.items():
        now = tx.names.views.get(name)
        if now is not None and now.definition == view.definition and selection.has_view(name):
            tx.read_view(name)


def _by_newer_ids(lake: Lake, tx: Transaction, then: Database, selection: Selection) -> Database:
    """Return an older database version with the tables that were settled since under the ids that they have now.

    Only those whose logs still say what they were then, as entries tell that have not expired: others are refused. What
    is not selected, by what it was then or by what its folder has now, has nothing to do with it, and stays as it was.

    Raises:
        LockstepError: see `Known`.
    """
    head = lake.timeline.head
    tables = {id_: table for id_ in head.settled if (table := then.table_by_id(id_)) is not None}
    here = {table.location: table for table in tx.names.tables.values()}
    told = [
        table
        for table in tables.values()
        if refusal(head, table) is None
        and (selection.has_table(table) or selection.has_table(here.get(table.location, table)))
    ]
    if not told or then.version < head.expired.first_kept - 1:
        return then
    newer: dict[Name, Table] = {}
    for id_, current in successors(told, lake.timeline.scan(then.version, tx.base.version)).items():
        table, there = tables[id_], tx.names.table_by_id(current)
        if there is not None and there.location == table.location:
            newer[table.name] = structs.replace(table, id=current)
    return structs.replace(then, tables={**then.tables, **newer}, index=NOT_INDEXED) if newer else then


def revert(
    lake: Lake, tx: Transaction, version: int, *, beside: bool = False, dry_run: bool = False
) -> list[TableRestore]:
    """Take back what one database version changed, in a transaction; see `lockstep.recovery.revert`.

    Args:
        beside: whether a table to which later versions only appended can keep that (`TableRestore.through`), which
            Delta's own RESTORE cannot do.
        dry_run: see `restore_to`.

    Raises:
        InvalidError: a later version depends on some of it, or this transaction changed it; or there is no such
            version, or it is newer than the transaction's snapshot.
        ExpiredError: what it changed is not known any more.
        LockstepError: see `restore`, `Transaction.changing` and `Known`.
    """
    if not 0 <= version <= tx.base.version:
        raise InvalidError(
            f"database version {version} does not exist for this transaction: it sees 0 to {tx.base.version}"
        )
    if version == 0:
        raise InvalidError("database version 0 is the lake's beginning: nothing to revert")
    expired = lake.timeline.head.expired
    if version < expired.first_kept or expired.has(version - 1):
        oldest = expired.first_kept + expired.has(expired.first_kept - 1)
        raise ExpiredError(
            f"database version {version} cannot be reverted: what it changed, or what was there before, is not known "
            f"any more, for it has expired. The oldest version that can be reverted is {oldest}; RESTORE DATABASE "
            "takes tables back to any version that a tag keeps"
        )
    [entry] = lake.timeline.entries(version - 1, version)
    check_revertible(entry)
    touched = touched_by(entry)
    check_untouched(touched, tx)
    _look(lake, tx, touched.ids)
    before = lake.timeline.at(version - 1)
    later = Later(lake, entry, tx.names, beside)
    later.judge(lake.timeline.scan(version, tx.base.version))
    restores = []
    for id_ in sorted(later.appended):
        old, new, now = before.table_by_id(id_), later.made.table_by_id(id_), tx.names.table_by_id(id_)
        assert old is not None, "it was not made"
        assert new is not None, "nor dropped"
        assert now is not None, "nor dropped since"
        _check_told(lake, [old, new])
        restores.append(TableRestore(now.name, old.version, through=new.version))
    rest = replace(touched, ids=touched.ids - later.appended)
    return [*restores, *_restore(lake, tx, before, rest, dry_run=dry_run)]


def _look(lake: Lake, tx: Transaction, ids: Collection[str]) -> None:
    """Take in what plain Delta writers did to tables, and have the transaction see them as they are now."""
    tables = [table for id_ in ids if (table := tx.names.table_by_id(id_)) is not None]
    snapshots.look(lake, tx, [table.name for table in tables])
    tx.seen.tables.update(table.id for table in tables)


def _restore(lake: Lake, tx: Transaction, then: Database, selection: Selection, *, dry_run: bool) -> list[TableRestore]:
    """Give names their old meaning, with what the timeline says of the tables that come back."""
    missing = {table.id for table in gone(tx.names, then, selection)}
    for table in then.tables.values():
        if table.id in missing and (settled := refusal(lake.timeline.head, table)) is not None:
            raise settled
    dropped = {id_ for id_ in missing if tx.base.table_by_id(id_) is None}  # the others this transaction dropped
    last = last_states(lake.timeline, then, dropped, tx.base.version) if dropped else {}
    for state in last.values():
        _check_log(lake, state.table)
        _check_end(lake, state.table)

    def take_back(names: Names) -> list[TableRestore]:
        restores = restore(names, then, last, tx.staged, selection)
        _check_told(lake, [then.tables[each.name] for each in restores])
        if dry_run:
            check_held(lake, names.returned())
        else:
            hold(lake, tx, names.returned())
        return restores

    return tx.change_names(take_back)


def _check_told(lake: Lake, tables: Sequence[Table]) -> None:
    """See that tables of older database versions are what their logs say, which are taken back to these versions.

    Raises:
        ForeignCommitError: a plain Delta writer wrote over what the log of one said, and no tag keeps that.
        UnavailableError, CorruptTimelineError: the store failed, or the timeline cannot be read.
    """
    try:
        lake.check_past(tables)
    except ForeignCommitError:
        for table in tables:
            if told_at(lake.storage, table) == table.location:
                lake.check_past([table])


def _refuse_own_drop(tx: Transaction, name: Name) -> None:
    """Raise InvalidError if a transaction dropped the table of this name itself: the last one of the name is that."""

    def key(name: Name) -> Name:
        return name if tx.case_sensitive else folded(name)

    for table in tx.names.dropped:
        is_gone = tx.names.table_by_id(table.id) is None and tx.base.table_by_id(table.id) is not None
        if is_gone and key(table.name) == key(name):
            raise own_drop(table.name)


def _check_log(lake: Lake, table: Table) -> None:
    """Raise if the log of a dropped table does not reach to where it ended, or ends with another's commit.

    A table whose ratified commit was taken by a plain Delta writer is set aside until a person decides; to drop it is
    such a decision, and to bring it back as if nothing had been would hide that rows are gone.
    """
    if (settled := refusal(lake.timeline.head, table)) is not None:
        raise settled
    if not was_published(lake.storage, table.location, table.version):
        raise MissingFilesError(
            f"table {table.name} cannot come back: its log does not reach version {table.version} any more, "
            f"{commit_path(table.location, table.version)} is gone. Nothing was changed"
        )
    if table.digest:
        _check_foreign_end(lake, table)
        return
    first_kept = lake.timeline.head.expired.first_kept
    for entry in lake.timeline.newest_first(min(first_kept - 1, table.since), table.since):
        for write in entry.writes:
            if write.id != table.id:
                continue
            if write.commits:
                versions = lake.timeline.versions(write, entry.version)
                for version, content in zip(versions, contents(lake.storage, write, versions), strict=True):
                    path = commit_path(table.location, version)
                    if not _is_of(lake.storage.get(path), content, entry):
                        raise _taken_by_another(table, path, entry)
            return
    _check_expired_end(lake, table, through=min(first_kept - 1, table.since))


def _check_foreign_end(lake: Lake, table: Table) -> None:
    """Raise ForeignCommitError if a dropped table's log does not end with the plain Delta writer's commit it is to."""
    path = commit_path(table.location, table.version)
    if (data := lake.storage.get(path)) is not None and digest(data) != table.digest:
        raise ForeignCommitError(
            f"table {table.name} cannot come back: {path} is not the commit that the lake knows as version "
            f"{table.version}: another table lies in this folder now, or an older copy of it, or a plain Delta writer "
            "wrote over that version. Nothing was changed. Put back what was there, if you have it; or adopt what is "
            "there now"
        )


def _check_expired_end(lake: Lake, table: Table, *, through: int) -> None:
    """Raise ForeignCommitError if a dropped table's log ends with another's commit, as far as its history tells.

    Where a part of the history is lost, nobody knows which write was the last, and nothing is refused.

    What has expired was published before, or it was in conflict with a plain Delta writer when the table was dropped:
    then the log has that one's commit.
    """
    expected = through
    for entry in lake.timeline.past(through=through):
        if entry.version != expected:
            return
        expected -= 1
        if any(write.id == table.id for write in entry.writes):
            path = commit_path(table.location, table.version)
            if entry.kind == "transaction" and not _is_of(lake.storage.get(path), None, entry):
                raise _taken_by_another(table, path, entry)
            return
        if any(ddl.id == table.id and ddl.action == "create" for ddl in entry.tables):
            return  # as it came back, or was adopted: at a version that was looked at then


def _taken_by_another(table: Table, path: str, entry: Entry) -> ForeignCommitError:
    return ForeignCommitError(
        f"table {table.name} cannot come back: {path} is not what database version {entry.version} committed; another "
        "Delta writer took that version, and the two conflict. Nothing was changed. `lockstep show` has what was "
        "committed, and the table's folder can be read by its path"
    )


def _is_of(published: bytes | None, ratified: bytes | None, entry: Entry) -> bool:
    """Tell whether a log's commit is an entry's, as far as anybody can: clean-up may have taken either of the two."""
    if published is None or published == ratified:
        return True
    return ratified is None and is_of(entry, published)


def _check_end(lake: Lake, table: Table) -> None:
    """Raise InvalidError if plain Delta writers went on with a dropped table: no database version has that."""
    path = commit_path(table.location, table.version + 1)
    if lake.storage.exists(path):
        raise InvalidError(
            f"table {table.name} is dropped, and a plain Delta writer wrote it after what any database version has "
            f"({path}). UNDROP TABLE it in a transaction of its own, which takes that in, and restore then; where its "
            "DROP has expired, adopt its folder. Nothing was changed"
        )
