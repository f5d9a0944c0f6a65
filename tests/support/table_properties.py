"""Values of tables' properties: by key, those that are taken, and those that are refused."""

from __future__ import annotations

from lockstep.tables.properties import PROPERTIES

BOOLEANS = ["true", "FALSE"], ["", "yes", "1", " true", "null"]
COUNTS = ["1", "+10", "2147483647"], ["0", "-1", "", "1.5", "ten", " 1", "2147483648", "1e3", "0x1"]
INTERVALS = (
    ["7 days", "interval 1 week", "INTERVAL 12 Hours", "1 day 12 hours", "2 days -1 day", "0 seconds", " 1.5 seconds "],
    ["", "7", "days", "1 month", "1 year", "-1 day", "7days", "interval", "1.5 days", "7 days x", "P7D"],
)  # fmt: skip

VALUES: dict[str, tuple[list[str], list[str]]] = {
    **{each.key: BOOLEANS for each in PROPERTIES.values() if each.expected == "true or false"},
    "delta.checkpointInterval": COUNTS,
    "delta.randomPrefixLength": COUNTS,
    "delta.dataSkippingNumIndexedCols": (["-1", "0", "32"], ["-2", "", "all", "1.0", "99999999999"]),
    "delta.deletedFileRetentionDuration": (INTERVALS[0], INTERVALS[1]),
    "delta.logRetentionDuration": (["30 days", "interval 1 week 2 days"], INTERVALS[1]),
    "delta.checkpointRetentionDuration": INTERVALS,
    "delta.sampleRetentionDuration": INTERVALS,
    "delta.setTransactionRetentionDuration": INTERVALS,
    "delta.isolationLevel": (["Serializable", "serializable"], ["SNAPSHOT", "WriteSerializable", ""]),
    "delta.columnMapping.mode": (["none", "name"], ["", "NAME", "names"]),
    "lockstep.external_commits": (["absorb", "warn", "REFUSE"], ["", "never", "true"]),
}
