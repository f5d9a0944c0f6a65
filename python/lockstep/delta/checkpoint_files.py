"""Delta's checkpoints, read without Spark: which files a table has at their version, and which it had until lately.

    <version>.checkpoint.parquet                    a classic one
    <version>.checkpoint.<part>.<of>.parquet        one of several parts
    <version>.checkpoint.<uuid>.json or .parquet    a V2 one, whose `sidecar` actions name files in _sidecars

Only what tells of files, the table's properties and its protocol is read; statistics are not. Parquet needs pyarrow.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from lockstep.delta.actions import Action, parse
from lockstep.delta.log import LOG
from lockstep.delta.snapshot import SIDECARS, checkpoint_names
from lockstep.errors import CorruptTimelineError, InvalidError, UnsupportedError
from lockstep.storage import Storage

_COLUMNS = (
    *("add.path", "add.deletionVector", "remove.path", "remove.deletionTimestamp", "remove.deletionVector"),
    *("metaData.configuration", "protocol.readerFeatures", "protocol.writerFeatures"),
    *("protocol.minReaderVersion", "protocol.minWriterVersion", "sidecar.path"),
)


def can_read() -> bool:
    """Whether Parquet can be read here."""
    return importlib.util.find_spec("pyarrow") is not None


def checkpoint_actions(storage: Storage, location: str, version: int, names: Iterable[str]) -> list[Action]:
    """Return what a whole checkpoint says of files, properties and the protocol.

    Args:
        names: of the files of the table's log.

    Raises:
        UnsupportedError: pyarrow is not installed.
        CorruptTimelineError: a file of it is gone, or is no checkpoint.
        UnavailableError: the store failed.
    """
    files = checkpoint_names(names, version)
    if not files:
        raise CorruptTimelineError(f"{location}/{LOG} has no whole checkpoint of version {version}")
    actions = [action for name in files for action in _read(storage, f"{location}/{LOG}/{name}")]
    folder = f"{location}/{LOG}/{SIDECARS}"
    for spellings in _sidecars(f"{location}/{LOG}", actions):
        name = next((each for each in spellings[:-1] if storage.exists(f"{folder}/{each}")), spellings[-1])
        actions += _read(storage, f"{folder}/{name}")
    return [action for action in actions if "sidecar" not in action]


def sidecars_of(storage: Storage, path: str) -> list[list[str]] | None:
    """Return the sidecars that a checkpoint's file names; None where it is Parquet and nobody can read it.

    Each by all names that it may have: Delta takes a path as it stands, which is the first, and its protocol says that
    it is percent-encoded.

    Raises:
        CorruptTimelineError: the file is gone, or is no checkpoint.
        UnavailableError: the store failed.
    """
    if (data := storage.get(path)) is None:
        raise CorruptTimelineError(f"{path} is gone: expected a checkpoint of a table, or a part of one")
    if path.endswith(".parquet"):
        if not can_read():
            return None
        actions = _read_parquet(path, data, ("sidecar.path",))
    else:
        actions = _parsed(path, data)
    return _sidecars(path, actions)


def _sidecars(where: str, actions: Iterable[Action]) -> list[list[str]]:
    paths = [action["sidecar"].get("path") for action in actions if "sidecar" in action]
    if not all(isinstance(path, str) for path in paths):
        raise CorruptTimelineError(f"{where} is no checkpoint of a table: a sidecar in it has no path")
    return [[*dict.fromkeys(each.rpartition("/")[2] for each in (path, unquote(path)))] for path in paths]


def _read(storage: Storage, path: str) -> list[Action]:
    if (data := storage.get(path)) is None:
        raise CorruptTimelineError(f"{path} is gone: expected a checkpoint of a table, or a part of one")
    if path.endswith(".json"):
        return _parsed(path, data)
    if not can_read():
        raise UnsupportedError(f"{path} is Parquet, which takes pyarrow to read: pip install pyarrow")
    return _read_parquet(path, data, _COLUMNS)


def _parsed(path: str, data: bytes) -> list[Action]:
    try:
        return parse(data)
    except InvalidError as error:
        raise CorruptTimelineError(f"{path}: {error.message}") from error


def _read_parquet(path: str, data: bytes, columns: Iterable[str]) -> list[Action]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pa.BufferReader(data))
        there = {column.path for column in (file.schema.column(n) for n in range(len(file.schema)))}
        wanted = [name for name in columns if any(each == name or each.startswith(f"{name}.") for each in there)]
        rows: list[dict[str, Any]] = file.read(columns=wanted).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise CorruptTimelineError(f"{path} is no checkpoint of a table: {error}") from error
    return [_action(kind, body) for row in rows for kind, body in row.items() if body is not None]


def _action(kind: str, body: dict[str, Any]) -> Action:
    fields = {name: value for name, value in body.items() if value is not None}
    if kind == "metaData":
        fields["configuration"] = dict(fields.get("configuration") or ())
    return {kind: fields}
