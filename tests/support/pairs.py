"""Every pair of (what we did, what a winner did): what becomes of the second to commit, and whether it must.

`GRID` is the expected verdict of each pair, one letter of `LETTERS` for the rule that refuses the second. Its rows are
what we did, its columns what the winner did, both in the order of `tests.support.operations.operations`.
`tests/unit/test_pairs.py` holds the rules to it; `project/render_pairs.py` makes tables of it for the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tests.support.meaning import serial
from tests.support.operations import operations
from tests.support.peers import ALLOWED, delta, ducklake, lockstep

LETTERS = {
    ".": ALLOWED,
    "f": "file",
    "r": "row",
    "m": "metadata",
    "p": "protocol",
    "a": "application",
    "d": "domain",
    "g": "table-gone",
    "w": "table-written",
    "n": "name-taken",
    "v": "view-changed",
    "G": "namespace-gone",
    "F": "namespace-filled",
    "C": "namespace-changed",
    "S": "pivot",
}
"""`location-taken` needs two tables in one folder, `overtaken` three transactions: no pair here has them."""

GRID = """
append                          ......................m.....mgg........
append, other partition         ......................m.....mgg........
append with row ids             ......................m.....mgg........
append what was read            ...S.......S...SSSS...m.....mgg........
append to a, read b             .....S................m.....mgg........
append to b, read a             ....S..................................
DELETE row 1                    ......fff..fffffff.f..m.....mgg........
UPDATE row 1                    ......fff..fffffff.f..m.....mgg........
UPDATE row 2, same file         ......fff..fffffff.f..m.....mgg........
UPDATE row 3, other file        .........f.S....ff.f..m.....mgg........
UPDATE row 21, other partition  ..........f.....f.f...m.....mgg........
MERGE row 1                     ...S..fffS.fffffffSf..m.....mgg........
DELETE row 1, vector            ......fff..frr.Sff.f..m.....mgg........
UPDATE row 1, vector            ......fff..frr.Sff.f..m.....mgg........
UPDATE row 2, vector            ......fff..f..rrff.f..m.....mgg........
MERGE row 2, vector             ...S..fff..fSSrrffSf..m.....mgg........
INSERT OVERWRITE                ...S..ffffffffffffff..m.....mgg........
replaceWhere p = 'x'            ...S..ffff.fffffffSf..m.....mgg........
replaceWhere p = 'y'            ...S......fS...SfSf...m.....mgg........
OPTIMIZE                        ......ffff.fffffff.f..m.....mgg........
ADD COLUMN                      ....................mmm..m..mgg........
SET TBLPROPERTIES               ....................mmm..m..mgg........
ADD CONSTRAINT                  mmmmm.mmmmmmmmmmmmmmmmmmmmmmmgg........
protocol upgrade                ......................mp....mgg........
set a domain                    ......................m.d...mgg........
identity append                 ....................mmm..m..mgg........
stream batch, app               ......................m...a.mgg........
stream batch, other             ......................m....amgg........
CREATE OR REPLACE               mmmmm.mmmmmmmmmmmmmmmmmmmmmmmgg........
DROP                            wwwww.wwwwwwwwwwwwwwwwwwwwwwwgg........
RENAME                          wwwww.wwwwwwwwwwwwwwwwwwwwwwwggn..n....
CREATE c                        ..............................nn..n....
CREATE n.t                      ................................nG.....
DROP NAMESPACE n                ................................FC.....
CREATE VIEW c                   ..............................nn..n....
REPLACE VIEW v                  ...................................vv.v
DROP VIEW v                     ...................................vv.v
append to b, read v             ......................................S
REPLACE VIEW v, read b          ...................................vvSv
"""


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


def expected() -> dict[tuple[str, str], str]:
    """Return the grid: by what we and what the winner did, the rule that refuses ours."""
    names = list(operations("m"))
    lines = [line.rpartition(" ") for line in GRID.strip().splitlines()]
    assert [name.strip() for name, _, _ in lines] == names, "the grid's rows are the operations"
    return {
        (name.strip(), other): LETTERS[letter]
        for name, _, letters in lines
        for other, letter in zip(names, letters, strict=True)
    }


ROWS = 20
"""So many operations, the first ones, write rows or files of tables, and neither schema, protocol nor names."""


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
    rows = set(list(operations("m"))[:ROWS])
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
