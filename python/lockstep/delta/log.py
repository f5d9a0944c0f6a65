"""A table's `_delta_log` in the lake's storage: where things lie, and reading them.

<location>/_delta_log/<version>.json                        published commits: ordinary Delta
<location>/_delta_log/_lockstep/<transaction>/<version>.json    staged by Delta, under the overlay
<location>/_delta_log/_lockstep/<transaction>/commit-<version>-<digest>.json    ratified, too large to inline
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec

from lockstep.delta.actions import Action, parse
from lockstep.delta.combine.evolution import TableState
from lockstep.errors import CorruptTimelineError, InvalidError
from lockstep.storage import Storage
from lockstep.timeline.entry import INLINE_BYTES
from lockstep.timeline.files import UNREADABLE
from lockstep.workers import Threads

LOG = "_delta_log"

PROBED = 3
"""So many commits of a run are looked for by their names, before the rest of it is listed."""

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})\.parquet|\.parquet|\.[0-9a-fA-F-]{36}\.(?:json|parquet))"
)
"""A checkpoint's file: one of several parts, the classic one, or a V2 one (Protocol, "Checkpoints")."""


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Which versions have their commit in a table's log, which a whole checkpoint, and which a checksum."""

    commits: frozenset[int] = frozenset()
    checkpoints: frozenset[int] = frozenset()
    checksums: frozenset[int] = frozenset()

    @property
    def newest_checkpoint(self) -> int:
        """The version of the newest whole checkpoint, -1 without: readers of later versions need nothing before it."""
        return max(self.checkpoints, default=-1)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a Delta log is there: the table's folder is gone, or is not a table's yet."""
        return not (self.commits or self.checkpoints)

    def covers(self, version: int) -> bool:
        """Tell whether a whole checkpoint makes a version's commit needless, so that Delta's clean-up may take it."""
        return version <= self.newest_checkpoint

    def needed_from(self, version: int) -> int:
        """Return the first version whose files readers of a version need: of the last checkpoint up to it, else 0."""
        return max((each for each in self.checkpoints if each <= version), default=0)

    def missing_for(self, version: int) -> int | None:
        """Return the first commit that readers of a version need and that is not there; None if they need none."""
        checkpoint = max((each for each in self.checkpoints if each <= version), default=-1)
        return next((each for each in range(checkpoint + 1, version + 1) if each not in self.commits), None)

    def newest_after(self, version: int) -> int | None:
        """Return the newest version that can be read from the newest checkpoint after `version`; None without one.

        That is how a log goes on whose commits up to that checkpoint were cleaned up.
        """
        newest = self.newest_checkpoint
        if newest <= version:
            return None
        while newest + 1 in self.commits:
            newest += 1
        return newest


def commit_path(location: str, version: int) -> str:
    """Return where a published commit lies, relative to the lake's root."""
    return f"{location}/{LOG}/{version:020d}.json"


def checksum_path(location: str, version: int) -> str:
    """Return where a published version's checksum lies."""
    return f"{location}/{LOG}/{version:020d}.crc"


def staging_folder(location: str, transaction: str) -> str:
    """Return the folder of what a transaction staged for a table: the overlay's, see `LockstepFileSystem`."""
    return f"{location}/{LOG}/_lockstep/{transaction}"


def staged_path(location: str, transaction: str, version: int) -> str:
    """Return where Delta staged a transaction's commit of a table version."""
    return f"{staging_folder(location, transaction)}/{version:020d}.json"


def ratified_path(transaction: str, version: int, digest: str) -> str:
    """Return where a large commit waits to be published, relative to its table's location."""
    return f"{LOG}/_lockstep/{transaction}/commit-{version:020d}-{digest}.json"


def read_staged(storage: Storage, location: str, transaction: str, version: int) -> list[Action]:
    """Read one staged commit.

    Raises:
        CorruptTimelineError: it is gone or is not a Delta commit, though Delta was told that it was written.
    """
    path = staged_path(location, transaction, version)
    return parsed(path, storage.get(path))


def read_published(storage: Storage, location: str, version: int) -> list[Action]:
    """Read one published commit.

    Raises:
        CorruptTimelineError: it is not there or is not a Delta commit.
    """
    path = commit_path(location, version)
    return parsed(path, storage.get(path))


def digest(data: bytes) -> str:
    """Return what tells a commit's file from any other: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def read_digest(storage: Storage, location: str, version: int) -> str:
    """Return the digest of a published commit, and see that it is whole.

    It is empty for a commit that is larger than what an entry holds, for whoever compares it reads the whole file; and
    for one that is not there, since a checkpoint made it needless.

    Raises:
        CorruptTimelineError: it is no Delta commit: whoever wrote it has not finished, or damaged it.
        UnavailableError: the store failed.
    """
    path = commit_path(location, version)
    if (data := storage.get(path)) is None:
        return ""
    if not parsed(path, data):
        raise CorruptTimelineError(f"{path} is empty: expected a Delta commit")
    return digest(data) if len(data) <= INLINE_BYTES else ""


def last_published(storage: Storage, location: str, after: int) -> int:
    """Return the last version of the unbroken run of published commits after `after`; itself if there is none.

    Few are looked for one after the other, many are listed: not every store can list a long folder from the middle.
    """
    version = after
    while version < after + PROBED:
        if not storage.exists(commit_path(location, version + 1)):
            return version
        version += 1
    commits = log_files(storage, location, version).commits
    while version + 1 in commits:
        version += 1
    return version


def log_files(storage: Storage, location: str, after: int = -1) -> LogFiles:
    """List the commits, whole checkpoints and checksums of the versions after `after`."""
    return log_files_of(storage.list(f"{location}/{LOG}", after=f"{after:020d}.z" if after >= 0 else None))


def log_files_of(names: Iterable[str]) -> LogFiles:
    """Return which commits, whole checkpoints and checksums these files of a log are."""
    commits: set[int] = set()
    checksums: set[int] = set()
    parts: dict[tuple[int, int], set[int]] = {}
    for name in names:
        if commit := _COMMIT.fullmatch(name):
            commits.add(int(commit[1]))
        elif checksum := _CHECKSUM.fullmatch(name):
            checksums.add(int(checksum[1]))
        elif checkpoint := _CHECKPOINT.fullmatch(name):
            of = int(checkpoint[3] or 1)
            parts.setdefault((int(checkpoint[1]), of), set()).add(int(checkpoint[2] or 1))
    whole = {version for (version, of), numbers in parts.items() if numbers >= set(range(1, of + 1))}
    return LogFiles(frozenset(commits), frozenset(whole), frozenset(checksums))


def was_published(storage: Storage, location: str, version: int) -> bool:
    """Return whether a log has, or had, a commit: one that a whole checkpoint covers may have been cleaned up."""
    return storage.exists(commit_path(location, version)) or log_files(storage, location, version - 1).covers(version)


# --- checksums --------------------------------------------------------------------------------------------------------

_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Metadata(msgspec.Struct):
    id: str
    schemaString: str
    partitionColumns: list[str] = []
    configuration: dict[str, str] = {}


class _Protocol(msgspec.Struct):
    minReaderVersion: _Number
    minWriterVersion: _Number
    readerFeatures: list[str] | None = None
    writerFeatures: list[str] | None = None


class _SetTransaction(msgspec.Struct):
    appId: str
    version: int
    removed: bool | None = None


class _Domain(msgspec.Struct):
    domain: str
    configuration: str
    removed: bool


class _Vector(msgspec.Struct):
    storageType: str
    pathOrInlineDv: str
    cardinality: _Number
    offset: _Number | None = None


class _File(msgspec.Struct):
    path: str
    size: _Number
    deletionVector: _Vector | None = None


class _Histogram(msgspec.Struct):
    sortedBinBoundaries: list[_Number]
    fileCounts: list[_Number]
    totalBytes: list[_Number]

    @property
    def is_sound(self) -> bool:
        bounds = self.sortedBinBoundaries
        return (
            bounds[:1] == [0]
            and bounds == sorted(bounds)
            and len(bounds) == len(self.fileCounts) == len(self.totalBytes)
        )


class _Checksum(msgspec.Struct):
    """What Lockstep uses of a checksum (Protocol, "Version Checksum File"); fields beside these are carried along."""

    tableSizeBytes: _Number
    numFiles: _Number
    metadata: _Metadata
    protocol: _Protocol
    setTransactions: list[_SetTransaction] | None = None
    domainMetadata: list[_Domain] | None = None
    fileSizeHistogram: _Histogram | None = None
    histogramOpt: _Histogram | None = None
    allFiles: list[_File] | None = None


_decode_checksum = msgspec.json.Decoder(_Checksum).decode


def read_checksum(storage: Storage, location: str, version: int) -> dict[str, Any] | None:
    """Return a published version's checksum; None if it has none that is wholly as it must be: Delta does without, too.

    A checksum is advice. It is read strictly, for whoever builds on one that is half right writes the next one wrong.
    """
    data = storage.get(checksum_path(location, version))
    if data is None:
        return None
    try:
        fields = _decode_checksum(data)
        checksum = msgspec.json.decode(data, type=dict[str, Any])
        msgspec.json.encode(checksum)  # text that is not Unicode, numbers beyond all bounds: what could not be written
    except (*UNREADABLE, UnicodeEncodeError, OverflowError):
        return None
    histograms = [fields.fileSizeHistogram, fields.histogramOpt]
    return checksum if all(histogram is None or histogram.is_sound for histogram in histograms) else None


LOOKED_BACK = 100
"""So many versions are looked through for a table's state; a checksum in between ends that, and most have one."""

SIDE_BY_SIDE = 16
"""So many versions of a log are read at a time, where a request takes long."""


def state_at(storage: Storage, location: str, version: int) -> TableState | None:
    """Return a table's metadata and protocol at a published version; None where that takes more than a short look.

    Raises:
        CorruptTimelineError: a commit is not a Delta commit.
    """
    fields: dict[str, dict[str, Any]] = {}
    for by_kind in _looked_back(storage, location, version):
        if by_kind is None:
            return None  # cleaned up, or not published
        fields = {kind: by_kind[kind] for kind in ("metadata", "protocol") if by_kind.get(kind)} | fields
        if len(fields) == 2:
            return TableState(**fields)
    return None


def _looked_back(storage: Storage, location: str, version: int) -> Iterator[dict[str, Any] | None]:
    """Yield what each version of a log says, newest first, each time some more of them at a time."""
    if version >= 0:
        yield _said_at(storage, location, version)
    last, some, before = max(version - LOOKED_BACK, -1), 1, version - 1
    with Threads(SIDE_BY_SIDE, thread_name_prefix="lockstep-log", quick=storage.quick) as pool:
        while before > last:
            some = min(2 * some, SIDE_BY_SIDE, before - last)
            yield from pool.map(partial(_said_at, storage, location), range(before, before - some, -1))
            before -= some


def _said_at(storage: Storage, location: str, version: int) -> dict[str, Any] | None:
    """Return what a version's checksum says, or its commit, by the kind of action; None where neither is there."""
    if checksum := read_checksum(storage, location, version):
        return checksum
    path = commit_path(location, version)
    if (data := storage.get(path)) is None:
        return None
    by_kind = {kind: body for action in parsed(path, data) for kind, body in action.items()}
    return by_kind | {"metadata": by_kind.get("metaData")}


def read_all_published(storage: Storage, location: str, versions: Sequence[int]) -> list[Action]:
    """Return the actions of several published commits, in their order.

    Raises:
        UnavailableError, CorruptTimelineError: see `read_published`.
    """
    with Threads(SIDE_BY_SIDE, thread_name_prefix="lockstep-log", quick=storage.quick) as pool:
        commits = pool.map(partial(read_published, storage, location), versions)
        return [action for commit in commits for action in commit]


def parsed(path: str, data: bytes | None) -> list[Action]:
    """Return the actions of a commit's file that was read.

    Raises:
        CorruptTimelineError: it is not there (None) or is not a Delta commit.
    """
    if data is None:
        raise CorruptTimelineError(
            f"{path} is gone: expected a Delta commit that was written there. Restore it from a backup; if it is of an "
            "open transaction (_delta_log/_lockstep), ROLLBACK"
        )
    try:
        return parse(data)
    except InvalidError as error:
        raise CorruptTimelineError(f"{path}: {error.message}") from error
