"""What must hold of a history whatever its order: sums and acknowledged writes stay, failed ones are not there.

They find less than the cycles of `history`, but they need no theory to be believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.support.history import Anomaly, Read, Transaction, Value


@dataclass(frozen=True, slots=True)
class Totals:
    """Accounts between which money moves, so that their sum stays. An account is a list; its last value counts.

    Attributes:
        balance: what such a value says the account holds.
    """

    accounts: tuple[str, ...]
    balance: Callable[[Value], int]
    total: int

    def wrong(self, contents: Mapping[str, Sequence[Value]]) -> str | None:
        """Say what is wrong with the contents of all accounts; None if nothing is."""
        held = {key: self.balance(contents[key][-1]) if contents.get(key) else None for key in self.accounts}
        shown = ", ".join(f"{key}={'none' if amount is None else amount}" for key, amount in held.items())
        amounts = [amount for amount in held.values() if amount is not None]
        if len(amounts) < len(held):
            return f"{shown}: an account is empty"
        return (
            None if sum(amounts) == self.total else f"{shown}: {sum(amounts)} in all where there must be {self.total}"
        )


def wrong_totals(history: Iterable[Transaction], totals: Totals) -> Iterator[Anomaly]:
    """Find committed transactions that read all accounts, and another sum."""
    for tx in history:
        read = {op.key: op.values for op in tx.ops if isinstance(op, Read)}
        if tx.status != "ok" or not read.keys() >= set(totals.accounts):
            continue
        if (what := totals.wrong(read)) is not None:
            yield Anomaly("total", f"{tx.id} read {what}", (tx.id,), totals.accounts)


def lost_or_resurrected(history: Iterable[Transaction], contents: Mapping[str, Sequence[Value]]) -> Iterator[Anomaly]:
    """Compare what is there in the end with what everybody was told: of `info` both is right, of others one is.

    Args:
        contents: every key's values after the last transaction.
    """
    known: set[tuple[str, Value]] = set()
    for tx in history:
        for op in tx.ops:
            if isinstance(op, Read):
                continue
            known.add((op.key, op.value))
            is_there = op.value in contents.get(op.key, ())
            if tx.status == "ok" and not is_there:
                yield Anomaly("lost", f"{tx.id} was told that {op.value} is committed ({op.key})", (tx.id,), (op.key,))
            if tx.status == "fail" and is_there:
                what = f"{tx.id} was told that {op.value} is not committed, and it is there ({op.key})"
                yield Anomaly("resurrected", what, (tx.id,), (op.key,))
    for key, values in contents.items():
        for value in sorted({value for value in values if (key, value) not in known}, key=str):
            yield Anomaly("garbage", f"{value} is there and nobody wrote it ({key})", (), (key,))
        if len(set(values)) < len(values):
            yield Anomaly("duplicate", f"a value is there twice ({key})", (), (key,))
