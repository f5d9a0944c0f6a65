"""What the clients of a randomized history are to do: plans, and the scripts that follow from a plan's seed alone.

read     t0/list0.0
append   t0/list0.0     what these do to a table, `tests.support.keyed` says
merge    t0/set0.0
add      t0/set0.0
transfer                two accounts, which are lists: their last values are balances
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from typing import TypeAlias

from lockstep.timeline.entry import Isolation

Step: TypeAlias = tuple[str, ...]
"""A verb and its keys: `("read", "t0/set0.0")`."""

SCRIPTS_PER_KEY = 30
"""After so many scripts of each client new keys are used: longer lists would cost more than they tell."""

OPENING_BALANCE = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """What one life of a client is to do.

    Attributes:
        root, journal: the lake's folder, and the file for the client's own account.
        client, life: whose life, and the how many-th: it begins with script `first`, after the last life's last.
        keys: how many lists, and as many sets, each table has at a time.
        pause_ms: the longest pause after a step, so that others come in between.
        dies_at: the number of the put-if-absent at which it kills itself, None to live; `dies_after` it, or before.
        broken: the defect of `tests.support.broken` to run with, or "".
    """

    root: str
    journal: str
    seed: int
    client: int
    life: int = 0
    first: int = 0
    scripts: int = 60
    isolation: Isolation = "SERIALIZABLE"
    tables: int = 4
    keys: int = 2
    pause_ms: float = 3
    record_reads: bool = False
    dies_at: int | None = None
    dies_after: bool = False
    broken: str = ""

    def json(self) -> str:
        """Return the command line's argument."""
        return json.dumps(asdict(self))


def account(table: int) -> str:
    """Return the key of a table's account."""
    return f"t{table}/account"


def keys_of(table: int, kind: str, number: int, keys: int) -> list[str]:
    """Return the lists or the sets of a table that a client's script of this number is about."""
    return [f"t{table}/{kind}{number // SCRIPTS_PER_KEY}.{n}" for n in range(keys)]


def balance(value: object) -> int:
    """Return what an account holds whose last value is this: `1b.17.0=90` is 90."""
    return int(str(value).partition("=")[2])


def script(plan: Plan, number: int) -> list[Step]:
    """Return the steps of a client's script: an audit, a transfer, two reads and a write, or any steps."""
    chance = random.Random(f"{plan.seed}/{plan.client}/{number}")
    tables, kinds = range(plan.tables), ("list", "set")
    keys = [key for table in tables for kind in kinds for key in keys_of(table, kind, number, plan.keys)]
    match chance.choices(["audit", "transfer", "skew", "mixed"], [20, 25, 25, 30])[0]:
        case "audit":
            return [("read", account(table)) for table in chance.sample(range(plan.tables), plan.tables)]
        case "transfer":
            source, target = (account(table) for table in chance.sample(range(plan.tables), 2))
            return [("read", source), ("read", target), ("transfer", source, target)]
        case "skew":
            one, other = chance.sample(keys, 2)
            return [("read", one), ("read", other), (_write(chance, one), one)]
        case _:
            chosen = chance.choices(keys, k=chance.randint(1, 5))
            return [("read" if chance.random() < 0.5 else _write(chance, key), key) for key in chosen]


def _write(chance: random.Random, key: str) -> str:
    return chance.choice(["add", "add", "merge"]) if "/set" in key else "append"
