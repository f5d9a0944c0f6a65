"""Which tables' logs lack what the timeline ratified, so that they do not tell all that their tables need."""

from __future__ import annotations

from lockstep.delta.actions import is_by, parse
from lockstep.delta.log import commit_path, was_published
from lockstep.errors import InvalidError, UnavailableError
from lockstep.lake.lake import Lake
from lockstep.retention.versions import Readable
from lockstep.timeline.entry import Entry, TableWrite

NOT_PUBLISHED = "its log lacks a commit that is not published yet: the next statement tries again"
"""Why a table stays whole that is dropped, or set aside, and of which the timeline knows more than its log."""
TAKEN = "it is dropped, and its log has another Delta writer's commit in place of one of its own, until both expire"
"""Why a table stays whole that was in conflict with a plain writer when it was dropped."""


def not_published(lake: Lake, can_be_read: Readable) -> dict[str, str]:
    """Return the locations whose logs lack commits that were ratified, and why; all published, nothing is read."""
    after = max(lake.timeline.published_through, can_be_read.first - 1)
    found: dict[str, str] = {}
    for entry in lake.timeline.scan(after):
        for write in entry.writes:
            if not lake.publisher.is_published(entry, write) and (reason := _why_not_there(lake, entry, write)):
                found.setdefault(write.location, reason)
    return found


def _why_not_there(lake: Lake, entry: Entry, write: TableWrite) -> str | None:
    """Return why a table's log does not have a write; None if it does, or had it before Delta's clean-up.

    Of a dropped table nobody remembers that: its log is asked.
    """
    if entry.kind != "transaction":
        return None  # a plain writer's commits were in the log first
    for version in lake.timeline.versions(write, entry.version):
        try:
            data = lake.storage.get(commit_path(write.location, version))
            if data is None and not was_published(lake.storage, write.location, version):
                return NOT_PUBLISHED
            if data is not None and not is_by(parse(data), entry.transaction.id):
                return TAKEN
        except UnavailableError:
            return NOT_PUBLISHED
        except InvalidError:  # cut off: somebody else's
            return TAKEN
    return None
