"""Publishing: a ratified commit becomes `_delta_log/<version>.json`, an ordinary Delta commit that anybody reads.

Publishing decides nothing and may be done by anybody, any number of times: each file is put if it is absent, and what
it holds follows from the timeline alone. Only a foreign Delta writer can be in the way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from lockstep.delta.actions import Footprint, footprint, parse, render
from lockstep.delta.checksum import advance
from lockstep.delta.log import (
    checksum_path,
    commit_path,
    last_published,
    log_files,
    read_checksum,
    read_published,
    state_at,
    was_published,
)
from lockstep.delta.rebase import rebase
from lockstep.errors import CorruptTimelineError
from lockstep.model import Commit, TableWrite
from lockstep.storage import Mine, Storage, Theirs

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """The write's last commit is in the table's log, at this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Displaced:
    """A foreign writer took table versions that were ratified for us.

    Attributes:
        first, last: the foreign versions; ours can only come after the last.
        foreign: what they touched.
    """

    first: int
    last: int
    foreign: Footprint


def publish(
    storage: Storage, write: TableWrite, moved_to: int | None = None, *, fresh: bool = False
) -> Published | Displaced:
    """Publish a write's commits in order, and never again what Delta's clean-up removed.

    Args:
        write: as the timeline's entry has it.
        moved_to: the version of its last commit where a later entry moved it, None where it is as ratified.
        fresh: whether it was ratified a moment ago, so that nothing can have been cleaned up yet.

    Raises:
        UnavailableError: the store failed; publishing again is safe.
        CorruptTimelineError: a staged file of the write is gone, and its commit is not published.
    """
    last = write.to_version if moved_to is None else moved_to
    first = last - len(write.commits) + 1
    for version, data in enumerate(_contents(storage, write, first), first):
        if data is None or _put(storage, write, version, data, fresh=fresh):
            continue
        taken = last_published(storage, write.location, version - 1)
        return Displaced(version, taken, foreign_footprint(storage, write.location, range(version, taken + 1)))
    return Published(last)


def _put(storage: Storage, write: TableWrite, version: int, data: bytes, *, fresh: bool) -> bool:
    """Put one commit if it is absent, and tell whether it is there now; False: another one is.

    Raises:
        UnavailableError: the store failed.
        CorruptTimelineError: the table's log is gone as a whole.
    """
    path = commit_path(write.location, version)
    if not fresh:
        if (found := storage.get(path)) is not None:
            return found == data
        log = log_files(storage, write.location)
        if log.covers(version):
            return True
        if log.is_empty and version > 0:
            raise CorruptTimelineError(f"table {write.name}: its log is gone from {write.location}; restore the folder")
    return isinstance(storage.put_if_absent(path, data), Mine)


def write_checksums(storage: Storage, write: TableWrite, last: int) -> None:
    """Write the checksums of a write's published versions, as far as they can be told; readers do without.

    Args:
        last: the version of the write's last commit, as `publish` answered.

    Raises:
        UnavailableError: the store failed; nothing depends on it.
    """
    first = last - len(write.commits) + 1
    if not storage.exists(commit_path(write.location, first)):
        return  # cleaned up
    known = read_checksum(storage, write.location, first - 1) if first > 0 else None
    for version, data in enumerate(_contents(storage, write, first), first):
        known = None if data is None else advance(known, parse(data), version=version)
        if known is None or known["numFiles"] < 0 or known["tableSizeBytes"] < 0:
            return
        path = checksum_path(write.location, version)
        if isinstance(storage.put_if_absent(path, msgspec.json.encode(known)), Theirs):
            _log.debug("%s stays as another writer made it", path)


def foreign_footprint(storage: Storage, location: str, versions: Sequence[int]) -> Footprint:
    """Return what these published commits touched together."""
    actions = [action for version in versions for action in read_published(storage, location, version)]
    return footprint(actions, lambda: state_at(storage, location, versions[0] - 1))


def _contents(storage: Storage, write: TableWrite, first: int) -> list[bytes | None]:
    """Return each commit's file; None for one that was published, and cannot be told any more.

    That is so where its staged file was cleaned up, which is done after publishing only, and where Delta's clean-up
    took the foreign commits that it was moved behind.
    """
    contents = [content(storage, write.location, commit) for commit in write.commits]
    versions = range(first, first + len(contents))
    ahead = range(write.from_version + 1, first)
    if ahead and (None in contents or not all(storage.exists(commit_path(write.location, v)) for v in ahead)):
        contents = [None] * len(contents)
    for version, commit, data in zip(versions, write.commits, contents, strict=True):
        if data is None and not was_published(storage, write.location, version):
            what = f"its staged file ({commit.staged})" if commit.staged else "what it was moved behind"
            raise CorruptTimelineError(
                f"version {version} of table {write.name} was ratified, but neither {what} nor its published one is "
                "there"
            )
    if not ahead or None in contents:
        return contents
    foreign = foreign_footprint(storage, write.location, ahead)
    commits = [parse(data) for data in contents if data is not None]
    rebased = rebase(commits, pin=write.from_version, first_version=first, winners=[foreign])
    return [render(commit) for commit in rebased]


def content(storage: Storage, location: str, commit: Commit) -> bytes | None:
    """Return a ratified commit's lines, None if it was staged in a file that is gone: cleaned up after publishing."""
    if commit.inline is not None:
        return b"".join(bytes(action) + b"\n" for action in commit.inline)
    return storage.get(f"{location}/{commit.staged}")
