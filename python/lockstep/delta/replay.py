"""A table as the commits of its log say it is, one after the other (Protocol, "Action Reconciliation").

A checksum is advice: readers do without. But Delta carries it on from version to version, and makes no more
checkpoints of a table whose checksum is not what the log says; so a wrong one is a fault that nobody notices for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lockstep.delta.actions import Action, LogicalFile, logical_file, split

_METADATA = ("id", "schemaString", "partitionColumns", "configuration")
_PROTOCOL = ("minReaderVersion", "minWriterVersion")
_FEATURES = ("readerFeatures", "writerFeatures")


class Replay:
    """A table after the commits taken so far, from its first on."""

    def __init__(self) -> None:
        self._sizes: dict[LogicalFile, int | None] = {}
        self._metadata: dict[str, Any] = {}
        self._protocol: dict[str, Any] = {}
        self._applications: dict[str, int] = {}
        self._domains: dict[str, str] = {}

    def take(self, commit: Sequence[Action]) -> None:
        """Take one commit in: what it removes, then what it adds."""
        actions = sorted(map(split, commit), key=lambda action: action[0] != "remove")
        for kind, body in actions:
            if kind == "remove":
                self._sizes.pop(logical_file(body), None)
            elif kind == "add":
                self._sizes[logical_file(body)] = body.get("size")
            elif kind == "metaData":
                self._metadata = body
            elif kind == "protocol":
                self._protocol = body
            elif kind == "txn":
                self._applications[body["appId"]] = body["version"]
            elif kind == "domainMetadata" and body.get("removed"):
                self._domains.pop(body["domain"], None)
            elif kind == "domainMetadata":
                self._domains[body["domain"]] = body.get("configuration", "")

    def wrong(self, checksum: dict[str, Any]) -> list[str]:
        """Return the fields in which this version's checksum says something else; what it leaves out is not wrong."""
        return sorted(set(self._differences(checksum)))

    def _differences(self, checksum: dict[str, Any]) -> Iterator[str]:
        if checksum.get("numFiles") != len(self._sizes):
            yield "numFiles"
        sizes = [size for size in self._sizes.values() if size is not None]
        if len(sizes) == len(self._sizes) and checksum.get("tableSizeBytes") != sum(sizes):
            yield "tableSizeBytes"
        if (files := checksum.get("allFiles")) is not None and {*map(logical_file, files)} != self._sizes.keys():
            yield "allFiles"
        metadata, protocol = checksum.get("metadata") or {}, checksum.get("protocol") or {}
        if any((metadata.get(name) or None) != (self._metadata.get(name) or None) for name in _METADATA):
            yield "metadata"
        if any(protocol.get(name) != self._protocol.get(name) for name in _PROTOCOL) or any(
            {*(protocol.get(name) or ())} != {*(self._protocol.get(name) or ())} for name in _FEATURES
        ):
            yield "protocol"
        # Delta leaves out applications that it has not heard of for long.
        for txn in checksum.get("setTransactions") or ():
            if self._applications.get(txn["appId"]) != txn["version"]:
                yield "setTransactions"
        if (domains := checksum.get("domainMetadata")) is not None and self._domains != {
            domain["domain"]: domain.get("configuration", "") for domain in domains if not domain.get("removed")
        }:
            yield "domainMetadata"
