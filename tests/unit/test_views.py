"""Views before they are committed: the fold, the net of a transaction, what it sees and may do, savepoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import (
    CorruptTimelineError,
    DuplicateError,
    FailedTransactionError,
    InvalidError,
    LockstepError,
    NoTransactionError,
    ReadOnlyError,
    UndefinedError,
)
from lockstep.timeline.database import Database
from lockstep.timeline.entry import (
    MAX_VIEW_BYTES,
    Commit,
    Entry,
    Name,
    NamespaceDdl,
    TableDdl,
    TableWrite,
    View,
    ViewDdl,
    ViewDefinition,
)
from lockstep.timeline.fold import DEFAULT_NAMESPACE, apply, fold
from lockstep.transactions.ddl import net_views
from lockstep.transactions.state import State
from lockstep.transactions.transaction import Transaction
from tests.support.entries import T0, entry
from tests.support.lakes import named
from tests.support.views import FULL, do, says

# --- the fold ---------------------------------------------------------------------------------------------------------


def view(action: Literal["create", "replace", "drop"], name: str, text: str | None = "SELECT 1") -> ViewDdl:
    definition = None if text is None or action == "drop" else says(text)
    return ViewDdl(action=action, name=named(name), definition=definition)


def table(name: str) -> dict[str, Any]:
    """What makes a new table."""
    ddl = TableDdl(action="create", id=f"id-{name}", name=named(name), location=f"at-{name}")
    write = TableWrite(
        id=ddl.id,
        name=ddl.name,
        location=ddl.location,
        from_version=-1,
        to_version=0,
        commits=[Commit(inline=[msgspec.Raw(b"{}")])],
    )
    return {"tables": [ddl], "writes": [write]}


DROP_T = TableDdl(action="drop", id="id-t", name=named("t"))
RENAME_T = TableDdl(action="rename", id="id-t", name=named("t"), new_name=named("v"))
DROP_S = NamespaceDdl(action="drop", name=("s",))
MADE_S = NamespaceDdl(action="create", name=("s",))
BEFORE = fold(
    [
        entry(0),
        entry(1, namespaces=[MADE_S], views=[view("create", "v", "1"), view("create", "s.w", "1")], **table("t")),
    ]
)
"""Table t, view v, and in namespace s view w."""


FITS: list[tuple[str, Entry, dict[str, tuple[str, int]], set[str]]] = [
    ("nothing", entry(2), {"v": ("1", 1), "s.w": ("1", 1)}, {"t"}),
    ("create", entry(2, views=[view("create", "x", "2")]), {"v": ("1", 1), "s.w": ("1", 1), "x": ("2", 2)}, {"t"}),
    ("replace", entry(2, views=[view("replace", "v", "2")]), {"v": ("2", 2), "s.w": ("1", 1)}, {"t"}),
    ("drop", entry(2, views=[view("drop", "v")]), {"s.w": ("1", 1)}, {"t"}),
    (
        "rename",
        entry(2, views=[view("drop", "v"), view("create", "x", "1")]),
        {"x": ("1", 2), "s.w": ("1", 1)},
        {"t"},
    ),
    (
        "a drop last",
        entry(2, views=[view("create", "v", "2"), view("drop", "v")]),
        {"v": ("2", 2), "s.w": ("1", 1)},
        {"t"},
    ),
    ("a table for a view", entry(2, views=[view("drop", "v")], **table("v")), {"s.w": ("1", 1)}, {"t", "v"}),
    (
        "a view for a table",
        entry(2, tables=[DROP_T], views=[view("create", "t", "2")]),
        {"v": ("1", 1), "s.w": ("1", 1), "t": ("2", 2)},
        set(),
    ),
    (
        "swapped names",
        entry(2, tables=[RENAME_T], views=[view("drop", "v"), view("create", "t", "1")]),
        {"t": ("1", 2), "s.w": ("1", 1)},
        {"v"},
    ),
    ("a namespace dropped", entry(2, namespaces=[DROP_S], views=[view("drop", "s.w")]), {"v": ("1", 1)}, {"t"}),
    ("a namespace made again", entry(2, namespaces=[DROP_S, MADE_S]), {"v": ("1", 1), "s.w": ("1", 1)}, {"t"}),
    ("a read", entry(2, view_reads=[named("v")]), {"v": ("1", 1), "s.w": ("1", 1)}, {"t"}),
]


@pytest.mark.parametrize(("next_", "views", "tables"), [c[1:] for c in FITS], ids=[c[0] for c in FITS])
def test_what_an_entry_makes_of_views(next_: Entry, views: dict[str, tuple[str, int]], tables: set[str]) -> None:
    after = apply(BEFORE, next_)
    assert {k: (v.definition.text, v.since) for k, v in after.views.items()} == {named(k): v for k, v in views.items()}
    assert all(found.name == name for name, found in after.views.items())
    assert set(after.tables) == set(map(named, tables))
    assert set(BEFORE.views) == {named("v"), named("s.w")}, "a database is never changed in place"


BAD: list[tuple[str, Entry, str]] = [
    (
        "create again",
        entry(2, views=[view("create", "v")]),
        "gives a view the name default.v: expected one that is free",
    ),
    ("create twice", entry(2, views=[view("create", "x"), view("create", "x")]), "expected one that is free"),
    (
        "a table's name",
        entry(2, views=[view("create", "t")]),
        "gives a view the name default.t: expected one that is free",
    ),
    ("a new table's name", entry(2, views=[view("create", "x")], **table("x")), "expected one that is free"),
    ("no name", entry(2, views=[view("create", "")]), "expected one that is free"),
    ("a table of its name", entry(2, **table("v")), "gives a table the name default.v: expected one that is free"),
    (
        "a table renamed to it",
        entry(2, tables=[RENAME_T]),
        "gives a table the name default.v: expected one that is free",
    ),
    ("no namespace", entry(2, views=[view("create", "n.x")]), "expected its namespace to exist"),
    ("replace nothing", entry(2, views=[view("replace", "x")]), "has replace of view default.x: expected it to exist"),
    ("replace a table", entry(2, views=[view("replace", "t")]), "has replace of view default.t: expected it to exist"),
    ("drop nothing", entry(2, views=[view("drop", "x")]), "has drop of view default.x: expected it to exist"),
    ("drop twice", entry(2, views=[view("drop", "v"), view("drop", "v")]), "expected it to exist"),
    ("replace the dropped", entry(2, views=[view("replace", "v"), view("drop", "v")]), "expected it to exist"),
    ("create undefined", entry(2, views=[view("create", "x", None)]), "expected its definition"),
    ("replace undefined", entry(2, views=[view("replace", "v", None)]), "expected its definition"),
    (
        "drop defined",
        entry(2, views=[ViewDdl(action="drop", name=named("v"), definition=FULL)]),
        "drops view default.v and defines it",
    ),
    ("left in a namespace", entry(2, namespaces=[DROP_S]), "drops namespace s: expected nothing in it, not s.w"),
    ("aborts and views", entry(2, kind="abort", aborts=["x"], views=[view("drop", "v")]), "expected one of the two"),
    ("aborts and reads", entry(2, kind="abort", aborts=["x"], view_reads=[named("v")]), "expected one of the two"),
]


@pytest.mark.parametrize(("bad", "expected"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_an_entry_that_does_not_fit_is_refused(bad: Entry, expected: str) -> None:
    with pytest.raises(CorruptTimelineError) as caught:
        apply(BEFORE, bad)
    assert caught.value.message.startswith("timeline entry 2 ")
    assert expected in caught.value.message


@pytest.mark.parametrize("changes", [{"views": [view("create", "v")]}, {"view_reads": [named("v")]}])
def test_the_first_entry_has_no_views(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptTimelineError, match="expected an empty database"):
        fold([entry(0, **changes)])


# --- the net ----------------------------------------------------------------------------------------------------------

mappings = st.dictionaries(st.sampled_from(["a", "b", "c", "s.a"]), st.sampled_from(["1", "2"]))


def viewed(texts: dict[str, str]) -> dict[Name, View]:
    return {named(n): View(name=named(n), definition=says(text), since=0) for n, text in texts.items()}


def defined(views: Mapping[Name, View]) -> dict[Name, ViewDefinition]:
    return {name: found.definition for name, found in views.items()}


@given(mappings, mappings)
def test_applying_the_net_gives_what_is_after(before: dict[str, str], after: dict[str, str]) -> None:
    start = Database(
        version=1, committed_at=T0, namespaces={DEFAULT_NAMESPACE: {}, ("s",): {}}, tables={}, views=viewed(before)
    )
    net = net_views(viewed(before), viewed(after))
    assert defined(apply(start, entry(2, views=net)).views) == defined(viewed(after))
    assert len(net) == len({n for n in before.keys() | after.keys() if before.get(n) != after.get(n)})


# --- a transaction ----------------------------------------------------------------------------------------------------


def begin(read_only: bool = False) -> Transaction:
    return Transaction(id="tx", base=BEFORE, began_at=T0, read_only=read_only)


def entry_of(tx: Transaction) -> Entry:
    """The entry that the transaction would commit, with an empty commit for each table that it made."""
    writes = [
        TableWrite(
            id=t.id, name=t.name, location=t.location, from_version=-1, to_version=0, commits=[Commit(inline=[])]
        )
        for t in tx.written_tables()
    ]
    return entry(
        2,
        namespaces=tx.names.namespace_ddl(),
        tables=tx.names.table_ddl(tx.id),
        views=tx.names.view_ddl(),
        writes=writes,
    )


def net(tx: Transaction) -> list[str]:
    signs = {"create": "+", "replace": "~", "drop": "-"}
    shown = ((d, "" if d.definition is None else f"={d.definition.text}") for d in tx.names.view_ddl())
    return [f"{signs[d.action]}{d.name}{text}".replace("default.", "") for d, text in shown]


DDL: list[tuple[str, list[str]]] = [
    ("+x=1", ["+x=1"]),
    ("x=1", ["+x=1"]),
    ("+x=1 x=2", ["+x=2"]),
    ("+x=1 -x", []),
    ("v=2", ["~v=2"]),
    ("v=1", []),
    ("v=2 v=1", []),
    ("-v", ["-v"]),
    ("-v +v=1", []),
    ("-v +v=2", ["~v=2"]),
    ("v>x", ["-v", "+x=1"]),
    ("v>x x>v", []),
    ("v>x v=2", ["+x=1", "~v=2"]),
    ("v>s.x", ["-v", "+s.x=1"]),
    ("-t! v>t", ["-v", "+t=1"]),
    ("-v +v!", ["-v"]),
    ("-t! +t=1", ["+t=1"]),
    ("!s", ["-s.w"]),
    ("!s /s", ["-s.w"]),
    ("!s /s +s.w=1", []),
    ("s.w>w !s", ["-s.w", "+w=1"]),
]


@pytest.mark.parametrize(("done", "left"), DDL, ids=[d for d, _ in DDL])
def test_ddl_is_netted_and_can_be_applied(done: str, left: list[str]) -> None:
    tx = begin()
    do(tx, done)
    assert sorted(net(tx)) == sorted(left)
    assert tx.is_recorded() is bool(tx.names.view_ddl() or tx.names.table_ddl(tx.id) or tx.names.namespace_ddl())
    after = apply(tx.base, entry_of(tx))
    assert defined(after.views) == defined(dict(tx.views))
    assert set(after.tables) == set(tx.tables)


STEPS = st.sampled_from([
    "+v=1", "+x=1", "v=2", "s.w=2", "t=1", "-v", "-x", "-s.w", "v>x", "x>v", "v>s.w", "s.w>v",
    "x>t", "-t!", "+t!", "+x!", "-x!", "+v!", "-v!", "/s", "!s",
])  # fmt: skip


@given(st.lists(STEPS, max_size=12))
def test_whatever_ddl_a_transaction_does_can_be_applied(steps: list[str]) -> None:
    """What it sees at the end is what its entry makes of its snapshot, and no name is a table's and a view's."""
    tx = begin()
    for step in steps:
        try:
            do(tx, step)
        except (UndefinedError, DuplicateError):
            continue
        assert not set(tx.views) & set(tx.tables)
    after = apply(tx.base, entry_of(tx))
    assert defined(after.views) == defined(dict(tx.views))
    assert {name: t.id for name, t in after.tables.items()} == {name: t.id for name, t in tx.tables.items()}
    assert set(after.namespaces) == set(tx.namespaces)


LARGE = says("x" * MAX_VIEW_BYTES)
Act = Callable[[Transaction], object]
REFUSED: list[tuple[str, Act, type[LockstepError], str, str]] = [
    ("look at nothing", lambda tx: tx.names.view(named("x")), UndefinedError, "42P01", "no view default.x"),
    ("drop nothing", lambda tx: do(tx, "-x"), UndefinedError, "42P01", "no view default.x"),
    ("drop a table", lambda tx: do(tx, "-t"), UndefinedError, "42P01", "no view default.t"),
    ("drop as a table", lambda tx: do(tx, "-v!"), UndefinedError, "42P01", "no table default.v"),
    ("rename nothing", lambda tx: do(tx, "x>y"), UndefinedError, "42P01", "no view default.x"),
    ("rename onto a view", lambda tx: do(tx, "v>s.w"), DuplicateError, "42P07", "view s.w exists"),
    ("rename onto a table", lambda tx: do(tx, "v>t"), DuplicateError, "42P07", "table default.t exists"),
    ("rename nowhere", lambda tx: do(tx, "v>n.v"), UndefinedError, "3F000", "no namespace n"),
    (
        "rename a table onto it",
        lambda tx: tx.changing().rename_table(named("t"), named("v")),
        DuplicateError,
        "42P07",
        "view d",
    ),
    ("create again", lambda tx: do(tx, "+v=1"), DuplicateError, "42P07", "view default.v exists"),
    ("create over a table", lambda tx: do(tx, "+t=1"), DuplicateError, "42P07", "table default.t exists"),
    ("replace a table", lambda tx: do(tx, "t=1"), DuplicateError, "42P07", "table default.t exists"),
    ("create nowhere", lambda tx: do(tx, "n.x=1"), UndefinedError, "3F000", "no namespace n"),
    ("a table over it", lambda tx: tx.reserve(named("v"), "i"), DuplicateError, "42P07", "view default.v exists"),
    (
        "drop full",
        lambda tx: tx.changing().drop_namespace(("s",), cascade=False),
        InvalidError,
        "2BP01",
        "not empty (s.w)",
    ),
    (
        "too large",
        lambda tx: tx.changing().create_view(named("v"), LARGE, replace=True),
        InvalidError,
        "54000",
        "several views",
    ),
]


@pytest.mark.parametrize(("act", "error", "state", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_is_refused_and_why(act: Act, error: type[LockstepError], state: str, message: str) -> None:
    tx = begin()
    with pytest.raises(error) as caught:
        act(tx)
    assert caught.value.sqlstate == state
    assert message in caught.value.message
    assert (tx.names.view_ddl(), tx.names.table_ddl(tx.id), tx.names.namespace_ddl(), dict(tx.views)) == (
        [],
        [],
        [],
        dict(BEFORE.views),
    )


def failed(tx: Transaction) -> None:
    tx.failure = "division by zero"


def ended(tx: Transaction) -> None:
    tx.state = State.ROLLED_BACK


@pytest.mark.parametrize(
    ("prepare", "error"),
    [(ended, NoTransactionError), (failed, FailedTransactionError), (lambda tx: None, ReadOnlyError)],
)
@pytest.mark.parametrize("done", ["+x=1", "v=2", "-v", "v>x"])
def test_who_may_not_write(prepare: Act, error: type[LockstepError], done: str) -> None:
    tx = begin(read_only=error is ReadOnlyError)
    prepare(tx)
    with pytest.raises(error):
        do(tx, done)
    assert dict(tx.views) == dict(BEFORE.views)


def test_a_definition_of_the_largest_size_fits() -> None:
    tx = begin()
    room = MAX_VIEW_BYTES - len(msgspec.json.encode(says("")))
    tx.changing().create_view(named("x"), says("x" * room), replace=False)
    with pytest.raises(InvalidError):
        tx.changing().create_view(named("y"), says("x" * (room + 1)), replace=False)


READS: list[tuple[str, str, list[str]]] = [
    ("", "v", ["v"]),
    ("", "s.w v v", ["v", "s.w"]),
    ("", "x t", []),
    ("+x=1", "x", []),
    ("v=2", "v", []),
    ("v>x", "x v", []),
    ("-v", "v", []),
]


@pytest.mark.parametrize(("done", "read", "recorded"), READS, ids=[f"{d or 'nothing'}; {r}" for d, r, _ in READS])
def test_reads_are_of_the_snapshots_views(done: str, read: str, recorded: list[str]) -> None:
    tx = begin()
    do(tx, done)
    for name in read.split():
        tx.read_view(named(name))
    assert tx.view_reads() == list(map(named, recorded))


def test_what_was_read_before_it_was_dropped_stays_read() -> None:
    tx = begin()
    tx.read_view(named("v"))
    do(tx, "-v")
    assert tx.view_reads() == [named("v")]


@pytest.mark.parametrize("done", ["+x=1", "v=2", "-v", "v>x", "-v +v!", "!s", "v=2 v=1"])
def test_a_savepoint_brings_views_back(done: str) -> None:
    tx = begin()
    do(tx, "+kept=1")
    tx.savepoint("s")
    before = dict(tx.views)
    tx.read_view(named("v"))
    do(tx, done)
    tx.go_back_to("s")
    assert dict(tx.views) == before
    assert net(tx) == ["+kept=1"]
    assert tx.view_reads() == [named("v")], "what was read since stays read"
