"""RESTORE DATABASE, and the revert of one transaction, without Spark.

What names mean again, and which tables' logs are to be taken back, `lockstep.recovery.changes` decides, as it does for
Spark. In Spark Delta takes the logs back (`RESTORE TABLE`); here each such table gets the same commit
(`lockstep.delta.combine.going_back`), staged as any statement's. All of them are looked at before one is staged: what
is refused, and which files are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action, bodies
from lockstep.delta.combine.going_back import going_back, restored, taken_out, why_not_restored, why_not_taken_out
from lockstep.delta.counts import counts
from lockstep.delta.snapshot import Snapshot
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.recovery.changes import restore_to
from lockstep.recovery.changes import revert as take_back
from lockstep.recovery.diff import Change, Touched, changes_of
from lockstep.recovery.restore import Selection, TableRestore
from lockstep.tables.coming_back import Wanted, check_files, snapshot_then
from lockstep.tables.commits import Operation, now_ms, stage
from lockstep.tables.layout import layout_of
from lockstep.tables.names import name_of, namespace_of
from lockstep.tables.state import States
from lockstep.tables.table import Scope
from lockstep.timeline.entry import Counts, Name, Table
from lockstep.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore or a revert, or what the result would be.

    Attributes:
        version: the database version that was restored or reverted.
        tables: the tables whose logs were restored, and to which table version; of one that keeps what came later,
            which versions it loses, see `TableRestore`.
        changes: everything that the transaction changed, as `lockstep diff` shows it.
        database_version: the version that it made; None if it changed nothing, or is not committed.
    """

    version: int
    tables: list[TableRestore] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    database_version: int | None = None


def moment(when: int | datetime | str, argument: str) -> int | datetime | str:
    """Return which database version a caller means: its number, a time, a tag.

    Raises:
        InvalidError: a time without a zone.
    """
    if isinstance(when, datetime) and when.tzinfo is None:
        raise InvalidError(f"{argument}: {when!r} has no time zone: say which, {when.replace(tzinfo=UTC)!r} for UTC")
    return when


def selection_of(namespaces: Iterable[Any] | None, tables: Iterable[Any] | None) -> Selection:
    """Return what of a database is meant by names as callers write them; all of it, if neither is given.

    Raises:
        InvalidError: what is no name.
    """
    if namespaces is None and tables is None:
        return Selection(everything=True)

    return Selection(
        namespaces=frozenset(map(namespace_of, _listed(namespaces, "namespaces"))),
        names=frozenset(map(name_of, _listed(tables, "tables"))),
    )


def _listed(names: Iterable[Any] | None, argument: str) -> Iterable[Any]:
    """Return names one by one. A tuple of texts is refused: it may be one name in parts, or several."""
    if isinstance(names, tuple) and len(names) > 1 and all(isinstance(each, str) for each in names):
        raise InvalidError(
            f"{argument}={names!r} may be one name in parts, or several names: write {argument}={list(names)!r} for "
            f"several, {argument}=[{names!r}] for one"
        )
    return [names] if isinstance(names, str | Name) else names or ()


# --- in a transaction -------------------------------------------------------------------------------------------------


class Decides(Protocol):
    """What says what names mean again, and which logs are to be taken back."""

    def __call__(self, *, dry_run: bool) -> list[TableRestore]: ...


def restore(scope: Scope, when: int | datetime | str, selection: Selection, *, dry_run: bool = False) -> Restored:
    """Take what a transaction sees, or a part of it, back to an older database version.

    Args:
        dry_run: whether nothing is staged, and the transaction will not be committed.

    Raises:
        UndefinedError: no such tag (42704); the selection names what is neither there nor was.
        MissingFilesError: files, or a log's, are gone that are needed.
        UnsupportedError, ReadOnlyError: a table whose log is taken back in Spark alone; it is named.
        LockstepError: see `lockstep.recovery.changes.restore_to`.
    """
    tx, lake = scope.tx, scope.catalog.lake
    then = scope.catalog.as_of(when, at_most=tx.base.version, names=tx.names)
    chosen = sorted([*map(".".join, selection.namespaces), *map(str, selection.names)])
    what = "all" if selection.everything else ", ".join(chosen) or "nothing"
    text = f"restore {what} to database version {then.version}"
    return _carry_out(scope, then.version, text, partial(restore_to, lake, tx, then, selection), dry_run=dry_run)


def revert(scope: Scope, version: int, *, dry_run: bool = False) -> Restored:
    """Take back what one database version changed, in a transaction, unless a later one depends on it.

    A table to which later ones only appended keeps what they appended.

    Raises:
        InvalidError: a later version does, or this transaction changed it; or there is no such version.
        LockstepError: as `restore`.
    """
    decide = partial(take_back, scope.catalog.lake, scope.tx, version, beside=True)
    return _carry_out(scope, version, f"revert database version {version}", decide, dry_run=dry_run)


# --- in a transaction of its own --------------------------------------------------------------------------------------


def looked_at(catalog: TransactionalCatalog, states: States, work: Callable[..., Restored], *args: Any) -> Restored:
    """Return what a restore or a revert would come to.

    Nothing is written, but that a look takes in what plain Delta writers did, as any reader's does, where this process
    may write at all.

    Raises:
        LockstepError: what it would be refused for.
    """
    tx = catalog.begin(dry_run=True)
    try:
        return work(Scope(catalog, tx, states), *args, dry_run=True)
    finally:
        catalog.rollback(tx)


# --- parts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Planned:
    """The commit that takes a table's log back.

    Attributes:
        table: as the transaction has it.
        actions, operation: of the commit.
        after_ms: see `lockstep.tables.commits.stage`.
        wanted: what the table has at the version that it is taken back to.
    """

    table: Table
    actions: list[Action]
    operation: Operation
    after_ms: int | None
    wanted: Snapshot


def _carry_out(scope: Scope, version: int, text: str, decide: Decides, *, dry_run: bool) -> Restored:
    tx, lake = scope.tx, scope.catalog.lake
    restores = decide(dry_run=dry_run)
    tables = [scope.catalog.table(tx, each.name) for each in restores]
    pairs = zip(restores, tables, strict=True)
    planned = lake.side_by_side(lambda pair: _plan(scope, *pair, text), pairs)
    coming = [Wanted(each.table, each.wanted, bodies(each.actions, "add")) for each in planned]
    check_files(lake, tx, scope.states, coming)
    done = Restored(version, restores, _changes(tx, planned))
    if dry_run:
        return done
    tx.note_statement(text)
    for each in planned:
        tx.read(each.table)  # rows go that it has not looked for
        stage(scope.catalog, tx, each.table.location, each.actions, each.operation, after_ms=each.after_ms)
    return done


def _plan(scope: Scope, restore: TableRestore, table: Table, text: str) -> _Planned:
    """Return the commit that takes a table's log back to what it was at a version.

    Raises:
        UnsupportedError, ReadOnlyError: none is written without Spark; the message says what for.
        MissingFilesError: the log does not tell of that version any more.
        LockstepError: it cannot be read.
    """
    tx, states = scope.tx, scope.states
    name, there = str(table.name), states.snapshot(tx, table)
    wanted = _wanted(scope, restore, table, there, text)
    only_appends = there.files.keys() <= wanted.files.keys()
    before = layout_of(name, there.protocol, there.metadata, there.domains)
    before.check_restorable()
    before.check_writable(only_appends=only_appends, changes_rows=True)
    if (reason := why_not_restored(wanted, there)) is not None:
        raise UnsupportedError(
            f"table {name} cannot be restored to version {restore.version} of its log without Spark, for {reason}; "
            "nothing was changed. Use RESTORE DATABASE, or CALL … .system.restore, in Spark with Lockstep"
        )
    target = restored(wanted, there)
    after = layout_of(name, target.protocol, target.metadata, target.domains)
    after.check_restorable()
    after.check_writable(only_appends=True, changes_rows=True)
    actions = going_back(target, there, now_ms(scope.catalog))
    # Both are always said, as Delta says them: who changes either beside this is in its way.
    said: list[Action] = [{"protocol": target.protocol}, {"metaData": target.metadata}]
    return _Planned(
        table=table,
        actions=[*said, *(action for action in actions if "metaData" not in action)],
        operation=_operation(restore, text, _metrics(actions, wanted)),
        after_ms=states.commit_time(tx, table) if after.has_commit_times else None,
        wanted=wanted,
    )


def _wanted(scope: Scope, restore: TableRestore, table: Table, there: Snapshot, text: str) -> Snapshot:
    """Return what a table is to be, which is at `there` now.

    Raises:
        InvalidError: it went on, and not by appends alone.
        LockstepError: see `snapshot_then`.
    """
    wanted = snapshot_then(scope.catalog.lake, restore, table)
    if restore.through is None:
        return wanted
    made = snapshot_then(scope.catalog.lake, replace(restore, version=restore.through), table)
    if (reason := why_not_taken_out(wanted, made, there)) is not None:
        raise InvalidError(
            f"cannot {text}: table {table.name} was written since, and {reason}. Nothing was changed. Revert the later "
            "versions first, newest first, or restore the table to the version before"
        )
    return taken_out(wanted, made, there)


def _operation(restore: TableRestore, text: str, metrics: dict[str, int]) -> Operation:
    if restore.through is None:
        return Operation("RESTORE", text, {"version": str(restore.version)}, metrics)
    through = {"afterVersion": str(restore.version), "throughVersion": str(restore.through)}
    return Operation("REVERT", text, through, metrics)


def _metrics(actions: list[Action], wanted: Snapshot) -> dict[str, int]:
    """Return what Delta's history says of a restore."""
    adds, removes = bodies(actions, "add"), bodies(actions, "remove")
    return {
        "numRestoredFiles": len(adds),
        "restoredFilesSize": _size(adds),
        "numRemovedFiles": len(removes),
        "removedFilesSize": _size(removes),
        "numOfFilesAfterRestore": len(wanted.files),
        "tableSizeAfterRestore": _size(wanted.files.values()),
    }


def _size(files: Iterable[dict[str, Any]]) -> int:
    return sum(file.get("size") or 0 for file in files)


def _changes(tx: Transaction, planned: Iterable[_Planned]) -> list[Change]:
    """Return what a transaction changes of names, and of the tables whose logs are taken back in it."""
    touched = Touched(
        tables={ddl.id: [Counts()] for ddl in tx.names.table_ddl(tx.id)},
        views={ddl.name: 1 for ddl in tx.names.view_ddl()},
        namespaces={ddl.name: 1 for ddl in tx.names.namespace_ddl()},
    )
    versions = {}
    for each in planned:
        touched.tables[each.table.id] = [counts(each.actions)]
        versions[str(each.table.name)] = tx.next_version(each.table.location)
    return [
        replace(change, to_version=versions[change.name])
        if change.kind == "table" and change.change != "dropped" and change.name in versions
        else change
        for change in changes_of(tx.base, tx.names, touched)
    ]
