"""What requests have in common: who asks, about which catalog, about which name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from lockstep.timeline.entry import Namespace

Parts: TypeAlias = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
"""A name as its parts: those of the namespace, which may be none, and the last one."""

Settings: TypeAlias = dict[str, str]
"""Settings by their `Setting.key`, each as the text that was set."""

Id: TypeAlias = str
"""Stands for settings, see `options`. What it looks like is not said here: a constraint of a text, in a union within a
dict, is freed twice by msgspec 0.22, and the interpreter crashes at its end."""

if TYPE_CHECKING:
    Options: TypeAlias = Settings
else:
    Options = Settings | Id
"""Settings of a catalog as a request has them: in full, or by an id, for which the host puts them in before it looks at
the request (`KnownOptions`)."""


class RequestBase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op"):
    """The base of every request: of what is not said here, nothing is guessed."""

    session: str
    """Whose transaction it is about: a session's id, or the name under which sessions share their transactions."""

    within: str | None = None
    """The transaction that the shim has open there, by its id; None if it has none. A request of one that has ended
    meanwhile is refused: it would happen on its own, and could not be rolled back."""

    user: str | None = None
    """As whom a server (Thrift, Spark Connect) knows the client that asks; None: who runs the driver asks."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The base of every answer, and the one without anything in it: it is done."""


class AboutCatalog(RequestBase, frozen=True, kw_only=True):
    """A request about what a catalog holds."""

    catalog: str
    """The catalog's name in this session."""

    options: Options
    """All that is set for the catalog, the keys of its store too: nothing of it may be logged or shown."""

    case_sensitive: bool
    """Whether names that differ in case alone are two to this session."""


class AboutName(AboutCatalog, frozen=True, kw_only=True):
    """A request about one table or view."""

    namespace: Namespace
    """The namespace as the statement has it; Spark's empty one is `default`."""

    table: str
    """The last part of the name, a view's too."""


class AboutRelation(AboutName, frozen=True, kw_only=True):
    """A request of a statement that reads or writes a table or a view: what it was told so far is among it."""

    pin: int | None = None
    """The database version that the statement reads of this catalog; None before its first relation."""

    seen: tuple[Parts, ...] = ()
    """What it was told at that version: tables and views, whether or not they exist."""

    mentioned: tuple[Parts, ...] = ()
    """Tables whose logs are looked at for commits of plain Delta writers, before a version is chosen."""


class AboutNamespace(AboutCatalog, frozen=True, kw_only=True):
    """A request about one namespace, or about all that lies in it."""

    namespace: Namespace
    """The namespace as the statement has it; Spark's empty one is `default`."""


class Read(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One scan of a table, as the shim saw it in a plan; see `lockstep.commit.scans.Scan`."""

    table: str
    """The table's id."""

    version: int | None
    """The table version that it shows; None: not known, or that of a transaction's own view."""

    where: str | None
    """The rows that it is after, a condition in Spark's SQL; None is any row."""

    head: bool
    """Whether it is not seen through a transaction."""

    cached: bool
    """Whether its rows come from what Spark keeps of an earlier query."""


class Listing(Answer, frozen=True, kw_only=True):
    """The tables, or the views, of one namespace."""

    names: list[str]
    """Their last parts, sorted."""

    namespace: Namespace
    """The namespace as it is stored."""


class Dropped(Answer, frozen=True, kw_only=True):
    """What became of a DROP."""

    dropped: bool
    """Whether there was something to drop."""
