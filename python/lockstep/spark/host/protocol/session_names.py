"""The requests of the shim about names of Spark's session catalog, and their answers."""

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
    """Ask which names of Spark's session catalog mean what this catalog has.

    Refused is also what would have Spark delete or move files of this catalog's tables.
    """

    implementation: str
    """The class of what the session calls `spark_catalog`."""

    names: list[SaidName]
    """Those of one statement."""


class SessionNamesAnswer(Answer, frozen=True, kw_only=True):
    """Which of them do."""

    ours: list[bool]
    """For each name, in their order, whether it means this catalog's."""


class DropSessionSchema(AboutCatalog, frozen=True, kw_only=True, tag="drop_session_schema"):
    """Ask for leave to drop a schema of Spark's session catalog, which takes files with it; the answer is empty."""

    schema: str
    """Its name."""

    folder: str | None
    """A whole URL of the schema's own folder; null if the session catalog does not say."""

    tables: list[ListedTable]
    """What the session catalog has in it."""


Request: TypeAlias = SessionNames | DropSessionSchema
