"""Requests about system tables, `<catalog>.system.<table>`, and their answers."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from lockstep.spark.host.protocol.base import AboutCatalog, AboutRelation, Answer, Settings
from lockstep.system.query import Filter, Value


class SystemTable(AboutRelation, frozen=True, kw_only=True, tag="system_table"):
    """Ask what a name of the namespace `system` means; a lake from before there were system tables may have its own."""

    use: Literal["pinned", "live", "append", "changed", "target"]
    """As in `Resolve`."""

    writes: bool = False
    """Whether the statement is going to write it: that is refused."""

    version: str | None = None
    """As in `Resolve`."""

    timestamp_micros: int | None = None
    """As in `Resolve`."""

    system_time_micros: int | None = None
    """As in `Resolve`."""


class SystemColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a system table."""

    name: str
    """Its name."""

    type: str
    """Its type, in SQL."""

    comment: str
    """What it says, as Markdown."""


class SystemTableAnswer(Answer, frozen=True, kw_only=True):
    """A system table, or that the name is none."""

    missing: bool = False
    """Whether there is none of this name, or a table of the lake's own has it."""

    pin: int | UnsetType = UNSET
    """The database version that the statement reads of this catalog; not said where it reads none."""

    name: str = ""
    """The table's name."""

    comment: str = ""
    """What its rows are."""

    columns: list[SystemColumn] = msgspec.field(default_factory=list)
    """Its columns."""

    at: int | None = None
    """The database version that is shown; None: what is there when the rows are read."""

    transaction: str | None = None
    """The transaction whose own view is shown; None: none's."""

    judged: list[str] = msgspec.field(default_factory=list)
    """The columns whose conditions are judged by the host."""

    ordered: list[str] = msgspec.field(default_factory=list)
    """The columns by which a few rows are found without the others."""

    lists_files: bool = False
    """Whether its rows are the data files of tables, which Delta lists: ask `SystemFiles`."""

    reads: list[str] = msgspec.field(default_factory=list)
    """The settings of Spark's that `SystemRows` is to say."""


class AboutSystemTable(AboutCatalog, frozen=True, kw_only=True):
    """A request for the rows of a system table, as `SystemTableAnswer` has it."""

    table: str
    """Its name."""

    at: int | None
    """The database version."""

    transaction: str | None
    """The transaction whose view it is."""

    filters: tuple[Filter, ...]
    """Conditions on the columns that are judged by the host."""

    cursor: int | None
    """Where the batch before this ended; None: the first."""


class SystemRows(AboutSystemTable, frozen=True, kw_only=True, tag="system_rows"):
    """Ask for the next batch of a system table's rows."""

    columns: tuple[str, ...]
    """The columns that are wanted, in the order of the answer."""

    limit: int | None
    """How many rows are enough; None: all."""

    descending: bool
    """Whether those come first that are last by the table's order."""

    settings: Settings
    """As in `Begin`; said for the table `settings` alone."""

    driver: Settings
    """The settings of Spark's that were asked for, by their names, as far as they are set."""


class SystemRowsAnswer(Answer, frozen=True, kw_only=True):
    """Some rows."""

    rows: list[list[Value]]
    """A value for each column; times are microseconds since 1970, UTC."""

    next: int | None
    """Where the next batch begins; None: there is none."""

    at: int | None
    """The database version that the rows are of, for the next batch; None: none's."""


class SystemFiles(AboutSystemTable, frozen=True, kw_only=True, tag="system_files"):
    """Ask of which tables Delta is to list the data files."""


class FilesOf(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose data files are to be listed."""

    namespace: str
    """Its namespace, parts separated by dots."""

    name: str
    """The last part of its name."""

    uri: str
    """Where its log is."""

    version: int | None
    """The version of it; None: the newest that is seen there."""

    location: str
    """Its folder, as a URL of the real storage."""


class SystemFilesAnswer(Answer, frozen=True, kw_only=True):
    """Some tables, by name."""

    tables: list[FilesOf]
    """The tables."""

    next: int | None
    """Where the next ones begin; None: there are no more."""

    at: int | None
    """As in `SystemRowsAnswer`."""


Request: TypeAlias = SystemTable | SystemRows | SystemFiles
