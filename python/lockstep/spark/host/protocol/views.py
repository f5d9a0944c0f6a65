"""Requests of the shim's catalog about views, and their answers."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from lockstep.spark.host.protocol.base import AboutName, AboutNamespace, AboutRelation, Answer, Parts
from lockstep.timeline.entry import ViewDefinition


class ResolveView(AboutRelation, frozen=True, kw_only=True, tag="view"):
    """Ask what a name says as a view. `protocol.tables.Missing` is the answer where it says nothing.

    At most one of the two is said.
    """

    version: str | None = None
    """As in `protocol.tables.Resolve`, with the mark of a database version: `@7`."""

    system_time_micros: int | None = None
    """As in `protocol.tables.Resolve`."""


class WholeDefinition(ViewDefinition, frozen=True, kw_only=True, omit_defaults=False):
    """A view's definition with every field: the shim looks for each of them."""


class ViewAnswer(Answer, frozen=True, kw_only=True):
    """A view."""

    missing: Literal[False] = False
    """What tells it from `Missing`."""

    name: Parts
    """Its name as it is stored: namespace and name."""

    view: WholeDefinition
    """What it says."""

    version: int | UnsetType = UNSET
    """The database version whose definition that is; below 0 for a view that the transaction made itself."""

    pin: int | UnsetType = UNSET
    """Outside a transaction: the database version that the statement reads from now on."""


class Views(AboutNamespace, frozen=True, kw_only=True, tag="views"):
    """List a namespace's views."""


class CreateView(AboutName, frozen=True, kw_only=True, tag="create_view"):
    """CREATE VIEW, CREATE OR REPLACE VIEW, or ALTER VIEW … AS."""

    replace: Literal["create", "replace", "create_or_replace"]
    """Which of them: `replace` is ALTER VIEW, whose view must be there."""

    view: ViewDefinition
    """What it is to say."""


class DropView(AboutName, frozen=True, kw_only=True, tag="drop_view"):
    """DROP VIEW."""


class RenameView(AboutName, frozen=True, kw_only=True, tag="rename_view"):
    """ALTER VIEW … RENAME TO."""

    to: Parts
    """The new name, with or without the catalog and the namespace."""


Request: TypeAlias = ResolveView | Views | CreateView | DropView | RenameView
