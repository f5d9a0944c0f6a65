"""The request of the shim about names of Spark's session catalog, and its answer."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from lockstep.spark.host.protocol.base import AboutCatalog, Answer, Parts
from lockstep.spark.host.protocol.procedures import ListedTable


class SaidName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name of Spark's session catalog that a statement says."""

    name: Parts
    """Schema and name, without the catalog."""

    use: Literal["used", "dropped", "made"]
    """What the statement does with what has it, see `lockstep.adoption.session_names.Use`."""

    is_delta: bool
    """Whether what is made, if anything is, is a Delta table."""

    there: ListedTable | None
    """What the session catalog has under it; null is nothing."""


class SessionNames(AboutCatalog, frozen=True, kw_only=True, tag="session_names"):
    """Ask which names of Spark's session catalog mean what this catalog has."""

    names: list[SaidName]
    """Those of one statement."""


class SessionNamesAnswer(Answer, frozen=True, kw_only=True):
    """Which of them do."""

    ours: list[bool]
    """For each name, in their order, whether it means this catalog's."""


Request: TypeAlias = SessionNames
