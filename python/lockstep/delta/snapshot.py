"""A table as its log says it is at one version: what is read of a log without Spark.

The last whole checkpoint up to the version, of whatever kind, and the commits since. A checkpoint is Parquet, which
pyarrow reads; a log without one, as of a table with few versions, needs no pyarrow.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import msgspec

from lockstep.caches import size_of
from lockstep.delta.actions import Action, LogicalFile, logical_file, parse, split
from lockstep.delta.features import features_of
from lockstep.delta.log import LOG, LogFiles, commit_path, log_files, read_checksum
from lockstep.errors import CorruptTimelineError, InvalidError, MissingFilesError, UnsupportedError
from lockstep.storage import Storage

SIDECARS = "_sidecars"

FILE_BYTES = 1_000
"""What a file takes in memory beside the texts of its action."""

_KINDS = ("protocol", "metaData", "txn", "domainMetadata", "add", "sidecar")
"""What is read of a checkpoint: the rest, such as removed files, is no part of a table's state."""

_HEADER = ("protocol", "metaData")
"""What is read where only what a table is like is asked for, and not which files it has."""

_CHECKPOINT = re.compile(
    r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})\.parquet|\.parquet|\.[0-9a-fA-F-]{36}\.(?:json|parquet))"
)


@dataclass(slots=True)
class Snapshot:
    """A table at a version.

    Attributes:
        protocol, metadata: the last actions of these kinds.
        transactions: the last `txn` of each application.
        domains: the last metadata of each domain, without removed ones.
        files: the table's files, as they were added.
        files_bytes: about how many bytes these take in memory.
    """

    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    transactions: dict[str, dict[str, Any]] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[LogicalFile, dict[str, Any]] = field(default_factory=dict)
    files_bytes: int = 0

    def take(self, actions: Iterable[Action]) -> None:
        """Take one commit in, or a part of a checkpoint: what it removes, then what it adds."""
        adds = []
        for kind, body in map(split, actions):
            match kind:
                case "protocol":
                    self.protocol = body
                case "metaData":
                    self.metadata = body
                case "txn":
                    self.transactions[body["appId"]] = body
                case "domainMetadata":
                    self.domains[body["domain"]] = body
                case "add":
                    adds.append(body)
                case "remove":
                    self._drop(logical_file(body))
        for body in adds:
            file = logical_file(body)
            if file in self.files:
                self._drop(file)
            self.files[file] = body
            self.files_bytes += _bytes_of(body)

    def _drop(self, file: LogicalFile) -> None:
        if (body := self.files.pop(file, None)) is not None:
            self.files_bytes -= _bytes_of(body)

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory."""
        others = (self.protocol, self.metadata, self.transactions, self.domains)
        return self.files_bytes + sum(map(size_of, others))

    @property
    def features(self) -> set[str]:
        """The table features that its protocol names."""
        return features_of(self.protocol)


def _bytes_of(add: Mapping[str, Any]) -> int:
    """Return about how many bytes a file takes in memory; what all files have is not looked at one by one."""
    parts = [part for key in ("partitionValues", "tags", "deletionVector") if (part := add.get(key))]
    return FILE_BYTES + len(add["path"]) + len(add.get("stats") or "") + sum(map(size_of, parts))


def read_snapshot(storage: Storage, location: str, version: int, *, log: LogFiles | None = None) -> Snapshot:
    """Read a table at a version.

    Args:
        log: which files its log has, or those of them that are to be read.

    Raises:
        MissingFilesError: its log does not tell of that version, or not any more.
        CorruptTimelineError: a file of the log is damaged.
        UnsupportedError: the log has to be read from a checkpoint, and pyarrow is not installed.
        UnavailableError: the store failed.
    """
    return _read(storage, location, version, log or log_files(storage, location), _KINDS)


def read_header(storage: Storage, location: str, version: int, log: LogFiles) -> Snapshot:
    """Read a table's protocol and metadata at a version, and nothing else: its files, however many, are not read.

    The version's checksum says both, where the table has one; else its log does.

    Args:
        log: which files the table's log has.

    Raises:
        LockstepError: see `read_snapshot`.
    """
    if version in log.checksums and (checksum := read_checksum(storage, location, version)) is not None:
        return Snapshot(protocol=checksum["protocol"], metadata=checksum["metadata"])
    return _read(storage, location, version, log, _HEADER)


def _read(storage: Storage, location: str, version: int, log: LogFiles, kinds: Collection[str]) -> Snapshot:
    if (missing := log.missing_for(version)) is not None:
        raise MissingFilesError(
            f"version {version} of {location} cannot be read: {commit_path(location, missing)} is gone, and no "
            "checkpoint makes up for it"
        )
    snapshot = Snapshot()
    first = max((each for each in log.checkpoints if each <= version), default=-1)
    if first >= 0:
        for actions in _checkpoint(storage, location, first, kinds):
            snapshot.take(actions)
    for each in range(first + 1, version + 1):
        snapshot.take(_actions(storage, commit_path(location, each), kinds))
    if not snapshot.protocol or not snapshot.metadata:
        raise CorruptTimelineError(f"the log of {location} has no protocol or no metadata up to version {version}")
    return snapshot


# --- checkpoints ------------------------------------------------------------------------------------------------------


def checkpoint_names(names: Iterable[str], version: int) -> list[str]:
    """Return the names of the files that make one whole checkpoint of a version, of those of a log's folder.

    Where there are several checkpoints of the version, any of them says the same: one of a single file is taken first.
    """
    parts: dict[int, dict[int, str]] = {}
    for name in sorted(names):
        match = _CHECKPOINT.fullmatch(name)
        if match is not None and int(match[1]) == version:
            parts.setdefault(int(match[3] or 1), {})[int(match[2] or 1)] = name
    whole = [[found[n] for n in sorted(found)] for of, found in sorted(parts.items()) if len(found) == of]
    return whole[0] if whole else []


def _checkpoint(storage: Storage, location: str, version: int, kinds: Collection[str]) -> Iterator[list[Action]]:
    """Yield the actions of a checkpoint's files, and of its sidecars."""
    folder = f"{location}/{LOG}"
    for name in checkpoint_names(storage.list(folder, after=f"{version:020d}."), version):
        actions = _actions(storage, f"{folder}/{name}", kinds)
        yield actions
        for action in actions:
            if "add" in kinds and (sidecar := action.get("sidecar")) is not None:
                path = sidecar["path"].rpartition("/")[2]
                yield _actions(storage, f"{folder}/{SIDECARS}/{path}", kinds)


def _actions(storage: Storage, path: str, kinds: Collection[str]) -> list[Action]:
    data = storage.get(path)
    if data is None:
        raise MissingFilesError(f"{path} is gone")
    if path.endswith(".parquet"):
        return _read_parquet(path, data, kinds)
    try:
        return parse(data)
    except InvalidError as error:
        raise CorruptTimelineError(f"{path}: {error.message}") from error


def _read_parquet(path: str, data: bytes, wanted: Collection[str]) -> list[Action]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise UnsupportedError(
            f"{path} is a checkpoint of a table's log, and to read it without Spark takes pyarrow: "
            "pip install 'lockstep-delta[parquet]'"
        ) from error
    actions: list[Action] = []
    try:
        file = ParquetFile(BytesIO(data))
        kinds = [kind for kind in wanted if kind in file.schema_arrow.names]
        for batch in file.iter_batches(columns=kinds):
            for row in batch.to_pylist(maps_as_pydicts="strict"):
                actions += ({kind: _action(kind, body)} for kind, body in row.items() if body is not None)
    except (ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise CorruptTimelineError(f"{path}: expected a checkpoint of a Delta table: {error}") from error
    return actions


_MAPS = frozenset({"partitionValues", "tags", "configuration", "options"})
"""Fields that are maps, in which a null means something (a partition of nulls)."""


def _action(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return an action as a commit would have it: without nulls, and without what only checkpoints have."""
    body: dict[str, Any] = _without_nulls({key: value for key, value in row.items() if not key.endswith("_parsed")})
    parsed = row.get("stats_parsed")
    if kind == "add" and "stats" not in body and parsed is not None:
        # Only what must be right: readers do without bounds, but deletion vectors need the number of rows.
        kept = {key: parsed[key] for key in ("numRecords", "tightBounds") if parsed.get(key) is not None}
        body["stats"] = msgspec.json.encode(kept).decode()
    return body


def _without_nulls(body: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(value) if isinstance(value, dict) and key not in _MAPS else value
        for key, value in body.items()
        if value is not None
    }
