"""Requests of the shim's catalog and log store about tables and namespaces, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from lockstep.spark.host.protocol.base import (
    AboutCatalog,
    AboutName,
    AboutNamespace,
    AboutRelation,
    Answer,
    Options,
    Parts,
    Read,
    RequestBase,
    Settings,
)
from lockstep.timeline.entry import Namespace

# --- reading ----------------------------------------------------------------------------------------------------------


class Ahead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table that the statement names, too, and that Spark has not asked for yet: perhaps it never will."""

    name: Parts
    """Namespace and name, as the statement has them."""

    use: Literal["pinned", "append", "changed"]
    """As in `Resolve`. What is live or a target is asked for when Spark asks for it."""

    writes: bool
    """As in `Resolve`."""

    touch: int
    """The number of this loading, as in `Resolve`; `Commit.unused` says it if there was none."""


class Resolve(AboutRelation, frozen=True, kw_only=True, tag="resolve"):
    """Ask which URI, and which version of it, a name means for this use. Of the three times at most one is said."""

    use: Literal["pinned", "live", "append", "changed", "target"]
    """How the statement uses the table.

    - `pinned`: it is one table of a query, all of which are read at one database version.
    - `live`: a relation alone that is no SQL, read afresh each time it is used.
    - `append`: rows are added, or its schema or properties altered, and no row of it is read.
    - `changed`: rows that are found by a condition are changed.
    - `target`: it is changed in another way, or a command is about it, which must see its newest state.
    """

    writes: bool = False
    """Whether the statement is about to write it."""

    version: str | None = None
    """VERSION AS OF: `7` is Delta's table version, `@7` the table in database version 7."""

    timestamp_micros: int | None = None
    """TIMESTAMP AS OF, which Delta looks up in the table's log: microseconds since 1970, UTC."""

    system_time_micros: int | None = None
    """SYSTEM_TIME AS OF, the database as it was then: microseconds since 1970, UTC."""

    touch: int | None = None
    """The number of this loading of the table, which `Commit.settled` speaks of."""

    ahead: tuple[Ahead, ...] = ()
    """What else is to be answered about, as if it were asked for now. Each of these loadings counts as one that was."""


class Missing(Answer, frozen=True, kw_only=True):
    """There is no such table or view."""

    missing: Literal[True] = True
    """What tells it from `Found`."""

    pin: int | UnsetType = UNSET
    """As in `Found`."""

    ahead: list[Found | Missing | None] | UnsetType = UNSET
    """As in `Found`."""


class Found(Answer, frozen=True, kw_only=True):
    """A table, where it is read or written, and as of when."""

    missing: Literal[False] = False
    """What tells it from `Missing`."""

    uri: str
    """Where Delta finds it."""

    name: list[str]
    """Its namespace's parts and its last one, as they are stored."""

    location: str
    """Where its folder really is, for messages."""

    external: bool = False
    """Whether the folder is not one that the lake made, which a DROP leaves as it is."""

    version: int | UnsetType = UNSET
    """The table version to read; not said: the newest that the URI shows."""

    timestamp_micros: int | UnsetType = UNSET
    """The time as of which Delta is to read it: microseconds since 1970, UTC."""

    table: str | UnsetType = UNSET
    """Its id, if what is read of it counts as read."""

    pin: int | UnsetType = UNSET
    """Outside a transaction: the database version that the statement reads from now on."""

    ahead: list[Found | Missing | None] | UnsetType = UNSET
    """What is answered about each of `Resolve.ahead`; None: whoever asks for it alone is told why not."""


class VersionThen(AboutName, frozen=True, kw_only=True, tag="version_then"):
    """Ask which version of its log a table had in a database version: the same table, whatever its name was.

    One of the two is said.
    """

    version: int | None = None
    """The database version."""

    system_time_micros: int | None = None
    """As in `Resolve`."""

    def __post_init__(self) -> None:
        """Refuse both and none."""
        if (self.version is None) == (self.system_time_micros is None):
            raise ValueError("one of `version` and `system_time_micros` is to be said")


class VersionThenAnswer(Answer, frozen=True, kw_only=True):
    """A table's version."""

    version: int | None
    """The table version; None: there is no such table now."""


class ByPath(RequestBase, frozen=True, kw_only=True, tag="by_path"):
    """Ask whether a transaction may read files by where they lie; it is refused what is a table's of the lake."""

    paths: tuple[str, ...]
    """Where: folders and files, as URLs of the real storage."""


class UsedView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A view whose definition a DataFrame or a statement used."""

    catalog: str
    """The catalog that it is in, by its name in the session."""

    name: Parts
    """Its name as it is stored: namespace and name."""

    version: int
    """The database version whose definition it was; below 0 for one of a transaction's own, see `own_mark`."""


class Snapshot(RequestBase, frozen=True, kw_only=True, tag="snapshot"):
    """Ask leave for what a DataFrame from before BEGIN reads."""

    reads: tuple[Read, ...]
    """Its scans that are not through the transaction."""

    views: tuple[UsedView, ...]
    """Which views' definitions it uses."""

    catalogs: dict[str, Options]
    """The session's catalogs, of which the views are."""


class Exists(AboutName, frozen=True, kw_only=True, tag="exists"):
    """Ask whether there is a table of a name."""


class ExistsAnswer(Answer, frozen=True, kw_only=True):
    """Whether there is."""

    exists: bool
    """Whether there is a table, and no view, of this name."""


class Tables(AboutNamespace, frozen=True, kw_only=True, tag="tables"):
    """List a namespace's tables."""


# --- writing ----------------------------------------------------------------------------------------------------------


class Create(AboutName, frozen=True, kw_only=True, tag="create"):
    """Ask where Delta is to create or replace a table; the write of its first version makes it real.

    Where there is a table to replace, the answer is that of `Resolve`.
    """

    mode: Literal["create", "replace", "create_or_replace"]
    """What the statement says."""

    provider: str | None
    """The format that it says; None: none."""

    location: str | None
    """The LOCATION that it says; None: none."""


class CreateAt(AboutName, frozen=True, kw_only=True, tag="create_at"):
    """Take in the Delta table that is at a location, as CREATE TABLE … LOCATION has it; or ask where to create one."""

    provider: str | None
    """The format that it says; None: none."""

    location: str
    """The LOCATION that it says."""

    schema: str
    """The columns that it says, as Spark's JSON of a struct."""

    partitions: tuple[str, ...]
    """The partition columns that it says, or what else it says of the layout."""

    properties: dict[str, str]
    """The table properties that it says, and the table's comment, which Spark has among them as `comment`."""


class CreateAnswer(Answer, frozen=True, kw_only=True):
    """Where a new table is to be."""

    uri: str
    """Where Delta creates it."""

    creation: str | UnsetType = UNSET
    """What tells this new table from others; not said in a transaction, whose URI does."""


class CreateAtAnswer(Answer, frozen=True, kw_only=True):
    """What becomes of a CREATE TABLE … LOCATION."""

    uri: str | UnsetType = UNSET
    """Where Delta creates the table, for none was there; if it is not said, one was there and is taken in."""

    creation: str | UnsetType = UNSET
    """As in `CreateAnswer`."""


class Write(RequestBase, frozen=True, kw_only=True, tag="write"):
    """Commit one version of one table: a statement on its own, which must not run inside a transaction."""

    uri: str
    """The table's folder, under the overlay's head."""

    version: int
    """The table version."""

    actions: str
    """What Delta would write into the commit's file."""

    text: str | None
    """The statement, with what must not be shown left out; None if it has no text, as what a DataFrame writes."""

    catalogs: dict[str, Options]
    """What is set for each Lockstep catalog of the session, by its name: nothing of it may be logged or shown."""

    settings: Settings
    """As in `Begin`."""

    reads: tuple[Read, ...]
    """What the statement has read."""

    has_read: bool
    """Whether the statement has read in the table's folder, at whatever version; `reads` says what of the newest."""

    paths: tuple[str, ...]
    """Where files lie that it has read by their path: whose they are is not known."""

    views: tuple[UsedView, ...]
    """Which views' definitions it used."""

    creation: str | None
    """What the answer to `Create` or `CreateAt` said that the same thread of the driver asked for this table; None: a
    table that is there, or what another thread asked for."""


class WriteAnswer(Answer, frozen=True, kw_only=True):
    """What became of the commit."""

    outcome: Literal["committed", "taken"]
    """`taken`: another commit has the table version, and Delta can see which."""


class Stage(RequestBase, frozen=True, kw_only=True, tag="stage"):
    """Stage a commit of a transaction: its file is written if it may be, and noted."""

    uri: str
    """The table's folder, under the transaction's view."""

    version: int
    """The table version."""

    actions: str
    """What Delta would write into the commit's file."""

    text: str | None
    """The statement, with what must not be shown left out; None if it has no text, as what a DataFrame writes."""

    has_read: bool
    """Whether the transaction has read in the table's folder, at whatever version."""


class StageAnswer(Answer, frozen=True, kw_only=True):
    """What became of the commit."""

    outcome: Literal["staged", "taken"]
    """`taken`: another commit has the table version, and Delta can see which."""

    claims: bool = False
    """As in `StagedAnswer`."""


class Staging(RequestBase, frozen=True, kw_only=True, tag="staging"):
    """Ask whether Delta may stage a commit of a transaction that is too long for `Stage`.

    Nothing is written that nobody would undo.
    """

    uri: str
    """The table's folder, under the transaction's view."""

    version: int
    """The table version."""


class StagingAnswer(Answer, frozen=True, kw_only=True):
    """Whether it may."""

    outcome: Literal["free", "taken"]
    """`taken`: another commit has the table version, and Delta can see which."""


class Staged(RequestBase, frozen=True, kw_only=True, tag="staged"):
    """Note that Delta staged such a commit: COMMIT reads its file."""

    uri: str
    """The table's folder, under the transaction's view."""

    version: int
    """The table version."""

    text: str | None
    """As in `Stage`."""

    has_read: bool
    """Whether the transaction has read in the table's folder, at whatever version."""


class StagedAnswer(Answer, frozen=True, kw_only=True):
    """It is noted."""

    claims: bool
    """Whether a `Claim` has to follow: whether conflicts with other open transactions are settled before COMMIT."""


class Claim(RequestBase, frozen=True, kw_only=True, tag="claim"):
    """Settle the conflicts of a commit that was staged; it may wait, and nothing else waits for it."""

    uri: str
    """The table's folder, under the transaction's view."""

    version: int
    """The table version."""


class Drop(AboutName, frozen=True, kw_only=True, tag="drop"):
    """DROP TABLE."""


class Rename(AboutName, frozen=True, kw_only=True, tag="rename"):
    """ALTER TABLE … RENAME TO."""

    to: Parts
    """The new name, with or without the catalog and the namespace."""


# --- namespaces -------------------------------------------------------------------------------------------------------


class Namespaces(AboutCatalog, frozen=True, kw_only=True, tag="namespaces"):
    """List the namespaces that lie in another one."""

    parent: Namespace
    """That one; the empty one has those of one part."""


class NamespacesAnswer(Answer, frozen=True, kw_only=True):
    """The namespaces in another one."""

    namespaces: list[Namespace]
    """Each with all its parts, sorted."""


class DescribeNamespace(AboutNamespace, frozen=True, kw_only=True, tag="namespace"):
    """Ask whether there is a namespace, and what is said of it."""


class NamespaceAnswer(Answer, frozen=True, kw_only=True):
    """A namespace."""

    exists: bool
    """Whether there is one of this name."""

    properties: Mapping[str, str]
    """Its properties; none if there is none."""


class CreateNamespace(AboutNamespace, frozen=True, kw_only=True, tag="create_namespace"):
    """CREATE NAMESPACE."""

    properties: dict[str, str]
    """Its properties."""


class AlterNamespace(AboutNamespace, frozen=True, kw_only=True, tag="alter_namespace"):
    """ALTER NAMESPACE."""

    set: dict[str, str]
    """The properties that it adds or replaces."""

    unset: tuple[str, ...]
    """The keys of those that it takes away."""


class DropNamespace(AboutNamespace, frozen=True, kw_only=True, tag="drop_namespace"):
    """DROP NAMESPACE."""

    cascade: bool
    """Whether what lies in it goes with it; else it must be empty."""


Request: TypeAlias = (
    Resolve
    | VersionThen
    | ByPath
    | Snapshot
    | Exists
    | Tables
    | Create
    | CreateAt
    | Write
    | Stage
    | Staging
    | Staged
    | Claim
    | Drop
    | Rename
    | Namespaces
    | DescribeNamespace
    | CreateNamespace
    | AlterNamespace
    | DropNamespace
)
