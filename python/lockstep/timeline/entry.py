"""The values of Lockstep: what a timeline entry says, and what databases are made of.

`Entry` is one version of the timeline, in a file of its own or with others (`lockstep.timeline.files`): immutable, and
the only thing that makes a change real. What the entries 0..n say together is a `lockstep.timeline.database.Database`.

All values are frozen and strict: an unknown field, a wrong type or an unknown format number is refused, because a
reader that guesses would show a database that nobody committed. Times are UTC, to the millisecond.

    format      1; 3, 4 or 5 where it says what older Locksteps do not know
    encoding    JSON, UTF-8, one object, fields with default values left out
    size        at most MAX_ENTRY_BYTES
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec

from lockstep.timeline.layered_map import between

FORMAT = 1
GROUP_FORMAT = 2
"""The format of a file of several entries: a Lockstep from before there were any says that it is to be upgraded."""

TAG_FORMAT = 3
"""The format of an entry with tags, with tables that come back, or of an export: older Locksteps say that they are to
be upgraded."""

EXPIRY_FORMAT = 4
"""The format of an entry that lets older versions expire, and of entry 0 in a lake in which some did."""

ADOPTION_FORMAT = 5
"""The format of an entry with tables that were there before the lake had them, which an older Lockstep would delete;
of one that says what a plain Delta writer's commit was (`digest`), and of one that settles a table."""

ARBITER_FORMAT = 6
"""The format of entry 0 of a lake that has an arbiter: what an older Lockstep would put entries past."""

NEWEST_FORMAT = ARBITER_FORMAT

MAX_ENTRY_BYTES = 64 * 1024 * 1024
"""A bound, not a target: commits larger than INLINE_BYTES are staged in files and only named here."""

INLINE_BYTES = 64 * 1024
"""A table's commit up to this size travels inside the timeline entry; a larger one is a staged file."""

MAX_VIEW_BYTES = 1024 * 1024
"""A view's definition as JSON may have this size: it travels inside the entry, and in a part of a checkpoint."""

NEW = -1
"""The table version before a table's first: a pin of `NEW` means that the table does not exist yet."""

MAX_APPLICATION_CHARACTERS = 256
"""How long the name of a streaming application may be: each database version keeps all of them."""

MAX_TAG_CHARACTERS = 255
MAX_TAG_COMMENT_CHARACTERS = 1000
"""How long the name of a tag may be, and its comment: each database version keeps all of them."""

MAX_NAMED = 10
"""So many of the versions that are kept alone does a message name."""

MAX_BATCH_NUMBER = 2**63 - 1
"""Delta's own bound of a transaction identifier's version, a `long`."""

Isolation: TypeAlias = Literal["SNAPSHOT", "SERIALIZABLE"]
Namespace: TypeAlias = tuple[str, ...]

V = TypeVar("V")


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The base of every stored value: frozen, strict, keyword-only."""


class Name(Value, frozen=True, order=True):
    """The name of a table or a view inside a catalog: its namespace and its last part, as the user wrote them."""

    namespace: Namespace
    table: str

    def __str__(self) -> str:
        return ".".join((*self.namespace, self.table))


def names_in(values: Mapping[Name, V], namespace: Namespace) -> Iterator[Name]:
    """Yield the names of a map that are in a namespace itself, in no order; of a checkpoint, only that range is read.

    Raises:
        UnavailableError, CorruptTimelineError: a part cannot be read, nor made of entries.
    """
    low, high = Name(namespace=namespace, table=""), Name(namespace=(*namespace, ""), table="")
    return (name for name, _ in between(values, low, high))


class Commit(Value, frozen=True):
    """One Delta commit of one table: the lines of its `<version>.json`, inline or in a staged file.

    Exactly one of the two is set. `staged` is relative to the table's location.
    """

    inline: list[msgspec.Raw] | None = None
    staged: str | None = None


class Counts(Value, frozen=True):
    """How many files and rows a change adds and removes; rows are -1 where neither metrics nor statistics tell."""

    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    rows_removed: int = 0


UNKNOWN_COUNTS = Counts(-1, -1, -1, -1)
"""Of what nobody has counted, files included; no entry says that of files."""


class TableWrite(Value, frozen=True):
    """Delta commits of one table: its versions `from_version + 1 … to_version`, one commit each.

    Those of an external entry are in the table's log alone; `digest` is that of the last one, see `Table`.
    """

    id: str
    name: Name
    location: str
    from_version: int
    to_version: int
    commits: list[Commit]
    counts: Counts = Counts()
    digest: str = ""


class TableDdl(Value, frozen=True):
    """A change of the catalog's list of tables.

    `create` gives `name` and `location`; `rename` gives the old `name` and `new_name`; `drop` the `name`. A `create`
    that gives a `version` too brings back a table that was dropped, as it was at that version of its log; or, if it is
    `adopted`, it takes in a table that the lake did not make. Then `location` may be a whole URL, of a folder outside
    of the lake's root. `digest` is that of the commit of this version, see `Table`. A `drop` that settles a table which
    had diverged says `right_through`: after this version the log is not what older database versions say of the table.
    """

    action: Literal["create", "rename", "drop"]
    id: str
    name: Name
    location: str = ""
    new_name: Name | None = None
    version: Annotated[int, msgspec.Meta(ge=0)] | None = None
    adopted: bool = False
    digest: str = ""
    right_through: Annotated[int, msgspec.Meta(ge=NEW)] | None = None


class NamespaceDdl(Value, frozen=True):
    """A change of the catalog's list of namespaces; `properties` is the whole new map of create and alter."""

    action: Literal["create", "alter", "drop"]
    name: Namespace
    properties: dict[str, str] = {}


class ViewDefinition(Value, frozen=True):
    """What a view says, and all that gives its text a meaning; Spark's to interpret (its CatalogTable of a view).

    `text` is the query, `schema` Spark's JSON of the columns that it gave when the view was made. `catalog` and
    `namespace` were current then, and `configs` were the SQL settings: the text is analyzed with them.
    `query_columns` are the names of the query's own columns; `mode` says what becomes of a view whose query gives
    others meanwhile.
    """

    text: str
    schema: str
    catalog: str | None = None
    namespace: list[str] = []
    configs: dict[str, str] = {}
    mode: str | None = None
    query_columns: list[str] = []
    properties: dict[str, str] = {}


class ViewDdl(Value, frozen=True):
    """A change of the catalog's list of views; `create` and `replace` give the definition.

    A rename drops the old name and creates the new one.
    """

    action: Literal["create", "replace", "drop"]
    name: Name
    definition: ViewDefinition | None = None


class TagDdl(Value, frozen=True):
    """A change of the list of tags; `create` gives all the rest.

    `version` is the database version that has the name from now on; None is that of the entry itself. `retain_until`
    is when the tag need not be kept any more, UTC; None is never.
    """

    action: Literal["create", "drop"]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TAG_CHARACTERS)]
    version: Annotated[int, msgspec.Meta(ge=0)] | None = None
    retain_until: datetime | None = None
    comment: Annotated[str, msgspec.Meta(max_length=MAX_TAG_COMMENT_CHARACTERS)] = ""


class TableRead(Value, frozen=True):
    """A table that the transaction read, and the version it saw.

    `predicates`: conditions in Spark's SQL on the table's physical columns. Every row that mattered satisfies one of
    them, so none at all means that only the table's name and schema did; null is any row.
    """

    id: str
    name: Name
    version: int
    predicates: list[str] | None = None


class TransactionInfo(Value, frozen=True):
    """Who did it, from where, and why. `id` is unique for ever: the answer to "did my commit land?"."""

    id: str
    began_at: datetime
    base_version: int
    isolation: Isolation
    author: str = ""
    application: str = ""
    message: str = ""
    statements: list[str] = []


class Moved(Value, frozen=True):
    """A ratified commit that a foreign commit pushed to a later table version before it was published.

    Entry `entry` said that table `id` ends at some version; it ends at `to_version`. The first `kept` of its commits
    were in the table's log by then: they stay where they are, and the others follow the foreign commit, up to
    `to_version`.
    """

    id: str
    entry: int
    to_version: int
    kept: int = 0


class Batch(Value, frozen=True):
    """A micro-batch of a streaming application, which is to happen once: all its tables, and this record of it.

    What `txn` is to one Delta table (PROTOCOL.md, "Transaction Identifiers") this is to the database: an application's
    numbers only grow, and whoever finds its number recorded, or a later one, has nothing to do.
    """

    application: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_APPLICATION_CHARACTERS)]
    number: Annotated[int, msgspec.Meta(ge=0, le=MAX_BATCH_NUMBER)]

    def __str__(self) -> str:
        return f"batch {self.number} of application {self.application}"


class Expiry(Value, frozen=True):
    """Database versions that nobody can read after this: all below `first_kept` but those in `keep`, in order."""

    first_kept: Annotated[int, msgspec.Meta(ge=1)]
    keep: list[int] = []


class Expired(Value, frozen=True):
    """Which database versions can be read: all from `first_kept` on, and `kept`, which are below it and in order."""

    first_kept: int = 0
    kept: tuple[int, ...] = ()

    def has(self, version: int) -> bool:
        """Tell whether nobody can read a version any more."""
        return version < self.first_kept and not self.keeps(version)

    def keeps(self, version: int) -> bool:
        """Tell whether a version is kept alone."""
        at = bisect_left(self.kept, version)
        return at < len(self.kept) and self.kept[at] == version

    def floor(self, version: int) -> int:
        """Return the version that the entries up to a version that is kept begin with, or what stands for them."""
        return min(version, self.first_kept)

    def readable(self, head: int) -> str:
        """Return which versions there are up to the head, in words."""
        alone = ", ".join(map(str, self.kept[-MAX_NAMED:]))
        fewer = f"{len(self.kept) - MAX_NAMED} more and " if len(self.kept) > MAX_NAMED else ""
        return f"{self.first_kept} to {head}" + (f", and {fewer}{alone}" if self.kept else "")


ExportMode: TypeAlias = Literal["full", "partial", "minimal"]
"""What an export takes along: all; the tables' logs, which name the data where it is; or the database's entry alone."""


class Origin(Value, frozen=True):
    """What an export was made of: a database version of another lake.

    `export` is the export's id, `root` the other lake's URL, `version` its database version. `batches` are those that
    the version knew; all else that it said is in the entry that has the origin.
    """

    export: str
    mode: ExportMode
    root: str
    version: Annotated[int, msgspec.Meta(ge=0)]
    batches: list[Batch] = []


class Arbitrated(Value, frozen=True):
    """Who decides which entry a database version is, since the store does not.

    `kind` is `valkey` or `dynamodb`, `name` the prefix of its keys, or its table. There is no address and no secret:
    those are each client's own to know. `server` is the server's identity, a text that means nothing else: another one,
    with the same prefix or table, is told apart by it. Empty: any server of that kind and name.
    """

    kind: str
    name: str
    server: str = ""


class Entry(Value, frozen=True):
    """One version of the database.

    `kind` is `create` (version 0: an empty database, or, with an `origin`, what an export holds), `transaction`,
    `external`: commits that a plain Delta writer made, found in a table's log and taken into the timeline (their
    `writes` carry no commits: they are published), `abort`: the transactions whose ids are in `aborts` can never commit
    after it; it changes nothing else, or `expiry`, which changes nothing but which older versions there are, as
    `expires` says.
    Order of meaning: `namespaces`, then the drops of `views`, then `tables`, then what else is in `views`, then
    `writes`, then `moved`, then `batch`, then `tags`. So a name goes from a table to a view, or the other way, in one
    entry.

    `view_reads` names the views of its snapshot whose definitions the transaction used.
    `precedes` is the first database version whose changes a SERIALIZABLE transaction did not see though it read what
    they changed: it comes before that version in every serial order, though it committed after it.

    `batch` is the micro-batch that the transaction carried out, which no later one may do again.
    `arbiter`, of version 0 alone, says who decides the entries after it.
    """

    format: int
    version: int
    committed_at: datetime
    kind: Literal["create", "transaction", "external", "abort", "expiry"]
    transaction: TransactionInfo
    namespaces: list[NamespaceDdl] = []
    tables: list[TableDdl] = []
    views: list[ViewDdl] = []
    writes: list[TableWrite] = []
    reads: list[TableRead] = []
    view_reads: list[Name] = []
    precedes: int | None = None
    moved: list[Moved] = []
    batch: Batch | None = None
    aborts: list[str] = []
    tags: list[TagDdl] = []
    expires: Expiry | None = None
    origin: Origin | None = None
    arbiter: Arbitrated | None = None

    @property
    def needed_format(self) -> int:
        """The format that says whether an older Lockstep can read it."""
        if self.arbiter is not None:
            return ARBITER_FORMAT
        if self.expires is not None:
            return EXPIRY_FORMAT
        is_settling = any(ddl.right_through is not None for ddl in self.tables)
        has_adopted = any(ddl.adopted or ddl.digest for ddl in self.tables)
        if is_settling or has_adopted or any(write.digest for write in self.writes):
            return ADOPTION_FORMAT
        is_new = self.tags or self.origin is not None or any(ddl.version is not None for ddl in self.tables)
        return TAG_FORMAT if is_new else FORMAT


class Table(Value, frozen=True):
    """A table in one database version: `version` is Delta's own, `since` the database version of its last change.

    `digest` is that of the newest commit's file (`lockstep.delta.log.digest`) if no entry holds the commit, since a
    plain Delta writer made it; empty where an entry holds it, or the file was large or gone when it was looked at.
    """

    id: str
    name: Name
    location: str
    version: int
    since: int
    digest: str = ""


class View(Value, frozen=True):
    """A view in one database version; `since` is the database version of its last change."""

    name: Name
    definition: ViewDefinition
    since: int


class Tag(Value, frozen=True):
    """A name of a database version, `version`; `since` is the database version that made the tag, `created_at` when."""

    name: str
    version: int
    since: int
    created_at: datetime
    retain_until: datetime | None = None
    comment: str = ""

    def is_kept(self, now: datetime) -> bool:
        """Whether what it names is to stay."""
        return self.retain_until is None or now < self.retain_until


def folded(name: Name) -> Name:
    """Return a name as it is compared where case does not count."""
    return Name(namespace=tuple(part.lower() for part in name.namespace), table=name.table.lower())
