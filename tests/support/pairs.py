"""Every pair of (what we did, what a winner did): what becomes of the second to commit, and whether it must."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tests.support.meaning import serial
from tests.support.operations import on_rows, operations
from tests.support.peers import ALLOWED, delta, ducklake, lockstep


@dataclass(frozen=True)
class Pair:
    """What becomes of one pair, by each system: a rule's or an exception's name, `ALLOWED`, or None for no say.

    Attributes:
        mine, winner: names of operations.
        serial: whether one after the other, in some order, gives what both at once would give.
    """

    mine: str
    winner: str
    serial: bool
    snapshot: str
    serializable: str
    delta: str | None
    write_serializable: str | None
    ducklake: str | None


@cache
def pairs() -> tuple[Pair, ...]:
    """Return all pairs, judged."""
    mine, winner = operations("m"), operations("w")
    return tuple(
        Pair(
            one,
            other,
            serial(ours.run, theirs.run),
            lockstep(ours, theirs, "SNAPSHOT"),
            lockstep(ours, theirs, "SERIALIZABLE"),
            delta(ours, theirs),
            delta(ours, theirs, "WriteSerializable"),
            ducklake(ours, theirs),
        )
        for one, ours in mine.items()
        for other, theirs in winner.items()
    )


@dataclass(frozen=True)
class Count:
    """How one system does on some pairs: refused though there is a serial order, and let through without one."""

    refused: int
    serial: int
    missed: int
    not_serial: int


def count(system: str, asked: str = "", *, rows_only: bool = False, mine: str = "") -> Count:
    """Count a system's errors over the pairs that it has a say in, and another one too if named.

    Args:
        system, asked: fields of `Pair`.
        rows_only: only pairs of operations on rows and files.
        mine: only pairs with this as what we did.
    """
    rows = {operation.name for operation in on_rows("m")}
    chosen = [
        pair
        for pair in pairs()
        if None not in (getattr(pair, system), getattr(pair, asked or system))
        and (not rows_only or {pair.mine, pair.winner} <= rows)
        and mine in ("", pair.mine)
    ]
    orders = [pair for pair in chosen if pair.serial]
    others = [pair for pair in chosen if not pair.serial]
    return Count(
        refused=sum(getattr(pair, system) != ALLOWED for pair in orders),
        serial=len(orders),
        missed=sum(getattr(pair, system) == ALLOWED for pair in others),
        not_serial=len(others),
    )
