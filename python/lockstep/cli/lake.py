"""The commands about a lake as a whole: `lockstep init`, `tables`, `views` and `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lockstep._version import __version__
from lockstep.cli.arguments import at_option, json_option, open_timeline, root_argument
from lockstep.cli.printing import print_json, print_table, print_way_to_read
from lockstep.display import TABLE_COLUMNS, counted, table_row
from lockstep.errors import InvalidError

if TYPE_CHECKING:
    from lockstep.timeline.database import Database
    from lockstep.timeline.log import Timeline


@click.command()
@root_argument
@click.option(
    "--arbiter",
    metavar="URL",
    help="Who decides its versions, where the store cannot: valkey://… or dynamodb://…; else LOCKSTEP_ARBITER, if set.",
)
@json_option
def init(root: str, arbiter: str | None, as_json: bool) -> None:
    """Make an empty lake at ROOT; one that is there already stays as it is.

    Example: lockstep init /data/lake
    """
    timeline = _timeline_or_none(root)
    is_new = timeline is None
    if timeline is None:
        timeline = _make(root, arbiter)
    url = timeline.storage.url
    if as_json:
        print_json({"root": url, "database_version": timeline.head.version, "created": is_new})
    else:
        what = "made an empty lake" if is_new else "there is a lake already"
        click.echo(f"{url}: {what}, at database version {timeline.head.version}")


def _timeline_or_none(root: str) -> Timeline | None:
    from lockstep.storage import url_of
    from lockstep.storage.locations import registered

    registered(url_of(root), None)  # what is wrong with its locations says nothing of whether there is a lake
    try:
        return open_timeline(root)
    except InvalidError:
        return None


def _make(root: str, arbiter: str | None) -> Timeline:
    from lockstep.arbiters import arbiter_of
    from lockstep.lake.roots import refuse_unless_free
    from lockstep.storage import open_storage, url_of
    from lockstep.storage.urls import comparable
    from lockstep.timeline.log import Timeline

    refuse_unless_free(url_of(root))  # before the folder is made
    decides = arbiter_of(arbiter, comparable(url_of(root)))
    return Timeline.create(open_storage(root, create=True), application=f"Lockstep {__version__}", arbiter=decides)


@click.command()
@root_argument
@at_option
@json_option
def tables(root: str, version: int | None, as_json: bool) -> None:
    """List the tables of a database version.

    Example: lockstep tables /data/lake --at 42
    """
    database = _database(root, version)
    tables = sorted(database.tables.values(), key=lambda table: table.name)
    if as_json:
        print_json(tables)
    else:
        print_table(TABLE_COLUMNS, map(table_row, tables))
        print_way_to_read(root, database.version, tables[0].name if tables else None)


@click.command()
@root_argument
@at_option
@json_option
def views(root: str, version: int | None, as_json: bool) -> None:
    """List the views of a database version, and its functions: a function f as f().

    Example: lockstep views /data/lake --at 42
    """
    views = sorted(_database(root, version).views.values(), key=lambda view: view.name)
    if as_json:
        print_json(views)
    else:
        rows = [[view.name, view.since, view.definition.text] for view in views]
        print_table(["view", "changed in", "definition"], rows)


def _database(root: str, version: int | None) -> Database:
    timeline = open_timeline(root)
    return timeline.head if version is None else timeline.at(version)


@click.command()
@root_argument
@click.option(
    "--deep", is_flag=True, help="Look for every file, too, that the newest version, tags, exports and all others need."
)
@json_option
@click.pass_context
def verify(ctx: click.Context, root: str, deep: bool, as_json: bool) -> None:
    """Compare every table's published versions with what was ratified; exit with 1 if they differ.

    Example: lockstep verify /data/lake --deep
    """
    from lockstep.exports.deep import verify_deep
    from lockstep.lake.verify import verify as look

    timeline = open_timeline(root)
    report = look(timeline.storage, timeline)
    if deep:
        report = report.with_more(verify_deep(timeline.storage, timeline))
    if as_json:
        print_json(report)
    else:
        rows = [
            [d.problem, d.table, d.table_version, d.database_version, d.path, d.needed_by] for d in report.differences
        ]
        if rows:
            print_table(["problem", "table", "version", "ratified in", "file", "needed by"], rows)
        for problem, prevented_by in sorted({(d.problem, d.prevented_by) for d in report.differences}):
            if prevented_by:
                click.echo(f"{problem}: plain Delta writers let such files be for as long as {prevented_by} says")
        wrong = [[w.database_version, w.path, w.why] for w in report.wrong_checkpoints]
        if wrong:
            print_table(["checkpoint of", "file", "what is wrong"], wrong)
        expired = f", {report.expired} of them no more in a log" if report.expired else ""
        checkpoints = f"{counted(report.checkpoints, 'checkpoint')}, " if report.checkpoints else ""
        click.echo(
            f"database version {report.database_version}: {counted(report.tables, 'table')}, "
            f"{counted(report.versions, 'table version')}{expired}, {checkpoints}"
            f"{counted(len(rows) + len(wrong), 'difference')}"
        )
    ctx.exit(1 if report.differences or report.wrong_checkpoints else 0)
