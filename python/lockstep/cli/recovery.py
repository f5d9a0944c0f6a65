"""The commands about what was: `lockstep tag`, `untag`, `tags`, `dropped`, `undrop`, `restore`, `revert`, `diff`.

And `wait`, for more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import click
from msgspec.structs import astuple

from lockstep.blocks import give_up
from lockstep.cli.arguments import (
    dry_run_option,
    goes_on,
    json_option,
    open_timeline,
    root_argument,
    time_option_value,
    version_of,
    yes_option,
)
from lockstep.cli.printing import print_json, print_table, print_way_to_read, say
from lockstep.display import counted
from lockstep.errors import InvalidError

if TYPE_CHECKING:
    from lockstep.catalog import TransactionalCatalog
    from lockstep.recovery.diff import Change
    from lockstep.recovery.restore import TableRestore
    from lockstep.tables.opened import OpenLake
    from lockstep.tables.restoring import Restored
    from lockstep.tables.transaction import LakeTransaction
    from lockstep.timeline.entry import Name
    from lockstep.timeline.log import Timeline
    from lockstep.transactions.transaction import Transaction

POLL = 0.5
"""Seconds between two looks for a newer version."""

NOTHING_NEW = 3
"""The exit code of `wait` when its time is over."""


def _open(root: str) -> TransactionalCatalog:
    from lockstep.catalog import TransactionalCatalog

    return TransactionalCatalog.open(root, application="lockstep")


@contextmanager
def begun(catalog: TransactionalCatalog, text: str, *, dry_run: bool) -> Iterator[Transaction]:
    """Begin a transaction, and roll it back unless it is committed: what is asked about is what is done."""
    tx = catalog.begin(dry_run=dry_run)
    tx.note_statement(text)
    try:
        yield tx
    except BaseException as error:
        if tx.is_open:
            give_up(partial(catalog.rollback, tx), error)
        raise
    if tx.is_open:
        catalog.rollback(tx)


def name_of(text: str) -> Name:
    """Read a name as `namespace.table`; one without a namespace is in `default`."""
    from lockstep.timeline.entry import Name

    *namespace, table = text.split(".")
    if not all((*namespace, table)):
        raise InvalidError(f"{text!r} is no name: write namespace.table")
    return Name(namespace=tuple(namespace) or ("default",), table=table)


@click.command()
@root_argument
@click.argument("name")
@click.option(
    "--at", "version", type=click.IntRange(min=0), help="The database version; by default the one this makes."
)
@click.option(
    "--at-time", "when", callback=time_option_value, metavar="TIME", help="The newest version of a time (UTC)."
)
@click.option("--days", type=int, help="For how many days it is kept; for ever by default.")
@click.option("--comment", default="", help="What for.")
@click.option(
    "--check/--no-check",
    "check",
    default=None,
    help="Look for the data files first, of which each has to be there. By default, those are left out whose table's "
    "log takes pyarrow to read, where that is not installed; --check is refused there.",
)
@dry_run_option
@json_option
def tag(
    root: str,
    name: str,
    *,
    version: int | None,
    when: datetime | None,
    days: int | None,
    comment: str,
    check: bool | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give a database version a NAME, which keeps what it needs.

    Example: lockstep tag /data/lake eod-2026-03-01 --days 365
    """
    from lockstep.exports.tagged import create_tag
    from lockstep.recovery.tags import new_tag

    if version is not None and when is not None:
        raise click.UsageError("--at and --at-time: give one of them")
    catalog = _open(root)
    said = when if version is None else version
    at = None if said is None else catalog.as_of(said).version
    ddl = new_tag(name, version=at, days=days, comment=comment, now=catalog.lake.clock())
    with begun(catalog, f"lockstep tag {name}", dry_run=dry_run) as tx:
        create_tag(catalog.lake, tx, ddl, check=check)
        made = None if dry_run else catalog.commit(tx).version
    named = made if at is None else at
    if as_json:
        print_json({"tag": name, "database_version": named, "retain_until": ddl.retain_until, "created_by": made})
    else:
        until = f", kept until {ddl.retain_until}" if ddl.retain_until else ""
        which = "the database version that this makes" if named is None else f"database version {named}"
        say(f"tag {name} {'would be' if dry_run else 'is'} {which}{until}")


@click.command()
@root_argument
@click.argument("name")
@dry_run_option
@yes_option
@json_option
def untag(root: str, name: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Take a NAME from its database version, which is kept no more for it.

    Example: lockstep untag /data/lake eod-2026-03-01
    """
    catalog, made = _open(root), None
    with begun(catalog, f"lockstep untag {name}", dry_run=dry_run) as tx:
        tag = tx.names.tag(name)
        tx.changing().drop_tag(name)
        assert tag is not None, "else there was nothing to drop"
        if not as_json and (dry_run or not yes):
            say(f"tag {tag.name} would be dropped: database version {tag.version} is kept no more for it")
        if goes_on("dropped", yes=yes, dry_run=dry_run, as_json=as_json):
            made = catalog.commit(tx).version
    if as_json:
        print_json({"tag": name, "database_version": tag.version, "dropped_by": made})
    elif made is not None:
        say(f"tag {name} is dropped by database version {made}")


@click.command()
@root_argument
@json_option
def tags(root: str, as_json: bool) -> None:
    """List the tags, by the database versions that they name.

    Example: lockstep tags /data/lake
    """
    tags = sorted(open_timeline(root).head.tags.values(), key=lambda tag: (tag.version, tag.name))
    if as_json:
        print_json(tags)
    else:
        rows = [[tag.name, tag.version, tag.created_at, tag.retain_until or "", tag.comment] for tag in tags]
        print_table(["tag", "version", "created at", "kept until", "comment"], rows)


@click.command()
@root_argument
@click.option("-n", "count", type=click.IntRange(min=1), default=100, show_default=True, help="How many at most.")
@json_option
def dropped(root: str, count: int, as_json: bool) -> None:
    """List the tables that were dropped and are not there, the last one first.

    Example: lockstep dropped /data/lake
    """
    from lockstep.recovery.dropped import dropped_tables

    found = list(islice(dropped_tables(open_timeline(root)), count))
    if as_json:
        print_json(found)
    else:
        rows = [[table.name, table.id, table.version, table.dropped_at, table.author] for table in found]
        print_table(["table", "id", "dropped by", "dropped at", "author"], rows)


@click.command()
@root_argument
@click.argument("table")
@click.option("--id", "id_", help="The id of the table that is to come back as TABLE, of those that `dropped` lists.")
@dry_run_option
@json_option
def undrop(root: str, table: str, *, id_: str | None, dry_run: bool, as_json: bool) -> None:
    """Bring back the TABLE of a name that was dropped last, or the one with an id under this name.

    Example: lockstep undrop /data/lake sales.orders
    """
    from lockstep.exports.returning import check_whole
    from lockstep.recovery.changes import undrop as bring_back

    catalog, name = _open(root), name_of(table)
    with begun(catalog, f"lockstep undrop {table}", dry_run=dry_run) as tx:
        back = bring_back(catalog.lake, tx, name, id=id_, dry_run=dry_run, look=partial(check_whole, catalog.lake))
        made = None if dry_run else catalog.commit(tx).version
    if as_json:
        print_json({"table": name, "id": back.id, "table_version": back.version, "database_version": made})
    elif made is None:
        say(f"table {name} would be back at version {back.version}")
    else:
        say(f"table {name} is back at version {back.version}, as of database version {made}")


_RESTORED = ("restored", "to database version")
_REVERTED = ("reverted", "database version")


@click.command()
@root_argument
@click.option("--to-version", type=click.IntRange(min=0), help="A database version.")
@click.option("--to-time", callback=time_option_value, metavar="TIME", help="The newest version of a time (UTC).")
@click.option("--to-tag", metavar="TAG", help="The version that a tag names.")
@click.option("--namespace", "namespaces", multiple=True, help="Only this namespace, and all in it; may be repeated.")
@click.option("--table", "tables", multiple=True, help="Only this table or view; may be repeated.")
@dry_run_option
@yes_option
@json_option
def restore(
    root: str,
    *,
    to_version: int | None,
    to_time: datetime | None,
    to_tag: str | None,
    namespaces: tuple[str, ...],
    tables: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Take tables, views and namespaces back to an older database version, as one transaction that rolls forward.

    Example: lockstep restore /data/lake --to-tag eod-2026-03-01 --table sales.orders --dry-run
    """
    said = [each for each in (to_version, to_time, to_tag) if each is not None]
    if len(said) != 1:
        raise click.UsageError("--to-version, --to-time and --to-tag: give one of them")
    lake, spaces, names = _open_tables(root), list(namespaces) or None, list(tables) or None
    if dry_run:
        planned = lake.restore(said[0], namespaces=spaces, tables=names, dry_run=True)
        _print_restored(planned, *_RESTORED, as_json=as_json)
    else:
        _take_back(
            lake,
            lambda tx: tx.restore(said[0], namespaces=spaces, tables=names),
            *_RESTORED,
            yes=yes,
            as_json=as_json,
        )


@click.command()
@root_argument
@click.argument("version", type=click.IntRange(min=0))
@dry_run_option
@yes_option
@json_option
def revert(root: str, version: int, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Take back what the database VERSION changed, unless a later one depends on it; what it appended stays.

    Example: lockstep revert /data/lake 42 --dry-run
    """
    lake = _open_tables(root)
    if dry_run:
        _print_restored(lake.revert(version, dry_run=True), *_REVERTED, as_json=as_json)
    else:
        _take_back(lake, lambda tx: tx.revert(version), *_REVERTED, yes=yes, as_json=as_json)


def _open_tables(root: str) -> OpenLake:
    """Open a lake whose tables are written here."""
    from lockstep.tables.opened import OpenLake

    return OpenLake(_open(root), {})


def _take_back(
    lake: OpenLake, work: Callable[[LakeTransaction], Restored], verb: str, what: str, *, yes: bool, as_json: bool
) -> None:
    """Do a restore or a revert in a transaction, say what that comes to, ask, and commit it.

    What is committed is what was asked about: what others do while a person thinks is judged as beside any transaction.

    Args:
        verb, what: how it is said, as "restored" and "to database version".
    """
    with lake.transaction() as tx:
        done = work(tx)
        if not (yes or as_json):
            _print_restored(done, verb, what, as_json=False)
        if not goes_on(verb, yes=yes, dry_run=False, as_json=as_json):
            tx.rollback()
            return
    _print_restored(replace(done, database_version=tx.made), verb, what, as_json=as_json, rows=yes, is_done=True)


def _print_restored(
    done: Restored, verb: str, what: str, *, as_json: bool, rows: bool = True, is_done: bool = False
) -> None:
    if as_json:
        print_json(
            {
                f"{verb}_version": done.version,
                "tables_restored": len(done.tables),
                "tables": [_restored_table(each) for each in done.tables],
                "changes": done.changes,
                "database_version": done.database_version,
            }
        )
        return
    if rows and done.changes:
        _print_changes(done.changes)
    told = f"{verb} {what} {done.version}, {counted(len(done.tables), 'table')} by their logs"
    if not is_done:
        say(f"to be {told}")
    elif done.database_version is None:
        say(f"already {verb} {what} {done.version}: nothing was changed, and no database version was made")
    else:
        say(f"{told}, as of database version {done.database_version}")


def _restored_table(each: TableRestore) -> dict[str, object]:
    """Say of a table to which version of its log it went, or, if it keeps what came later, which it loses."""
    if each.through is None:
        return {"table": str(each.name), "to_version": each.version}
    return {"table": str(each.name), "to_version": None, "without_versions": [each.version + 1, each.through]}


@click.command()
@root_argument
@click.argument("older")
@click.argument("newer", required=False)
@json_option
def diff(root: str, older: str, newer: str | None, as_json: bool) -> None:
    """Say what changed from OLDER to NEWER, which is the newest if it is not said: numbers, tags or times (UTC).

    Example: lockstep diff /data/lake eod-2026-03-01
    """
    from lockstep.recovery.diff import diff as changes_between

    timeline = open_timeline(root)
    last = timeline.head.version if newer is None else version_of(timeline, newer)
    changes = changes_between(timeline, version_of(timeline, older), last)
    if as_json:
        print_json(changes)
        return
    _print_changes(changes)
    there = (name_of(change.name) for change in changes if change.kind == "table" and change.change != "dropped")
    print_way_to_read(root, last, next(there, None))


def _print_changes(changes: Iterable[Change]) -> None:
    rows = [
        [
            *(change.kind, change.name, change.change, change.old_name or ""),
            *("" if each is None else each for each in (change.from_version, change.to_version)),
            *("?" if each < 0 else each for each in astuple(change.counts)),
        ]
        for change in changes
    ]
    columns = ["kind", "name", "change", "was", "from", "to", "files +", "files -", "rows +", "rows -"]
    print_table(columns, rows)


def _a_number(_: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """Refuse `nan`, which is in every range and never over."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number of seconds", param=option)
    return value


@click.command()
@root_argument
@click.option("--after", type=click.IntRange(min=0), help="Wait for a later version than this; the newest by default.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    callback=_a_number,
    help="For how many seconds at most; for ever by default.",
)
@json_option
def wait(root: str, *, after: int | None, timeout: float | None, as_json: bool) -> None:
    """Wait until there is a newer database version; exit with 3 if there is none in time.

    Example: lockstep wait /data/lake --after 41 --timeout 3600
    """
    timeline = open_timeline(root)
    known = timeline.head.version if after is None else after
    is_there = _waited(lambda: _newest_of(timeline) > known, timeout)
    newest, newer = timeline.head.version, max(0, timeline.head.version - known)
    if as_json:
        print_json({"database_version": newest, "newer": newer})
    else:
        say(f"database version {newest}: {counted(newer, 'version')} after {known}")
    if not is_there:
        click.get_current_context().exit(NOTHING_NEW)


def _newest_of(timeline: Timeline) -> int:
    """Return the newest database version that there is now."""
    timeline.refresh()
    return timeline.head.version


def _waited(is_done: Callable[[], bool], timeout: float | None) -> bool:
    """Look again and again until something is done; tell whether it was in time, by one look at least."""
    end = None if timeout is None else time.monotonic() + timeout
    while not is_done():
        left = POLL if end is None else end - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(POLL, left))
    return True
