"""What a procedure of a catalog is: a line of the table of procedures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from lockstep.spark.host.protocol import procedures as protocol

if TYPE_CHECKING:
    from lockstep.spark.host.procedures import ProcedureRequests
    from lockstep.spark.host.sessions import Session

Rows: TypeAlias = list[list[protocol.Value]]
Answers: TypeAlias = "Callable[[ProcedureRequests, Session, protocol.CallProcedure], protocol.CallAnswer]"


@dataclass(frozen=True, slots=True)
class Procedure:
    """One procedure.

    Attributes:
        says: what it does.
        parameters: each with its type; the first `required` must be given.
        columns: of what it gives, each with its type.
        answers: what does it.
        changes: whether it may change something.
        needs_transaction: whether Delta has to do, or look at, a part of it in the same transaction.
    """

    says: str
    parameters: Mapping[str, str]
    columns: Mapping[str, str]
    answers: Answers
    required: int = 0
    changes: bool = False
    needs_transaction: bool = False
