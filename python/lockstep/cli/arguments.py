"""What several commands take, and the lakes that it names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from lockstep.timeline.log import Timeline

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""

root_argument = click.argument("root")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
at_option = click.option(
    "--at", "version", type=click.IntRange(min=0), help="The database version; the newest by default."
)


def open_timeline(root: str) -> Timeline:
    """Open the timeline of the lake at a path or URL.

    Raises:
        InvalidError, UnavailableError, CorruptTimelineError: see `lockstep.storage.open_storage` and `Timeline.open`.
    """
    from lockstep.storage import open_storage
    from lockstep.timeline.log import Timeline

    return Timeline.open(open_storage(root))


def absolute(root: str) -> str:
    """Return a lake's path or URL such that it says the same in another folder."""
    return root if "://" in root or root.startswith("file:") else str(Path(root).absolute())
