"""What several commands take, and the lakes that it names."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lockstep.errors import InvalidError, UndefinedError

if TYPE_CHECKING:
    from lockstep.timeline.log import Timeline

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""

DIGITS = 20
"""So many no database version has."""

root_argument = click.argument("root")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would become of what, and change nothing.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
TIMES = "2026-03-01, 2026-03-01T12:30:00Z or 2026-03-01T13:30:00+01:00"
any_version_option = click.option(
    "--at",
    "when",
    metavar="VERSION|TAG|TIME",
    help="A database version, a tag, or the newest version of a time (UTC); the newest of all by default.",
)
at_option = click.option(
    "--at", "version", type=click.IntRange(min=0), help="The database version; the newest by default."
)


def time_option_value(_: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """Read a date or a time in ISO 8601, which is UTC unless it says its zone."""
    if value is None:
        return None
    if (moment := _moment(value)) is None:
        raise click.BadParameter(f"{value!r} is no date and no time: write {TIMES}", param=param)
    return moment


def version_of(timeline: Timeline, text: str) -> int:
    """Return the database version that a number or a tag names, or the newest of a date or a time.

    Raises:
        UndefinedError (42704): there is no such tag, and it is no time.
        InvalidError: it was before the first version.
    """
    if is_version(text):
        return int(text)
    if (tag := timeline.head.tag(text)) is not None:
        return tag.version
    if (moment := _moment(text)) is not None:
        return timeline.at_time(moment).version
    raise UndefinedError(
        f"no tag {text}, which `lockstep tags` would list, and no time: write {TIMES}", sqlstate="42704"
    )


def is_version(text: str) -> bool:
    """Tell whether a text is a number that some database version may have; Python reads none of thousands of digits."""
    return text.isascii() and text.isdecimal() and len(text) < DIGITS


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def open_timeline(root: str) -> Timeline:
    """Open the timeline of the lake at a path or URL.

    Raises:
        InvalidError, UnavailableError, CorruptTimelineError: see `lockstep.storage.open_storage` and `Timeline.open`.
    """
    from lockstep.storage.outside import open_reaching
    from lockstep.timeline.log import Timeline

    return Timeline.open(open_reaching(root))


def absolute(root: str) -> str:
    """Return a lake's path or URL such that it says the same in another folder."""
    return root if "://" in root or root.startswith("file:") else str(Path(root).absolute())


def can_ask() -> bool:
    """Tell whether a person is there to be asked."""
    return sys.stdin.isatty()


def goes_on(what: str, *, yes: bool, dry_run: bool, as_json: bool) -> bool:
    """Ask whether what was said shall be done.

    Args:
        what: what would have been done, as "deleted".

    Raises:
        InvalidError: there is nobody to ask.
    """
    if dry_run or yes:
        return not dry_run
    if as_json or not can_ask():
        raise InvalidError(f"nothing was {what}: give --yes to have it done without being asked, or --dry-run to look")
    return click.confirm("Go on?", default=False)
