"""A statement's commit, staged for a transaction: what Delta itself does where Spark writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep import __version__
from lockstep.catalog import TransactionalCatalog
from lockstep.commit.elsewhere import hold
from lockstep.delta.actions import Action, render
from lockstep.delta.log import staged_path
from lockstep.errors import UnavailableError
from lockstep.storage import Theirs
from lockstep.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Operation:
    """What a commit says that it did (Protocol, "Commit Provenance Information").

    Attributes:
        name: in Delta's words, see `lockstep.delta.counts` and `lockstep.delta.footprint`.
        text: the statement, for the timeline's entry.
        parameters: of the operation, for people.
        metrics: how many rows and files, in Delta's words.
        blind: whether it only adds rows, and read nothing of the table.
        tags: what else holds of the commit, in Delta's words.
    """

    name: str
    text: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    blind: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)

    def info(self, *, version: int, now_ms: int, after_ms: int | None) -> dict[str, Any]:
        """Return the `commitInfo` of a table version.

        Args:
            after_ms: of a table with in-commit timestamps, when the commit before was made; None of one without.
        """
        return {
            **({} if after_ms is None else {"inCommitTimestamp": max(now_ms, after_ms + 1)}),
            "timestamp": now_ms,
            "operation": self.name,
            "operationParameters": dict(self.parameters),
            **({"readVersion": version - 1} if version > 0 else {}),
            "isolationLevel": "Serializable",
            "isBlindAppend": self.blind,
            **({"tags": dict(self.tags)} if self.tags else {}),
            "operationMetrics": {name: str(value) for name, value in self.metrics.items()},
            "engineInfo": f"Lockstep/{__version__}",
        }


def now_ms(catalog: TransactionalCatalog) -> int:
    """Return the time, in ms since 1970."""
    return int(catalog.lake.clock().timestamp() * 1000)


def stage(
    catalog: TransactionalCatalog,
    tx: Transaction,
    location: str,
    actions: Sequence[Action],
    operation: Operation,
    *,
    after_ms: int | None = None,
) -> None:
    """Stage a statement's commit of the table, or of one that is reserved, at a location.

    One write makes it part of the transaction, or does not: a statement is never staged by half.

    Args:
        after_ms: see `Operation.info`.

    Raises:
        UnavailableError: the store failed; where nobody knows whether it wrote, only a rollback is left.
        DuplicateError: see `lockstep.commit.elsewhere.hold`.
        ConflictError, NoTransactionError: see `TransactionalCatalog.claim`.
    """
    version = tx.next_version(location)
    info = {"commitInfo": operation.info(version=version, now_ms=now_ms(catalog), after_ms=after_ms)}
    content = render([info, *actions])
    path = staged_path(location, tx.id, version)
    hold(catalog.lake, tx, location, content.decode())
    try:
        outcome = catalog.lake.storage.put_if_absent(path, content)
    except UnavailableError as error:
        if not error.definite:
            tx.failure = f"{operation.text}: {error.message}"
        raise
    if isinstance(outcome, Theirs):
        tx.failure = f"{path} is there already, and is another statement's"
        raise UnavailableError(f"{tx.failure}: ROLLBACK, and run the transaction again")
    catalog.stage(tx, location, version, content.decode(), text=operation.text)
    catalog.claim(tx, location, version)
