"""The commands about copies of a lake: `lockstep export`, `clone`, `promote`, `import`, `exports` and `drop-export`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from lockstep.cli.arguments import (
    any_version_option,
    dry_run_option,
    goes_on,
    json_option,
    open_timeline,
    root_argument,
    version_of,
    yes_option,
)
from lockstep.cli.printing import print_json, print_table, say
from lockstep.display import counted

if TYPE_CHECKING:
    from lockstep.exports.export import Exported, Progress
    from lockstep.exports.promoted import Promoted
    from lockstep.timeline.entry import ExportMode

_dry_run = click.option("--dry-run", is_flag=True, help="Say what would be written, and whether all files are there.")


@click.command()
@root_argument
@click.argument("to")
@click.option(
    "--mode",
    type=click.Choice(["full", "partial", "minimal"]),
    default="full",
    show_default=True,
    help="Copy all; or the tables' logs, which name the data where it is; or what the database is, as one file.",
)
@any_version_option
@_dry_run
@json_option
def export(root: str, to: str, *, mode: ExportMode, when: str | None, dry_run: bool, as_json: bool) -> None:
    """Make a lake of its own at TO, or a file, of a database version; the same again goes on after an interruption.

    Example: lockstep export /data/lake /backup/lake --at eod-2026-03-01
    """
    _export(root, to, mode, when, f"lockstep export --mode {mode}", dry_run=dry_run, as_json=as_json)


@click.command()
@root_argument
@click.argument("to")
@any_version_option
@_dry_run
@json_option
def clone(root: str, to: str, *, when: str | None, dry_run: bool, as_json: bool) -> None:
    """Make a lake at TO whose tables have the data of this one and go on by themselves: a partial export.

    Example: lockstep clone /data/lake /scratch/lake
    """
    _export(root, to, "partial", when, "lockstep clone", dry_run=dry_run, as_json=as_json)


@click.command()
@root_argument
@click.option("--dry-run", is_flag=True, help="Say what would be done, and whether it can be.")
@yes_option
@json_option
def promote(root: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Publish what was changed in the clone at ROOT to the lake that it was made of, as one transaction there.

    Example: lockstep promote /scratch/lake --dry-run
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.exports.promote import Promoter, record_of
    from lockstep.storage.outside import settings_beside

    clone = TransactionalCatalog.open(root, application="lockstep")
    storage = clone.lake.storage
    source = record_of(storage).source
    options, locations = settings_beside(storage, source, None, "the lake that it was made of, ")
    origin = TransactionalCatalog.open(source, options=options, locations=locations, application="lockstep")

    shown: int | None = None

    def work(progress: Progress, *, dry_run: bool) -> Promoted:
        promoter = Promoter(*(clone.lake, origin.lake), author=origin.author, application="lockstep", progress=progress)
        promoter.statement, promoter.asked_about = "lockstep promote", shown
        return promoter.run(dry_run=dry_run)

    if dry_run or not yes:
        with _progress() as progress:
            planned = work(progress, dry_run=True)
        shown = planned.clone_version
        if dry_run or not as_json:
            _print_promoted(planned, as_json=as_json)
    if goes_on("promoted", yes=yes, dry_run=dry_run, as_json=as_json):
        with _progress() as progress:
            done = work(progress, dry_run=False)
        _print_promoted(done, as_json=as_json)


@click.command("import")
@root_argument
@click.argument("file")
@click.argument("to")
@click.option(
    "--mode", type=click.Choice(["partial", "full"]), default="partial", show_default=True, help="As in export."
)
@_dry_run
@json_option
def import_(root: str, file: str, to: str, *, mode: ExportMode, dry_run: bool, as_json: bool) -> None:
    """Make a lake at TO of a minimal export: the FILE, and the lake at ROOT that it was made of.

    Example: lockstep import /data/lake /backup/eod.json /scratch/eod
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.exports.export import Asked, Exporter
    from lockstep.exports.importing import import_minimal

    catalog = TransactionalCatalog.open(root, application="lockstep")
    asked = Asked(to=to, mode=mode, author=catalog.author, statement="lockstep import", dry_run=dry_run)
    with _progress() as progress:
        done = import_minimal(Exporter(catalog.lake, progress=progress), file, asked)
    _print(done, as_json=as_json)


@click.command()
@root_argument
@json_option
def exports(root: str, as_json: bool) -> None:
    """List the exports that need files of this lake, the oldest first.

    Example: lockstep exports /data/lake
    """
    from lockstep.lake.exports import read_exports

    found = read_exports(open_timeline(root).storage)
    if as_json:
        print_json(found)
    else:
        rows = [
            [each.id, each.mode, each.database_version, each.created_at, each.author, each.target] for each in found
        ]
        print_table(["export", "mode", "version", "created at", "author", "target"], rows)


@click.command("drop-export")
@root_argument
@click.argument("id_", metavar="ID")
@dry_run_option
@yes_option
@json_option
def drop_export(root: str, id_: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget the export ID: files that it needs are kept no more for it. What it wrote stays.

    Example: lockstep drop-export /data/lake 0d3f6c2a9b1e4f7788aa5c10
    """
    from lockstep.lake.exports import drop_export as drop
    from lockstep.lake.exports import find_export

    storage = open_timeline(root).storage
    record = find_export(storage, id_)
    if not as_json and (dry_run or not yes):
        say(
            f"export {record.id} would be dropped: {record.target} will not be readable once this lake deletes its old "
            "files"
        )
    goes = goes_on("dropped", yes=yes, dry_run=dry_run, as_json=as_json)
    if goes:
        drop(storage, id_)
    if as_json:
        print_json(record)
    elif goes:
        say(f"export {record.id}, {record.target}, is kept no more")


# --- parts ------------------------------------------------------------------------------------------------------------


def _export(
    root: str, to: str, mode: ExportMode, when: str | None, statement: str, *, dry_run: bool, as_json: bool
) -> None:
    from lockstep.catalog import TransactionalCatalog
    from lockstep.exports.export import Asked, Exporter

    catalog = TransactionalCatalog.open(root, application="lockstep")
    version = None if when is None else version_of(catalog.timeline, when)
    asked = Asked(to=to, mode=mode, version=version, author=catalog.author, statement=statement, dry_run=dry_run)
    with _progress() as progress:
        done = Exporter(catalog.lake, progress=progress).run(asked)
    _print(done, as_json=as_json)


def _print(done: Exported, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    what = f"database version {done.database_version}: {counted(done.tables, 'table')}"
    if done.files is not None and done.size is not None:
        what += f", {counted(done.files, 'file')} of {done.size:,} bytes"
    verb = "exported, " if done.is_done else "to be exported, "
    needs = "" if done.mode == "full" or not done.is_done else f"; needs files of {done.source} (export {done.id})"
    say(f"{done.target}: {verb}{done.mode}, {what}{needs}")


def _print_promoted(done: Promoted, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
        return
    what = (
        f"database version {done.clone_version}: {counted(done.tables, 'table')}, "
        f"{counted(done.files, 'file')} of {done.size:,} bytes"
    )
    verb = "promoted" if done.is_done else "to be promoted"
    made = "nothing is changed" if done.is_done else "nothing is in the way"
    if done.database_version is not None:
        made = f"it is database version {done.database_version}"
    say(f"{done.clone}: {verb} to {done.origin}, {what}; {made}")


@contextmanager
def _progress() -> Iterator[Progress]:
    """Give what shows a bar for each thing that is done, on standard error, if that is a terminal."""
    from lockstep.exports.export import no_progress

    if not sys.stderr.isatty():
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    tasks: dict[str, TaskID] = {}
    with Bars(console=Console(stderr=True), transient=True) as bars:

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield tell
