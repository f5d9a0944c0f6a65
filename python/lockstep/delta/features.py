"""Delta's table features that Lockstep knows, by the names that a table's protocol has for them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

FEATURES = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"),
        *("identityColumns", "allowColumnDefaults", "timestampNtz", "deletionVectors", "rowTracking", "domainMetadata"),
        *("v2Checkpoint", "clustering", "vacuumProtocolCheck", "checkpointProtection", "inCommitTimestamp"),
        *("typeWidening", "typeWidening-preview", "variantType", "variantType-preview"),
        *("variantShredding", "variantShredding-preview", "materializePartitionColumns"),
    }
)
"""The features of which all that a table's state has is in the actions of its log and in the files that those name."""

IN_ADDS = FEATURES | {"icebergCompatV1", "icebergCompatV2", "icebergCompatV3"}
"""Those of which all files that Delta's readers need are in the actions of the log: enough for upkeep."""

MANAGED_ELSEWHERE = frozenset({"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"})
"""The features of a table whose next commit something else than its log decides."""

MAX_READER_VERSION = 3
MAX_WRITER_VERSION = 7
"""The newest protocol: in it, features are named one by one."""


def features_of(protocol: Mapping[str, Any]) -> set[str]:
    """Return the table features that a protocol names."""
    return {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}


def unknown_in(protocol: Mapping[str, Any], known: AbstractSet[str] = FEATURES) -> str | None:
    """Return what a protocol asks for that is not known here, for people; None if all of it is."""
    if unknown := sorted(features_of(protocol) - known):
        return f"the table feature{'s' * (len(unknown) > 1)} {', '.join(unknown)}"
    versions = protocol.get("minReaderVersion", 1), protocol.get("minWriterVersion", 1)
    is_newer = versions[0] > MAX_READER_VERSION or versions[1] > MAX_WRITER_VERSION
    return f"the protocol {versions}" if is_newer else None
