"""Classic checkpoints of tables' logs, as Delta writes them, with as many columns as are read of one here."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from lockstep.delta.actions import Action, bodies

_MAP = pa.map_(pa.string(), pa.string())
_TEXTS = pa.list_(pa.string())
_FILE = {"path": pa.string(), "dataChange": pa.bool_(), "size": pa.int64()}
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_SCHEMA = pa.schema(
    {
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": _TEXTS,
                "writerFeatures": _TEXTS,
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _MAP}),
                "schemaString": pa.string(),
                "partitionColumns": _TEXTS,
                "configuration": _MAP,
                "createdTime": pa.int64(),
            }
        ),
        "add": pa.struct(
            {
                **_FILE,
                "partitionValues": _MAP,
                "modificationTime": pa.int64(),
                "stats": pa.string(),
                "deletionVector": _VECTOR,
            }
        ),
    }
)


def checkpoint_of(files: Iterable[dict[str, Any]], start: Iterable[Action]) -> bytes:
    """Return the checkpoint of a table that has these files, and began with these actions."""
    actions = [*start]
    rows: list[dict[str, Any]] = [{"protocol": body} for body in bodies(actions, "protocol")]
    rows += [{"metaData": _with_pairs(body, "configuration")} for body in bodies(actions, "metaData")]
    rows += [{"add": _with_pairs(body, "partitionValues")} for body in files]
    out = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), out)
    return out.getvalue()


def _with_pairs(body: dict[str, Any], key: str) -> dict[str, Any]:
    more = {"format": {"provider": "parquet", "options": []}} if "format" in body else {}
    return {**body, **more, key: [*body[key].items()]}
