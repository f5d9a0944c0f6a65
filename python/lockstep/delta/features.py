"""Delta's table features that Lockstep knows, by the names that a table's protocol has for them."""

from __future__ import annotations

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

MANAGED_ELSEWHERE = frozenset({"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"})
"""The features of a table whose next commit something else than its log decides."""

MAX_READER_VERSION = 3
MAX_WRITER_VERSION = 7
"""The newest protocol: in it, features are named one by one."""
