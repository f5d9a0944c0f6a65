"""The operations that write rows or files of tables: neither schema, protocol nor names."""

from __future__ import annotations

from lockstep.delta.pruning.row_sets import EVERY_ROW
from tests.support.meaning import PART, Outcome, State, find, inserting, overwriting, rows, updating, with_row
from tests.support.operation import (
    DELETED,
    INSERTED,
    WHOLE,
    Operation,
    Tracked,
    add,
    appends,
    duck,
    info,
    marks,
    point,
    removes,
    rewrites,
    row_ids,
    tracks,
)


def appending(by: str, n: int) -> list[Operation]:
    def read_b(state: State) -> Outcome:
        count = len(rows(state, find(state, "s.b")))
        return with_row(state, find(state, "s.a"), n + 3, "x", count), count

    def read_a(state: State) -> Outcome:
        count = sum(row[3] == "x" for row in rows(state, find(state, "s.a")))
        return with_row(state, find(state, "s.b"), n, "x", count), count

    def read_self(state: State) -> Outcome:
        table = find(state, "s.a")
        top = max((row[2] for row in rows(state, table)), default=0)
        return with_row(state, table, top + 1, "x", 0), top

    inserted = duck(INSERTED)
    return [
        Operation(
            "append", "INSERT INTO a VALUES (…, 'x', -1)", inserting("s.a", n, v=-1),
            {"A": appends(add(f"{by}1", "x", [n]))}, duck=inserted,
        ),
        Operation(
            "append, other partition", "INSERT INTO a VALUES (…, 'y', 0)", inserting("s.a", n + 1, "y"),
            {"A": appends(add(f"{by}2", "y", [n + 1]))}, duck=inserted,
        ),
        Operation(
            "append with row ids", "the same to a table with row tracking", inserting("s.a", n + 2, "y"),
            {"A": appends(add(f"{by}3", "y", [n + 2], baseRowId=6, defaultRowCommitVersion=2), row_ids(6))},
            duck=inserted,
        ),
        Operation(
            "append what was read", "INSERT INTO a SELECT max(id) + 1, … FROM a", read_self,
            {"A": (info(), add(f"{by}4", "x", [23]))}, {"A": EVERY_ROW}, delta=WHOLE, duck=inserted,
        ),
        Operation(
            "append to a, read b", "INSERT INTO a SELECT …, count(*) FROM b", read_b,
            {"A": appends(add(f"{by}5", "x", [n + 3]))}, {"B": EVERY_ROW}, duck=inserted,
        ),
        Operation(
            "append to b, read a", "INSERT INTO b SELECT …, count(*) FROM a WHERE p = 'x'", read_a,
            {"B": appends(add(f"{by}6", "x", [n]))}, {"A": frozenset({"(p = 'x')"})}, duck=duck(("insert", "B")),
        ),
    ]  # fmt: skip


def changing(by: str) -> list[Operation]:
    changed = duck(INSERTED, DELETED, files=["x1"])
    return [
        Operation(
            "DELETE row 1", "DELETE FROM a WHERE p = 'x' AND id = 1", updating(1, None),
            {"A": rewrites("x1", f"{by}x1", 2)}, {"A": point(1)}, delta=tracks("x1"), duck=duck(DELETED, files=["x1"]),
        ),
        Operation(
            "UPDATE row 1", "UPDATE a SET v = v + 1 WHERE p = 'x' AND id = 1", updating(1),
            {"A": rewrites("x1", f"{by}x1", 1, 2)}, {"A": point(1)}, delta=tracks("x1"), duck=changed,
        ),
        Operation(
            "UPDATE row 2, same file", "UPDATE a SET v = v + 1 WHERE p = 'x' AND id = 2", updating(2),
            {"A": rewrites("x1", f"{by}x1", 1, 2)}, {"A": point(2)}, delta=tracks("x1"), duck=changed,
        ),
        Operation(
            "UPDATE row 3, other file", "UPDATE a SET v = v + 1 WHERE p = 'x' AND id = 3", updating(3),
            {"A": rewrites("x2", f"{by}x2", 3, 4)}, {"A": point(3)}, delta=tracks("x2"),
            duck=duck(INSERTED, DELETED, files=["x2"]),
        ),
        Operation(
            "UPDATE row 21, other partition", "UPDATE a SET v = v + 1 WHERE p = 'y' AND id = 21", updating(21),
            {"A": rewrites("y1", f"{by}y1", 21, 22)}, {"A": point(21)}, delta=tracks("y1"),
            duck=duck(INSERTED, DELETED, files=["y1"]),
        ),
        Operation(
            "MERGE row 1", "MERGE INTO a USING s ON a.id = s.id …, s has id 1", updating(1, otherwise=0),
            {"A": rewrites("x1", f"{by}x1", 1, 2)}, {"A": EVERY_ROW}, delta=WHOLE, duck=changed,
        ),
    ]  # fmt: skip


def by_vector(by: str) -> list[Operation]:
    new = [add(f"{by}v{id}", "x", [id]) for id in (1, 2)]
    changed = duck(INSERTED, DELETED, files=["x1"])
    return [
        Operation(
            "DELETE row 1, vector", "as above, with deletion vectors", updating(1, None), {"A": marks("x1", 0)},
            {"A": point(1)}, delta=tracks("x1"), duck=duck(DELETED, files=["x1"]),
        ),
        Operation(
            "UPDATE row 1, vector", "as above, with deletion vectors", updating(1), {"A": marks("x1", 0, new[0])},
            {"A": point(1)}, delta=tracks("x1"), duck=changed,
        ),
        Operation(
            "UPDATE row 2, vector", "as above, with deletion vectors", updating(2), {"A": marks("x1", 1, new[1])},
            {"A": point(2)}, delta=tracks("x1"), duck=changed,
        ),
        Operation(
            "MERGE row 2, vector", "as above, with deletion vectors", updating(2, otherwise=0),
            {"A": marks("x1", 1, new[1])}, {"A": EVERY_ROW}, delta=WHOLE, duck=changed,
        ),
    ]  # fmt: skip


def replacing(by: str, n: int) -> list[Operation]:
    gone = tuple(map(removes, PART))
    still = {"dataChange": False}
    compacted = (removes("x1", **still), removes("x2", **still), add(f"{by}o", "x", [1, 2, 3, 4], **still))

    def rewrite(state: State) -> Outcome:
        find(state, "s.a")
        return state, None

    return [
        Operation(
            "INSERT OVERWRITE", "INSERT OVERWRITE a VALUES (…)", overwriting(n + 4),
            {"A": (info(), *gone, add(f"{by}w", "x", [n + 4]))}, {"A": EVERY_ROW}, delta=WHOLE,
            duck=duck(INSERTED, DELETED, files=PART),
        ),
        Operation(
            "replaceWhere p = 'x'", ".mode('overwrite').option('replaceWhere', \"p = 'x'\")", overwriting(n + 5, "x"),
            {"A": (info(), removes("x1"), removes("x2"), add(f"{by}rx", "x", [n + 5]))}, {"A": EVERY_ROW},
            delta=Tracked("x", frozenset({"x1", "x2"})), duck=duck(INSERTED, DELETED, files=["x1", "x2"]),
        ),
        Operation(
            "replaceWhere p = 'y'", ".mode('overwrite').option('replaceWhere', \"p = 'y'\")", overwriting(n + 6, "y"),
            {"A": (info(), removes("y1"), add(f"{by}ry", "y", [n + 6]))}, {"A": EVERY_ROW},
            delta=Tracked("y", frozenset({"y1"})), duck=duck(INSERTED, DELETED, files=["y1"]),
        ),
        Operation(
            "OPTIMIZE", "OPTIMIZE a WHERE p = 'x'", rewrite, {"A": (info("OPTIMIZE"), *compacted)}, {"A": EVERY_ROW},
            delta=Tracked(files=frozenset({"x1", "x2"}), reads=False), duck=duck(("merge", "A")),
        ),
    ]  # fmt: skip
