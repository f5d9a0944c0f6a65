"""What a change of a table's metadata or protocol asks of commits beside it that saw the table as it was before.

A `metaData` action repeats all of the metadata, so what it changes shows only beside the one before it:

    properties  what neither a writer nor a row has to heed: properties of users, a few of Delta's, comments
    marks       the high-water marks of identity columns, moved on (Protocol, "Identity Columns")
    columns     nullable columns, appended at the top level; files without them read as NULL
    other       all else, and whatever is in doubt

Of a `protocol` action:

    features    features that ask nothing of a writer by being supported alone (Protocol, "Active Features")
    other       all else

These stay `other` on purpose: ADD CONSTRAINT, NOT NULL, defaults and generated columns (rows would go unchecked, or
lack values); appends only, and no deletion vectors any more (files would be changed that must not be); change data
feed, row tracking, in-commit timestamps and Iceberg compatibility (each commit must carry more); column mapping (files
name columns otherwise); another order of columns, another type, CREATE OR REPLACE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

Body: TypeAlias = Mapping[str, Any]
Kinds: TypeAlias = frozenset[str]
"""Of a change: none of them is no change."""

PROPERTIES, MARKS, COLUMNS, FEATURES, OTHER = "properties", "marks", "columns", "features", "other"
NOTHING: Kinds = frozenset()
UNCLEAR: Kinds = frozenset({OTHER})


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table version says of the table: the fields of its last `metaData` and `protocol` actions."""

    metadata: Body
    protocol: Body


def collide(ours: Kinds, theirs: Kinds) -> bool:
    """Tell whether two changes of one table, of its metadata or of its protocol, cannot both land.

    Both would say the whole of it, so the second would undo the first. One alone can, if it is understood.
    """
    return bool(ours and theirs) or OTHER in ours | theirs


def evolve(before: TableState | None, metadata: Sequence[Body], protocols: Sequence[Body]) -> tuple[Kinds, Kinds]:
    """Classify what consecutive commits change of a table's metadata, and of its protocol.

    Args:
        before: the table before them; None if that is not known.
        metadata, protocols: the fields of their actions, in order.

    Returns:
        The kinds of all steps together: a change that is taken back is a change.
    """
    if before is None:
        return (UNCLEAR if metadata else NOTHING), (UNCLEAR if protocols else NOTHING)
    steps = zip((before.metadata, *metadata), metadata, strict=False)
    upgrades = zip((before.protocol, *protocols), protocols, strict=False)
    return (
        NOTHING.union(*(metadata_change(old, new) for old, new in steps)),
        NOTHING.union(*(protocol_change(old, new, before.metadata) for old, new in upgrades)),
    )


# --- metadata ---------------------------------------------------------------------------------------------------------

INERT = frozenset(
    {
        "delta.autooptimize",
        "delta.autooptimize.autocompact",  # what is compacted after a commit
        "delta.autooptimize.optimizewrite",  # how rows are shared out among files
        "delta.checkpointinterval",
        "delta.deletedfileretentionduration",  # what VACUUM keeps
        "delta.enableexpiredlogcleanup",
        "delta.logretentionduration",  # what log clean-up keeps
        "delta.settransactionretentionduration",
        "delta.targetfilesize",
        "delta.tunefilesizesforrewrites",
    }
)
"""Delta's properties, in lower case, that say how maintenance works and how large files are, never what they hold."""

_COLUMN_IDS = "delta.columnmapping.maxcolumnid"
_HIGH_WATER_MARK = "delta.identity.highWaterMark"
_STEP = "delta.identity.step"
_NEW_COLUMN_MAY_SAY = frozenset({"comment", "delta.columnMapping.id", "delta.columnMapping.physicalName"})
_SAID_ELSEWHERE = ("name", "description", "configuration", "schemaString")


def metadata_change(before: Body, after: Body) -> Kinds:
    """Classify one change of metadata; at least one kind, for an action that changes nothing repeats the metadata."""
    if _without(before, *_SAID_ELSEWHERE) != _without(after, *_SAID_ELSEWHERE):
        return UNCLEAR  # id, format, partition columns, time of creation: another table
    columns = _columns_change(before, after)
    properties = _changed_properties(before, after)
    if COLUMNS in columns and _ids_moved_on(before, after):
        properties -= {_COLUMN_IDS}
    harmless = all(key in INERT or not key.startswith("delta.") for key in properties)
    return columns | {PROPERTIES} if harmless and OTHER not in columns else UNCLEAR


def _without(body: Body, *keys: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in keys and value is not None}


def _changed_properties(before: Body, after: Body) -> set[str]:
    """Return the keys set, changed or unset, in lower case: Delta compares those of its own without it."""
    old, new = (body.get("configuration") or {} for body in (before, after))
    return {key.lower() for key in old.keys() | new.keys() if old.get(key) != new.get(key)}


def _ids_moved_on(before: Body, after: Body) -> bool:
    """Tell whether the greatest id of a column only rose, as it does with each new one (Protocol, "Column Mapping")."""
    ids = [
        _integer(value)
        for body in (before, after)
        for key, value in (body.get("configuration") or {}).items()
        if key.lower() == _COLUMN_IDS
    ]
    return len(ids) == 2 and None not in ids and ids[0] <= ids[1]  # type: ignore[operator]  # no None is left


def _columns_change(before: Body, after: Body) -> Kinds:
    if before.get("schemaString") == after.get("schemaString"):
        return NOTHING
    old, new = _fields(before), _fields(after)
    if old is None or new is None or len(new) < len(old):
        return UNCLEAR
    kinds = NOTHING.union(*(_field_change(one, other) for one, other in zip(old, new, strict=False)))
    new_fields = new[len(old) :]
    if not all(map(_is_plain, new_fields)):
        return UNCLEAR
    return kinds | {COLUMNS} if new_fields else kinds


def _fields(metadata: Body) -> list[dict[str, Any]] | None:
    """Return the columns of a schema (Protocol, "Schema Serialization Format"); None if it cannot be read."""
    try:
        schema = msgspec.json.decode(metadata.get("schemaString") or "", type=dict[str, Any])
        return msgspec.convert(schema["fields"], list[dict[str, Any]])
    except (KeyError, msgspec.MsgspecError, RecursionError):
        return None


def _field_change(before: dict[str, Any], after: dict[str, Any]) -> Kinds:
    if _without(before, "metadata") != _without(after, "metadata"):
        return UNCLEAR
    old, new = (field.get("metadata") or {} for field in (before, after))
    if _without(old, "comment", _HIGH_WATER_MARK) != _without(new, "comment", _HIGH_WATER_MARK):
        return UNCLEAR
    if (mark := new.get(_HIGH_WATER_MARK)) == (last := old.get(_HIGH_WATER_MARK)):
        return NOTHING
    return frozenset({MARKS}) if _moved_on(last, mark, old.get(_STEP)) else UNCLEAR


def _moved_on(last: Any, mark: Any, step: Any) -> bool:
    """Tell whether a mark is one that later ids lie behind, in the direction of the step."""
    if type(mark) is not int or type(step) is not int:
        return False
    return last is None or (type(last) is int and (mark - last) * step > 0)


def _is_plain(field: dict[str, Any]) -> bool:
    """Tell whether a new column asks nothing of a row without it."""
    return field.get("nullable") is True and _says_little(field)


def _says_little(part: Any) -> bool:
    """Tell whether a field, and all that is nested in its type, has no metadata beyond a comment and its mapping."""
    if isinstance(part, list):
        return all(map(_says_little, part))
    if not isinstance(part, dict):
        return True
    return (part.get("metadata") or {}).keys() <= _NEW_COLUMN_MAY_SAY and all(
        _says_little(value) for key, value in part.items() if key != "metadata"
    )


def _integer(text: Any) -> int | None:
    return int(text) if isinstance(text, str) and re.fullmatch(r"[0-9]{1,10}", text) else None


# --- protocol ---------------------------------------------------------------------------------------------------------

ACTS_BY: Mapping[str, str] = {
    "allowColumnDefaults": "CURRENT_DEFAULT",
    "appendOnly": "delta.appendOnly",
    "changeDataFeed": "delta.enableChangeDataFeed",
    "checkConstraints": "delta.constraints.",
    "columnMapping": "delta.columnMapping.",
    "deletionVectors": "delta.enableDeletionVectors",
    "domainMetadata": "",  # by actions of its own
    "generatedColumns": "delta.generationExpression",
    "identityColumns": "delta.identity.",
    "invariants": "delta.invariants",
    "timestampNtz": "timestamp_ntz",
    "typeWidening": "delta.typeChanges",
    "v2Checkpoint": "",  # in checkpoints alone
    "vacuumProtocolCheck": "",  # on VACUUM alone
}
"""By feature, what its section of the Protocol acts through, as it stands in the metadata; without, it asks nothing.

Not here, though they could be read so: rowTracking (each new file needs row ids as soon as it is supported),
catalogManaged (commits go elsewhere), clustering (files need statistics, by a domain of the same commit).
"""

_LEGACY_WRITER = {
    2: {"appendOnly", "invariants"},
    3: {"checkConstraints"},
    4: {"changeDataFeed", "generatedColumns"},
    5: {"columnMapping"},
    6: {"identityColumns"},
}
"""By writer version, what came with it (Protocol, "Writer Version Requirements")."""

_FEATURE_READER, _FEATURE_WRITER = 3, 7
"""The versions that list their features."""


def protocol_change(before: Body, after: Body, metadata: Body) -> Kinds:
    """Classify one change of protocol.

    Args:
        before, after: the fields of the two actions.
        metadata: of the table; a feature that comes to what it acts through is active at once.
    """
    old, new = supported(before), supported(after)
    if old is None or new is None or not old <= new:
        return UNCLEAR
    if any(after[version] < before[version] for version in ("minReaderVersion", "minWriterVersion")):
        return UNCLEAR
    text = str(msgspec.json.encode([metadata.get("configuration"), metadata.get("schemaString")]), "utf-8").lower()
    asleep = all(name in ACTS_BY and not (ACTS_BY[name] and ACTS_BY[name].lower() in text) for name in new - old)
    return frozenset({FEATURES}) if asleep else UNCLEAR


def supported(protocol: Body) -> Kinds | None:
    """Return the names of the features that writers must know; None if the versions are not understood."""
    reader, writer = protocol.get("minReaderVersion"), protocol.get("minWriterVersion")
    if type(reader) is not int or type(writer) is not int or not 1 <= reader <= _FEATURE_READER:
        return None
    if writer == _FEATURE_WRITER:
        return frozenset(protocol.get("writerFeatures") or ()) | frozenset(protocol.get("readerFeatures") or ())
    if not 1 <= writer < _FEATURE_WRITER or reader == _FEATURE_READER:
        return None
    return NOTHING.union(*(names for version, names in _LEGACY_WRITER.items() if version <= writer))
