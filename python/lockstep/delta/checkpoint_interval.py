"""When Delta writes a checkpoint of a table: after each version that is a multiple of the table's interval."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

PROPERTY = "delta.checkpointInterval"
DEFAULT = 10
"""What Delta takes for a table that does not say, in table versions."""


def due_checkpoint(versions: Sequence[int], metadata: Mapping[str, Any]) -> int | None:
    """Return the version to write a checkpoint of; None if there is none to write.

    Of several that are due, the last: who reads the table begins with that one.

    Args:
        versions: those that were committed, in order. Others may be between them, which are not ours to look after.
        metadata: the table's at the last of them, the fields of its `metaData` action.
    """
    interval = _interval(metadata)
    return next((v for v in reversed(versions) if v > 0 and v % interval == 0), None) if interval is not None else None


def without_others(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return of a table's metadata what `due_checkpoint` needs."""
    configuration = metadata.get("configuration") or {}
    return {"configuration": {PROPERTY: configuration[PROPERTY]} if PROPERTY in configuration else {}}


def _interval(metadata: Mapping[str, Any]) -> int | None:
    """Return after how many versions one is due; None where the property says what Delta lets nobody set."""
    text = (metadata.get("configuration") or {}).get(PROPERTY, str(DEFAULT))
    return int(text) if isinstance(text, str) and re.fullmatch(r"0*[1-9][0-9]{0,18}", text, re.ASCII) else None
