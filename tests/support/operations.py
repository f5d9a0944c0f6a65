"""What a transaction may do to a small database, once as Delta's actions and once as a function of rows and names.

The database: table s.a (id "A") of rows (id, p, v), partitioned by p, in the files x1 (ids 1, 2), x2 (3, 4) and y1
(21, 22); table s.b (id "B") with one row; view s.v, which asks no table; the empty namespace n. A CHECK constraint on
s.a forbids a negative v, once there is one.

Each operation says what it writes and reads as Lockstep records it, what Delta and DuckLake keep of it, and what it
means (`tests.support.meaning`). An ALTER TABLE is recorded so as a statement on its own: inside a transaction it counts
as a reader of all rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from pyroaring import BitMap64

from lockstep.conflict.writes import Changes
from lockstep.delta.actions import Action, footprint
from lockstep.delta.combine.deletion_vectors import inline, serialize
from lockstep.delta.combine.evolution import TableState
from lockstep.delta.pruning.row_sets import EVERY_ROW, NO_ROW, Rows
from lockstep.timeline.entry import Isolation, Name, NamespaceDdl, TableDdl, ViewDdl, ViewDefinition
from tests.support.lakes import PROTOCOL, metadata
from tests.support.meaning import (
    IDS,
    PART,
    CannotRunError,
    Fact,
    Outcome,
    Run,
    State,
    definition,
    find,
    inserting,
    is_taken,
    overwriting,
    rows,
    saying,
    updating,
    with_row,
)


@dataclass(frozen=True)
class Tracked:
    """What Delta keeps of what a transaction read of s.a, for its conflict check (OptimisticTransaction.scala).

    Attributes:
        partition: the value of p that all read predicates ask for; None for any.
        files: paths of the files that its scans were left with.
        reads: whether it has read predicates at all.
    """

    partition: str | None = None
    files: frozenset[str] = frozenset()
    reads: bool = True


LEGACY = ("appendOnly", "invariants")
"""The features of the tables' protocol."""
BLIND = Tracked(reads=False)
WHOLE = Tracked(files=frozenset({"x1", "x2", "y1"}))


@dataclass(frozen=True)
class Operation:
    """One operation, by one of the two transactions.

    Attributes:
        name: as the documentation calls it.
        example: it as SQL, or in words.
        run: what it means.
        writes: by table id, Delta's actions.
        reads: by table id, the rows that Lockstep records as read.
        view_reads: the views whose definitions it uses.
        ddl: its changes of names.
        delta: what Delta tracks; None for what Delta has no conflict check for, DDL of its catalog.
        duck: the changes that DuckLake records, each with what it is about; None where it has no such operation.
    """

    name: str
    example: str
    run: Run
    writes: dict[str, tuple[Action, ...]] = field(default_factory=dict)
    reads: dict[str, Rows] = field(default_factory=dict)
    view_reads: frozenset[Name] = frozenset()
    ddl: tuple[TableDdl | NamespaceDdl | ViewDdl, ...] = ()
    delta: Tracked | None = BLIND
    duck: frozenset[tuple[str, str]] | None = frozenset()

    def changes(self, transaction: str, isolation: Isolation, version: int | None = None) -> Changes:
        """Return it as the conflict check sees it."""
        return Changes(
            transaction,
            namespaces=tuple(ddl for ddl in self.ddl if isinstance(ddl, NamespaceDdl)),
            tables=tuple(ddl for ddl in self.ddl if isinstance(ddl, TableDdl)),
            views=tuple(ddl for ddl in self.ddl if isinstance(ddl, ViewDdl)),
            writes={id: footprint(actions, partial(_before, id)) for id, actions in self.writes.items()},
            reads=dict.fromkeys(self.writes, NO_ROW) | self.reads,
            view_reads=self.view_reads,
            names={"A": A, "B": B},
            isolation=isolation,
            base=1,
            database_version=version,
        )


def _before(id: str) -> TableState | None:
    """Return what a table is at first; None for a new one."""
    return TableState(described()["metaData"], PROTOCOL["protocol"]) if id in ("A", "B") else None


def described(*columns: dict[str, Any], mark: int = 100, properties: dict[str, str] | None = None) -> Action:
    """The metadata of the tables; they have an identity column, which is of no further interest."""
    identity = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": mark}
    fields = [_field("id"), _field("p"), _field("v"), {**_field("n"), "metadata": identity}, *columns]
    return _schema(*fields, properties=properties or {})


def _schema(*fields: dict[str, Any], properties: dict[str, str]) -> Action:
    body = metadata(**properties)["metaData"]
    return {"metaData": {**body, "schemaString": json.dumps({"type": "struct", "fields": fields})}}


def _field(name: str) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": {}}


A, B, C, V = (Name(namespace=("s",), table=table) for table in "abcv")
# --- actions ----------------------------------------------------------------------------------------------------------


def add(path: str, part: str, ids: Iterable[int], **more: Any) -> Action:
    """A data file with the statistics that Delta writes."""
    ids = sorted(ids)
    stats = {
        "numRecords": len(ids), "minValues": {"id": ids[0]}, "maxValues": {"id": ids[-1]}, "nullCount": {"id": 0},
    }  # fmt: skip
    body = {"path": path, "partitionValues": {"p": part}, "size": 1, "modificationTime": 0, "dataChange": True}
    return {"add": {**body, "stats": json.dumps(stats), **more}}


def removes(path: str, **more: Any) -> Action:
    """A file's removal, with its partition and without statistics, as Delta writes it."""
    part = {"p": PART[path]}
    return {"remove": {"path": path, "partitionValues": part, "size": 1, "dataChange": True, **more}}


def info(operation: str = "WRITE", *, blind: bool = False) -> Action:
    return {"commitInfo": {"operation": operation, "isBlindAppend": blind}}


def rewrites(path: str, to: str, *ids: int) -> tuple[Action, ...]:
    """Copy on write: the file is replaced by one with these rows."""
    return info("UPDATE"), removes(path), add(to, PART[path], ids)


def marks(path: str, row: int, *new: Action) -> tuple[Action, ...]:
    """Merge on read: the row at this position gets out of the file by its deletion vector."""
    vector = inline(serialize(BitMap64([row])), 1)
    return info("UPDATE"), add(path, PART[path], IDS[path], deletionVector=vector), removes(path), *new


def appends(*actions: Action) -> tuple[Action, ...]:
    return info(blind=True), *actions


def point(id: int) -> Rows:
    """The condition of a statement on one row, which names the partition too."""
    part = next(PART[path] for path, ids in IDS.items() if id in ids)
    return frozenset({f"((p = '{part}') AND (id = {id}))"})


def _tracks(path: str) -> Tracked:
    return Tracked(PART[path], frozenset({path}))


INSERTED, DELETED = ("insert", "A"), ("delete", "A")


def duck(*changes: tuple[str, str], files: Iterable[str] = ()) -> frozenset[tuple[str, str]]:
    """What DuckLake records; `files` are those from which rows are deleted."""
    return frozenset(changes) | {("file", path) for path in files}


# --- the operations ---------------------------------------------------------------------------------------------------


def operations(by: str) -> dict[str, Operation]:
    """Return all operations as one of two transactions does them, by name.

    Args:
        by: "m" or "w"; new files, ids and rows are named after it, so that the two transactions never share one.
    """
    n = {"m": 50, "w": 60}[by]
    found = [*_appending(by, n), *_changing(by), *_by_vector(by), *_replacing(by, n), *_describing(by, n), *_naming(by)]
    return {operation.name: operation for operation in (*found, *_viewing(by, n))}


def _appending(by: str, n: int) -> list[Operation]:
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


def row_ids(mark: int) -> Action:
    return {"domainMetadata": {
        "domain": "delta.rowTracking", "configuration": json.dumps({"rowIdHighWaterMark": mark}), "removed": False,
    }}  # fmt: skip


def _changing(by: str) -> list[Operation]:
    changed = duck(INSERTED, DELETED, files=["x1"])
    return [
        Operation(
            "DELETE row 1", "DELETE FROM a WHERE p = 'x' AND id = 1", updating(1, None),
            {"A": rewrites("x1", f"{by}x1", 2)}, {"A": point(1)}, delta=_tracks("x1"), duck=duck(DELETED, files=["x1"]),
        ),
        Operation(
            "UPDATE row 1", "UPDATE a SET v = v + 1 WHERE p = 'x' AND id = 1", updating(1),
            {"A": rewrites("x1", f"{by}x1", 1, 2)}, {"A": point(1)}, delta=_tracks("x1"), duck=changed,
        ),
        Operation(
            "UPDATE row 2, same file", "UPDATE a SET v = v + 1 WHERE p = 'x' AND id = 2", updating(2),
            {"A": rewrites("x1", f"{by}x1", 1, 2)}, {"A": point(2)}, delta=_tracks("x1"), duck=changed,
        ),
        Operation(
            "UPDATE row 3, other file", "UPDATE a SET v = v + 1 WHERE p = 'x' AND id = 3", updating(3),
            {"A": rewrites("x2", f"{by}x2", 3, 4)}, {"A": point(3)}, delta=_tracks("x2"),
            duck=duck(INSERTED, DELETED, files=["x2"]),
        ),
        Operation(
            "UPDATE row 21, other partition", "UPDATE a SET v = v + 1 WHERE p = 'y' AND id = 21", updating(21),
            {"A": rewrites("y1", f"{by}y1", 21, 22)}, {"A": point(21)}, delta=_tracks("y1"),
            duck=duck(INSERTED, DELETED, files=["y1"]),
        ),
        Operation(
            "MERGE row 1", "MERGE INTO a USING s ON a.id = s.id …, s has id 1", updating(1, otherwise=0),
            {"A": rewrites("x1", f"{by}x1", 1, 2)}, {"A": EVERY_ROW}, delta=WHOLE, duck=changed,
        ),
    ]  # fmt: skip


def _by_vector(by: str) -> list[Operation]:
    new = [add(f"{by}v{id}", "x", [id]) for id in (1, 2)]
    changed = duck(INSERTED, DELETED, files=["x1"])
    return [
        Operation(
            "DELETE row 1, vector", "as above, with deletion vectors", updating(1, None), {"A": marks("x1", 0)},
            {"A": point(1)}, delta=_tracks("x1"), duck=duck(DELETED, files=["x1"]),
        ),
        Operation(
            "UPDATE row 1, vector", "as above, with deletion vectors", updating(1), {"A": marks("x1", 0, new[0])},
            {"A": point(1)}, delta=_tracks("x1"), duck=changed,
        ),
        Operation(
            "UPDATE row 2, vector", "as above, with deletion vectors", updating(2), {"A": marks("x1", 1, new[1])},
            {"A": point(2)}, delta=_tracks("x1"), duck=changed,
        ),
        Operation(
            "MERGE row 2, vector", "as above, with deletion vectors", updating(2, otherwise=0),
            {"A": marks("x1", 1, new[1])}, {"A": EVERY_ROW}, delta=WHOLE, duck=changed,
        ),
    ]  # fmt: skip


def _replacing(by: str, n: int) -> list[Operation]:
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


def _describing(by: str, n: int) -> list[Operation]:
    def constrain(state: State) -> Outcome:
        table = find(state, "s.a")
        if any(row[4] < 0 for row in rows(state, table)):
            raise CannotRunError("a row breaks the constraint")
        return state | {("check", table)}, None

    def replaces(state: State) -> Outcome:
        table = find(state, "s.a")
        kept = {fact for fact in state if fact[0] in ("namespace", "table") or fact[1] != table}
        return frozenset(kept) | {("columns", table, "id w")}, None

    def identity(state: State) -> Outcome:
        marks = [fact for fact in state if fact[:2] == ("identity", find(state, "s.a"))]
        if not marks:
            raise CannotRunError("no identity column any more")
        [mark] = marks
        after = with_row(state - {mark}, mark[1], mark[2] + 1, "y", 0)
        return after | {("identity", mark[1], mark[2] + 1)}, None

    def stream(app: str) -> Run:
        def run(state: State) -> Outcome:
            table = find(state, "s.a")
            seen = ("batch", table, app) in state
            after = state if seen else with_row(state, table, n + len(app), "y", 0) | {("batch", table, app)}
            return after, seen

        return run

    def batch(app: str) -> Operation:
        txn: Action = {"txn": {"appId": app, "version": 1, "lastUpdated": 0}}
        actions = appends(add(f"{by}{app}", "y", [n + len(app)]), txn)
        return Operation(
            f"stream batch, {app}", f"a batch of the streaming query {app}", stream(app), {"A": actions}, duck=None
        )

    def alters(name: str, example: str, run: Run, *actions: Action, **more: Any) -> Operation:
        return Operation(name, example, run, {"A": (info(name), *actions)}, **more)

    domain: Action = {"domainMetadata": {"domain": "delta.clustering", "configuration": by, "removed": False}}
    altered = duck(("alter", "A"))
    replaced = _schema(_field("id"), _field("w"), properties={})
    new_feature = {"m": "changeDataFeed", "w": "checkConstraints"}[by]
    return [
        alters("ADD COLUMN", "ALTER TABLE a ADD COLUMN …", saying("column", by), described(_field(by)), duck=altered),
        alters("SET TBLPROPERTIES", "… SET TBLPROPERTIES (…), each its own", saying("property", by),
               described(properties={by: "1"}), duck=altered),
        alters("ADD CONSTRAINT", "… ADD CONSTRAINT c CHECK (v >= 0)", constrain,
               described(properties={"delta.constraints.c": "v >= 0"}), reads={"A": EVERY_ROW}, delta=WHOLE, duck=None),
        alters("protocol upgrade", "… ADD FEATURE …", saying("feature", by),
               {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [*LEGACY, new_feature]}},
               duck=None),
        alters("set a domain", "… CLUSTER BY (…)", saying("domain", by, instead=True), domain, duck=None),
        Operation("identity append", "INSERT into a table with an identity column", identity,
                  {"A": appends(described(mark=101), add(f"{by}i", "y", [101]))}, duck=None),
        batch("app"),
        batch("other"),
        Operation("CREATE OR REPLACE", "CREATE OR REPLACE TABLE a (id INT, w INT)", replaces,
                  {"A": (info("REPLACE TABLE"), replaced, *map(removes, PART))}, {"A": EVERY_ROW}, delta=WHOLE,
                  duck=None),
    ]  # fmt: skip


def _naming(by: str) -> list[Operation]:
    def names(fact: Fact, namespace: str) -> Run:
        def run(state: State) -> Outcome:
            if ("namespace", namespace) not in state or is_taken(state, fact[2]):
                raise CannotRunError(fact[2])
            return state - {("table", fact[1], "s.a")} | {fact}, None

        return run

    def rename(state: State) -> Outcome:
        return names(("table", find(state, "s.a"), "s.c"), "s")(state)

    def drop(state: State) -> Outcome:
        return state - {("table", find(state, "s.a"), "s.a")}, None

    def drop_namespace(state: State) -> Outcome:
        if any(fact[0] == "table" and fact[2].startswith("n.") for fact in state) or ("namespace", "n") not in state:
            raise CannotRunError("n")
        return state - {("namespace", "n")}, None

    def create(name: Name, id: str) -> tuple[TableDdl, dict[str, tuple[Action, ...]]]:
        ddl = TableDdl(action="create", id=id, name=name, location=f"{name.table}-{id}")
        return ddl, {id: (info("CREATE TABLE"), metadata())}

    new, inside = create(C, f"{by}c"), create(Name(namespace=("n",), table="t"), f"{by}t")
    found = [
        Operation("DROP", "DROP TABLE a", drop, ddl=(TableDdl(action="drop", id="A", name=A),),
                  duck=duck(("drop", "A"))),
        Operation("RENAME", "ALTER TABLE a RENAME TO c", rename,
                  ddl=(TableDdl(action="rename", id="A", name=A, new_name=C),), duck=None),
        Operation("CREATE c", "CREATE TABLE c", names(("table", f"{by}c", "s.c"), "s"), new[1], ddl=(new[0],),
                  duck=duck(("create", "s.c"))),
        Operation("CREATE n.t", "CREATE TABLE n.t", names(("table", f"{by}t", "n.t"), "n"), inside[1], ddl=(inside[0],),
                  duck=duck(("create", "n.t"))),
        Operation("DROP NAMESPACE n", "DROP NAMESPACE n", drop_namespace,
                  ddl=(NamespaceDdl(action="drop", name=("n",)),), duck=duck(("drop namespace", "n"))),
    ]  # fmt: skip
    return [replace(operation, delta=None) for operation in found]


def _viewing(by: str, n: int) -> list[Operation]:
    def create(state: State) -> Outcome:
        if is_taken(state, "s.c"):
            raise CannotRunError("s.c")
        return state | {("view", "s.c", by)}, None

    def replaces(state: State) -> Outcome:
        return frozenset(fact for fact in state if fact[:2] != ("view", "s.v")) | {("view", "s.v", by)}, None

    def drop(state: State) -> Outcome:
        return state - {("view", "s.v", definition(state, "s.v"))}, None

    def read_v(state: State) -> Outcome:
        found = definition(state, "s.v")
        return with_row(state, find(state, "s.b"), n + 7, "x", int(found == by)), found

    def read_b(state: State) -> Outcome:
        return replaces(state)[0], len(rows(state, find(state, "s.b")))

    def ddl(action: Literal["create", "replace", "drop"], name: Name) -> tuple[ViewDdl]:
        text = None if action == "drop" else ViewDefinition(text=by, schema="{}")
        return (ViewDdl(action=action, name=name, definition=text),)

    replaced = duck(("drop", "s.v"), ("create", "s.v"))
    return [
        Operation("CREATE VIEW c", "CREATE VIEW c AS SELECT 1", create, ddl=ddl("create", C), delta=None,
                  duck=duck(("create", "s.c"))),
        Operation("REPLACE VIEW v", "CREATE OR REPLACE VIEW v AS SELECT 2", replaces, ddl=ddl("replace", V), delta=None,
                  duck=replaced),
        Operation("DROP VIEW v", "DROP VIEW v", drop, ddl=ddl("drop", V), delta=None, duck=duck(("drop", "s.v"))),
        Operation("append to b, read v", "INSERT INTO b SELECT … FROM v", read_v,
                  {"B": appends(add(f"{by}7", "x", [n + 7]))}, view_reads=frozenset({V}), duck=duck(("insert", "B"))),
        Operation("REPLACE VIEW v, read b", "SELECT count(*) FROM b, then CREATE OR REPLACE VIEW v AS …", read_b,
                  reads={"B": EVERY_ROW}, ddl=ddl("replace", V), delta=None, duck=replaced),
    ]  # fmt: skip
