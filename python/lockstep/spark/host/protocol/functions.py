"""Requests of the shim's catalog about functions, and their answers."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from lockstep.spark.host.protocol.base import AboutName, AboutNamespace, AboutRelation, Answer, Parts
from lockstep.timeline.functions import FunctionDefinition


class ResolveFunction(AboutRelation, frozen=True, kw_only=True, tag="function"):
    """Ask what a name says as a function. `protocol.tables.Missing` is the answer where it says nothing.

    `table` is what the function is called; in `seen` it has `()` behind it, which tells it from a table or a view.
    """

    version: str | None = None
    """The database version whose function is meant, as in a view that is read as it was: `@7`; None: what the statement
    or the transaction reads."""


class WholeFunction(FunctionDefinition, frozen=True, kw_only=True, omit_defaults=False):
    """A function's definition with every field: the shim looks for each of them."""


class FunctionAnswer(Answer, frozen=True, kw_only=True):
    """A function."""

    missing: Literal[False] = False
    """What tells it from `Missing`."""

    name: Parts
    """The name that it is stored under: namespace, and what it is called with `()` behind it."""

    function: WholeFunction
    """What it says."""

    version: int | UnsetType = UNSET
    """The database version whose definition that is; below 0 for a function that the transaction made itself."""

    pin: int | UnsetType = UNSET
    """Outside a transaction: the database version that the statement reads from now on."""


class Functions(AboutNamespace, frozen=True, kw_only=True, tag="functions"):
    """List a namespace's functions."""


class CreateFunction(AboutName, frozen=True, kw_only=True, tag="create_function"):
    """CREATE FUNCTION."""

    mode: Literal["create", "replace", "if_not_exists"]
    """What becomes of a function of that name."""

    function: FunctionDefinition
    """What it is to say."""


class DropFunction(AboutName, frozen=True, kw_only=True, tag="drop_function"):
    """DROP FUNCTION."""


Request: TypeAlias = ResolveFunction | Functions | CreateFunction | DropFunction
