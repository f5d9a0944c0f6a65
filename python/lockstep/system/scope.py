"""What a statement that reads system tables sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lockstep.commit.records import OpenRecord
from lockstep.lake.lake import Lake
from lockstep.timeline.database import Database
from lockstep.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Configured:
    """What is set, as text, by `Setting.key`, but for `driver` and `environment`: by `Setting.name`.

    Attributes:
        lake: reads those settings of the catalog's of which what the lake itself says counts, and not the catalog.
    """

    catalog: str
    session: Mapping[str, str]
    options: Mapping[str, str]
    driver: Mapping[str, str]
    environment: Mapping[str, str]
    lake: Callable[[], Mapping[str, str]] = dict


@dataclass(frozen=True, slots=True)
class Scope:
    """What is seen.

    Attributes:
        database: the version of the database; of a transaction's own view its snapshot.
        tx: the transaction whose own view it is; None: that of a database version.
        open_here: the open transactions of this driver, with or without a record.
        configured: of `settings` alone.
    """

    lake: Lake
    database: Database
    tx: Transaction | None = None
    open_here: Callable[[], list[OpenRecord]] = list
    configured: Configured = field(default_factory=lambda: Configured("", {}, {}, {}, {}))
