"""What a table is, as far as who reads and writes it without Spark must know; and what is refused, by name.

A table feature is understood, asleep (nothing in the table acts through it), or refused: an unknown one always is. So
nothing is written into a table of which anything would have to be kept that nobody here keeps.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa

from lockstep.delta.actions import CLUSTERING, ROW_TRACKING
from lockstep.delta.combine.evolution import supported
from lockstep.errors import CorruptTimelineError, InvalidError, ReadOnlyError, UnsupportedError
from lockstep.tables.clustering import Path, clustered_by, with_statistics
from lockstep.tables.generated import FEATURE as GENERATED
from lockstep.tables.generated import KEY as EXPRESSION
from lockstep.tables.generated import in_duckdb, is_generated
from lockstep.tables.identity import unknown_identities
from lockstep.tables.mapping import LAST_ID, MODE, NewName, is_mapped_by, new_physical_name, numbered, physical_name
from lockstep.tables.properties import check_retention, check_set, spelled
from lockstep.tables.row_ids import COLUMNS as ROW_ID_COLUMNS
from lockstep.tables.row_ids import ENABLED, SUSPENDED, have_ids
from lockstep.tables.schema import DeltaType, arrow_field, delta_struct, not_null_fields
from lockstep.tables.spark_sql import condition_in_duckdb, default_in_duckdb
from lockstep.tables.widening import FEATURES as WIDENING
from lockstep.tables.widening import unknown_changes

RESERVED = "__lockstep"
"""How no column of a table may begin that is written here: what DuckDB is given beside the table's own does."""

INDEXED_COLUMNS = 32
"""So many columns have statistics, those of structs counted one by one: Delta's `dataSkippingNumIndexedCols`."""

_UNDERSTOOD = frozenset(
    {
        *("allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping"),
        *("deletionVectors", "inCommitTimestamp", "timestampNtz", "v2Checkpoint"),
        *("clustering", "rowTracking", *WIDENING),
    }
)
_AS_IT_IS = frozenset({"vacuumProtocolCheck", "domainMetadata"})
"""Features that ask nothing of who adds and removes files."""

_ACTS_BY: Mapping[str, str] = {
    "generatedColumns": "delta.generationExpression",
    "identityColumns": "delta.identity.",
    "invariants": "delta.invariants",
    "char and varchar columns": "__CHAR_VARCHAR_TYPE_STRING",
    "collations": "__COLLATIONS",
}
"""By feature, what stands in a table's metadata if it is awake."""

_READ_AS_IT_IS = frozenset(
    {"deletionVectors", "columnMapping", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", *WIDENING}
)

VECTORS = "delta.enableDeletionVectors"
APPEND_ONLY = "delta.appendOnly"
CHANGE_FEED = "delta.enableChangeDataFeed"
CHANGE_FEED_OF_OLD = "delta.enableChangeDataCapture"
"""What Delta goes by where a table does not have the other."""
COMMIT_TIMES = "delta.enableInCommitTimestamps"
CONSTRAINT = "delta.constraints."
DEFAULT = "CURRENT_DEFAULT"
INDEXED = "delta.dataSkippingNumIndexedCols"
INDEXED_BY_NAME = "delta.dataSkippingStatsColumns"
MANIFESTS = "delta.compatibility.symlinkFormatManifest.enabled"

BY_DOMAINS = frozenset({"clustering", "rowTracking"})
"""Features that act through a table's metadata domains."""

_OF_FEEDS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""Columns that readers of a change data feed get, beside the table's."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's columns, and how its files are written.

    Attributes:
        name: what to call the table.
        fields: its columns, as Delta's schema has them.
        partitioned_by: the names of those that are no part of data files.
        configuration: its properties.
        features: the table features that its protocol names.
        reader_features: those of them that readers must know.
        protocol, metadata: the actions that say all this, their fields.
        domains: its metadata domains; None where nobody asked for them.
    """

    name: str
    fields: tuple[dict[str, Any], ...]
    partitioned_by: tuple[str, ...]
    configuration: Mapping[str, str]
    features: frozenset[str]
    reader_features: frozenset[str]
    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]
    domains: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def schema(self) -> pa.Schema:
        """Its columns as Arrow's.

        Raises:
            UnsupportedError: a type that only Spark can read.
        """
        return pa.schema([arrow_field(field, field["name"]) for field in self.fields])

    @property
    def types(self) -> dict[str, DeltaType]:
        """By name of a column, its Delta type."""
        return {field["name"]: field["type"] for field in self.fields}

    @property
    def is_mapped(self) -> bool:
        """Whether its columns have other names in files."""
        return is_mapped_by(self.configuration)

    @property
    def has_vectors(self) -> bool:
        """Whether rows may go by deletion vectors."""
        return self._is_on(VECTORS) and "deletionVectors" in self.features

    @property
    def has_feed(self) -> bool:
        """Whether a commit that changes rows tells which, beside the files that it adds and removes."""
        return self._is_on(CHANGE_FEED if CHANGE_FEED in self.configuration else CHANGE_FEED_OF_OLD)

    @property
    def has_commit_times(self) -> bool:
        """Whether each commit says when it was made, later than the one before."""
        return self._is_on(COMMIT_TIMES) and "inCommitTimestamp" in self.features

    @property
    def constraints(self) -> dict[str, str]:
        """By name, its CHECK constraints, conditions of Spark's."""
        found = ((key, text) for key, text in self.configuration.items() if key.lower().startswith(CONSTRAINT))
        return {key[len(CONSTRAINT) :]: text for key, text in found}

    @property
    def checks(self) -> dict[str, str]:
        """Its CHECK constraints as conditions of DuckDB's, for a table that `check_writable` takes."""
        found = {name: condition_in_duckdb(text, self.types) for name, text in self.constraints.items()}
        return {name: text for name, text in found.items() if text is not None}

    @property
    def generated(self) -> dict[str, str]:
        """Its generated columns as DuckDB's SQL over the others, for a table that `check_writable` takes."""
        found = {field["name"]: self._generated(field) for field in self.fields if is_generated(field)}
        return {name: text for name, text in found.items() if text is not None}

    def _generated(self, field: Mapping[str, Any]) -> str | None:
        others = {each["name"]: each["type"] for each in self.fields if not is_generated(each)}
        return in_duckdb(field, others)

    @property
    def _unknown_generated(self) -> set[str]:
        """What is refused of generated columns; nothing where all of them are known."""
        columns = [field for field in self.fields if is_generated(field)]
        if GENERATED not in self.features or self._metadata_text.count(EXPRESSION) > len(columns):
            return {GENERATED}
        unknown = {
            f"{GENERATED} ({field['name']}: {field['metadata'][EXPRESSION]}), which only Spark computes"
            for field in columns
            if self._generated(field) is None
        }
        texts = {name for name in self.partitioned_by if self.types[name] == "string"}
        return unknown | ({f"{GENERATED} beside partitions by texts, where an empty one is null"} if texts else set())

    def default(self, column: str) -> str | None:
        """Return what a column is in rows that do not have it, as DuckDB's SQL; None if it is null.

        Raises:
            UnsupportedError: Spark's SQL has a default for it that DuckDB may not take as Spark does.
        """
        [field] = [field for field in self.fields if field["name"] == column]
        if (text := field["metadata"].get(DEFAULT)) is None:
            return None
        if (sql := default_in_duckdb(text, field["type"])) is None:
            self._refuse({f"allowColumnDefaults ({column}: {text}), and rows do not have that column"}, "written")
        return sql

    @property
    def indexed(self) -> int:
        """How many columns have statistics, those of structs counted one by one; -1 for all."""
        if INDEXED_BY_NAME in self.configuration:
            return 0  # fewer statistics than the table asks for are still right
        text = self.configuration.get(INDEXED, str(INDEXED_COLUMNS))
        return int(text) if re.fullmatch(r"-1|[0-9]{1,6}", text) else 0

    @property
    def clustered_by(self) -> tuple[Path, ...]:
        """The columns that it is clustered by, by their names in files; none where its domains are not known."""
        return clustered_by(self.name, self.domains or {})

    def _is_on(self, key: str) -> bool:
        return is_on(self.configuration, key)

    def check_readable(self) -> None:
        """Raise unless rows can be read from its files here.

        Raises:
            UnsupportedError: with the features for which they cannot.
        """
        awake = {name for name, text in _ACTS_BY.items() if text in self._metadata_text}
        refused = set(self.reader_features - _READ_AS_IT_IS) - (_ACTS_BY.keys() - awake)
        if self.configuration.get(MODE, "none") not in ("none", "name"):
            refused.add("columnMapping by id")
        refused |= self._unknown_changes
        self._refuse(refused, "read in a transaction")
        self.schema  # noqa: B018  # its types are asked for, too

    @property
    def gives_row_ids(self) -> bool:
        """Whether each new file has row ids."""
        return "rowTracking" in self.features and not self._is_on(SUSPENDED)

    @property
    def keeps_row_ids(self) -> bool:
        """Whether readers go by row ids, so that a commit says whether rows kept theirs."""
        return "rowTracking" in self.features and self._is_on(ENABLED)

    @property
    def row_id_columns(self) -> tuple[str, ...]:
        """The columns of files that keep the ids of rows, and the versions that they came with; none where none do."""
        has_them = self.keeps_row_ids and self._has_places_for_ids
        return tuple(self.configuration[key] for key in ROW_ID_COLUMNS) if has_them else ()

    def check_restorable(self) -> None:
        """Raise if files that come back would have to come with the row ids that they had.

        Raises:
            UnsupportedError: the table has row tracking.
        """
        if "rowTracking" in self.features:
            self._refuse({"rowTracking, and rows come back with the ids that they had"}, "restored")

    def check_row_ids(self, adds: Iterable[Mapping[str, Any]]) -> None:
        """Raise if files that stay have no row ids, and each file that is committed must have them.

        Raises:
            UnsupportedError: row tracking was set for a table that had rows, and they have not been given ids yet.
        """
        if self.gives_row_ids and not all(have_ids(add) for add in adds):
            self._refuse({"rowTracking, and some of the rows that stay have no row ids yet"}, "written")

    def check_writable(self, *, only_appends: bool, changes_rows: bool | None = None) -> None:
        """Raise unless files of its may be added, and removed, here.

        Args:
            only_appends: whether rows only come.
            changes_rows: whether rows that are there may be changed, and come to be in another file; if not said, where
                rows do not only come.

        Raises:
            UnsupportedError: with the features for which they may not.
            ReadOnlyError: rows are to go from a table that is for appends alone.
        """
        changes_rows = not only_appends if changes_rows is None else changes_rows
        awake = {name for name, text in _ACTS_BY.items() if text in self._metadata_text}
        if not changes_rows:
            awake -= {"identityColumns"}
            awake |= {f"identityColumns ({name}), not as they are known" for name in unknown_identities(self.fields)}
        if GENERATED in awake:
            awake = (awake - {GENERATED}) | self._unknown_generated
        refused = awake | (self.features - _UNDERSTOOD - _AS_IT_IS - _ACTS_BY.keys() - {"columnMapping"})
        if self.configuration.get(MODE, "none") not in ("none", "name"):
            refused.add("columnMapping by id")
        refused |= {
            f"checkConstraints ({name}: {text}) whose condition only Spark judges"
            for name, text in self.constraints.items()
            if condition_in_duckdb(text, self.types) is None
        }
        if self.has_feed and (taken := _OF_FEEDS & self.types.keys()):
            refused.add(f"changeDataFeed beside columns called {', '.join(sorted(taken))}")
        refused |= self._unknown_changes | self._without_statistics
        refused |= {
            f"partitions by {name}, a binary column, whose values the log has no certain text for"
            for name in self.partitioned_by
            if self.types.get(name) == "binary"
        }
        if self._is_on(MANIFESTS):  # which Spark then mends for the partitions of its own commits alone
            refused.add(f"manifests for other readers, which only Spark writes anew ({MANIFESTS})")
        if "rowTracking" in self.features and (self.domains is None or "domainMetadata" not in self.features):
            refused.add(f"rowTracking, whose highest id its domain {ROW_TRACKING} tells")
        elif self.keeps_row_ids and not only_appends and not self._has_places_for_ids:
            refused.add(f"rowTracking, without columns for ids of rows that move to other files ({ROW_ID_COLUMNS[0]})")
        self._refuse(refused, "written")
        if not only_appends and self._is_on(APPEND_ONLY):
            raise ReadOnlyError(f"table {self.name} is for appends alone ({APPEND_ONLY} is true)")
        if names := [name for name in self.types if name.casefold().startswith(RESERVED)]:
            raise UnsupportedError(f"table {self.name} has the column {names[0]}, and {RESERVED}… is Lockstep's own")
        self.schema  # noqa: B018  # its types are asked for, too

    @property
    def _has_places_for_ids(self) -> bool:
        columns = {physical_name(field, is_mapped=self.is_mapped).lower() for field in self.fields}
        named = {self.configuration.get(key, "").lower() for key in ROW_ID_COLUMNS} - columns - {""}
        return self.gives_row_ids and len(named) == len(ROW_ID_COLUMNS)

    @property
    def _unknown_changes(self) -> set[str]:
        return {f"typeWidening ({change})" for change in unknown_changes(self.fields)}

    @property
    def _without_statistics(self) -> set[str]:
        """What it is clustered by, and files that are written here would have no statistics of."""
        if "clustering" not in self.features:
            return set()
        if self.domains is None:
            return {f"clustering, by columns that its {CLUSTERING} tells"}
        inside = (field for field in self.fields if field["name"] not in self.partitioned_by)
        known = with_statistics(inside, self.indexed, is_mapped=self.is_mapped)
        lacking = (".".join(path) for path in self.clustered_by if path not in known)
        return {f"clustering by {column}, of which files have no statistics ({INDEXED})" for column in lacking}

    @property
    def _metadata_text(self) -> str:
        return msgspec.json.encode([dict(self.configuration), list(self.fields)]).decode()

    def _refuse(self, features: set[str], verb: str) -> None:
        if features:
            raise UnsupportedError(
                f"table {self.name} cannot be {verb} without Spark, for it uses {', '.join(sorted(features))}; nothing "
                "was written. Use Spark with Lockstep for this table"
            )


def is_on(configuration: Mapping[str, str], key: str) -> bool:
    """Tell whether a property is true."""
    return str(configuration.get(key, "false")).lower() == "true"


def layout_of(
    name: str,
    protocol: Mapping[str, Any],
    metadata: Mapping[str, Any],
    domains: Mapping[str, Mapping[str, Any]] | None = None,
) -> Layout:
    """Return the layout of a table by the last `protocol` and `metaData` actions of its log, and its domains.

    Raises:
        UnsupportedError: a protocol that is newer than this Lockstep.
        CorruptTimelineError: a schema that cannot be read.
    """
    features = supported(protocol)
    if features is None:
        raise UnsupportedError(f"table {name} has a protocol that is not known here: {dict(protocol)}")
    try:
        fields = msgspec.json.decode(metadata["schemaString"], type=dict[str, Any])["fields"]
        return Layout(
            name=name,
            fields=tuple(msgspec.convert(fields, list[dict[str, Any]])),
            partitioned_by=tuple(metadata.get("partitionColumns") or ()),
            configuration=metadata.get("configuration") or {},
            features=features,
            reader_features=_of_readers(protocol),
            protocol=protocol,
            metadata=metadata,
            domains=domains,
        )
    except (KeyError, msgspec.MsgspecError, RecursionError) as error:
        raise CorruptTimelineError(f"table {name} has a schema that cannot be read: {error}") from error


def _of_readers(protocol: Mapping[str, Any]) -> frozenset[str]:
    if protocol["minReaderVersion"] >= 3:
        return frozenset(protocol.get("readerFeatures") or ())
    return frozenset({"columnMapping"} if protocol["minReaderVersion"] == 2 else ())


def new_table(
    name: str,
    schema: pa.Schema,
    partitioned_by: tuple[str, ...],
    properties: Mapping[str, str],
    *,
    id: str,
    now_ms: int,
    new_name: NewName = new_physical_name,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the `protocol` and `metaData` actions of a new table, their fields.

    Raises:
        InvalidError: columns, partitioning or properties that a Delta table cannot have.
        UnsupportedError: a type, or a property, that is not known here.
    """
    struct = delta_struct(schema)
    if (path := next((path for path, is_within in not_null_fields(struct["fields"]) if is_within), None)) is not None:
        raise InvalidError(f"field {path} cannot be NOT NULL: within arrays and maps Delta sees to none of that")
    _check_partitioning(struct, partitioned_by)
    properties = spelled(properties)
    check_set(properties, name, is_new=True)
    check_retention(properties, properties, name)
    if is_mapped_by_name := is_mapped_by(properties):
        struct["fields"] = numbered(struct["fields"], numbers := count(1), new_name)
        properties = {**properties, LAST_ID: str(next(numbers) - 1)}
    text = msgspec.json.encode(struct).decode()
    features = {name for key, name in _FEATURE_OF.items() if is_on(properties, key)}
    if '"timestamp_ntz"' in text:
        features.add("timestampNtz")
    if is_mapped_by_name:
        features.add("columnMapping")
    protocol = with_features({"minReaderVersion": 1, "minWriterVersion": 2}, features)
    metadata = {
        "id": id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": text,
        "partitionColumns": list(partitioned_by),
        "configuration": dict(properties),
        "createdTime": now_ms,
    }
    layout_of(name, protocol, metadata).check_writable(only_appends=True)
    return protocol, metadata


_FEATURE_OF = {
    VECTORS: "deletionVectors",
    APPEND_ONLY: "appendOnly",
    COMMIT_TIMES: "inCommitTimestamp",
    CHANGE_FEED: "changeDataFeed",
}
_OF_READERS = frozenset({"deletionVectors", "timestampNtz", "columnMapping"})
"""Features that readers must know, of those that come to a table here."""

_LISTED_READER, _LISTED_WRITER = 3, 7
"""The versions of a protocol that name each feature; a reader's of 2 knows mapped columns."""


def with_features(protocol: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """Return a protocol that names features beside those that it has (Protocol, "Table Features")."""
    have = supported(protocol) or frozenset()
    if not (missing := set(wanted) - have):
        return dict(protocol)
    version = protocol["minReaderVersion"]
    changed = {
        "minReaderVersion": version,
        "minWriterVersion": _LISTED_WRITER,
        "writerFeatures": sorted(have | missing),
    }
    if version == _LISTED_READER or missing & _OF_READERS:
        readers = _of_readers(protocol) | (missing & _OF_READERS)
        changed |= {"minReaderVersion": _LISTED_READER, "readerFeatures": sorted(readers)}
    return changed


def _check_partitioning(struct: dict[str, Any], partitioned_by: tuple[str, ...]) -> None:
    types = {field["name"]: field["type"] for field in struct["fields"]}
    if len(set(partitioned_by)) < len(partitioned_by) or len(partitioned_by) == len(types):
        raise InvalidError(f"partitioned by {', '.join(partitioned_by)}: each column once, and not by all of them")
    for name in partitioned_by:
        if name not in types:
            raise InvalidError(f"partitioned by {name}, which is no column of the table")
        if isinstance(types[name], dict) or types[name] in ("binary", "float", "double"):
            raise UnsupportedError(f"partitioned by {name}, of type {str(types[name])[:50]}: no such partitions here")
