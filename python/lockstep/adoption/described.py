"""Whether a table is as a CREATE TABLE … LOCATION describes it, which is to take it in as it is. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
        comment: the table's comment.
    """

    schema: str = ""
    partitions: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""


def difference(described: Description, metadata: Mapping[str, Any]) -> str | None:
    """Return how a table of this metadata is not as described; None if it is.

    Columns are compared by name, type, order and NOT NULL, and by what else the statement says of them: comments,
    defaults.
    """
    there = msgspec.json.decode(metadata["schemaString"], type=dict[str, Any])
    partitions = list(metadata.get("partitionColumns") or ())
    if described.schema:
        asked = msgspec.json.decode(described.schema, type=dict[str, Any])
        if asked["fields"] and _bare(asked) != _bare(there):
            return f"its columns are {_listed(there)}, not {_listed(asked)}"
        if asked["fields"] and list(described.partitions) != partitions:
            return f"it is partitioned by {partitions}, not by {list(described.partitions)}"
        if asked["fields"] and (other := next(_otherwise(asked, there), None)) is not None:
            return other
    if described.partitions and list(described.partitions) != partitions:
        return f"it is partitioned by {partitions}, not by {list(described.partitions)}"
    configuration = metadata.get("configuration") or {}
    for key, value in sorted(described.properties.items()):
        if configuration.get(key) != value:
            return f"its property {key} is {configuration.get(key)!r}, not {value!r}"
    if described.comment and metadata.get("description") != described.comment:
        return f"its comment is {metadata.get('description')!r}, not {described.comment!r}"
    return None


def _otherwise(asked: Any, there: Any, place: str = "") -> Iterator[str]:
    """Yield what is said beside the types of columns, and is not so; the types are the same, but for that."""
    if isinstance(asked, list):
        for one, other in zip(asked, there, strict=True):
            yield from _otherwise(one, other, place)
    elif isinstance(asked, dict):
        place = ".".join(part for part in (place, asked.get("name", "")) if part)
        for key, value in sorted(asked.get("metadata", {}).items()):
            found = there.get("metadata", {}).get(_OF_DELTA.get(key, key))
            if key != _OF_OLD_ROWS and (value or None) != (found or None):
                yield f"the {_WORDS.get(key, key)} of its column {place} is {found!r}, not {value!r}"
        for key in ("fields", "type", "elementType", "keyType", "valueType"):
            yield from _otherwise(asked.get(key), there.get(key), place)


_WORDS = {"CURRENT_DEFAULT": "default", "GENERATION_EXPRESSION": "expression"}

_OF_OLD_ROWS = "EXISTS_DEFAULT"
"""What Spark says beside a default: rows that there are before it. A Delta table has none."""

_OF_DELTA = {
    "GENERATION_EXPRESSION": "delta.generationExpression",
    "identity.start": "delta.identity.start",
    "identity.step": "delta.identity.step",
    "identity.allowExplicitInsert": "delta.identity.allowExplicitInsert",
}
"""What Delta calls what Spark says of a column, where the two have other words."""


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
