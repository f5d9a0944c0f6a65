"""What an export writes, from what a database version and its tables' logs say. Pure.

Each table has a new log, of one commit, that says what the table was: so an export has no history, and needs no file
that only older versions have. The database's entry 0 says all else: namespaces, tables, views, and the tags that name
this version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from msgspec import structs

from lockstep.delta.actions import Action, render
from lockstep.delta.features import FEATURES, MAX_READER_VERSION, MAX_WRITER_VERSION
from lockstep.delta.snapshot import Snapshot
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.exports.files import S3, Copy, Place, copied, places_of, referring
from lockstep.lake.exports import ExportRecord
from lockstep.storage.urls import url_below
from lockstep.timeline.database import Database
from lockstep.timeline.entry import (
    FORMAT,
    MAX_ENTRY_BYTES,
    Batch,
    Entry,
    NamespaceDdl,
    Origin,
    Table,
    TableDdl,
    TagDdl,
    TransactionInfo,
    ViewDdl,
)
from lockstep.timeline.files import encode
from lockstep.transactions.folders import is_own, new_location

OF_THE_OLD_LOG = frozenset(
    {
        "delta.inCommitTimestampEnablementVersion",
        "delta.inCommitTimestampEnablementTimestamp",
        "delta.requireCheckpointProtectionBeforeVersion",
    }
)
"""Properties that say something of versions of the log that the table had: the new one has none before its first."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """What an export writes of one table.

    Attributes:
        table: as the database version has it, but for where the export has it.
        sources: where its files are, which must be there.
        commit: the first commit of its new log.
        copies: the files that the export has of its own.
    """

    table: Table
    sources: tuple[Place, ...]
    commit: tuple[Action, ...]
    copies: tuple[Copy, ...]

    @property
    def files(self) -> int:
        """How many data files it has."""
        return sum("add" in action for action in self.commit)

    @property
    def size(self) -> int:
        """How many bytes they have."""
        return sum(action["add"]["size"] for action in self.commit if "add" in action)

    def render(self) -> bytes:
        """Return the commit as a file."""
        return render(self.commit)


def plan_table(
    record: ExportRecord, database: Database, table: Table, snapshot: Snapshot, *, s3: S3 = "s3"
) -> TablePlan:
    """Return what an export writes of a table, given how it was.

    Args:
        record: the export.
        database: the version that is exported.
        table: as that has it.
        snapshot: what the table's log says of it.
        s3: what S3 is called in the names of files that a partial export leaves where they are.

    Raises:
        UnsupportedError: it has a feature of which nobody knows whether all would be taken along.
        CorruptTimelineError: a path in its log names no file.
    """
    _check_features(table, snapshot)
    adds: list[Action] = []
    copies: dict[str, Copy] = {}
    sources: dict[Place, None] = {}
    location, root, target = table.location, record.source, location_in_export(table)
    for _, add in sorted(snapshot.files.items(), key=lambda file: (file[0][0], file[0][1] or "")):
        sources |= dict.fromkeys(places_of(add, location, root))
        if record.mode == "full":
            body, of_file = copied(add, location=location, root=root, target=target)
            copies |= {copy.path: copy for copy in of_file}
        else:
            body = referring(add, location=location, root=root, s3=s3)
        adds.append({"add": _first_added(body)})
    return TablePlan(
        table=structs.replace(table, location=target),
        sources=tuple(sources),
        commit=(*_header(record, database, table, snapshot), *adds),
        copies=tuple(copies.values()),
    )


def location_in_export(table: Table) -> str:
    """Return where an export has a table: where the lake has it, if the lake made that folder; else in a new one."""
    return table.location if is_own(table.location, table.id) else new_location(table.name, table.id)


def _check_features(table: Table, snapshot: Snapshot) -> None:
    if unknown := sorted(snapshot.features - FEATURES):
        raise UnsupportedError(
            f"table {table.name} cannot be exported: it has the table feature{'' if len(unknown) == 1 else 's'} "
            f"{', '.join(unknown)}, and what that needs beside the table's files is not known. Nothing was written. "
            "DROP FEATURE, or copy the table with CTAS"
        )
    protocol = snapshot.protocol
    is_newer = protocol.get("minReaderVersion", 1) > MAX_READER_VERSION
    if is_newer or protocol.get("minWriterVersion", 2) > MAX_WRITER_VERSION:
        raise UnsupportedError(f"table {table.name} cannot be exported: its protocol is newer than this Lockstep knows")


def _first_added(add: dict[str, Any]) -> dict[str, Any]:
    """Return a file as the first commit of a log adds it: rows keep their ids, and are as old as the log."""
    body = {**add, "dataChange": True}
    if "defaultRowCommitVersion" in body:
        body["defaultRowCommitVersion"] = 0
    return body


def _header(record: ExportRecord, database: Database, table: Table, snapshot: Snapshot) -> list[Action]:
    """Return all of a first commit but the files."""
    configuration: Mapping[str, str] = snapshot.metadata.get("configuration") or {}
    milliseconds = int(database.committed_at.timestamp() * 1000)
    info: dict[str, Any] = {
        "timestamp": milliseconds,
        "operation": "CLONE",
        "operationParameters": {
            "source": url_below(record.source, table.location),
            "sourceVersion": str(table.version),
            "isShallow": "false" if record.mode == "full" else "true",
        },
        "isBlindAppend": False,
        "engineInfo": "Lockstep",
        "txnId": record.id,
    }
    if configuration.get("delta.enableInCommitTimestamps", "").lower() == "true":
        info = {"inCommitTimestamp": milliseconds, **info}
    metadata = {
        **snapshot.metadata,
        # Another table than the one that it was made of: who reads one as a stream must not go on with the other.
        "id": str(uuid5(NAMESPACE_OID, f"{record.id}/{table.id}")),
        "configuration": {key: value for key, value in configuration.items() if key not in OF_THE_OLD_LOG},
    }
    transactions = [txn for _, txn in sorted(snapshot.transactions.items())]
    domains = [domain for _, domain in sorted(snapshot.domains.items()) if not domain.get("removed")]
    return [
        {"commitInfo": info},
        {"protocol": snapshot.protocol},
        {"metaData": metadata},
        *({"txn": txn} for txn in transactions),
        *({"domainMetadata": domain} for domain in domains),
    ]


# --- the database -----------------------------------------------------------------------------------------------------


def plan_entry(record: ExportRecord, database: Database) -> Entry:
    """Return the entry that says what a database version was, as the first of the export's own timeline.

    Of a minimal export, the tables are at the versions of this lake's logs; of others at the first of their new ones.

    Raises:
        InvalidError: it is larger than an entry may be.
    """
    is_minimal = record.mode == "minimal"
    entry = Entry(
        format=FORMAT,
        version=0,
        committed_at=database.committed_at,
        kind="create",
        transaction=TransactionInfo(
            id=record.id,
            began_at=record.created_at,
            base_version=-1,
            isolation="SERIALIZABLE",
            author=record.author,
            statements=[record.statement] if record.statement else [],
        ),
        namespaces=[
            NamespaceDdl(action="create", name=name, properties=properties)
            for name, properties in sorted(database.namespaces.items())
        ],
        tables=[
            TableDdl(
                action="create",
                id=table.id,
                name=table.name,
                location=table.location if is_minimal else location_in_export(table),
                version=table.version if is_minimal else 0,
            )
            for table in sorted(database.tables.values(), key=lambda table: table.name)
        ],
        views=[
            ViewDdl(action="create", name=view.name, definition=view.definition)
            for view in sorted(database.views.values(), key=lambda view: view.name)
        ],
        tags=[
            TagDdl(action="create", name=tag.name, version=0, retain_until=tag.retain_until, comment=tag.comment)
            for _, tag in sorted(database.tags.items())
            if tag.version == database.version
        ],
        origin=Origin(
            export=record.id,
            mode=record.mode,
            root=record.source,
            version=record.database_version,
            batches=[Batch(application=name, number=number) for name, number in sorted(database.batches.items())],
        ),
    )
    entry = structs.replace(entry, format=entry.needed_format)
    if len(encode(entry)) > MAX_ENTRY_BYTES:
        raise InvalidError(
            f"database version {record.database_version} cannot be exported: what it says of its "
            f"{len(database.tables)} tables and {len(database.views)} views is more than the {MAX_ENTRY_BYTES} bytes "
            "that an entry may have. Nothing was written"
        )
    return entry
