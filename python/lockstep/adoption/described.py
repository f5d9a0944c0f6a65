"""Whether a table is as a CREATE TABLE … LOCATION describes it, which is to take it in as it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Description:
    """What a statement says of a table; what it leaves out is as it is.

    Attributes:
        schema: its columns as Spark's JSON of a struct; empty if it names none.
        partitions: its partition columns, in order.
        properties: its table properties.
    """

    schema: str = ""
    partitions: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


def difference(described: Description, metadata: Mapping[str, Any]) -> str | None:
    """Return how a table of this metadata is not as described; None if it is.

    Columns are compared by name, type, order and NOT NULL, and not by what else is said of them.
    """
    there = msgspec.json.decode(metadata["schemaString"], type=dict[str, Any])
    partitions = list(metadata.get("partitionColumns") or ())
    if described.schema:
        asked = msgspec.json.decode(described.schema, type=dict[str, Any])
        if asked["fields"] and _bare(asked) != _bare(there):
            return f"its columns are {_listed(there)}, not {_listed(asked)}"
        if asked["fields"] and list(described.partitions) != partitions:
            return f"it is partitioned by {partitions}, not by {list(described.partitions)}"
    if described.partitions and list(described.partitions) != partitions:
        return f"it is partitioned by {partitions}, not by {list(described.partitions)}"
    configuration = metadata.get("configuration") or {}
    for key, value in sorted(described.properties.items()):
        if configuration.get(key) != value:
            return f"its property {key} is {configuration.get(key)!r}, not {value!r}"
    return None


def _bare(kind: Any) -> Any:
    """Return a type, as Spark's JSON has it, without what is said beside it."""
    if isinstance(kind, dict):
        return {key: _bare(value) for key, value in kind.items() if key != "metadata"}
    return [_bare(each) for each in kind] if isinstance(kind, list) else kind


def _listed(struct: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{column['name']} {_shown(column['type'])}{'' if column['nullable'] else ' NOT NULL'}"
        for column in struct["fields"]
    )


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else msgspec.json.encode(_bare(kind)).decode()
