"""The commands about tables that others made, or write: `lockstep adopt`, `release` and `settle`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from msgspec.structs import astuple

from lockstep.cli.arguments import goes_on, json_option, root_argument, yes_option
from lockstep.cli.printing import print_json, print_table, say
from lockstep.cli.recovery import begun, name_of
from lockstep.display import counted

if TYPE_CHECKING:
    from lockstep.adoption.adopt import Found
    from lockstep.recovery.choices import Choice
    from lockstep.transactions.transaction import Transaction


@click.command()
@root_argument
@click.argument("where")
@click.option(
    "--table", help="What the table at WHERE is to be called; without it, all tables below WHERE are adopted."
)
@click.option("--namespace", help="What the names of the tables below WHERE begin with.")
@click.option("--dry-run", is_flag=True, help="Say which tables would be adopted, and why others cannot be.")
@yes_option
@json_option
def adopt(
    root: str, where: str, *, table: str | None, namespace: str | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Take in the Delta table at WHERE, or all those below it, where they are: nothing is copied or rewritten.

    Example: lockstep adopt /data/lake /data/warehouse/sales.db --namespace sales --dry-run
    """
    from lockstep.adoption.adopt import Wanted, look, look_at_claims, look_at_names, refuse_unadoptable
    from lockstep.adoption.adopt import adopt as take_in
    from lockstep.adoption.finding import tables_below
    from lockstep.catalog import TransactionalCatalog
    from lockstep.errors import DuplicateError
    from lockstep.storage import url_of
    from lockstep.system.namespace import refuse_reserved

    if table is not None and namespace is not None:
        raise click.UsageError("--table and --namespace: give one of them")
    catalog = TransactionalCatalog.open(root, application="lockstep")
    lake = catalog.lake
    spaces = None if namespace is None else tuple(namespace.split("."))
    wanted = tables_below(lake.storage, where, spaces) if table is None else [Wanted(name_of(table), url_of(where))]
    with begun(catalog, f"lockstep adopt {where}", dry_run=dry_run) as tx:
        found = look(lake, tx.names, wanted)
        if not yes:  # else it is looked at while they are claimed
            found = look_at_claims(lake, found)
        for each in found:
            refuse_reserved(each.name.namespace, tx.names.namespaces)
        named = look_at_names(found, tx.names)
        if dry_run:
            _print(named, None, as_json=as_json)
            sys.exit(any(each.reason is not None for each in named))
        refuse_unadoptable(found)
        if (taken := next((each for each in named if each.reason is not None), None)) is not None:
            raise DuplicateError(f"cannot adopt {taken.location}: {taken.reason}. Nothing was changed")
        if not yes and not as_json:
            _print(found, None, as_json=False)
        if goes_on("adopted", yes=yes, dry_run=False, as_json=as_json):
            take_in(lake, tx, found, make_namespaces=True)
            _print(found, catalog.commit(tx).version, as_json=as_json)


@click.command()
@root_argument
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Say which tables would be given back, or why one cannot be.")
@yes_option
@json_option
def release(root: str, tables: tuple[str, ...], *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Give each TABLE back as it is, where it is: it is no table of the lake any more.

    Example: lockstep release /data/lake sales.orders
    """
    from lockstep.adoption.adopt import Found
    from lockstep.adoption.release import release as let_go
    from lockstep.catalog import TransactionalCatalog
    from lockstep.errors import InvalidError
    from lockstep.timeline.entry import Table

    catalog, names = TransactionalCatalog.open(root, application="lockstep"), [name_of(table) for table in tables]
    text, asked_about = f"lockstep release {' '.join(tables)}", list[str]()

    def given(gone: list[Table]) -> list[Found]:
        return [Found(each.name, each.location, each.version) for each in gone]

    if not yes or dry_run:  # else it is looked at while they are given back
        with begun(catalog, text, dry_run=True) as tx:
            looked_at = let_go(catalog.lake, tx, names)
        found, asked_about = given(looked_at), [each.id for each in looked_at]
        if dry_run and as_json:
            _print(found, None, as_json=True)
        elif not as_json:
            _print(found, None, as_json=False)
            say(f"{', '.join(map(str, names))} will be read and written without Lockstep")
    if not goes_on("released", yes=yes, dry_run=dry_run, as_json=as_json):
        return
    gone: list[Table] = []

    def give_back(tx: Transaction) -> None:
        gone[:] = let_go(catalog.lake, tx, names)
        other = next((each for each, id_ in zip(gone, asked_about, strict=False) if each.id != id_), None)
        if other is not None:
            raise InvalidError(
                f"{other.name} is another table by now, at {other.location}: nothing was released. Run the same again"
            )

    made = catalog.run(give_back, text).version
    _print(given(gone), made, as_json=as_json)


@click.command()
@root_argument
@click.argument("table")
@click.option("--ours", is_flag=True, help="Keep what the timeline has.")
@click.option("--theirs", is_flag=True, help="Keep what a plain Delta writer wrote.")
@click.option("--both", is_flag=True, help="Keep both, where they do not conflict.")
@click.option("--dry-run", is_flag=True, help="Say what each choice, or the one that is given, takes from readers.")
@yes_option
@json_option
def settle(
    root: str, table: str, *, ours: bool, theirs: bool, both: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Settle a TABLE whose log and timeline say different things (40002): no file is moved, or deleted but checksums.

    Example: lockstep settle /data/lake sales.orders --theirs --dry-run
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.recovery.choices import choices
    from lockstep.recovery.divergence import divergence
    from lockstep.recovery.settle import Side
    from lockstep.recovery.settle import settle as decide

    if ours + theirs + both > 1:
        raise click.UsageError("--ours, --theirs and --both: give one of them")
    keep: Side | None = "ours" if ours else "theirs" if theirs else "both" if both else None
    if keep is None and not dry_run:
        raise click.UsageError("give --ours, --theirs or --both, or --dry-run to look what each means")
    catalog = TransactionalCatalog.open(root, application="lockstep")
    found = divergence(catalog.lake, name_of(table))
    offered = choices(catalog.lake, found, keep)
    made = None
    if not as_json:
        say(found.why.message)
        _print_choices(offered)
    if keep is not None and goes_on("settled", yes=yes, dry_run=dry_run, as_json=as_json):
        text = f"lockstep settle {table} --{keep}"
        made = decide(catalog.lake, found, keep, lambda change: catalog.run(change, text).version)
    if as_json:
        print_json({"table": found.table, "why": found.why.message, "choices": offered, "database_version": made})
    elif made is not None:
        say(f"settled, as of database version {made}")
    elif not dry_run:
        sys.exit(1)


def _print_choices(offered: list[Choice]) -> None:
    rows = [
        [
            *(each.keep, ", ".join(map(str, each.lost_versions))),
            *("" if count < 0 else count for count in astuple(each.counts)),
            each.refused or "",
        ]
        for each in offered
    ]
    headers = ["keep", "lost versions", "files added", "files removed", "rows added", "rows removed", "refused"]
    print_table(headers, rows)


def _print(tables: list[Found], made: int | None, *, as_json: bool) -> None:
    if as_json:
        shown = [
            {"name": each.name, "location": each.location, "version": each.version, "reason": each.reason}
            for each in tables
        ]
        print_json({"tables": shown, "database_version": made})
        return
    rows = [[each.name, each.version if each.version >= 0 else "", each.location, each.reason or ""] for each in tables]
    print_table(["table", "version", "location", "refused"], rows)
    if made is not None:
        say(f"{counted(len(tables), 'table')}, as of database version {made}")
