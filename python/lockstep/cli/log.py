"""The commands about database versions: `lockstep log` and `lockstep show`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from lockstep.cli.arguments import is_version, json_option, open_timeline, root_argument, time_option_value
from lockstep.cli.printing import is_terminal, print_json, print_section, print_table, print_way_to_read
from lockstep.display import BRIEF_COLUMNS, ID_CHARACTERS, LOG_COLUMNS, brief_row, log_row, sections, summary
from lockstep.errors import ExpiredError, InvalidError

if TYPE_CHECKING:
    from lockstep.timeline.entry import Entry, Name
    from lockstep.timeline.log import Timeline

LATEST = "latest"

SHORT_ID = ID_CHARACTERS
"""A number that is no database version may begin an id from this length on, which `log` prints: a shorter number is a
mistyped version."""


@click.command()
@root_argument
@click.option(
    "-n", "count", type=click.IntRange(1, sys.maxsize), default=20, show_default=True, help="How many at most."
)
@click.option("--table", help="Only those that changed the table or view of this name: namespace.table.")
@click.option(
    "--since",
    callback=time_option_value,
    metavar="TIME",
    help="Only those committed at this date or time (UTC), or later.",
)
@click.option("--author", help="Only those whose author has this text in the name.")
@click.option("--id", "prefix", metavar="PREFIX", help="Only those whose transaction's id begins like this.")
@json_option
def log(
    root: str,
    *,
    count: int,
    table: str | None,
    since: datetime | None,
    author: str | None,
    prefix: str | None,
    as_json: bool,
) -> None:
    """List the newest database versions, newest first.

    Example: lockstep log /data/lake -n 5 --table sales.orders
    """
    timeline = open_timeline(root)
    entries = timeline.past(since=since)
    for is_wanted in _filters(table, author, prefix):
        entries = filter(is_wanted, entries)
    newest = list(islice(entries, count))
    if not newest:
        click.echo("no database version is like that", err=True)
    if as_json:
        print_json([summary(entry) for entry in newest])
    elif is_terminal():
        print_table(BRIEF_COLUMNS, map(brief_row, newest), cut=("author", "tables", "what"))
    else:
        print_table(LOG_COLUMNS, map(log_row, newest))


def _filters(table: str | None, author: str | None, prefix: str | None) -> list[Callable[[Entry], bool]]:
    filters: list[Callable[[Entry], bool]] = []
    if table is not None:
        name = table.casefold()
        filters.append(lambda entry: name in {str(each).casefold() for each in _changed_names(entry)})
    if author is not None:
        text = author.casefold()
        filters.append(lambda entry: text in entry.transaction.author.casefold())
    if prefix is not None:
        filters.append(lambda entry: _begins(entry, prefix))
    return filters


def _changed_names(entry: Entry) -> list[Name]:
    """Return the names of the tables and views that an entry changes, of a renamed table both."""
    new_names = [ddl.new_name for ddl in entry.tables if ddl.new_name is not None]
    writes = [write.name for write in entry.writes]
    return [*writes, *new_names, *(ddl.name for ddl in entry.tables), *(ddl.name for ddl in entry.views)]


def _begins(entry: Entry, prefix: str) -> bool:
    return entry.transaction.id.lower().startswith(prefix.lower())


@click.command()
@root_argument
@click.argument("version")
@json_option
def show(root: str, version: str, as_json: bool) -> None:
    """Show one database version in full: VERSION is its number, the beginning of its transaction's id, or latest.

    Example: lockstep show /data/lake 42
    """
    timeline = open_timeline(root)
    entry = find(timeline, version)
    if as_json:
        print_json(entry)
        return
    for section in sections(entry):
        print_section(section.title, section.columns, section.rows, cut=is_terminal())
    if not timeline.head.expired.has(entry.version):
        print_way_to_read(root, entry.version, entry.writes[0].name if entry.writes else None)


def find(timeline: Timeline, key: str) -> Entry:
    """Return the entry that is asked for: by its version, by the beginning of its transaction's id, or as `latest`.

    Raises:
        InvalidError: there is none, or there are several.
        UnavailableError, CorruptTimelineError: an entry cannot be read.
    """
    last = timeline.head.version
    is_number = is_version(key)
    if key == LATEST or (is_number and int(key) <= last):
        version = last if key == LATEST else int(key)
        if not timeline.head.expired.has(version):
            [entry] = timeline.entries(version - 1, version)
            return entry
        if (past := next(timeline.past(after=version - 1, through=version), None)) is not None:
            return past
        raise ExpiredError(f"database version {version} has expired, and the history does not have it either")
    if is_number and len(key) < SHORT_ID:
        raise InvalidError(f"database version {key} does not exist: there are 0 to {last}")
    matches = [entry for entry in timeline.past() if key and _begins(entry, key)][::-1]
    if len(matches) == 1:
        return find(timeline, str(matches[0].version))
    if matches:
        versions = ", ".join(f"{entry.transaction.id} (version {entry.version})" for entry in matches[:5])
        more = ", …" if len(matches) > 5 else ""
        raise InvalidError(f"{len(matches)} transactions' ids begin with {key}: {versions}{more}")
    raise InvalidError(
        f"{key!r} is no database version, and no transaction's id begins so: there are the versions 0 to "
        f"{last}, and {LATEST}"
    )
