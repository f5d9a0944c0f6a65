"""What several commands take, and the lakes that it names."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lockstep.errors import InvalidError

if TYPE_CHECKING:
    from lockstep.timeline.log import Timeline

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""

root_argument = click.argument("root")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would become of what, and change nothing.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
at_option = click.option(
    "--at", "version", type=click.IntRange(min=0), help="The database version; the newest by default."
)


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
