"""The command line: look at a lake without Spark, and print what Spark needs.

    lockstep init | log | show | tables | views | verify
                                                    a lake: a path or s3:// URL, credentials from AWS_* variables
    lockstep conf | jars                            settings and jars for spark-defaults.conf and spark-submit

Every command has `--json`. Exit codes: 0, 1 for a refusal or a difference found (the message and its SQLSTATE are on
standard error), 2 for a wrong command line. Only `init` writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lockstep._version import __version__
from lockstep.errors import InvalidError, LockstepError

if TYPE_CHECKING:
    from lockstep.model import Commit, Database, Entry, TableDdl
    from lockstep.storage import Storage
    from lockstep.timeline import Timeline

PIPE_WIDTH = 1000
"""Characters a line may have when nobody looks at it: a table in a pipe must not be cut to 80."""


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
    """Look at Lockstep lakes: multi-table ACID transactions over plain Delta tables."""


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
    from lockstep.timeline import Timeline

    storage = open_storage(root, create=True)
    is_new = _timeline_or_none(storage) is None
    timeline = Timeline.create(storage, application=f"Lockstep {__version__}")
    if as_json:
        _print_json({"root": storage.url, "database_version": timeline.head.version, "created": is_new})
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
        _print_json([_summary(entry) for entry in entries])
        return
    rows = []
    for entry in entries:
        said = _summary(entry)
        text = entry.transaction.message or "; ".join(entry.transaction.statements)
        counts = [_signed(said["rows_added"], "+"), _signed(said["rows_removed"], "-")]
        rows.append([entry.version, _time(entry), entry.kind, entry.transaction.author, _names(said), *counts, text])
    _print_table(["version", "committed at", "kind", "author", "tables", "rows +", "rows -", "what"], rows)


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
        _print_json(entry)
        return
    said = entry.transaction
    facts: dict[str, object] = {
        "version": entry.version,
        "kind": entry.kind,
        "committed at": _time(entry),
        "transaction": said.id,
        "began at": said.began_at.isoformat(timespec="milliseconds"),
        "base version": said.base_version,
        "isolation": said.isolation,
        "author": said.author,
        "application": said.application,
        "message": said.message,
        "batch": "" if entry.batch is None else entry.batch,
    }
    _print_table(["", ""], [[key, value] for key, value in facts.items() if value != ""], header=False)
    _section("statements", [], [[text] for text in said.statements])
    namespaces = [[ddl.action, ".".join(ddl.name), _properties(ddl.properties)] for ddl in entry.namespaces]
    _section("namespaces", ["action", "namespace", "properties"], namespaces)
    _section("tables", ["action", "table", "detail", "id"], [_ddl(ddl) for ddl in entry.tables])
    views = [[ddl.action, ddl.name, "" if ddl.definition is None else ddl.definition.text] for ddl in entry.views]
    _section("views", ["action", "view", "definition"], views)
    writes = [
        [
            *(write.name, f"{write.from_version} → {write.to_version}"),
            *(write.counts.files_added, write.counts.files_removed),
            *(_signed(write.counts.rows_added, "+"), _signed(write.counts.rows_removed, "-")),
            *(", ".join(map(_where, write.commits)) or "published before", write.location),
        ]
        for write in entry.writes
    ]
    _section("writes", ["table", "version", "files +", "files -", "rows +", "rows -", "commits", "location"], writes)
    _section("reads", ["table", "version"], [[read.name, read.version] for read in entry.reads])
    _section("views used", [], [[name] for name in entry.view_reads])
    moved = [[move.id, move.entry, move.to_version] for move in entry.moved]
    _section("moved", ["table id", "committed by", "is now version"], moved)


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
        _print_json(found)
    else:
        rows = [[table.name, table.version, table.since, table.location] for table in found]
        _print_table(["table", "version", "changed in", "location"], rows)


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
        _print_json(found)
    else:
        rows = [[view.name, view.since, view.definition.text] for view in found]
        _print_table(["view", "changed in", "definition"], rows)


@main.command()
@_root
@_as_json
@click.pass_context
def verify(ctx: click.Context, root: str, as_json: bool) -> None:
    """Compare every table's published versions with what was ratified; exit with 1 if they differ.

    Example: lockstep verify /data/lake
    """
    from lockstep.verify import verify as look

    timeline = _open(root)
    report = look(timeline.storage, timeline)
    if as_json:
        _print_json(report)
    else:
        rows = [[d.problem, d.table, d.table_version, d.database_version, d.path] for d in report.differences]
        if rows:
            _print_table(["problem", "table", "version", "ratified in", "file"], rows)
        expired = f", {report.expired} of them expired" if report.expired else ""
        click.echo(
            f"database version {report.database_version}: {_count(report.tables, 'table')}, "
            f"{_count(report.versions, 'table version')}{expired}, {_count(len(rows), 'difference')}"
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
    absolute = root if "://" in root or root.startswith("file:") else str(Path(root).absolute())
    found = settings(root=absolute, catalog=catalog)
    if as_json:
        _print_json(found)
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
        _print_json(found)
    else:
        click.echo(",".join(found))


# --- the library's values as rows -------------------------------------------------------------------------------------


def _open(root: str) -> Timeline:
    from lockstep.storage import open_storage
    from lockstep.timeline import Timeline

    return Timeline.open(open_storage(root))


def _database(root: str, version: int | None) -> Database:
    timeline = _open(root)
    return timeline.head if version is None else timeline.at(version)


def _timeline_or_none(storage: Storage) -> Timeline | None:
    from lockstep.timeline import Timeline

    try:
        return Timeline.open(storage)
    except InvalidError:
        return None


def _summary(entry: Entry) -> dict[str, Any]:
    """Return what `log` says of an entry; rows are None where a file does not tell how many it has."""
    counts = {"rows_added": [w.counts.rows_added for w in entry.writes]}
    counts["rows_removed"] = [w.counts.rows_removed for w in entry.writes]
    unknown = entry.kind == "external"  # its commits are not read, so nothing was counted
    return {
        "version": entry.version,
        "committed_at": entry.committed_at,
        "kind": entry.kind,
        "transaction": entry.transaction.id,
        "author": entry.transaction.author,
        "isolation": entry.transaction.isolation,
        "message": entry.transaction.message,
        "batch": entry.batch,
        "statements": entry.transaction.statements,
        "tables": sorted({str(w.name) for w in entry.writes} | {str(d.new_name or d.name) for d in entry.tables}),
        "views": sorted({str(ddl.name) for ddl in entry.views}),
        "namespaces": [".".join(ddl.name) for ddl in entry.namespaces],
        **{key: None if unknown or -1 in values else sum(values) for key, values in counts.items()},
    }


def _names(summary: dict[str, Any]) -> str:
    kinds = {"views": "view", "namespaces": "namespace"}
    others = [f"{name} ({kind})" for key, kind in kinds.items() for name in summary[key]]
    return ", ".join([*summary["tables"], *others])


def _time(entry: Entry) -> str:
    return entry.committed_at.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def _signed(count: int | None, sign: str) -> str:
    if count is None or count < 0:
        return "?"
    return f"{sign}{count}" if count else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(properties.items()))


def _ddl(ddl: TableDdl) -> list[object]:
    detail = f"to {ddl.new_name}" if ddl.new_name is not None else f"at {ddl.location}" if ddl.location else ""
    return [ddl.action, ddl.name, detail, ddl.id]


def _where(commit: Commit) -> str:
    return commit.staged or f"inline, {_count(len(commit.inline or []), 'action')}"


# --- printing ---------------------------------------------------------------------------------------------------------


def _print_json(value: object) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def _section(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a titled table, and nothing at all if it has no rows."""
    if rows:
        click.echo(f"\n{title}")
        _print_table(columns or [""], rows, header=bool(columns))


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, header: bool = True) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=header, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_printable(str(value)) for value in row))
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    # Without markup: brackets in a statement are no styles.
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def _printable(text: str) -> str:
    """Return a text that does to a terminal nothing but stand there."""
    return "".join(
        char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}" for char in text
    )
