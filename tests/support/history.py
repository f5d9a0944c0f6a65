"""Judge a history of transactions: which anomalies it proves, and which isolation levels forbid them.

The method is Elle's (Kingsbury and Alvaro, "Elle: Inferring Isolation Anomalies from Experimental Observations", VLDB
2020): clients append unique values to lists and read whole lists, so each read tells all the writes before it. From
that follow Adya's dependencies ("Weak Consistency", 1999) between the transactions, and a cycle of them is an anomaly.

    key      written by   a read tells                         dependencies
    list     append       every append before it, in order     ww, wr, rw
    set      add          every add before it, in no order     wr, rw

A list's append rewrites the list, so two at once must conflict. A set's add is a row of its own: two at once need not,
and the order of rows means nothing. A register is the last value of a list.

    history = [Transaction("T1", ops=(Append("x", 1),)), Transaction("T2", ops=(Read("x", (1,)),))]
    assert not violations(history, "strict-serializable")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

from tests.support.cycles import Dependencies, Kind, find_cycles

Value: TypeAlias = int | str
Status: TypeAlias = Literal["ok", "fail", "info"]
Level: TypeAlias = Literal[
    "read-committed",
    "snapshot-isolation",
    "strong-snapshot-isolation",
    "serializable",
    "strict-serializable",
]

NOT_CYCLES = (
    "internal",
    "duplicate",
    "garbage",
    "incompatible-order",
    "lost-append",
    "dirty-update",
    "G1a",
    "G1b",
)
"""What no level allows, and needs no cycle to be seen. `lost-append` needs real time: see `_lost`."""

_SNAPSHOT = ("G0", "G1c", "G-single", "G-nonadjacent")
_SERIAL = (*_SNAPSHOT, "G2-item")

FORBIDS: Mapping[Level, frozenset[str]] = {
    "read-committed": frozenset({*NOT_CYCLES, "G0", "G1c"}),
    "snapshot-isolation": frozenset({*NOT_CYCLES, *_SNAPSHOT}),
    "strong-snapshot-isolation": frozenset({*NOT_CYCLES, *_SNAPSHOT, *(f"{name}-realtime" for name in _SNAPSHOT)}),
    "serializable": frozenset({*NOT_CYCLES, *_SERIAL}),
    "strict-serializable": frozenset({*NOT_CYCLES, *_SERIAL, *(f"{name}-realtime" for name in _SERIAL)}),
}
"""By level, the anomalies that it forbids.

Snapshot isolation allows exactly the cycles in which two rw edges follow each other (Fekete et al., TODS 2005; Cerone
and Gotsman, PODC 2016); those are `G2-item` here. `strong` and `strict` add that a transaction sees, or comes after,
all that had ended when it began.
"""


# --- what a history is made of ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """A value was put at the end of a list."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class Add:
    """A value was put into a set."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class Read:
    """A whole list or set was read, the transaction's own writes included."""

    key: str
    values: tuple[Value, ...] = ()


Op: TypeAlias = Append | Add | Read


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction as its client saw it.

    Attributes:
        id: unique in the history.
        ops: what it did, in order. No value is written to the same key twice in a history.
        status: `ok` it was told that it is committed, `fail` that it is not, `info` it was told nothing. What an `info`
            did counts once a committed transaction has seen a write of it.
        process: who ran it, for messages.
        began, ended: just before its BEGIN and just after the answer to its COMMIT, on one clock for all, in any unit;
            `ended` is None where nobody knows, as of every `info`.
    """

    id: str
    ops: tuple[Op, ...]
    status: Status = "ok"
    process: str = ""
    began: int = 0
    ended: int | None = None


@dataclass(frozen=True, slots=True)
class Anomaly:
    """What a history proves: its name, in whose words it is told, and the transactions and keys it is about."""

    name: str
    says: str
    transactions: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.says}"


def violations(history: Sequence[Transaction], level: Level) -> list[Anomaly]:
    """Return the anomalies of a history that a level forbids.

    Raises:
        ValueError: the history cannot be judged, see `check`.
    """
    return [anomaly for anomaly in check(history) if anomaly.name in FORBIDS[level]]


def check(history: Sequence[Transaction]) -> list[Anomaly]:
    """Return what a history proves: all of `NOT_CYCLES`, and a few of each kind of cycle (see `cycles`).

    Raises:
        ValueError: two transactions have the same id, a value was written to a key twice, or a key is a list and a set.
    """
    seen = _observe(history)
    direct = [*seen.anomalies, *_aborted(seen), *_intermediate(seen), *_dirty_updates(seen), *_lost(seen)]
    cycles = find_cycles(_dependencies(seen))
    return direct + [Anomaly(each.name, str(each), each.transactions, each.keys) for each in cycles]


# --- what was observed ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """A read of a committed transaction: all of it, and what others had written of it (for a set: sorted)."""

    by: Transaction
    key: str
    values: tuple[Value, ...]
    foreign: tuple[Value, ...]


@dataclass
class _Observed:
    """What follows from a history before any cycle is looked for.

    Attributes:
        writer: who wrote a value to a key, whatever became of it.
        committed: the transactions that are `ok`, and those `info` that a committed one has seen; by id.
        reads: the reads of the committed ones that make sense.
        orders: by list, the values of its longest read, in order.
    """

    writer: dict[tuple[str, Value], Transaction]
    sets: frozenset[str]
    committed: dict[str, Transaction] = field(default_factory=dict)
    reads: list[_Seen] = field(default_factory=list)
    orders: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    anomalies: list[Anomaly] = field(default_factory=list)

    def writers(self, key: str, values: Iterable[Value]) -> list[Transaction]:
        """Return who wrote these values; those that nobody wrote are passed over, they are reported elsewhere."""
        return [self.writer[key, value] for value in values if (key, value) in self.writer]

    def unseen(self) -> dict[str, list[tuple[Value, Transaction]]]:
        """By list, the committed appends that no read has: they come after its longest read, in an unknown order."""
        found: dict[str, list[tuple[Value, Transaction]]] = defaultdict(list)
        for (key, value), by in self.writer.items():
            if key not in self.sets and by.id in self.committed and value not in self.orders.get(key, ()):
                found[key].append((value, by))
        return found


def _observe(history: Sequence[Transaction]) -> _Observed:
    sets = frozenset(op.key for tx in history for op in tx.ops if isinstance(op, Add))
    seen = _Observed(writer=_writers(history, sets), sets=sets)
    waiting = [tx for tx in history if tx.status != "fail"]
    visible = {tx.id for tx in waiting if tx.status == "ok"}
    while new := [tx for tx in waiting if tx.id in visible]:
        for tx in new:
            seen.committed[tx.id] = tx
            _take_reads(seen, tx)
        waiting = [tx for tx in waiting if tx.id not in visible]
        visible = {by.id for read in seen.reads for by in seen.writers(read.key, read.values)}
    _infer_orders(seen)
    return seen


def _writers(history: Sequence[Transaction], sets: frozenset[str]) -> dict[tuple[str, Value], Transaction]:
    if len({tx.id for tx in history}) < len(history):
        raise ValueError("two transactions have the same id: the history cannot be judged")
    writer: dict[tuple[str, Value], Transaction] = {}
    for tx in history:
        for op in tx.ops:
            if isinstance(op, Read):
                continue
            if isinstance(op, Append) and op.key in sets:
                raise ValueError(f"{op.key} was appended to and added to: a key is a list or a set")
            if (op.key, op.value) in writer:
                raise ValueError(f"{op.value} was written to {op.key} twice: nobody could tell whose was read")
            writer[op.key, op.value] = tx
    return writer


def _take_reads(seen: _Observed, tx: Transaction) -> None:
    """Note a committed transaction's reads, as far as they agree with what it did before itself."""
    own: dict[str, list[Value]] = defaultdict(list)
    known: dict[str, tuple[Value, ...]] = {}
    for op in tx.ops:
        if not isinstance(op, Read):
            own[op.key].append(op.value)
            continue
        values = tuple(dict.fromkeys(op.values))
        if len(values) < len(op.values):
            twice = sorted({v for v in op.values if op.values.count(v) > 1}, key=str)
            seen.anomalies.append(
                _about("duplicate", tx, op.key, f"read {_show(op.values)}, with {_show(twice)} twice")
            )
        foreign = _foreign(seen, tx, op.key, values, own[op.key])
        if foreign is None or known.get(op.key, foreign) != foreign:
            before = _show(known[op.key]) if op.key in known else "nothing"
            what = f"read {_show(values)} after it had read {before} and written {_show(own[op.key])} itself"
            seen.anomalies.append(_about("internal", tx, op.key, what))
            continue
        known[op.key] = foreign
        seen.reads.append(_Seen(tx, op.key, values, foreign))
        if unknown := [value for value in foreign if (op.key, value) not in seen.writer]:
            seen.anomalies.append(_about("garbage", tx, op.key, f"read {_show(unknown)}, which nobody wrote"))


def _foreign(
    seen: _Observed, tx: Transaction, key: str, values: tuple[Value, ...], own: Sequence[Value]
) -> tuple[Value, ...] | None:
    """Return what others had written of what was read; None where its own writes are not where they must be."""
    if key in seen.sets:
        foreign = tuple(sorted(set(values) - set(own), key=str))
        there = set(own) <= set(values)
    else:
        split = len(values) - len(own)
        foreign, there = values[: max(split, 0)], values[max(split, 0) :] == tuple(own)
    early = any(by is tx for by in seen.writers(key, foreign))  # a value that it was still to write
    return foreign if there and not early else None


def _infer_orders(seen: _Observed) -> None:
    """Take each list's longest read as the order of its values; all other reads must be beginnings of it."""
    for read in sorted(seen.reads, key=lambda read: len(read.values)):
        if read.key not in seen.sets:
            seen.orders[read.key] = read.values
    for read in seen.reads:
        order = seen.orders.get(read.key, ())
        if read.key not in seen.sets and order[: len(read.values)] != read.values:
            what = f"read {_show(read.values)}, and another read {_show(order)}: one is not the beginning of the other"
            seen.anomalies.append(_about("incompatible-order", read.by, read.key, what))


# --- what needs no cycle ----------------------------------------------------------------------------------------------


def _aborted(seen: _Observed) -> Iterator[Anomaly]:
    """G1a: somebody read what a transaction wrote that is not committed."""
    for read in seen.reads:
        for value in read.foreign:
            by = seen.writer.get((read.key, value))
            if by is not None and by.status == "fail":
                what = f"read {value}, which {by.id} wrote, and {by.id} was not committed"
                yield Anomaly("G1a", f"{read.by.id} {what} ({read.key})", (read.by.id, by.id), (read.key,))


def _intermediate(seen: _Observed) -> Iterator[Anomaly]:
    """G1b: somebody read a part of what one transaction wrote to one key."""
    written: dict[tuple[str, str], list[Value]] = defaultdict(list)
    for (key, value), by in seen.writer.items():
        written[by.id, key].append(value)
    for read in seen.reads:
        last = read.foreign if read.key in seen.sets else read.foreign[-1:]
        for by in {tx.id: tx for tx in seen.writers(read.key, last)}.values():
            if missing := [value for value in written[by.id, read.key] if value not in read.foreign]:
                what = f"read {_show(read.foreign)} without {_show(missing)}, which {by.id} wrote too"
                yield Anomaly("G1b", f"{read.by.id} {what} ({read.key})", (read.by.id, by.id), (read.key,))


def _dirty_updates(seen: _Observed) -> Iterator[Anomaly]:
    """Find committed appends on top of aborted ones: the aborted one was taken for part of the list."""
    for key, order in seen.orders.items():
        below: Transaction | None = None
        for by in seen.writers(key, order):
            if by.status == "fail":
                below = by
            elif below is not None:
                what = f"{by.id} appended behind what {below.id} appended, and {below.id} was not committed ({key})"
                yield Anomaly("dirty-update", what, (by.id, below.id), (key,))
                below = None


def _lost(seen: _Observed) -> Iterator[Anomaly]:
    """Find acknowledged writes that nobody has seen, though somebody looked after they were acknowledged."""
    observed = {(read.key, value) for read in seen.reads for value in read.foreign}
    latest: dict[str, Transaction] = {}
    for read in seen.reads:
        if read.by.began >= latest.get(read.key, read.by).began:
            latest[read.key] = read.by
    for (key, value), by in seen.writer.items():
        reader = latest.get(key)
        if (key, value) in observed or by.status != "ok" or reader is None or by.ended is None:
            continue
        if by.ended < reader.began:
            what = f"{by.id} was told that {value} is committed; {reader.id}, which began later, and all others, read"
            yield Anomaly("lost-append", f"{what} {key} without it", (by.id, reader.id), (key,))


# --- dependencies -----------------------------------------------------------------------------------------------------


def _dependencies(seen: _Observed) -> Dependencies:
    """Return Adya's edges between committed transactions, and those of real time."""
    graph = Dependencies(seen.committed)
    for source, target, kind, key, why in (*_ww(seen), *_wr(seen), *_rw(seen), *_real_time(seen)):
        if source.id != target.id and {source.id, target.id} <= seen.committed.keys():
            graph.add(source.id, target.id, kind, key, why)
    return graph


_Edge: TypeAlias = tuple[Transaction, Transaction, Kind, str, str]


def _ww(seen: _Observed) -> Iterator[_Edge]:
    """Who appended directly before whom; appends that no read has come behind the longest read."""
    for key, order in seen.orders.items():
        by = [tx for tx in seen.writers(key, order) if tx.id in seen.committed]
        for before, after in pairwise(by):
            yield before, after, "ww", key, f"{after.id} appended to {key} behind {before.id}"
    for key, unseen in seen.unseen().items():
        for last in seen.writers(key, seen.orders.get(key, ())[-1:]):
            for value, after in unseen:
                yield last, after, "ww", key, f"{after.id} appended {value} to {key} behind {last.id}, unseen"


def _wr(seen: _Observed) -> Iterator[_Edge]:
    """Who read what whom had written: of a list, its last value tells enough."""
    for read in seen.reads:
        for by in seen.writers(read.key, read.foreign if read.key in seen.sets else read.foreign[-1:]):
            yield by, read.by, "wr", read.key, f"{read.by.id} read {read.key} with what {by.id} wrote"


def _rw(seen: _Observed) -> Iterator[_Edge]:
    """Who read a key without what whom wrote: of a list, the next value tells enough."""
    added: dict[str, list[tuple[Value, Transaction]]] = defaultdict(list)
    for (key, value), by in seen.writer.items():
        if key in seen.sets:
            added[key].append((value, by))
    unseen = seen.unseen()
    for read in seen.reads:
        if read.key in seen.sets:
            later = [(value, by) for value, by in added[read.key] if value not in read.foreign]
        else:
            following = seen.orders[read.key][len(read.foreign) :]
            known = [(value, by) for value in following for by in seen.writers(read.key, [value])]
            later = [(value, by) for value, by in known if by.id in seen.committed][:1]
            later = later or ([] if following else unseen.get(read.key, []))
        for value, by in later:
            yield read.by, by, "rw", read.key, f"{read.by.id} read {read.key} without {value}, which {by.id} wrote"


def _real_time(seen: _Observed) -> Iterator[_Edge]:
    """Who had ended when whom began, without the edges that follow from others."""
    txs = seen.committed.values()
    begins = [(tx.began, 0, tx) for tx in txs]
    ends = [(tx.ended, 1, tx) for tx in txs if tx.ended is not None]
    ended: list[Transaction] = []
    for _, is_end, tx in sorted([*begins, *ends], key=lambda event: event[:2]):
        if is_end:
            ended = [before for before in ended if before.ended is None or before.ended >= tx.began] + [tx]
        else:
            for before in ended:
                yield before, tx, "rt", "", f"{before.id} had ended when {tx.id} began"


# --- words ------------------------------------------------------------------------------------------------------------


def _about(name: str, tx: Transaction, key: str, what: str) -> Anomaly:
    return Anomaly(name, f"{tx.id} {what} ({key})", (tx.id,), (key,))


MAX_SHOWN = 12


def _show(values: Sequence[Value]) -> str:
    """Show a list, of a long one its end: that is where lists differ."""
    shown = ", ".join(map(str, values[-MAX_SHOWN:]))
    return f"[{'…, ' if len(values) > MAX_SHOWN else ''}{shown}]"
