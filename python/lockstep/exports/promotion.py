"""What a clone's changes are in the lake that it was cloned from, its origin. Pure.

A clone's table begins, at version 0 of its own log, as the origin's table was at some version of that one's. So what
the clone's log says since is a run of commits on top of the origin's version, once each says it in the origin's words:

    path of a file of the origin's      as the origin's log has it, in place of the absolute URI
    path of a file of the clone's       one below the origin's table's folder, where a copy of the file lies
    deletion vector                     likewise
    metaData                            the origin's id, and what it says of versions of the origin's log
    commitInfo                          `readVersion` in the origin's numbers
    times that readers go by            not before the promotion: until then the origin's readers had the old files

From there on they are what any transaction stages.

Copies lie in folders that are named after the transaction which is to commit them, so no two attempts have one name for
a file: upkeep that deletes what a killed one left never meets what another one made live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

from msgspec import structs

from lockstep.delta.actions import Action, bodies, split
from lockstep.delta.combine.deletion_vectors import Descriptor, file_path
from lockstep.delta.features import FEATURES, features_of
from lockstep.delta.places import is_absolute
from lockstep.delta.snapshot import Snapshot
from lockstep.errors import InvalidError, UnsupportedError
from lockstep.exports.files import Place, place_of, places_of, vector_place
from lockstep.exports.plan import OF_THE_OLD_LOG
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Name, Namespace, Table, ViewDefinition
from lockstep.timeline.functions import said
from lockstep.transactions.names import Names

ROW_IDS = "rowTracking"
PROTECTION = "delta.requireCheckpointProtectionBeforeVersion"
ENABLED_AT = "delta.inCommitTimestampEnablementVersion"

CHANGES = "_change_data/"

T = TypeVar("T")

_SAME = frozenset({"protocol", "txn", "domainMetadata"})
"""Actions that say the same in either log."""


@dataclass(frozen=True, slots=True)
class Home:
    """A table as it is in the origin, at the database version that the clone is of.

    Attributes:
        table, snapshot: it, and what its log says.
        root: the origin's root, as a URL.
        promoted_ms: when it is promoted to, milliseconds since 1970 UTC.
    """

    table: Table
    snapshot: Snapshot
    root: str
    promoted_ms: int = 0


@dataclass(slots=True)
class Moved:
    """The commits of a clone's table, as they are on top of the origin's.

    Attributes:
        commits: the actions of each.
        own: the files that the clone itself wrote: by where their copies are, below the folder of the origin's table,
            where they are below the folder of the clone's.
    """

    commits: list[list[Action]]
    own: dict[str, str]


def moved(
    home: Home, table: Table, root: str, now: Snapshot, commits: Sequence[Sequence[Action]], *, into: str
) -> Moved:
    """Say the commits of a clone's table, its versions 1, 2, …, in the words of the origin's log.

    Args:
        home: the table in the origin.
        table, root: the table in the clone, and the clone's root as a URL.
        now: what the clone's log says after them.
        into: the folder below the table's that copies lie in, and below that of its change data; nobody else has it.

    Raises:
        UnsupportedError: the table has a feature, or a commit an action, that nobody knows how to promote.
        InvalidError: a file is neither the origin's at that version nor the clone's own.
        CorruptTimelineError: a path in a log names no file.
    """
    check_protocols(table, home.snapshot.protocol, [b for each in commits for b in bodies(each, "protocol")], now)
    mover = _Mover(home, table, root, into)
    mover.learn()
    return Moved([[mover.action(a, version) for a in commit] for version, commit in enumerate(commits, 1)], mover.own)


def check_protocols(
    table: Table, before: Mapping[str, Any], between: Sequence[Mapping[str, Any]], now: Snapshot
) -> None:
    """Refuse a table that was changed in a clone if what it needs of readers and writers cannot be promoted.

    Args:
        before: the protocol of the origin's table.
        between: those that the clone's commits have set, in order: a feature may have come and gone.
        now: what the clone's log says at last.

    Raises:
        UnsupportedError: it has, or had, a feature that cannot be promoted; or the clone dropped one of the origin's.
    """
    protocols = [before, *between, now.protocol]
    features = set[str]().union(*map(features_of, protocols))
    if ROW_IDS in features:
        raise _not_promoted(
            table, f"it has the table feature {ROW_IDS}: data files may hold row ids and commit versions of the clone"
        )
    if unknown := sorted(features - FEATURES):
        raise _not_promoted(table, f"it has the table feature{'s' * (len(unknown) > 1)} {', '.join(unknown)}")
    if any(each.get("minReaderVersion", 1) > 3 or each.get("minWriterVersion", 2) > 7 for each in protocols):
        raise _not_promoted(table, "its protocol is newer than this Lockstep knows")
    dropped = sorted(features_of(before) - now.features)
    lower = [key for key in ("minReaderVersion", "minWriterVersion") if now.protocol.get(key, 0) < before.get(key, 0)]
    if dropped or lower:
        raise _not_promoted(
            table,
            f"the clone dropped {', '.join(dropped) or 'a version of the protocol'}, which older versions of the "
            "lake's table, its checkpoints or what others do there may need: DROP FEATURE in the lake",
        )


def _not_promoted(table: Table, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"table {table.name} cannot be promoted: {why}. Nothing was written. Bring its rows back with INSERT or MERGE "
        "from the clone"
    )


@dataclass(slots=True)
class _Mover:
    home: Home
    table: Table
    root: str
    into: str
    own: dict[str, str] = field(default_factory=dict)
    _files: dict[Place, str] = field(default_factory=dict)
    _vectors: dict[tuple[Place, int | None], Descriptor] = field(default_factory=dict)

    def learn(self) -> None:
        """Learn how the origin's log names the files that the clone began with."""
        for add in self.home.snapshot.files.values():
            file, *vectors = places_of(add, self.home.table.location, self.home.root)
            self._files[file] = add["path"]
            for place in vectors:
                self._vectors[place, add["deletionVector"].get("offset")] = add["deletionVector"]

    def action(self, action: Action, version: int) -> Action:
        kind, body = split(action)
        if kind in ("add", "cdc"):
            return {kind: self._file(body)}
        if kind == "remove":
            # Delta's VACUUM counts its retention from here, and readers of the origin have the file until now.
            since = max(body.get("deletionTimestamp") or 0, self.home.promoted_ms)
            return {kind: {**self._file(body), "deletionTimestamp": since}}
        if kind == "metaData":
            return {kind: self._metadata(body)}
        if kind == "commitInfo":
            return {kind: self._info(body)}
        if kind in _SAME:
            return action
        raise _not_promoted(self.table, f"version {version} of its log has the action {kind}")

    def _file(self, file: dict[str, Any]) -> dict[str, Any]:
        new = {**file, "path": self._path(file["path"])}
        if (vector := file.get("deletionVector")) is not None:
            new["deletionVector"] = self._vector(vector)
        return new

    def _path(self, path: str) -> str:
        if is_absolute(path):
            return self._origins(path, self._files.get(place_of(path, location="", root=self.home.root)))
        here = unquote(path)
        if place_of(path, location=self.table.location, root=self.root).path != f"{self.table.location}/{here}":
            return self._origins(path, None)  # it leads out of the table's folder, or there by a way about
        new = self._new(path)
        self.own[unquote(new)] = here
        return new

    def _new(self, path: str) -> str:
        """Return what a copy is called: change data stays where that of any table is."""
        if path.startswith(CHANGES):
            return f"{CHANGES}{self.into}/{path.removeprefix(CHANGES)}"
        return f"{self.into}/{path}"

    def _vector(self, vector: Descriptor) -> Descriptor:
        if vector["storageType"] == "p":
            place = vector_place(vector, location="", root=self.home.root)
            assert place is not None, "only a vector in the log itself has none"
            return self._origins(vector["pathOrInlineDv"], self._vectors.get((place, vector.get("offset"))))
        if vector["storageType"] != "u":
            return vector
        # What comes before the id is the folder that it is in: that of a copy is another one for each attempt.
        new = {**vector, "pathOrInlineDv": f"{self.into}{vector['pathOrInlineDv']}"}
        self.own[self._file_of(new)] = self._file_of(vector)
        return new

    def _file_of(self, vector: Descriptor) -> str:
        location = self.table.location
        return file_path(vector, location=location, root=self.root).removeprefix(f"{location}/")

    def _origins(self, uri: str, found: T | None) -> T:
        if found is None:
            raise InvalidError(
                f"table {self.table.name} cannot be promoted: it names {uri}, which is neither its own file nor one "
                f"that it had when the clone was made of {self.home.root}. Nothing was written"
            )
        return found

    def _metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        configuration = dict(metadata.get("configuration") or {})
        if PROTECTION in configuration:
            raise _not_promoted(self.table, f"{PROTECTION} was set in the clone, and speaks of versions of its log")
        if ENABLED_AT in configuration:
            configuration[ENABLED_AT] = str(int(configuration[ENABLED_AT]) + self.home.table.version)
        before = self.home.snapshot.metadata.get("configuration") or {}
        has_times = configuration.get("delta.enableInCommitTimestamps", "").lower() == "true"
        kept = OF_THE_OLD_LOG if has_times else {PROTECTION}
        # The origin's, unless the clone has enabled the feature anew, as of a version of its own.
        configuration = {key: value for key, value in before.items() if key in kept} | configuration
        return {**metadata, "id": self.home.snapshot.metadata["id"], "configuration": configuration}

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        new = dict(info)
        if info.get("readVersion") is not None:
            new["readVersion"] = info["readVersion"] + self.home.table.version
        if info.get("inCommitTimestamp") is not None:
            new["inCommitTimestamp"] = max(info["inCommitTimestamp"], self.home.promoted_ms)  # COMMIT orders them
        return new


# --- names ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NameChanges:
    """How the names of a clone differ from those of the version that it was made of.

    Attributes:
        created, dropped: tables, as the clone and as the origin have them.
        renamed: tables of both, as the clone has them.
        views_dropped, views_created: by name; those that were replaced are among both.
        namespaces_created, namespaces_altered, namespaces_dropped: the first with parents before what is in them, the
            last the other way round.
    """

    created: tuple[Table, ...]
    dropped: tuple[Table, ...]
    renamed: tuple[Table, ...]
    views_dropped: tuple[Name, ...]
    views_created: tuple[tuple[Name, ViewDefinition], ...]
    namespaces_created: tuple[Namespace, ...]
    namespaces_altered: tuple[Namespace, ...]
    namespaces_dropped: tuple[Namespace, ...]


def name_changes(then: Database, clone: Database) -> NameChanges:
    """Return how the names of a clone differ from those of the origin's version that it was made of.

    Raises:
        UnsupportedError: a view was made or replaced in the clone, or a stream wrote there.
    """
    before = {table.id: table for table in then.tables.values()}
    now = {table.id: table for table in clone.tables.values()}
    views = {name: view.definition for name, view in then.views.items()}
    new_views = {name: view.definition for name, view in clone.views.items()}
    created = tuple((name, view) for name, view in sorted(new_views.items()) if views.get(name) != view)
    known = list(views.values())
    for name, view in created:
        if view not in known:
            raise UnsupportedError(
                f"{said(name)} cannot be promoted: it was made in the clone, and what its text means follows from the "
                "name of the clone's catalog. Nothing was written. DROP it there, promote, and create it in the lake"
            )
    if dict(clone.batches) != dict(then.batches):
        changed = {*clone.batches.items()} ^ {*then.batches.items()}
        raise UnsupportedError(
            f"the clone cannot be promoted: streaming application {min(changed)[0]} has written it, and how far that "
            "is can be told of one lake alone. Nothing was written"
        )
    spaces, new_spaces = then.namespaces, clone.namespaces
    return NameChanges(
        created=_by_name(table for id_, table in now.items() if id_ not in before),
        dropped=_by_name(table for id_, table in before.items() if id_ not in now),
        renamed=_by_name(table for id_, table in now.items() if id_ in before and before[id_].name != table.name),
        views_dropped=tuple(name for name in sorted(views) if new_views.get(name) != views[name]),
        views_created=created,
        namespaces_created=tuple(sorted(name for name in new_spaces if name not in spaces)),
        namespaces_altered=tuple(
            sorted(name for name in new_spaces if name in spaces and dict(spaces[name]) != dict(new_spaces[name]))
        ),
        namespaces_dropped=tuple(sorted((name for name in spaces if name not in new_spaces), key=len, reverse=True)),
    )


def _by_name(tables: Iterable[Table]) -> tuple[Table, ...]:
    return tuple(sorted(tables, key=lambda table: table.name))


def change_before(names: Names, changes: NameChanges, clone: Database) -> None:
    """Change names as the clone did, but for what is made there: that finds its names free now.

    Raises:
        LockstepError: as `Names` says; the names are of no use then.
    """
    for namespace in changes.namespaces_created:
        names.create_namespace(namespace, clone.namespaces[namespace])
    for namespace in changes.namespaces_altered:
        names.alter_namespace(namespace, clone.namespaces[namespace])
    for view in changes.views_dropped:
        names.drop_view(view)
    for table in changes.dropped:
        names.drop_table(table.name)
    renamed = {table.id: table.name for table in changes.renamed}
    there = [known for id_ in renamed if (known := names.table_by_id(id_)) is not None]
    names.put_tables(structs.replace(known, name=renamed[known.id]) for known in there)


def change_after(names: Names, changes: NameChanges) -> None:
    """Make the views that the clone has, and drop the namespaces that it dropped, which are empty now."""
    for name, view in changes.views_created:
        names.create_view(name, view, replace=False)
    for namespace in changes.namespaces_dropped:
        names.drop_namespace(namespace, cascade=False)
