"""A transaction before it commits: what it sees, what it may do, and what is left of its DDL in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockstep.delta.pruning.row_sets import MAX_TOUCHES
from lockstep.errors import (
    DuplicateError,
    FailedTransactionError,
    InvalidError,
    LockstepError,
    NoTransactionError,
    ReadOnlyError,
    TransactionStateError,
    UndefinedError,
)
from lockstep.timeline.database import Database
from lockstep.timeline.entry import FORMAT, NEW, Commit, Entry, Name, Table, TableDdl, TableWrite
from lockstep.timeline.fold import DEFAULT_NAMESPACE, apply
from lockstep.transactions.folders import new_location
from lockstep.transactions.state import State
from lockstep.transactions.statements import MAX_STATEMENT_CHARACTERS, MAX_STATEMENTS
from lockstep.transactions.transaction import Transaction
from tests.support.entries import T0
from tests.support.lakes import named


def database(*names: str) -> Database:
    """A database of tables at version 4, whose ids are their names."""
    tables = [Table(id=n, name=named(n), location=f"at-{n}", version=4, since=1) for n in names]
    spaces: dict[tuple[str, ...], dict[str, str]] = {table.name.namespace: {} for table in tables}
    return Database(
        version=7,
        committed_at=T0,
        namespaces={DEFAULT_NAMESPACE: {}, **spaces},
        tables={table.name: table for table in tables},
    )


def begin(*names: str, read_only: bool = False) -> Transaction:
    return Transaction(id="tx", base=database(*names), began_at=T0, read_only=read_only)


def make(tx: Transaction, name: str) -> Table:
    creation = tx.reserve(named(name), f"new-{name}-{len(tx.creations.folders())}")
    tx.stage(creation.location, 0)
    return tx.table(named(name))


def said(ddl: Iterable[TableDdl]) -> list[str]:
    """`+a` created, `-a` dropped, `a>b` renamed; without `default.`."""

    def short(name: Name | None) -> str:
        return str(name).removeprefix("default.")

    words = {"create": "+{0}", "drop": "-{0}", "rename": "{0}>{1}"}
    return [words[each.action].format(short(each.name), short(each.new_name)) for each in ddl]


def do(tx: Transaction, text: str) -> None:
    """Run DDL in the same shorthand; `/s` makes namespace s, `!s` drops it with all that is in it."""
    for word in text.split():
        if word[0] == "+":
            make(tx, word[1:])
        elif word[0] == "-":
            tx.changing().drop_table(named(word[1:]))
        elif word[0] == "/":
            tx.changing().create_namespace((word[1:],), {})
        elif word[0] == "!":
            tx.changing().drop_namespace((word[1:],), cascade=True)
        else:
            old, new = word.split(">")
            tx.changing().rename_table(named(old), named(new))


def entry_of(tx: Transaction) -> Entry:
    """The entry that the transaction would commit, with one empty commit for each table it has staged."""
    writes = []
    for table in tx.written_tables():
        last = tx.staged[table.id][-1]
        commits = [Commit(inline=[]) for _ in range(last - table.version)]
        writes.append(
            TableWrite(
                id=table.id,
                name=table.name,
                location=table.location,
                from_version=table.version,
                to_version=last,
                commits=commits,
            )
        )
    return Entry(
        format=FORMAT,
        version=tx.base.version + 1,
        committed_at=T0 + timedelta(milliseconds=1),
        kind="transaction",
        transaction=tx.info(),
        namespaces=tx.names.namespace_ddl(),
        tables=tx.names.table_ddl(tx.id),
        writes=writes,
    )


DDL = [
    # tables before, what is done, what is left of it
    ("", "+a", ["+a"]),
    ("", "+a -a", []),
    ("", "+a a>b", ["+b"]),
    ("", "+a a>b -b", []),
    ("a", "-a", ["-a"]),
    ("a", "a>b", ["a>b"]),
    ("a", "a>b b>c", ["a>c"]),
    ("a", "a>b b>a", []),
    ("a", "a>b -b", ["-a"]),
    ("a", "-a +a", ["-a", "+a"]),
    ("a", "-a +a -a", ["-a"]),
    ("a", "a>old +a", ["a>old", "+a"]),
    ("a", "+new -a new>a", ["-a", "+a"]),
    ("a b", "-a b>a", ["-a", "b>a"]),
    ("a b", "a>t b>a t>b", ["a>b-tx", "b>a", "b-tx>b"]),
    ("a b c", "a>t b>a c>b t>c", ["a>c-tx", "c>b", "b>a", "c-tx>c"]),
    ("a b c", "c>d b>c a>b", ["c>d", "b>c", "a>b"]),
    ("", "/s +s.a s.a>b !s", ["+b"]),
    ("s.a", "s.a>b !s", ["s.a>b"]),
    ("s.a s.b", "!s", ["-s.a", "-s.b"]),
    ("a", "/s a>s.a s.a>b !s", ["a>b"]),
    ("s.a", "!s /s +s.a", ["-s.a", "+s.a"]),
]


@pytest.mark.parametrize(("before", "done", "left"), DDL, ids=[f"{b or 'nothing'}: {d}" for b, d, _ in DDL])
def test_ddl_is_netted_and_can_be_applied(before: str, done: str, left: list[str]) -> None:
    tx = begin(*before.split())
    do(tx, done)
    assert sorted(said(tx.names.table_ddl(tx.id))) == sorted(left)
    after = apply(tx.base, entry_of(tx))
    assert {name: table.id for name, table in after.tables.items()} == {n: t.id for n, t in tx.tables.items()}
    assert set(after.namespaces) == set(tx.namespaces)


STEPS = st.sampled_from(
    ["+a", "+b", "+s.a", "-a", "-b", "-s.a", "a>b", "b>a", "a>c", "c>a", "b>s.a", "s.a>b", "s.a>c", "/s", "!s", "c>b"]
)


@given(st.lists(STEPS, max_size=12))
def test_whatever_ddl_a_transaction_does_can_be_applied(steps: list[str]) -> None:
    """What it sees at the end is what its entry makes of its snapshot; steps that are refused change nothing."""
    tx = begin("a", "b", "s.a")
    for step in steps:
        try:
            do(tx, step)
        except (UndefinedError, DuplicateError):
            continue
    after = apply(tx.base, entry_of(tx))
    assert {name: table.id for name, table in after.tables.items()} == {n: t.id for n, t in tx.tables.items()}
    assert set(after.namespaces) == set(tx.namespaces)


def test_folders_of_tables_that_it_does_not_have_are_known() -> None:
    tx = begin()
    kept = make(tx, "a")
    dropped = make(tx, "b")
    tx.changing().drop_table(named("b"))
    failed = tx.reserve(named("c"), "id-c")
    assert tx.creations.abandoned(tx.names) == [dropped.location, failed.location]
    assert tx.creations.folders() == [kept.location, dropped.location, failed.location]


REFUSED: list[tuple[str, Callable[[Transaction], object], type[LockstepError], str, str]] = [
    ("drop nothing", lambda tx: tx.changing().drop_table(named("x")), UndefinedError, "42P01", "no table default.x"),
    (
        "rename nothing",
        lambda tx: tx.changing().rename_table(named("x"), named("y")),
        UndefinedError,
        "42P01",
        "no table",
    ),
    (
        "rename onto",
        lambda tx: tx.changing().rename_table(named("a"), named("b")),
        DuplicateError,
        "42P07",
        "default.b exists",
    ),
    (
        "rename nowhere",
        lambda tx: tx.changing().rename_table(named("a"), named("n.a")),
        UndefinedError,
        "3F000",
        "no namespace n",
    ),
    ("create again", lambda tx: tx.reserve(named("a"), "i"), DuplicateError, "42P07", "table default.a exists"),
    ("create nowhere", lambda tx: tx.reserve(named("n.a"), "i"), UndefinedError, "3F000", "no namespace n"),
    (
        "namespace again",
        lambda tx: tx.changing().create_namespace(("s",), {}),
        DuplicateError,
        "42P06",
        "namespace s exists",
    ),
    ("orphan", lambda tx: tx.changing().create_namespace(("n", "m"), {}), UndefinedError, "3F000", "no namespace n"),
    (
        "drop full",
        lambda tx: tx.changing().drop_namespace(("s",), cascade=False),
        InvalidError,
        "2BP01",
        "not empty (s.t)",
    ),
    (
        "drop no namespace",
        lambda tx: tx.changing().drop_namespace(("n",), cascade=True),
        UndefinedError,
        "3F000",
        "no namespace",
    ),
    (
        "alter no namespace",
        lambda tx: tx.changing().alter_namespace(("n",), {}),
        UndefinedError,
        "3F000",
        "no namespace n",
    ),
    ("stage elsewhere", lambda tx: tx.stage("at-z", 5), InvalidError, "22023", "nothing at at-z"),
    ("stage a gap", lambda tx: tx.stage("at-a", 6), InvalidError, "22023", "version 6 was staged where 5"),
]


@pytest.mark.parametrize(("act", "error", "state", "message"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_is_refused_and_why(
    act: Callable[[Transaction], object], error: type[LockstepError], state: str, message: str
) -> None:
    tx = begin("a", "b", "s.t")
    with pytest.raises(error) as caught:
        act(tx)
    assert caught.value.sqlstate == state
    assert message in caught.value.message
    assert (tx.names.table_ddl(tx.id), tx.names.namespace_ddl(), tx.staged) == ([], [], {})


def ended(tx: Transaction) -> None:
    tx.state = State.ROLLED_BACK


def failed(tx: Transaction) -> None:
    tx.failure = "division by zero"


def doubtful(tx: Transaction) -> None:
    tx.in_doubt = 8


@pytest.mark.parametrize(
    ("prepare", "error", "state"),
    [
        (ended, NoTransactionError, "25P01"),
        (failed, FailedTransactionError, "25P02"),
        (doubtful, TransactionStateError, "25000"),
        (lambda tx: None, ReadOnlyError, "25006"),
    ],
)
@pytest.mark.parametrize(
    "act",
    [
        lambda tx: tx.changing().drop_table(named("a")),
        lambda tx: tx.changing().rename_table(named("a"), named("b")),
        lambda tx: tx.reserve(named("b"), "i"),
        lambda tx: tx.stage("at-a", 5),
        lambda tx: tx.changing().create_namespace(("n",), {}),
        lambda tx: tx.changing().alter_namespace(("default",), {}),
        lambda tx: tx.changing().drop_namespace(("default",), cascade=True),
    ],
)
def test_who_may_not_write(
    prepare: Callable[[Transaction], None],
    error: type[LockstepError],
    state: str,
    act: Callable[[Transaction], object],
) -> None:
    tx = begin("a", read_only=error is ReadOnlyError)
    prepare(tx)
    with pytest.raises(error) as caught:
        act(tx)
    assert caught.value.sqlstate == state
    assert dict(tx.tables) == dict(tx.base.tables)


def test_a_reserved_name_is_taken_by_the_first_that_is_staged() -> None:
    tx = begin()
    first, second = tx.reserve(named("a"), "one"), tx.reserve(named("a"), "two")
    assert named("a") not in tx.tables
    tx.stage(second.location, 0)
    with pytest.raises(DuplicateError):
        tx.stage(first.location, 0)
    assert tx.table(named("a")).id == "two"
    assert tx.creations.abandoned(tx.names) == [first.location]


def test_a_pin_stays_while_versions_are_staged() -> None:
    tx = begin("a")
    tx.stage("at-a", 5)
    tx.stage("at-a", 6)
    made = make(tx, "b")
    assert (tx.table(named("a")).version, made.version) == (4, NEW)
    assert tx.staged == {"a": [5, 6], made.id: [0]}
    assert [table.id for table in tx.written_tables()] == ["a", made.id]
    assert tx.state is State.INFLIGHT


def test_reads_are_of_the_snapshots_tables() -> None:
    tx = begin("a", "b")
    tx.read(tx.table(named("a")))
    tx.read(make(tx, "c"))
    tx.changing().rename_table(named("a"), named("z"))
    assert [(read.id, str(read.name), read.version) for read in tx.reads()] == [("a", "default.a", 4)]


def test_its_text_is_kept_within_bounds() -> None:
    tx = begin()
    tx.note_statement("SELECT  1\n")
    tx.note_statement("SELECT 1")
    tx.note_statement("x" * 5000)
    for n in range(200):
        tx.note_statement(str(n))
    assert tx.statements[:2] == ["SELECT 1", "x" * MAX_STATEMENT_CHARACTERS]
    assert len(tx.statements) == MAX_STATEMENTS


def test_where_a_new_table_lies() -> None:
    assert new_location(Name(namespace=("s", "t"), table="orders"), "id") == "s/t/orders-id"
    assert new_location(Name(namespace=("../x",), table="a b/c"), "id") == "___x/a_b_c-id"
    assert new_location(Name(namespace=("",), table=""), "id") == "_/_-id"


def test_no_table_lies_in_a_folder_that_holds_other_than_data() -> None:
    """Whoever looks at the path of a data file would take it for a log file, a staged one or a manifest."""
    reserved = ("_delta_log", "_lockstep", "_symlink_format_manifest", "_Delta_Log", "_delta_log_")
    table = Name(namespace=reserved, table="_delta_log")
    assert new_location(table, "id") == "delta_log/lockstep/symlink_format_manifest/Delta_Log/_delta_log_/delta_log-id"


@given(st.lists(st.text(min_size=1), max_size=400), st.text(min_size=1))
@example(["n" * 5000] * 400, "表" * 300)
def test_a_folder_fits_into_any_file_system(namespace: list[str], table: str) -> None:
    location = new_location(Name(namespace=tuple(namespace), table=table), "f" * 32)
    assert all(0 < len(part.encode()) <= 255 for part in location.split("/"))
    assert len(location) < 1000


# --- what it read -----------------------------------------------------------------------------------------------------


def rows_read(tx: Transaction) -> dict[str, list[str] | None]:
    return {read.id: read.predicates for read in tx.reads()}


def test_a_use_of_a_table_is_a_read_of_all_of_it_until_that_use_is_settled() -> None:
    tx = begin("a", "b")
    for number, name in enumerate("aab"):
        tx.touch(tx.table(named(name)), number)
    tx.read(tx.table(named("a")), "(id = 1)")
    assert rows_read(tx) == {"a": None, "b": None}
    tx.settle([0, 2])
    assert rows_read(tx) == {"a": None, "b": []}
    tx.settle([1])
    assert rows_read(tx) == {"a": ["(id = 1)"], "b": []}


def test_a_use_without_a_number_is_never_settled() -> None:
    tx = begin("a")
    tx.touch(tx.table(named("a")))
    tx.read(tx.table(named("a")), "(id = 1)")
    assert rows_read(tx) == {"a": None}


def test_uses_that_are_too_many_to_tell_apart_are_never_settled() -> None:
    tx = begin("a")
    for number in range(MAX_TOUCHES + 1):
        tx.touch(tx.table(named("a")), number)
    tx.settle(range(MAX_TOUCHES + 1))
    assert rows_read(tx) == {"a": None}
