"""Which transactions cannot both commit: every rule, both ways round, at both levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.conflict.writes import RULES, Changes, Hit, first_conflict
from lockstep.delta.combine.evolution import COLUMNS, FEATURES, MARKS, OTHER, PROPERTIES, UNCLEAR
from lockstep.delta.footprint import Footprint, VectorChange
from lockstep.timeline.entry import Name, Namespace, NamespaceDdl, TableDdl, ViewDdl, ViewDefinition

A, B, C, V = (Name(namespace=("s",), table=table) for table in "abcv")
NAMES = {"A": A, "B": B}


def files(removed: str = "", added: str = "", change: bool = True) -> Footprint:
    return Footprint(removed_paths=frozenset(removed.split()), added_paths=frozenset(added.split()), data_change=change)


def writes(footprint: Footprint, table: str = "A") -> Changes:
    return Changes("w", writes={table: footprint}, names=NAMES, database_version=7)


def reads(table: str) -> Changes:
    return Changes("r", reads={table: None}, writes={"B": files(added="b")}, names=NAMES, database_version=7)


def ddl(*changes: TableDdl | NamespaceDdl | ViewDdl) -> Changes:
    tables = tuple(change for change in changes if isinstance(change, TableDdl))
    namespaces = tuple(change for change in changes if isinstance(change, NamespaceDdl))
    views = tuple(change for change in changes if isinstance(change, ViewDdl))
    return Changes("d", tables=tables, views=views, namespaces=namespaces, names=NAMES, database_version=7)


def create(name: Name, id: str = "new", location: str = "") -> TableDdl:
    return TableDdl(action="create", id=id, name=name, location=location or f"/{id}")


def rename(id: str, name: Name, to: Name) -> TableDdl:
    return TableDdl(action="rename", id=id, name=name, new_name=to)


def drop(id: str, name: Name) -> TableDdl:
    return TableDdl(action="drop", id=id, name=name)


def view(action: Literal["create", "replace", "drop"], name: Name) -> ViewDdl:
    definition = None if action == "drop" else ViewDefinition(text="SELECT 1", schema="{}")
    return ViewDdl(action=action, name=name, definition=definition)


def space(action: Literal["create", "alter", "drop"], *name: str) -> NamespaceDdl:
    return NamespaceDdl(action=action, name=name)


UPGRADE = frozenset({FEATURES})


def says(*kinds: str) -> Footprint:
    return Footprint(metadata=frozenset(kinds))


INSERT, OPTIMIZE, ALTER = files(added="x"), files("p", "c", change=False), Footprint(metadata=UNCLEAR)
MARKED = replace(files("p", "p"), vectors={"p": VectorChange(None, {"storageType": "i"})})
"""Rows of p marked as deleted, by a vector that nobody can read."""

IN_T = Name(namespace=("t",), table="a")
IN_TU = Name(namespace=("t", "u"), table="a")
DROPPED, RENAMED = ddl(drop("A", A)), ddl(rename("A", A, C))
KILLER = Changes("k", aborts=frozenset({"w", "x"}), database_version=7)


@pytest.mark.parametrize(
    ("mine", "winner", "rule"),
    [
        pytest.param(writes(INSERT), KILLER, "killed", id="killed"),
        pytest.param(writes(INSERT), DROPPED, "table-gone", id="dropped under our write"),
        pytest.param(writes(INSERT), RENAMED, "table-gone", id="renamed under our write"),
        pytest.param(DROPPED, DROPPED, "table-gone", id="dropped by both"),
        pytest.param(RENAMED, DROPPED, "table-gone", id="dropped, and renamed by us"),
        pytest.param(RENAMED, ddl(rename("A", A, B)), "table-gone", id="renamed by both"),
        pytest.param(DROPPED, writes(INSERT), "table-written", id="written, and dropped by us"),
        pytest.param(RENAMED, writes(OPTIMIZE), "table-written", id="optimized, and renamed by us"),
        pytest.param(ddl(create(C, "1")), ddl(create(C, "2")), "name-taken", id="created by both"),
        pytest.param(ddl(create(C)), RENAMED, "name-taken", id="renamed to the name we create"),
        pytest.param(ddl(rename("B", B, C)), RENAMED, "name-taken", id="two tables renamed to one name"),
        pytest.param(ddl(view("create", C)), ddl(view("create", C)), "name-taken", id="a view made by both"),
        pytest.param(ddl(view("create", C)), ddl(create(C)), "name-taken", id="a table of our new view's name"),
        pytest.param(ddl(create(C)), ddl(view("create", C)), "name-taken", id="a view of our new table's name"),
        pytest.param(ddl(view("create", C)), RENAMED, "name-taken", id="a table renamed to our new view's name"),
        *(
            pytest.param(ddl(view(ours, V)), ddl(view(theirs, V)), "view-changed", id=f"view: {theirs}, {ours} by us")
            for ours in ("replace", "drop")
            for theirs in ("replace", "drop")
        ),
        pytest.param(
            ddl(view("drop", V), create(V)), ddl(view("replace", V)), "view-changed", id="our table in a view's place"
        ),
        pytest.param(
            ddl(create(C, "1", "/x")), ddl(create(B, "2", "/x")), "location-taken", id="one folder, two tables"
        ),
        pytest.param(ddl(create(IN_T)), ddl(space("drop", "t")), "namespace-gone", id="created in what was dropped"),
        pytest.param(ddl(create(IN_TU)), ddl(space("drop", "t")), "namespace-gone", id="created further down"),
        pytest.param(ddl(rename("A", A, IN_T)), ddl(space("drop", "t")), "namespace-gone", id="renamed into it"),
        pytest.param(ddl(view("create", IN_TU)), ddl(space("drop", "t")), "namespace-gone", id="a view made in it"),
        pytest.param(
            ddl(space("drop", "t")), ddl(view("create", IN_T)), "namespace-filled", id="a view in what we drop"
        ),
        pytest.param(ddl(space("create", "t", "u")), ddl(space("drop", "t")), "namespace-gone", id="child namespace"),
        pytest.param(ddl(space("drop", "t")), ddl(create(IN_T)), "namespace-filled", id="created in what we drop"),
        pytest.param(
            ddl(space("drop", "t")), ddl(rename("A", A, IN_T)), "namespace-filled", id="renamed into what we drop"
        ),
        *(
            pytest.param(
                ddl(space(ours, "t")), ddl(space(theirs, "t")), "namespace-changed", id=f"{theirs}, {ours} by us"
            )
            for ours in ("create", "alter", "drop")
            for theirs in ("create", "alter", "drop")
        ),
        pytest.param(writes(INSERT), writes(ALTER), "metadata", id="altered under our write"),
        pytest.param(writes(ALTER), writes(OPTIMIZE), "metadata", id="written under our alter"),
        pytest.param(writes(INSERT), writes(Footprint(protocol=UNCLEAR)), "protocol", id="upgraded under our write"),
        pytest.param(writes(Footprint(protocol=UNCLEAR)), writes(INSERT), "protocol", id="written under our upgrade"),
        pytest.param(writes(says(PROPERTIES)), writes(says(COLUMNS)), "metadata", id="both say all of the metadata"),
        pytest.param(
            writes(Footprint(protocol=UPGRADE)), writes(Footprint(protocol=UPGRADE)), "protocol", id="two upgrades"
        ),
        pytest.param(writes(files("p q", "a")), writes(files("p", "b")), "file", id="removed by both"),
        pytest.param(writes(files("p", "p")), writes(files("p", "p")), "file", id="written again by both"),
        pytest.param(writes(MARKED), writes(MARKED), "row", id="rows marked by both, unread"),
        pytest.param(writes(MARKED), writes(files("p")), "file", id="removed where we marked rows"),
        pytest.param(writes(files("p", "p")), writes(MARKED), "file", id="rows marked in what we write again"),
        pytest.param(writes(OPTIMIZE), writes(files("p", "p")), "file", id="deleted from what we optimize"),
        pytest.param(writes(files(added="p")), writes(files("p")), "file", id="removed what we add again: no ghost"),
        pytest.param(
            writes(files("p")), writes(files(added="p", change=False)), "file", id="new row ids for what we remove"
        ),
        pytest.param(
            writes(Footprint(apps=frozenset("s"))),
            writes(Footprint(apps=frozenset("s"))),
            "application",
            id="one stream twice",
        ),
        pytest.param(
            writes(Footprint(domains=frozenset("d"))),
            writes(Footprint(domains=frozenset("d"))),
            "domain",
            id="one domain",
        ),
    ],
)
def test_conflicts(mine: Changes, winner: Changes, rule: str) -> None:
    conflict = first_conflict(mine, winner)
    assert conflict is not None
    assert conflict.rule == rule
    assert conflict.message.startswith(f"transaction {winner.transaction} (database version 7) ")
    assert "run it again" in conflict.message


@pytest.mark.parametrize(
    ("mine", "found", "rule"),
    [
        pytest.param(writes(MARKED), None, None, id="different rows"),
        pytest.param(writes(MARKED), Hit("took the same row"), "row", id="the same row"),
        pytest.param(writes(replace(MARKED, removed_paths=frozenset("pq"))), None, "file", id="and a file as a whole"),
    ],
)
def test_who_reads_the_vectors_judges_by_row(mine: Changes, found: Hit | None, rule: str | None) -> None:
    """All other rules hold as they do without."""
    winner = writes(replace(MARKED, removed_paths=frozenset("pq")))
    conflict = first_conflict(mine, winner, same_rows=lambda *_: found)
    assert (conflict and conflict.rule) == rule


@pytest.mark.parametrize(
    ("mine", "winner"),
    [
        pytest.param(writes(INSERT), writes(files(added="y")), id="two appends"),
        pytest.param(writes(files("p", "a")), writes(files("q", "b")), id="different files"),
        pytest.param(writes(files("p")), writes(files("p"), "B"), id="a file of the same name in another table"),
        pytest.param(writes(ALTER), writes(ALTER, "B"), id="different tables altered"),
        pytest.param(writes(Footprint(apps=frozenset("s"))), writes(Footprint(apps=frozenset("u"))), id="two streams"),
        pytest.param(writes(Footprint(row_id_mark=3)), writes(Footprint(row_id_mark=4)), id="row ids are rebased"),
        pytest.param(reads("A"), writes(OPTIMIZE), id="what we read was optimized: the same rows"),
        pytest.param(writes(says(COLUMNS)), writes(INSERT), id="rows under our new column"),
        pytest.param(writes(INSERT), writes(says(COLUMNS)), id="rows without its new column"),
        pytest.param(writes(says(MARKS)), writes(OPTIMIZE), id="our marks, and files"),
        pytest.param(writes(INSERT), writes(Footprint(protocol=UPGRADE)), id="a feature that sleeps"),
        pytest.param(writes(says(COLUMNS)), writes(Footprint(protocol=UPGRADE)), id="a column and a feature"),
        pytest.param(reads("A"), writes(Footprint(protocol=UNCLEAR)), id="what we read was upgraded: the same rows"),
        pytest.param(writes(INSERT), reads("A"), id="what the winner read is no matter here"),
        pytest.param(reads("A"), KILLER, id="others were killed"),
        pytest.param(ddl(create(C, "1")), ddl(create(B, "2")), id="different names"),
        pytest.param(ddl(create(C)), ddl(drop("A", A)), id="created and dropped, unrelated"),
        pytest.param(ddl(view("create", C)), ddl(create(B, "2")), id="a view and a table"),
        pytest.param(ddl(view("replace", V)), ddl(view("drop", C)), id="different views"),
        pytest.param(ddl(view("replace", V)), writes(INSERT), id="a view replaced, rows of a table"),
        pytest.param(ddl(view("drop", IN_T)), ddl(space("alter", "t")), id="a view dropped in what was altered"),
        pytest.param(
            Changes("m", view_reads=frozenset({V})),
            ddl(view("replace", V)),
            id="the view that we used is no matter here",
        ),
        pytest.param(ddl(create(IN_T)), ddl(space("alter", "t")), id="created in what was altered"),
        pytest.param(ddl(create(A)), ddl(space("drop", "s", "u")), id="a child of the namespace was dropped"),
        pytest.param(ddl(space("create", "t")), ddl(space("create", "u")), id="different namespaces"),
    ],
)
def test_no_conflict(mine: Changes, winner: Changes) -> None:
    assert first_conflict(mine, winner) is None


@pytest.mark.parametrize(
    ("mine", "winner", "says"),
    [
        pytest.param(
            writes(files("p q r", "a")),
            writes(files("q p")),
            "changed file p and 1 more of table s.a, as this",
            id="files",
        ),
        pytest.param(
            writes(INSERT), RENAMED, "renamed table s.a to s.c, which this transaction wrote", id="table renamed"
        ),
        pytest.param(
            ddl(create(IN_T)),
            ddl(space("drop", "t")),
            "dropped namespace t, in which this transaction made table t.a",
            id="namespace",
        ),
        pytest.param(
            ddl(view("drop", V)),
            ddl(view("replace", V)),
            "replaced view s.v, which this transaction dropped",
            id="view",
        ),
        pytest.param(
            ddl(create(C)),
            ddl(view("create", C)),
            "gave a view the name s.c, as this transaction does",
            id="a name taken by a view",
        ),
        pytest.param(
            ddl(space("drop", "t")),
            ddl(view("create", IN_T)),
            "made view t.a in namespace t, which this transaction dropped",
            id="a namespace filled by a view",
        ),
        pytest.param(
            Changes("m", writes={"Z": ALTER}),
            Changes("w", writes={"Z": INSERT}),
            "transaction w wrote table Z, whose schema or",
            id="a table unnamed, by a winner outside the timeline",
        ),
    ],
)
def test_messages(mine: Changes, winner: Changes, says: str) -> None:
    conflict = first_conflict(mine, winner)
    assert conflict is not None
    assert says in conflict.message


def test_the_rules_are_told_apart() -> None:
    assert len({rule.name for rule in RULES}) == len({rule.says for rule in RULES}) == len(RULES)


# --- properties ---

few = st.frozensets(st.sampled_from("pqr"), max_size=2)
kinds = st.frozensets(st.sampled_from([PROPERTIES, MARKS, COLUMNS, FEATURES, OTHER]), max_size=2)
footprints = st.builds(
    Footprint, few, few, kinds, kinds, few, few, st.none(), st.none(), st.booleans()
)  # fmt: skip
ids = st.sampled_from("ABCDE")
spaces = st.sampled_from([("s",), ("t",), ("t", "u")])
names = st.builds(lambda namespace, table: Name(namespace=namespace, table=table), spaces, st.sampled_from("ab"))


def table_ddl(action: Literal["create", "rename", "drop"], id: str, name: Name, to: Name) -> TableDdl:
    return TableDdl(action=action, id=id, name=name, location=f"/{id}", new_name=to if action == "rename" else None)


def space_ddl(action: Literal["create", "alter", "drop"], name: Namespace) -> NamespaceDdl:
    return NamespaceDdl(action=action, name=name)


changes = st.builds(
    Changes,
    st.just("t"),
    st.lists(st.builds(space_ddl, st.sampled_from(["create", "alter", "drop"]), spaces), max_size=1).map(tuple),
    st.lists(st.builds(table_ddl, st.sampled_from(["create", "rename", "drop"]), ids, names, names), max_size=1).map(
        tuple
    ),
    st.lists(st.builds(view, st.sampled_from(["create", "replace", "drop"]), names), max_size=1).map(tuple),
    st.dictionaries(ids, footprints, max_size=2),
    st.dictionaries(ids, st.none(), max_size=2),
)


@given(changes, changes)
def test_it_does_not_matter_who_came_first(one: Changes, other: Changes) -> None:
    """All rules are about what both wrote, so either order conflicts or neither does."""
    assert (first_conflict(one, other) is None) == (first_conflict(other, one) is None)


@given(changes, changes, st.sets(st.sampled_from(["t", "u"])), st.sampled_from([None, "somebody"]))
def test_no_rule_is_left_out_that_finds_something(
    one: Changes, other: Changes, aborts: set[str], asked: str | None
) -> None:
    """Rules about names are not asked about most pairs of transactions: none of them would find anything."""
    other = replace(other, aborts=frozenset(aborts), asked=asked)
    found = next((rule.name for rule in RULES if rule.find(one, other) is not None), None)
    conflict = first_conflict(one, other)
    assert (None if conflict is None else conflict.rule) == found


@given(changes)
def test_nothing_conflicts_with_a_transaction_that_changed_nothing(mine: Changes) -> None:
    reader = Changes("w", reads=dict.fromkeys("ABC"), view_reads=frozenset({A, V}))
    assert first_conflict(mine, reader) is None
    assert first_conflict(reader, mine) is None
