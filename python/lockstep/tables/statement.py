"""What a statement that fails leaves of its transaction: it can be rolled back, or go back to a savepoint.

As in PostgreSQL (25P02): a program that catches the error, and goes on as if nothing had been, commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from lockstep.commit.keeping import KEEPER
from lockstep.commit.timing import executing
from lockstep.lake.lake import Lake
from lockstep.tables.interrupting import limited
from lockstep.transactions.limits import Limits, Timing
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction

P = ParamSpec("P")
R = TypeVar("R")


class InTransaction(Protocol):
    """What has statements of a transaction."""

    @property
    def core(self) -> Transaction:
        """The transaction."""
        ...

    @property
    def lake(self) -> Lake:
        """The lake that it is in."""
        ...


S = TypeVar("S", bound=InTransaction)


def writes(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method a statement that writes: whatever it raises, the transaction is not committed as if it had not.

    Others are told of the transaction from then on, if it is open for a second (`lockstep.commit.keeping`).
    """

    @wraps(method)
    def statement(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        tx = self.core
        with executing(tx):
            tx.check_writable()
            try:
                with limited(tx):
                    return method(self, *args, **kwargs)
            except BaseException as error:  # an interrupt too
                if tx.failed_statement is None:
                    tx.failed_statement = f"{type(error).__name__}: {error}"
                raise
            finally:
                if tx.state is State.INFLIGHT:
                    KEEPER.watch(self.lake, tx)

    return statement


def reads(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Make a method a statement that reads: refused after one that failed, and if it fails itself nothing is lost."""

    @wraps(method)
    def statement(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        tx = self.core
        # What a query is given may itself read in this transaction, from one of DuckDB's threads: that is not to wait.
        with executing(tx, alone=False):
            tx.check_usable()
            tx.check_sound()
            with limited(tx):
                return method(self, *args, **kwargs)

    return statement


def limit(lake: Lake, tx: Transaction, limits: Limits, undo: Callable[[], object]) -> None:
    """Have a transaction rolled back that takes longer than it may, by its statements or, between them, by the keeper.

    Args:
        undo: rolls it back.
    """
    if limits.are_set:
        tx.timing = Timing(limits, KEEPER.seconds, undo)
    if limits.total or limits.idle:
        KEEPER.watch(lake, tx)
