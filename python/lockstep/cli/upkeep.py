"""The commands that look after a lake: `lockstep expire`, `vacuum`, `gc`, `maintain`, and `status`. No Spark.

Each says first what would go, and asks before anything does, unless `--yes` is given; `--dry-run` only says it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from lockstep.cli.arguments import goes_on, json_option, root_argument, yes_option
from lockstep.cli.printing import print_json, print_section, print_table, say
from lockstep.display import counted
from lockstep.settings import DELETION_GRACE, ORPHAN_AGE, RETENTION_AGE, RETENTION_VERSIONS, Setting

if TYPE_CHECKING:
    from lockstep.lake.lake import Lake
    from lockstep.retention.ages import Retention
    from lockstep.retention.expiring import Expired
    from lockstep.retention.upkeep import Maintained, Status, Swept
    from lockstep.workers import Progress

MOST_SHOWN = 20
"""So many paths are printed of what would go; `--json` has all."""

dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would go.")


_Option: TypeAlias = Callable[[Any], Any]
_Done: TypeAlias = tuple[Callable[..., Any], Callable[[Any, bool], None]]
"""What a command does, given `dry_run` and `progress`, and what says what that came to, or would come to."""


def _option(name: str, setting: Setting, help: str) -> _Option:
    """Make an option that stands for a setting of catalogs, and is handed on under its name."""
    text = f"{help} By default what the lake keeps (lockstep retention), else {setting.default}."
    return click.option(name, setting.name.replace("-", "_"), metavar=setting.kind.upper(), help=text)


older_option = _option("--older-than", RETENTION_AGE, "Keep every version of this long, as 30d or 12h.")
last_option = _option("--retain-last", RETENTION_VERSIONS, "Keep so many of the newest versions.")
grace_option = _option("--grace", DELETION_GRACE, "How long a file is marked before it goes.")
litter_option = _option("--older-than", ORPHAN_AGE, "Keep litter that is younger, as 7d; an hour at least.")
orphan_option = _option("--orphan-age", ORPHAN_AGE, "Keep litter that is younger, as 7d; an hour at least.")


def _lake(root: str) -> Lake:
    from lockstep.catalog import TransactionalCatalog

    return TransactionalCatalog.open(root, application="lockstep").lake


def _retention(lake: Lake, said: Mapping[str, str | None]) -> Retention:
    """Return what is kept for how long: what is said, which may not be less than the lake keeps, or what that is.

    The commands ask this as they begin to work, and so once more behind the prompt: somebody may have raised it since.
    """
    from lockstep.retention.floor import asked

    settings = {name.replace("_", "-"): value for name, value in said.items() if value is not None}
    return asked(lake.storage, settings)


def _keeping(run: Callable[..., Any], lake: Lake, said: Mapping[str, str | None], **more: Any) -> Callable[..., Any]:
    """Return the same run of upkeep, which asks each time what is kept: see `_retention`."""
    return lambda **how: run(lake, _retention(lake, said), **more, **how)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show on a terminal how many files are deleted."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("deleting", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _command(*options: _Option) -> Callable[[Callable[..., _Done]], click.Command]:
    """Make a command of a function that is given the lake and its options.

    The command says what would be done, asks, does it and says what was done.

    Args:
        options: those of the command's own.
    """

    def made(prepare: Callable[..., _Done]) -> click.Command:
        @wraps(prepare)
        def run(root: str, *, dry_run: bool, yes: bool, as_json: bool, **said: Any) -> None:
            work, say = prepare(_lake(root), **said)
            say = _json if as_json else say
            if dry_run or not yes:
                found = work(dry_run=True)
                if not (as_json and not dry_run):
                    say(found, True)
            if goes_on("deleted", yes=yes, dry_run=dry_run, as_json=as_json):
                with _progress() as progress:
                    done = work(dry_run=False, progress=progress)
                say(done, False)

        command: Any = run
        for option in reversed((root_argument, *options, dry_run_option, yes_option, json_option)):
            command = option(command)
        return click.command()(command)

    return made


@_command(older_option, last_option, grace_option)
def expire(lake: Lake, **said: str | None) -> _Done:
    """Make older database versions unreadable, but what tags, exports and open transactions need; `vacuum` comes next.

    Example: lockstep expire /data/lake --older-than 30d --retain-last 100 --dry-run
    """
    from lockstep.retention.expiring import expire_snapshots
    from lockstep.workers import silent

    def work(*, dry_run: bool, progress: Progress = silent) -> Expired:
        retention = _retention(lake, said)
        return expire_snapshots(
            lake,
            older_than=lake.clock() - retention.age,
            retain_last=retention.last,
            grace=retention.grace,
            dry_run=dry_run,
            progress=progress,
        )

    return work, _say_expired


@_command(
    click.argument("table", required=False),
    click.option("--namespace", help="All tables of this namespace."),
    grace_option,
)
def vacuum(lake: Lake, *, table: str | None, namespace: str | None, **said: str | None) -> _Done:
    """Delete files that no version needs which can be read: of a TABLE, a namespace, or all.

    Example: lockstep vacuum /data/lake sales.orders --dry-run
    """
    from lockstep.cli.recovery import name_of
    from lockstep.retention.upkeep import vacuum as sweep

    within = None if namespace is None else tuple(namespace.split("."))
    chosen = None if table is None else name_of(table)
    return _keeping(sweep, lake, said, table=chosen, namespace=within), _say_swept


@_command(litter_option, grace_option)
def gc(lake: Lake, **said: str | None) -> _Done:
    """Delete litter: what dead transactions left, and folders of tables that no version has.

    Example: lockstep gc /data/lake --dry-run
    """
    from lockstep.retention.upkeep import remove_orphan_files

    return _keeping(remove_orphan_files, lake, said), _say_swept


@_command(older_option, last_option, grace_option, orphan_option)
def maintain(lake: Lake, **said: str | None) -> _Done:
    """Do all of it in turn: `expire`, `vacuum` and `gc`. Made for a nightly schedule, with --yes.

    Example: lockstep maintain /data/lake --yes
    """
    from lockstep.retention.upkeep import maintain as look_after

    def say(done: Maintained, is_dry: bool) -> None:
        _say_expired(done.expired, is_dry)
        _say_swept(done.swept, is_dry)
        print_section(
            "Not compacted from here; CALL <catalog>.system.maintain() does it, through Spark",
            ["table", "files", "bytes"],
            [[each.table, each.files, each.size] for each in done.to_compact],
        )

    return _keeping(look_after, lake, said), say


@click.command()
@root_argument
@json_option
def status(root: str, as_json: bool) -> None:
    """Say how a lake is: versions, open transactions, tables set aside, leftovers, bytes that nobody needs.

    Example: lockstep status /data/lake
    """
    from lockstep.retention.upkeep import status as look

    lake = _lake(root)
    found: Status = look(lake, _retention(lake, {}))
    if as_json:
        print_json(asdict(found))
        return
    alone = f", and {', '.join(map(str, found.kept_alone))}" if found.kept_alone else ""
    rows: list[list[object]] = [
        ["versions that can be read", f"{found.oldest_version} to {found.newest_version}{alone}"],
        ["newest committed at", found.committed_at],
        ["tables, views, tags", f"{found.tables}, {found.views}, {found.tags}"],
        ["open transactions", f"{found.transactions}, of which {found.gone} have not been seen for a minute"],
        ["tables set aside", len(found.set_aside)],
        ["nobody needs", f"{counted(found.reclaimable_files, 'file')}, {found.reclaimable_bytes:,} bytes"],
    ]
    rows += [[f"  {kind}", counted(count, "file")] for kind, count in sorted(found.leftovers.items())]
    print_table(["", ""], rows, header=False)
    print_section("Set aside", ["table", "why"], [*found.set_aside.items()])
    print_section("Nothing of these may be deleted", ["folder", "why"], [*found.kept_whole.items()])


def _json(found: Any, is_dry: bool) -> None:
    print_json({"dry_run": is_dry, **asdict(found)})


def _say_expired(found: Expired, is_dry: bool) -> None:
    verb = "would expire" if is_dry else "expired"
    alone = f", and {', '.join(map(str, sorted(found.after.alone)))}" if found.after.alone else ""
    say(f"{counted(found.versions, 'version')} {verb}; {found.after.first} to {found.after.newest}{alone} can be read")


def _say_swept(found: Swept, is_dry: bool) -> None:
    verb = "would be deleted" if is_dry else "deleted"
    say(
        f"{counted(found.deleted_files, 'file')} ({found.deleted_bytes:,} bytes) {verb}; "
        f"{counted(found.waiting_files, 'file')} ({found.waiting_bytes:,} bytes) "
        f"{'would be marked' if is_dry else 'are marked'}, for a run after the grace period"
    )
    if is_dry:
        for path in found.paths[:MOST_SHOWN]:
            say(f"  {path}")
        if len(found.paths) > MOST_SHOWN:
            say(f"  and {len(found.paths) - MOST_SHOWN} more; --json has all")
    print_section("Nothing of these is deleted", ["folder", "why"], [*found.kept_whole.items()])
