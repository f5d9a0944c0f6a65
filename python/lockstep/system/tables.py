"""The list of the system tables: their columns, and what answers for each. docs/system-tables.md is made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockstep.system import catalog, configured, history, transactions
from lockstep.system.query import Batch, Query
from lockstep.system.scope import Scope


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type in SQL, and what it says, as Markdown."""

    type: str
    says: str


@dataclass(frozen=True, slots=True)
class SystemTable:
    """A system table.

    Attributes:
        says: what its rows are.
        columns: in their order, by name.
        is_of_version: whether it tells of a version of the database, so that an older one can be asked for; else it
            tells of now.
        rows: what answers; None where Delta lists the rows, see `lockstep.system.catalog.listed`.
        ordered: the columns by which a few of its rows are found without the others; `column DESC`: the last of them.
        judged: the columns whose conditions are judged here; None: all that have a comparison.
        read_by: what of it is not read where conditions exclude it, as Markdown.
    """

    says: str
    columns: Mapping[str, Column]
    rows: Callable[[Scope, Query], Batch] | None
    is_of_version: bool = False
    ordered: tuple[str, ...] = ()
    judged: tuple[str, ...] | None = None
    read_by: str = ""

    @property
    def pushed(self) -> list[str]:
        """The columns whose conditions need not be judged again."""
        if self.judged is not None:
            return list(self.judged)
        return [name for name, column in self.columns.items() if "<" not in column.type]


_WHO = {
    "author": Column("string", "who did it: the user of the client, of the driver, or of the operating system"),
    "application": Column("string", "Spark's name of the application"),
    "comment": Column("string", "what `BEGIN … COMMENT` said; empty, if nothing"),
}
_ID = Column("string", "the transaction's id, unique for ever")
_ISOLATION = Column("string", "`SERIALIZABLE` or `SNAPSHOT`")
_BASE = Column("bigint", "the database version that it saw")

TABLES: Mapping[str, SystemTable] = {
    "history": SystemTable(
        says="The versions of the database, one a row.",
        columns={
            "version": Column("bigint", "the database version"),
            "committed_at": Column("timestamp", "when it was committed, later than the one before"),
            "kind": Column(
                "string",
                "`create` (version 0), `transaction`, also of a statement on its own, `external`: what a plain Delta "
                "writer did, `abort`: it ended open transactions, or `expiry`: older versions cannot be read from "
                "then on",
            ),
            "transaction_id": _ID,
            **_WHO,
            "isolation": _ISOLATION,
            "began_at": Column("timestamp", "when the transaction began, by its own clock"),
            "base_version": _BASE,
            "tables": Column("array<string>", "the tables that it wrote, made, renamed or dropped, by their new names"),
            "views": Column("array<string>", "the views that it made, replaced or dropped"),
            "namespaces": Column("array<string>", "the namespaces that it made, altered or dropped"),
            "tags": Column("array<string>", "the tags that it made or dropped"),
            "files_added": Column("bigint", "data files that tables have since; NULL of `external`: nobody counted"),
            "files_removed": Column("bigint", "data files that tables had before; NULL likewise"),
            "rows_added": Column("bigint", "rows in the files that were added; NULL is not known"),
            "rows_removed": Column("bigint", "rows that went with the files that were removed; NULL is not known"),
            "batch_application": Column("string", "the streaming application whose micro-batch it carried out, if any"),
            "batch_number": Column("bigint", "the micro-batch's number"),
            "statements": Column("array<string>", "its statements, the first 100, of each the first 1,000 characters"),
            "aborted": Column("array<string>", "the ids of the transactions that an `abort` ended"),
        },
        rows=history.history,
        is_of_version=True,
        ordered=("version", "committed_at"),
        read_by="Only those entries of the timeline are read that conditions on `version` and `committed_at` leave. "
        "With `ORDER BY` one of these and `LIMIT`, only the entries are read that the limit takes. With "
        "`transaction_id = …`, entries are read from the newest on until that one is found.",
    ),
    "transactions": SystemTable(
        says="Transactions: the open ones, those that are committed, and those that were rolled back, as far as that "
        "is kept.",
        columns={
            "transaction_id": _ID,
            "state": Column(
                "string",
                "`REQUESTED`: open, and has written nothing; `INFLIGHT`: open, and has; `COMPLETED`: committed; "
                "`ROLLED_BACK`",
            ),
            "reason": Column("string", "why it was rolled back; NULL, if it was not"),
            **_WHO,
            "process": Column("string", "host and process of its driver; NULL, where that is not known"),
            "began_at": Column("timestamp", "when it began, by its own clock"),
            "seen_at": Column("timestamp", "when its driver last told of it; NULL, if it has ended"),
            "is_alive": Column(
                "boolean", "whether that is less than a minute ago; else its driver is gone. NULL, if it has ended"
            ),
            "ended_at": Column("timestamp", "when it was committed or rolled back; NULL, while it is open"),
            "base_version": _BASE,
            "database_version": Column("bigint", "the version that it made; NULL, if it is not committed"),
            "isolation": _ISOLATION,
            "tables": Column("array<string>", "the tables that it has written, the first 100 of an open one"),
            "bytes_staged": Column(
                "bigint", "the size of the data files that it has written, as far as known; NULL, if it is committed"
            ),
        },
        rows=transactions.transactions,
        ordered=("ended_at DESC", "database_version DESC"),
        read_by="Only those entries of the timeline are read that conditions on `state`, `database_version` and "
        "`ended_at` leave. `WHERE state IN ('REQUESTED', 'INFLIGHT')` reads none, and no record of rolled back "
        "transactions. `ORDER BY ended_at DESC`, or by `database_version`, with `LIMIT` reads the newest, in one "
        "request. But if another condition such as `author = …` leaves few of them, it reads the whole history. With "
        "`transaction_id = …`, entries are read from the newest on until that one is found.",
    ),
    "tables": SystemTable(
        says="The tables, views and functions of the database.",
        columns={
            "namespace": Column("string", "its namespace, parts separated by dots"),
            "name": Column("string", "the last part of its name; of a function with `()` behind it"),
            "kind": Column("string", "`TABLE`, `VIEW` or `FUNCTION`"),
            "id": Column("string", "the table's id, which stays when it is renamed; NULL of a view or a function"),
            "location": Column("string", "the URL of the table's folder; NULL of a view or a function"),
            "table_version": Column("bigint", "Delta's own version of the table; NULL of a view or a function"),
            "changed_in": Column("bigint", "the database version that changed it last"),
        },
        rows=catalog.tables,
        is_of_version=True,
        read_by="With `namespace = …` and `name = …` nothing of other tables is read. With `namespace = …` alone "
        "nothing of other namespaces is read.",
    ),
    "tags": SystemTable(
        says="The tags, or names of database versions.",
        columns={
            "tag": Column("string", "its name"),
            "database_version": Column("bigint", "the version that it names; NULL: the one that COMMIT will make"),
            "created_at": Column("timestamp", "when it was made; NULL, if the open transaction makes it"),
            "created_in": Column("bigint", "the database version that made it; NULL likewise"),
            "retain_until": Column("timestamp", "until when it keeps its version; NULL is for ever"),
            "comment": Column("string", "what was said of it; empty, if nothing"),
        },
        rows=catalog.tags,
        is_of_version=True,
    ),
    "conflicts": SystemTable(
        says="Commits and statements that were refused for a conflict, the newest first: the last 1,000, for as long "
        "as versions are kept (`retention-age`).",
        columns={
            "refused_at": Column("timestamp", "when"),
            "transaction_id": _ID,
            "rule": Column(
                "string",
                "the [rule](isolation.md#the-rules) by which it was refused; `wait-die` or `lock-timeout`, "
                "if a statement gave way to an open transaction",
            ),
            "object": Column("string", "the table, view, namespace, tag or application that it was about"),
            "winner_id": Column("string", "the transaction that was first"),
            "winner_version": Column("bigint", "the database version that this is committed as; NULL, if it was open"),
            "base_version": _BASE,
            "isolation": _ISOLATION,
            **_WHO,
            "message": Column("string", "what it was told, the first 1,000 characters"),
        },
        rows=transactions.conflicts,
    ),
    "files": SystemTable(
        says="The data files of each table.",
        columns={
            "namespace": Column("string", "the table's namespace, parts separated by dots"),
            "name": Column("string", "the last part of the table's name"),
            "table_version": Column("bigint", "Delta's own version of the table"),
            "path": Column("string", "the file's URL, as Delta writes it: special characters are encoded"),
            "size": Column("bigint", "its size in bytes"),
            "rows": Column("bigint", "how many rows it has, deleted ones too; NULL, if it has no statistics"),
            "deleted_rows": Column("bigint", "how many of them its deletion vector takes away; 0 without one"),
            "partition_values": Column("map<string,string>", "the values of the table's partition columns"),
            "modified_at": Column("timestamp", "when the file was written"),
        },
        rows=None,
        is_of_version=True,
        judged=("namespace", "name"),
        read_by="With conditions on `namespace` and `name` (`=` or `IN`) no other table's log is read. With a "
        "condition on `namespace` alone no log of another namespace is read.",
    ),
    "settings": SystemTable(
        says="The [settings](settings.md), as they are for this session and catalog. Of `retention-age`, "
        "`retention-versions`, `deletion-grace` and `orphan-age` that is what is kept: what [the lake "
        "says](operating.md#how-much-is-kept), or the catalog where it says longer.",
        columns={
            "name": Column("string", "its whole name"),
            "value": Column("string", "what it is; what a store is told is not shown"),
            "default_value": Column("string", "what it is where nothing is said; NULL, if nothing then"),
            "source": Column(
                "string",
                "where it is said: `session`, `catalog`, `lake`, `driver`, `environment`, or nowhere: `default`",
            ),
            "place": Column("string", "where it can be said"),
            "kind": Column("string", "what a value is"),
            "choices": Column("array<string>", "the values of a choice"),
            "since": Column("string", "the first version of Lockstep that has it"),
            "meaning": Column("string", "what it does"),
        },
        rows=configured.settings,
    ),
}
"""All system tables, by name."""
