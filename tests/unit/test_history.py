"""The judge of histories: each anomaly is found and named, and histories of correct engines are found clean."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.history import FORBIDS, Add, Append, Level, Op, Read, Status, Transaction, Value, check, violations
from tests.support.invariants import Totals, lost_or_resurrected, wrong_totals

STATUS: dict[str, Status] = {"!": "fail", "?": "info"}
CLEAN = frozenset[str]()


def history(text: str) -> list[Transaction]:
    """Read a history in shorthand: `T1: ax1 rx12 +s3 | T2!: …`.

    `ax1` appends 1 to list x, `+s3` adds 3 to set s, `rx12` reads x as [1, 2]. `!` behind a name: it failed, `?`:
    nobody knows. `@2-5` behind that: it began at 2 and ended at 5; without, all are at once.
    """
    return [_transaction(*each.split(":")) for each in text.split("|")]


def _transaction(head: str, ops: str) -> Transaction:
    name, _, times = head.strip().partition("@")
    began, _, ended = times.partition("-")
    return Transaction(
        id=name.rstrip("!?"),
        ops=tuple(map(_op, ops.split())),
        status=STATUS.get(name[-1], "ok"),
        began=int(began or 0),
        ended=int(ended) if ended else None,
    )


def _op(word: str) -> Op:
    values = tuple(map(int, word[2:]))
    match word[0]:
        case "r":
            return Read(word[1], values)
        case "a":
            return Append(word[1], *values)
        case _:
            return Add(word[1], *values)


def names(text: str) -> set[str]:
    return {anomaly.name for anomaly in check(history(text))}


CASES = [
    # what it shows, the history, all that must be found
    ("nothing", "T1:", CLEAN),
    ("one after the other", "T1: ax1 | T2: rx1 ax2 | T3: rx12", CLEAN),
    ("both orders of two appends are fine", "T1: ax1 | T2: ax2 | T3: rx21", CLEAN),
    ("own writes", "T1: ax1 rx1 ax2 rx12", CLEAN),
    ("own writes behind others'", "T1: ax1 | T2: rx1 ax2 rx12 | T3: rx12", CLEAN),
    ("an aborted write that nobody sees", "T1!: ax1 | T2: rx", CLEAN),
    ("an unknown one that nobody sees", "T1?: ax1 | T2: rx", CLEAN),
    ("an unknown one that somebody sees", "T1?: ax1 | T2: rx1", CLEAN),
    ("a set has no order", "T1: +s1 | T2: +s2 | T3: rs12 | T4: rs21", CLEAN),
    ("adds at once", "T1: rs +s1 | T2: rs1 +s2 | T3: rs12", CLEAN),
    ("what an aborted transaction read is its own business", "T1: ax1 | T2!: rx3", CLEAN),
    ("later in real time", "T1@0-1: ax1 | T2@2-3: rx1 ax2 | T3@4-5: rx12", CLEAN),
    ("an old snapshot of an overlapping transaction", "T1@0-9: ax1 | T2@8-10: rx", CLEAN),
    # --- within one transaction
    ("its own write is gone", "T1: ax1 rx", {"internal"}),
    ("its own writes are the wrong way round", "T1: ax1 ax2 rx21", {"internal"}),
    ("a read is not repeatable", "T1: ax1 | T2: rx rx1", {"internal"}),
    ("a write from its own future", "T1: rx1 ax1", {"internal"}),
    ("a set's own write is gone", "T1: +s1 rs", {"internal"}),
    ("a set's read is not repeatable", "T1: +s1 | T2: rs1 rs", {"internal"}),
    # --- reads of what was never there
    ("a value is there twice", "T1: ax1 | T2: rx11", {"duplicate"}),
    ("a value that nobody wrote", "T1: rx7", {"garbage"}),
    ("orders that do not fit", "T1: ax1 | T2: ax2 | T3: rx1 | T4: rx21", {"incompatible-order", "G-single"}),
    ("aborted read", "T1!: ax1 | T2: rx1", {"G1a"}),
    ("aborted read of a set", "T1!: +s1 | T2: rs1", {"G1a"}),
    ("aborted read, by one of unknown status that was seen", "T1!: ax1 | T2?: rx1 ay2 | T3: ry2", {"G1a"}),
    ("intermediate read", "T1: ax1 ax2 | T2: rx1 | T3: rx12", {"G1b", "G-single"}),
    ("intermediate read of a set", "T1: +s1 +s2 | T2: rs2 | T3: rs12", {"G1b", "G-single"}),
    ("an append on top of an aborted one", "T1!: ax1 | T2: ax2 | T3: rx12", {"dirty-update", "G1a"}),
    # --- cycles
    ("dirty write", "T1: ax1 ay2 | T2: ax3 ay4 | T3: rx13 ry42", {"G0"}),
    ("circular information flow", "T1: ax1 ry2 | T2: ay2 rx1", {"G1c"}),
    ("circular flow over ww", "T1: ax1 ry3 | T2: ax2 ay3 | T3: rx12", {"G1c"}),
    ("lost update", "T1: rx ax1 | T2: rx ax2 | T3: rx12", {"G-single"}),
    ("fractured read", "T1: ax1 ay2 | T2: rx1 ry", {"G-single"}),
    ("fractured read of sets", "T1: +s1 +t2 | T2: rs1 rt", {"G-single"}),
    ("fractured read of sets that others added to", "T1: +s1 +t2 | T2: +s3 | T3: rs13 rt", {"G-single"}),
    ("fractured read of one that was only seen", "T1?: ax1 ay2 | T2: rx1 ry", {"G-single"}),
    ("read skew over a third", "T1: ax1 | T2: rx1 ay2 | T3: ry2 rx", {"G-single"}),
    (
        "circular flow past an aborted one",
        "T1: ax1 ry5 | T2!: ax2 | T3: ax3 ay5 | T4: rx123",
        {"G1a", "G1c", "dirty-update"},
    ),
    ("an unread append comes last", "T1: ax1 ry5 | T2: ax3 ay5 | T3: rx1", {"G1c", "G-single"}),
    ("long fork", "T1: +s1 | T2: +t2 | T3: rs1 rt | T4: rs rt2", {"G-nonadjacent"}),
    ("write skew", "T1: rx ay1 | T2: ry ax2", {"G2-item"}),
    ("write skew of sets", "T1: rs +t1 | T2: rt +s2", {"G2-item"}),
    ("two adds, each without the other", "T1: rs +s1 | T2: rs +s2", {"G2-item"}),
    # --- real time
    ("a stale read", "T1@0-1: ax1 | T2@2-3: rx | T3: rx1", {"G-single-realtime"}),
    ("a stale read of one of two", "T1@0-1: ax1 | T2@0-2: ay2 | T3@3-4: rx | T4: rx1", {"G-single-realtime"}),
    ("a stale read through another", "T1@0-1: ax1 | T2@2-3: rx ay2 | T3@2-3: rx1 | T4@4-5: ry2", {"G-single-realtime"}),
    ("a lost append", "T1@0-1: ax1 | T2@2-3: rx", {"lost-append", "G-single-realtime"}),
    ("a lost add", "T1@0-1: +s1 | T2@2-3: rs", {"lost-append", "G-single-realtime"}),
    ("appends against time", "T1@0-1: ax1 | T2@2-3: ax2 | T3: rx21", {"G0-realtime"}),
    ("a read from the future", "T1@0-1: rx1 | T2@2-3: ax1", {"G1c-realtime"}),
    (
        "a read-only transaction makes the skew",  # Fekete, O'Neil and O'Neil, SIGMOD Record 2004
        "T1@0-9: rx ay1 | T2@1-2: ax2 | T3@3-4: rx2 ry",
        {"G2-item"},
    ),
    (
        "serializable, though not in the order of time",
        "T1@0-9: rx ay1 | T2@1-2: ax2 | T3@3-4: ry",
        {"G2-item-realtime"},
    ),
    (
        "two snapshots of which neither can be the older one, by time",
        "T1@0-1: +s1 | T2@2-9: rt | T3@0-9: +t2 | T4@0-9: rt2 rs",
        {"G-nonadjacent-realtime"},
    ),
]


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_a_history_proves(text: str, expected: set[str]) -> None:
    assert names(text) == expected


REAL_TIME = {f"{name}-realtime" for name in ("G0", "G1c", "G-single", "G-nonadjacent", "G2-item")}

LEVELS: list[tuple[Level, set[str]]] = [
    ("read-committed", {"G-single", "G-nonadjacent", "G2-item"} | REAL_TIME),
    ("snapshot-isolation", {"G2-item"} | REAL_TIME),
    ("strong-snapshot-isolation", {"G2-item", "G2-item-realtime"}),
    ("serializable", REAL_TIME),
    ("strict-serializable", set()),
]


@pytest.mark.parametrize(("level", "allowed"), LEVELS)
def test_what_a_level_allows(level: Level, allowed: set[str]) -> None:
    """Of all that the cases above prove, what is not forbidden."""
    proved = {name for case in CASES for name in case[2]}
    assert proved - FORBIDS[level] == allowed
    assert violations(history("T1: ax1 ax2 | T2: rx1"), level), "an intermediate read never"
    assert bool(violations(history("T1: rx ay1 | T2: ry ax2"), level)) == ("G2-item" not in allowed)


def test_every_forbidden_anomaly_has_a_case() -> None:
    proved = {name for case in CASES for name in case[2]}
    assert proved == FORBIDS["strict-serializable"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("T1: ax1 | T1: ay2", "the same id"),
        ("T1: ax1 | T2: ax1", "twice"),
        ("T1: ax1 | T2: +x2", "a list or a set"),
    ],
)
def test_what_cannot_be_judged(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        check(history(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("T1: ax1 ay2 | T2: rx1 ry", "T2 -rw-> T1 -wr-> T2; T2 read y without 2, which T1 wrote; T2 read x with what"),
        ("T1!: ax1 | T2: rx1", "T2 read 1, which T1 wrote, and T1 was not committed (x)"),
        ("T1: ax1 | T2: rx rx1", "T2 read [1] after it had read [] and written [] itself (x)"),
        ("T1@0-1: ax1 | T2@2-3: rx | T3: rx1", "T2 -rw-> T1 -rt-> T2; "),
    ],
)
def test_an_anomaly_says_who_did_what(text: str, said: str) -> None:
    [anomaly] = check(history(text))
    assert said in str(anomaly)
    assert set(anomaly.transactions) == {"T1", "T2"} - ({"T1"} if anomaly.name == "internal" else set())
    assert set(anomaly.keys) <= {"x", "y"}
    assert anomaly.keys


def test_few_of_many_cycles_are_told() -> None:
    pairs = " | ".join(f"A{n}: r{c} a{c.upper()}1 | B{n}: r{c.upper()} a{c}1" for n, c in enumerate("abcdefghij"))
    assert len(check(history(pairs))) == 5


# --- engines ----------------------------------------------------------------------------------------------------------

KEYS = "xyst"
"""Lists x and y, sets s and t."""


class Engine:
    """A store in memory that runs scripts of several clients, a step of one at a time, at snapshot isolation.

    The first committer of a list wins; adds to a set never collide. With `serial` a client runs its whole script before
    the next begins. With `naive` there are no transactions: everybody sees and changes the same lists at once.
    """

    def __init__(self, *, serial: bool = False, naive: bool = False) -> None:
        self.serial = serial
        self.naive = naive
        self.versions: list[dict[str, tuple[Value, ...]]] = [dict.fromkeys(KEYS, ())]
        self.clock = 0
        self.history: list[Transaction] = []

    def run(self, scripts: Sequence[Sequence[str]], schedule: Sequence[int]) -> list[Transaction]:
        """Run each script as one transaction; the schedule says whose step is next, by its place among the running."""
        running = [self._steps(f"T{n}", script) for n, script in enumerate(scripts)]
        for pick in [*schedule, *([0] * sum(len(script) + 2 for script in scripts))]:
            if running:
                chosen = running[0 if self.serial else pick % len(running)]
                if next(chosen, None) is None:
                    running.remove(chosen)
        return self.history

    def _steps(self, id: str, script: Sequence[str]):
        self.clock += 1
        began, base = self.clock, len(self.versions) - 1
        mine: dict[str, tuple[Value, ...]] = {}
        ops: list[Op] = []
        yield "began"
        for n, word in enumerate(script):
            key, value = word[1], f"{id}.{n}"
            if word[0] == "r":
                ops.append(Read(key, self.versions[-1 if self.naive else base][key] + mine.get(key, ())))
            else:
                ops.append((Add if key in "st" else Append)(key, value))
                if self.naive:
                    self.versions[-1][key] += (value,)
                else:
                    mine[key] = (*mine.get(key, ()), value)
            yield "did"
        now = self.versions[-1]
        collides = any(key in "xy" and now[key] != self.versions[base][key] for key in mine)
        if not collides and mine:
            self.versions.append({key: values + mine.get(key, ()) for key, values in now.items()})
        self.clock += 1
        status: Status = "fail" if collides else "ok"
        self.history.append(Transaction(id, tuple(ops), status, began=began, ended=self.clock))


SCRIPTS = st.lists(
    st.lists(st.sampled_from([f"{verb}{key}" for verb in "rw" for key in KEYS]), min_size=1, max_size=4), max_size=6
)
SCHEDULE = st.lists(st.integers(0, 5), max_size=30)


@given(SCRIPTS)
def test_histories_of_a_serial_executor_are_clean(scripts: list[list[str]]) -> None:
    assert check(Engine(serial=True).run(scripts, [])) == []


@given(SCRIPTS, SCHEDULE)
def test_histories_of_a_snapshot_engine_have_nothing_that_its_level_forbids(
    scripts: list[list[str]], schedule: list[int]
) -> None:
    assert violations(Engine().run(scripts, schedule), "strong-snapshot-isolation") == []


@given(SCRIPTS, SCHEDULE, st.randoms(use_true_random=False))
def test_that_nobody_knows_of_a_commit_changes_nothing(
    scripts: list[list[str]], schedule: list[int], chance: random.Random
) -> None:
    """Lost answers make a history say less, never something wrong."""
    told = Engine().run(scripts, schedule)
    untold = [replace(tx, status="info", ended=None) if chance.random() < 0.3 else tx for tx in told]
    assert violations(untold, "strong-snapshot-isolation") == []


def explains(order: Sequence[Transaction]) -> bool:
    """Tell whether every read is what it would be if the transactions had run one after the other in this order."""
    state: dict[str, list[Value]] = {key: [] for key in KEYS}
    for op in (op for tx in order for op in tx.ops):
        if not isinstance(op, Read):
            state[op.key].append(op.value)
        elif (set if op.key in "st" else list)(op.values) != (set if op.key in "st" else list)(state[op.key]):
            return False
    return True


@given(SCRIPTS.filter(lambda scripts: len(scripts) < 5), SCHEDULE, st.booleans())
def test_it_finds_something_just_where_no_serial_order_explains_a_history(
    scripts: list[list[str]], schedule: list[int], naive: bool
) -> None:
    """Judged by trying all orders: the definition of serializability, and no theory."""
    committed = [tx for tx in Engine(naive=naive).run(scripts, schedule) if tx.status == "ok"]
    assert bool(violations(committed, "serializable")) != any(map(explains, permutations(committed)))


def test_a_snapshot_engine_shows_write_skew_sometimes() -> None:
    """Otherwise the properties above would be about engines that hardly do anything at once."""
    chance = random.Random(1)
    verbs = [f"{verb}{key}" for verb in "rw" for key in KEYS]
    found = []
    for _ in range(100):
        scripts = [[chance.choice(verbs) for _ in range(4)] for _ in range(5)]
        found.append({each.name for each in check(Engine().run(scripts, [chance.randrange(5) for _ in range(25)]))})
    assert sum("G2-item" in names for names in found) > 20
    assert set().union(*found) <= {"G2-item", "G2-item-realtime"}


# --- other workloads --------------------------------------------------------------------------------------------------

BANK = Totals(accounts=("x", "y"), balance=lambda value: int(str(value).partition("=")[2]), total=100)


def account(name: str, **balances: int) -> Transaction:
    return Transaction(name, tuple(Read(key, ("0=50", f"1={balance}")) for key, balance in balances.items()))


@pytest.mark.parametrize(
    ("tx", "wrong"),
    [
        (account("T", x=50, y=50), []),
        (account("T", x=0, y=100), []),
        (account("T", x=0), []),
        (account("T", x=40, y=50), ["T read x=40, y=50: 90 in all where there must be 100"]),
        (replace(account("T", x=40, y=50), status="fail"), []),
        (Transaction("T", (Read("x", ("0=50",)), Read("y", ()))), ["T read y=none, x=50: an account is empty"]),
    ],
    ids=[
        "untouched",
        "after a transfer",
        "not all accounts",
        "half of a transfer",
        "not committed",
        "an empty account",
    ],
)
def test_totals(tx: Transaction, wrong: list[str]) -> None:
    assert [anomaly.says.replace("x=50, y=none", "y=none, x=50") for anomaly in wrong_totals([tx], BANK)] == wrong


@pytest.mark.parametrize(
    ("text", "final", "wrong"),
    [
        ("T1: +s1 | T2!: +s2 | T3?: +s3", "1", set()),
        ("T1: +s1 | T2!: +s2 | T3?: +s3", "31", set()),
        ("T1: +s1 | T2!: +s2", "", {"lost"}),
        ("T1: +s1 | T2!: +s2", "12", {"resurrected"}),
        ("T1: +s1 | T2!: +s2", "19", {"garbage"}),
        ("T1: +s1", "11", {"duplicate"}),
    ],
)
def test_what_must_and_must_not_be_there_in_the_end(text: str, final: str, wrong: set[str]) -> None:
    contents = {"s": tuple(map(int, final))}
    assert {anomaly.name for anomaly in lost_or_resurrected(history(text), contents)} == wrong
