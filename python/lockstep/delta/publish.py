"""Publishing: a ratified commit becomes `_delta_log/<version>.json`, an ordinary Delta commit that anybody reads.

Publishing decides nothing and may be done by anybody, any number of times: each file is put if it is absent, and what
it holds follows from the timeline alone. Only a foreign Delta writer can be in the way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from lockstep.delta.actions import parse, render
from lockstep.delta.checksum import advance
from lockstep.delta.combine.rebase import rebase
from lockstep.delta.footprint import Footprint, footprint
from lockstep.delta.log import (
    checksum_path,
    commit_path,
    log_files,
    read_all_published,
    read_checksum,
    read_published,
    state_at,
    was_published,
)
from lockstep.errors import CorruptTimelineError
from lockstep.storage import Mine, Storage
from lockstep.timeline.entry import NEW, Commit, TableWrite

_log = logging.getLogger(__name__)

BEHIND = 5
"""So many versions may have no checksum before one from which the next is told."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Displaced:
    """A foreign writer took a table version that was ratified for us.

    Attributes:
        first: that version; what is left of ours can only come after it, and after what follows it.
        kept: how many of the write's commits are in the log before it, where they stay.
    """

    first: int
    kept: int


def publish(
    storage: Storage,
    write: TableWrite,
    versions: Sequence[int],
    *,
    fresh: bool = False,
    prove: Callable[[int], None] = lambda _: None,
) -> Displaced | None:
    """Publish a write's commits in order, and never again what Delta's clean-up removed.

    Args:
        write: as the timeline's entry has it.
        versions: the table version of each of its commits, see `Timeline.versions`.
        fresh: whether it was ratified a moment ago, so that nothing can have been cleaned up yet.
        prove: is called with each table version before it is written, and raises if it may not be.

    Returns:
        None if all of them are in the table's log, else where a foreign commit is in place of one.

    Raises:
        UnavailableError: the store failed; publishing again is safe.
        CorruptTimelineError: a staged file of the write is gone, and its commit is not published.
    """
    files = contents(storage, write, versions)
    for commit, version, data in zip(write.commits, versions, files, strict=True):
        if data is None:
            _check_published(storage, write, commit, version)
    for kept, (version, data) in enumerate(zip(versions, files, strict=True)):
        if data is None or _put(storage, write, version, data, fresh=fresh, prove=prove):
            continue
        return Displaced(version, kept)
    return None


def _put(
    storage: Storage, write: TableWrite, version: int, data: bytes, *, fresh: bool, prove: Callable[[int], None]
) -> bool:
    """Put one commit if it is absent, and tell whether it is there now; False: another one is.

    Raises:
        UnavailableError: the store failed.
        CorruptTimelineError: the table's log is gone as a whole.
    """
    path = commit_path(write.location, version)
    if not fresh:
        if (current := storage.get(path)) is not None:
            return current == data
        log = log_files(storage, write.location)
        if log.covers(version):
            return True
        if log.is_empty and version > 0:
            raise CorruptTimelineError(f"table {write.name}: its log is gone from {write.location}; restore the folder")
    prove(version)
    return isinstance(storage.put_if_absent(path, data), Mine)


def write_checksums(storage: Storage, write: TableWrite, versions: Sequence[int]) -> None:
    """Write the checksums of a write's published versions, as far as they can be told; readers do without.

    Args:
        versions: the table version of each of its commits, as they were published.

    Raises:
        UnavailableError: the store failed; nothing depends on it.
    """
    if storage.exists(checksum_path(write.location, versions[-1])):
        return  # another process, or Delta, was first
    if not storage.exists(commit_path(write.location, versions[0])):
        return  # cleaned up
    checksum, last = None, NEW
    for version, data in zip(versions, contents(storage, write, versions), strict=True):
        if version > last + 1:
            checksum = _checksum_at(storage, write.location, version - 1)
        checksum, last = None if data is None else advance(checksum, parse(data), version=version), version
        if checksum is None or checksum["numFiles"] < 0 or checksum["tableSizeBytes"] < 0:
            return
        path = checksum_path(write.location, version)
        if not storage.put_advice(path, msgspec.json.encode(checksum)):
            _log.debug("%s stays as another writer made it", path)


def _checksum_at(storage: Storage, location: str, version: int) -> dict[str, Any] | None:
    """Return a published version's checksum; if it has none yet, from one of the last versions before and the commits.

    Checksums are written behind the answers to commits, so another process may not have come to it.
    """
    commits: list[bytes] = []
    for each in range(version, max(version - BEHIND, -1), -1):
        checksum = read_checksum(storage, location, each)
        if checksum is not None:
            for later, commit in enumerate(reversed(commits), each + 1):
                checksum = advance(checksum, parse(commit), version=later)
            return checksum
        if (data := storage.get(commit_path(location, each))) is None:
            return None
        commits.append(data)
    return None


def foreign_footprint(storage: Storage, location: str, versions: Sequence[int]) -> Footprint:
    """Return what these published commits touched together."""
    actions = read_all_published(storage, location, versions)
    return footprint(actions, lambda: state_at(storage, location, versions[0] - 1))


def contents(storage: Storage, write: TableWrite, versions: Sequence[int]) -> list[bytes | None]:
    """Return the file of each of a write's commits, as it is at its version; None for one that cannot be told any more.

    That is so where a staged file was cleaned up, which is done after publishing only, and where Delta's clean-up took
    the foreign commits that it was moved behind.

    Commits are as they were ratified up to the first that was moved. To the others those before are what a snapshot is
    to a transaction: what they say was read by others by then, so it stays, and the others are numbered behind it.

    Args:
        versions: the table version of each commit, in order; between them may be foreign ones.
    """
    files = [content(storage, write.location, commit) for commit in write.commits]
    last = write.from_version
    for place, version in enumerate(versions):
        if version > last + 1:
            moved_files = _commits_behind(storage, write.location, files[place:], range(last + 1, version))
            files[place:] = moved_files if moved_files is not None else [None] * (len(files) - place)
        last = version
    return files


def _commits_behind(
    storage: Storage, location: str, commits: Sequence[bytes | None], foreign: range
) -> list[bytes | None] | None:
    """Return commits as they are behind foreign ones that took their versions; None if that cannot be told any more."""
    actions = [parse(data) for data in commits if data is not None]
    if len(actions) < len(commits) or not all(storage.exists(commit_path(location, version)) for version in foreign):
        return None
    winners = [_marks(storage, location, version) for version in foreign]
    rebased = rebase(actions, pin=foreign.start - 1, first_version=foreign.stop, winners=winners)
    return [render(commit) for commit in rebased]


def _marks(storage: Storage, location: str, version: int) -> Footprint:
    """Return what a published commit touched, as far as `rebase` asks: of many, not every file is kept in memory."""
    whole = footprint(read_published(storage, location, version))
    return Footprint(row_id_mark=whole.row_id_mark, timestamp_ms=whole.timestamp_ms)


def _check_published(storage: Storage, write: TableWrite, commit: Commit, version: int) -> None:
    """See that a commit is in the log, or was, of which nobody can tell any more what it said.

    Raises:
        CorruptTimelineError: it is not.
    """
    if not was_published(storage, write.location, version):
        what = f"its staged file ({commit.staged})" if commit.staged else "what it was moved behind"
        raise CorruptTimelineError(
            f"version {version} of table {write.name} was ratified, but neither {what} nor its published one is there: "
            f"restore {commit_path(write.location, version)} from a backup, or DROP TABLE, which leaves the folder "
            "and takes the table out of the catalog"
        )


def content(storage: Storage, location: str, commit: Commit) -> bytes | None:
    """Return a ratified commit's lines, None if it was staged in a file that is gone: cleaned up after publishing."""
    if commit.inline is not None:
        return b"".join(bytes(action) + b"\n" for action in commit.inline)
    return storage.get(f"{location}/{commit.staged}")
