"""The operations that change what a table is, the names of tables and namespaces, or views."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from lockstep.delta.actions import Action
from lockstep.delta.pruning.row_sets import EVERY_ROW
from lockstep.timeline.entry import Name, NamespaceDdl, TableDdl, ViewDdl, ViewDefinition
from tests.support.lakes import metadata
from tests.support.meaning import (
    PART,
    CannotRunError,
    Fact,
    Outcome,
    Run,
    State,
    definition,
    find,
    is_taken,
    rows,
    saying,
    with_row,
)
from tests.support.operation import (
    LEGACY,
    WHOLE,
    A,
    C,
    Operation,
    V,
    add,
    appends,
    column,
    described,
    duck,
    info,
    removes,
    schema,
)


def describing(by: str, n: int) -> list[Operation]:
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
    replaced = schema(column("id"), column("w"), properties={})
    new_feature = {"m": "changeDataFeed", "w": "checkConstraints"}[by]
    return [
        alters("ADD COLUMN", "ALTER TABLE a ADD COLUMN …", saying("column", by), described(column(by)), duck=altered),
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


def naming(by: str) -> list[Operation]:
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


def viewing(by: str, n: int) -> list[Operation]:
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
