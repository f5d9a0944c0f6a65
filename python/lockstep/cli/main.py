"""The command line: look at a lake without Spark, print what Spark needs, run scripts on it.

    lockstep init | log | show | tables | views | verify
                                                    a lake: a path or s3:// URL, credentials from AWS_* variables
    lockstep conf | jars                            settings and jars for spark-defaults.conf and spark-submit
    lockstep run | plan                             a script (lockstep.cli.scripts)

Every command has `--json`. Exit codes: 0, 1 for a refusal or a difference found (the message and its SQLSTATE are on
standard error), 2 for a wrong command line. Only `init` and `run` write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lockstep._version import __version__
from lockstep.cli.printing import print_json, print_section, print_table
from lockstep.cli.scripts import absolute, plan, run
from lockstep.display import LOG_COLUMNS, counted, log_row, sections, summary
from lockstep.errors import InvalidError, LockstepError

if TYPE_CHECKING:
    from lockstep.storage import Storage
    from lockstep.timeline.entry import Database
    from lockstep.timeline.log import Timeline


class _Commands(click.Group):
    """Commands whose errors are Lockstep's: a message, a SQLSTATE and exit code 1, never a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LockstepError as error:
            click.echo(f"lockstep: {error}", err=True)
            ctx.exit(1)


@click.group(cls=_Commands)
@click.version_option(__version__, prog_name="lockstep")
def main() -> None:
    """Look at Lockstep lakes, multi-table ACID transactions over plain Delta tables, and run scripts on them."""


main.add_command(run)
main.add_command(plan)

_root = click.argument("root")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
_at = click.option("--at", "version", type=click.IntRange(min=0), help="The database version; the newest by default.")


@main.command()
@_root
@_as_json
def init(root: str, as_json: bool) -> None:
    """Make an empty lake at ROOT; one that is there already stays as it is.

    Example: lockstep init /data/lake
    """
    from lockstep.storage import open_storage
    from lockstep.timeline.log import Timeline

    storage = open_storage(root, create=True)
    is_new = _timeline_or_none(storage) is None
    timeline = Timeline.create(storage, application=f"Lockstep {__version__}")
    if as_json:
        print_json({"root": storage.url, "database_version": timeline.head.version, "created": is_new})
    else:
        what = "made an empty lake" if is_new else "there is a lake already"
        click.echo(f"{storage.url}: {what}, at database version {timeline.head.version}")


@main.command()
@_root
@click.option("-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@_as_json
def log(root: str, count: int, as_json: bool) -> None:
    """List the newest database versions, newest first.

    Example: lockstep log /data/lake -n 5
    """
    timeline = _open(root)
    head = timeline.head.version
    entries = timeline.entries(max(head - count, -1))[::-1]
    if as_json:
        print_json([summary(entry) for entry in entries])
        return
    print_table(LOG_COLUMNS, map(log_row, entries))


@main.command()
@_root
@click.argument("version", type=click.IntRange(min=0))
@_as_json
def show(root: str, version: int, as_json: bool) -> None:
    """Show one database version's entry in full.

    Example: lockstep show /data/lake 42
    """
    timeline = _open(root)
    database = timeline.at(version)
    [entry] = timeline.entries(database.version - 1, database.version)
    if as_json:
        print_json(entry)
        return
    for section in sections(entry):
        print_section(section.title, section.columns, section.rows)


@main.command()
@_root
@_at
@_as_json
def tables(root: str, version: int | None, as_json: bool) -> None:
    """List the tables of a database version.

    Example: lockstep tables /data/lake --at 42
    """
    found = sorted(_database(root, version).tables.values(), key=lambda table: table.name)
    if as_json:
        print_json(found)
    else:
        rows = [[table.name, table.version, table.since, table.location] for table in found]
        print_table(["table", "version", "changed in", "location"], rows)


@main.command()
@_root
@_at
@_as_json
def views(root: str, version: int | None, as_json: bool) -> None:
    """List the views of a database version.

    Example: lockstep views /data/lake --at 42
    """
    found = sorted(_database(root, version).views.values(), key=lambda view: view.name)
    if as_json:
        print_json(found)
    else:
        rows = [[view.name, view.since, view.definition.text] for view in found]
        print_table(["view", "changed in", "definition"], rows)


@main.command()
@_root
@_as_json
@click.pass_context
def verify(ctx: click.Context, root: str, as_json: bool) -> None:
    """Compare every table's published versions with what was ratified; exit with 1 if they differ.

    Example: lockstep verify /data/lake
    """
    from lockstep.lake.verify import verify as look

    timeline = _open(root)
    report = look(timeline.storage, timeline)
    if as_json:
        print_json(report)
    else:
        rows = [[d.problem, d.table, d.table_version, d.database_version, d.path] for d in report.differences]
        if rows:
            print_table(["problem", "table", "version", "ratified in", "file"], rows)
        expired = f", {report.expired} of them expired" if report.expired else ""
        click.echo(
            f"database version {report.database_version}: {counted(report.tables, 'table')}, "
            f"{counted(report.versions, 'table version')}{expired}, {counted(len(rows), 'difference')}"
        )
    ctx.exit(1 if report.differences else 0)


@main.command()
@_root
@click.option("--catalog", default="lake", show_default=True, help="What SQL calls the lake.")
@_as_json
def conf(root: str, catalog: str, as_json: bool) -> None:
    """Print the settings of a Spark session for a spark-defaults.conf.

    Example: lockstep conf /data/lake --catalog lake >> $SPARK_HOME/conf/spark-defaults.conf
    """
    from lockstep.spark.session import conf as settings

    # Where Spark starts is not where this runs.
    found = settings(root=absolute(root), catalog=catalog)
    if as_json:
        print_json(found)
    else:
        click.echo("\n".join(f"{key} {value}" for key, value in found.items()))


@main.command()
@_as_json
def jars(as_json: bool) -> None:
    """Print the jars of a Spark session, for spark-submit --jars.

    Example: spark-submit --jars "$(lockstep jars)" job.py
    """
    from lockstep.spark.jars import session_jars

    found = [str(path) for path in session_jars()]
    if as_json:
        print_json(found)
    else:
        click.echo(",".join(found))


# --- lakes ------------------------------------------------------------------------------------------------------------


def _open(root: str) -> Timeline:
    from lockstep.storage import open_storage
    from lockstep.timeline.log import Timeline

    return Timeline.open(open_storage(root))


def _database(root: str, version: int | None) -> Database:
    timeline = _open(root)
    return timeline.head if version is None else timeline.at(version)


def _timeline_or_none(storage: Storage) -> Timeline | None:
    from lockstep.timeline.log import Timeline

    try:
        return Timeline.open(storage)
    except InvalidError:
        return None
