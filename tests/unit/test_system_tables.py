"""The system tables without Spark: what each says, what conditions leave, and what it costs to read them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from immutables import Map
from msgspec import structs

from lockstep.catalog import TransactionalCatalog
from lockstep.commit.ended import EndedRecord, keep
from lockstep.commit.records import ALIVE, OpenRecord, record_of, write
from lockstep.lake.lake import Lake
from lockstep.retention.floor import set_floor
from lockstep.settings import SETTINGS
from lockstep.system import history, query
from lockstep.system.catalog import listed
from lockstep.system.configured import HIDDEN
from lockstep.system.query import Batch, Filter, Query, Window, matches, micros, wanted
from lockstep.system.scope import Configured, Scope
from lockstep.system.tables import TABLES
from lockstep.timeline.checkpoint import Checkpoints
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Table
from lockstep.timeline.expiry import expire
from lockstep.timeline.files import FOLDER, File, encode, version_in
from lockstep.timeline.hint import Hint, write_hint
from lockstep.timeline.log import Timeline
from lockstep.timeline.segment import list_segments
from lockstep.timeline.state import State as TimelineState
from lockstep.transactions.state import State
from tests.support import histories
from tests.support.checkpoints import long_history, requests, stored
from tests.support.client import Client
from tests.support.entries import T0, entry
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, create, named, stage
from tests.support.memory import MemoryStorage


def asked(column: str, op: Any, value: Any = None, values: Sequence[Any] = ()) -> Filter:
    return Filter(column=column, op=op, value=value, values=tuple(values))


def whole(scope: Scope, table: str, *columns: str, filters: Sequence[Filter] = (), **more: Any) -> list[list[Any]]:
    """All rows, batch by batch."""
    rows: list[list[Any]] = []
    cursor, limit = None, more.pop("limit", None)
    answers = TABLES[table].rows
    assert answers is not None
    while True:
        left = None if limit is None else limit - len(rows)
        batch: Batch = answers(scope, Query(columns, tuple(filters), limit=left, cursor=cursor, **more))
        rows += batch.rows
        if (cursor := batch.next) is None:
            return rows


# --- conditions -------------------------------------------------------------------------------------------------------

ROW = {"n": 5, "s": "b", "yes": True, "at": T0, "none": None}


@pytest.mark.parametrize(
    ("filter_", "holds"),
    [
        (asked("n", "=", 5), True),
        (asked("n", "=", 6), False),
        (asked("n", "<", 5), False),
        (asked("n", "<=", 5), True),
        (asked("n", ">", 5), False),
        (asked("n", ">=", 5), True),
        (asked("n", ">", 4), True),
        (asked("n", "in", values=[1, 5]), True),
        (asked("n", "in", values=[]), False),
        (asked("s", "=", "b"), True),
        (asked("s", "=", "B"), False),
        (asked("s", "in", values=["a"]), False),
        (asked("yes", "=", True), True),
        (asked("yes", "=", False), False),
        (asked("at", "=", micros(T0)), True),
        (asked("at", ">", micros(T0)), False),
        (asked("n", "null"), False),
        (asked("n", "not null"), True),
        *((asked("none", op, 5), False) for op in ("=", "<", "<=", ">", ">=", "not null")),
        (asked("none", "in", values=[5]), False),
        (asked("none", "null"), True),
        (asked("n", "=", None), False),
    ],
)
def test_a_condition(filter_: Filter, holds: bool) -> None:
    assert matches(ROW, [filter_]) == holds


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], (0, 9)),
        ([asked("n", ">", 3)], (4, 9)),
        ([asked("n", ">=", 3), asked("n", "<", 5)], (3, 4)),
        ([asked("n", "<=", 5), asked("other", "=", 1)], (0, 5)),
        ([asked("n", "=", 7)], (7, 7)),
        ([asked("n", "in", values=[4, 2])], (2, 4)),
        ([asked("n", "in", values=[])], (0, -1)),
        ([asked("n", "=", 77)], (77, 9)),
        ([asked("n", "<", -5)], (0, -6)),
        ([asked("n", "not null")], (0, 9)),
    ],
)
def test_conditions_on_a_number_leave_a_window(filters: list[Filter], left: tuple[int, int]) -> None:
    assert Window(0, 9).narrowed(filters, "n") == Window(*left)


def test_the_values_that_conditions_leave() -> None:
    assert wanted([asked("s", "=", "a"), asked("s", "in", values=["a", "b"])], "s") == {"a"}
    assert wanted([asked("s", "not null"), asked("n", "=", 1)], "s") is None


# --- each table -------------------------------------------------------------------------------------------------------


@pytest.fixture
def scope(catalog: TransactionalCatalog) -> Scope:
    for table in ("a", "b"):
        tx = catalog.begin(comment=f"load {table}")
        stage(catalog, tx, table, add(f"x{table}"))
        catalog.commit(tx)
    return Scope(catalog.lake, catalog.database())


def test_each_row_has_a_value_of_each_column(scope: Scope) -> None:
    configured = Configured("lake", {"isolation": "SNAPSHOT"}, {"root": "/x", "store.key": "secret"}, {}, {})
    for name, table in TABLES.items():
        if table.rows is not None:
            seen = Scope(scope.lake, scope.database, configured=configured)
            for row in whole(seen, name, *table.columns):
                assert len(row) == len(table.columns)
        assert {*(column.removesuffix(" DESC") for column in table.ordered), *table.pushed} <= set(table.columns)


def test_no_secret_is_among_the_settings(scope: Scope) -> None:
    environment = {
        "LOCKSTEP_ARBITER_PASSWORD": "planted",
        "LOCKSTEP_ARBITER": "redis://ada:planted@host:6379/0?prefix=x",
    }
    seen = Scope(scope.lake, scope.database, configured=Configured("lake", {}, {}, {}, environment))
    rows = dict(whole(seen, "settings", "name", "value"))
    assert rows["LOCKSTEP_ARBITER_PASSWORD"] == HIDDEN
    assert rows["LOCKSTEP_ARBITER"] == "redis://…@host:6379/0?prefix=x"
    assert {setting.name for setting in SETTINGS if "PASSWORD" in setting.name} == {
        setting.name for setting in SETTINGS if setting.is_secret
    }


def test_history_says_what_each_version_did(scope: Scope) -> None:
    columns = ("version", "kind", "comment", "tables", "files_added", "rows_added")
    newest = whole(scope, "history", *columns, limit=2, descending=True)
    last = scope.database.version
    assert newest == [
        [last, "transaction", "load b", ["default.b"], 1, 1],
        [last - 1, "transaction", "load a", ["default.a"], 1, 1],
    ]
    assert whole(scope, "history", "version") == [[version] for version in range(last + 1)]


def test_batches_and_limits_give_the_same_rows(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    last = scope.database.version
    expected = whole(scope, "history", "version", "transaction_id")
    for most in (1, 2):
        monkeypatch.setattr(query, "MOST_ROWS", most)
        assert whole(scope, "history", "version", "transaction_id") == expected
        assert whole(scope, "history", "version", "transaction_id", descending=True) == expected[::-1]
        assert whole(scope, "history", "version", "transaction_id", limit=2) == expected[:2]
        assert len(whole(scope, "transactions", "transaction_id")) == last
        assert len(whole(scope, "tables", "name")) == 2
        assert len(whole(scope, "settings", "name")) == len(SETTINGS) - 2
    monkeypatch.setattr(history, "MOST_LOOKED_AT", 1)
    filters = [asked("version", "=", last), asked("author", "=", "nobody")]
    assert whole(scope, "history", "version", filters=filters[1:]) == []
    assert whole(scope, "history", "version", filters=filters[:1]) == [[last]]
    assert whole(scope, "history", "version", limit=0) == []


def test_an_open_transaction_sees_its_own(catalog: TransactionalCatalog, scope: Scope) -> None:
    tx = catalog.begin()
    stage(catalog, tx, "a", add("more"))
    tx.changing().create_namespace(("mine",), {})
    own = Scope(catalog.lake, tx.base, tx)
    mine = whole(own, "tables", "name", "table_version")
    theirs = whole(scope, "tables", "name", "table_version")
    assert [theirs[0][1] + 1, theirs[1][1]] == [mine[0][1], mine[1][1]]
    assert [table.name.table for table in listed(own, [asked("name", "=", "b")], None).tables] == ["b"]


def test_what_a_killed_process_had_open_is_seen_as_dead(catalog: TransactionalCatalog, scope: Scope) -> None:
    dead, alive = catalog.begin(), catalog.begin()
    now = catalog.lake.clock()
    for tx, seen_at in ((dead, now - ALIVE), (alive, now)):
        stage(catalog, tx, "a", add(f"of-{tx.id}"))
        write(catalog.lake, record_of(tx, now=seen_at, process="there:1"))
    found = whole(scope, "transactions", "transaction_id", "state", "is_alive", filters=[asked("is_alive", "not null")])
    assert found == [[dead.id, "INFLIGHT", False], [alive.id, "INFLIGHT", True]]


def test_one_table_is_found_without_the_others(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    filters = [asked("namespace", "=", "default"), asked("name", "in", values=["b", "nosuch"])]
    monkeypatch.setattr("builtins.sorted", lambda found, **more: [*found] if len([*found]) < 3 else pytest.fail("all"))
    assert [row[0] for row in whole(scope, "tables", "name", filters=filters)] == ["b"]


def test_files_are_listed_of_a_bounded_number_of_tables(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(catalog, "c")
    monkeypatch.setattr("lockstep.system.catalog.MOST_TABLES", 2)
    scope = Scope(catalog.lake, catalog.database())
    first = listed(scope, (), None)
    second = listed(scope, (), first.next)
    assert [table.name.table for table in (*first.tables, *second.tables)] == ["a", "b", "c"]
    assert (first.next, second.next) == (2, None)


def test_settings_show_who_says_them_and_no_key_of_a_store() -> None:
    said = Configured(
        "lake",
        {"statement_timeout": "5s"},
        {"root": "/x", "isolation": "SNAPSHOT", "transaction-timeout": "1h", "store.secret_access_key": "secret"},
        {"spark.lockstep.python": "/bin/python"},
        {"JAVA_HOME": "/java"},
    )
    rows = {row[0]: row[1:] for row in whole(_of(said), "settings", "name", "value", "default_value", "source")}
    assert rows["lockstep.statement_timeout"] == ["5s", None, "session"]
    assert rows["lockstep.isolation"] == ["SNAPSHOT", None, "catalog"]
    assert rows["lockstep.transaction_timeout"] == ["1h", None, "catalog"]
    assert rows["lockstep.idle_in_transaction_timeout"] == ["0", None, "default"]
    assert rows["spark.sql.catalog.lake.root"] == ["/x", None, "catalog"]
    assert rows["spark.lockstep.python"] == ["/bin/python", None, "driver"]
    assert rows["JAVA_HOME"] == ["/java", None, "environment"]
    assert rows["spark.sql.catalog.lake.store.secret_access_key"][0] != "secret"
    assert "secret" not in str([value for value, *_ in rows.values()])


def test_settings_show_what_the_lake_says_where_that_counts() -> None:
    reads: list[str] = []

    def lake() -> dict[str, str]:
        reads.append("read")
        return {"retention-age": "365d"}

    scope = _of(Configured("lake", {}, {"retention-age": "7d", "orphan-age": "9d"}, {}, {}, lake))
    of_age = "spark.sql.catalog.lake.retention-age"
    columns = ("name", "value", "default_value", "source", "place")
    rows = {row[0]: row[1:] for row in whole(scope, "settings", *columns)}
    assert len(reads) == 1
    assert rows[of_age] == ["365d", "30d", "lake", "catalog"]
    assert rows["spark.sql.catalog.lake.orphan-age"] == ["9d", "7d", "catalog", "catalog"]
    assert rows["spark.sql.catalog.lake.deletion-grace"] == ["24h", "24h", "default", "catalog"]
    for filters, names in (
        ([asked("source", "=", "lake")], [of_age]),
        ([asked("value", "=", "365d")], [of_age]),
        ([asked("value", "=", "7d"), asked("name", "=", of_age)], []),
        ([asked("source", "=", "lake"), asked("name", "=", "lockstep.isolation")], []),
    ):
        assert whole(scope, "settings", "name", filters=filters) == [[name] for name in names]
    before = len(reads)
    for filter_ in (asked("name", "=", "JAVA_HOME"), asked("place", "=", "session")):
        whole(scope, "settings", "name", filters=[filter_])
    assert len(reads) == before, "none of those that the lake may say is asked for"


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, ["365d", "lake"]),
        ({"retention-age": "30d"}, ["365d", "lake"]),
        ({"retention-age": "8760h"}, ["8760h", "catalog"]),
        ({"retention-age": "366d"}, ["366d", "catalog"]),
    ],
)
def test_a_catalogs_settings_show_the_longer_of_what_it_says_and_the_lake(
    one: Client, settings: dict[str, str], shown: list[str]
) -> None:
    set_floor(one.lake().lake, {"retention-age": "365d"}, author="ada", statement="x")
    one.options |= settings
    request: dict[str, Any] = {"columns": ["value", "source"], "limit": None, "descending": False, "cursor": None}
    request |= {"table": "settings", "at": None, "transaction": None, "driver": {}}
    of_age = {"column": "name", "op": "=", "value": "spark.sql.catalog.lake.retention-age"}
    assert one.ok("system_rows", **request, filters=[of_age])["rows"] == [shown]


def _of(configured: Configured) -> Scope:
    nothing: Any = None
    return Scope(nothing, nothing, configured=configured)


# --- what it costs ----------------------------------------------------------------------------------------------------

LONG = 100_000
TABLES_OF_LONG = ("a", "b", "c")


def of_long(version: int) -> Entry:
    """Version 1 makes three tables, and each one after it writes one of them."""
    if version == 1:
        names = TABLES_OF_LONG
        created = [histories.create(name, f"id-{name}") for name in names]
        return entry(1, tables=created, writes=[histories.write(-1, 0, name, f"id-{name}") for name in names])
    if version == 0:
        return entry(0)
    name, at = TABLES_OF_LONG[version % 3], (version - 2) // 3
    return entry(version, writes=[histories.write(at, at + 1, name, f"id-{name}")])


class LongStorage(MemoryStorage):
    """A lake of 100,000 versions, whose entries are made as they are read."""

    def get(self, path: str) -> bytes | None:
        number = version_in(path.removeprefix(f"{FOLDER}/"))
        return super().get(path) if number is None or number > LONG else encode(of_long(number))


@pytest.fixture(scope="module")
def long_lake() -> tuple[FaultyStorage, Scope]:
    store, base = LongStorage(), LONG - 50
    tables = [
        Table(id=f"id-{name}", name=named(name), location=f"id-{name}", version=(at - 2) // 3 + 1, since=at)
        for at in range(base - 2, base + 1)
        for name in [TABLES_OF_LONG[at % 3]]
    ]
    locations = {write.id: write.location for write in of_long(1).writes}
    database = Database(
        version=base,
        committed_at=of_long(base).committed_at,
        namespaces={("default",): {}},
        tables={each.name: structs.replace(each, location=locations[each.id]) for each in tables},
    )
    file = File(base, encode(of_long(base)), [of_long(base)])
    Checkpoints(store).write(TimelineState(database, Map()), file)
    write_hint(store, Hint(version=LONG, checkpoint=base))
    counted = FaultyStorage(store)
    lake = Lake(counted, Timeline.open(counted), clock=lambda: T0, new_id=lambda: "x")
    return counted, Scope(lake, lake.timeline.head)


@pytest.mark.parametrize(
    ("filters", "more", "rows", "most"),
    [
        ([asked("version", ">", LONG - 100)], {}, 100, 100),
        ([asked("version", ">", 5_000), asked("version", "<=", 5_020)], {}, 20, 20),
        ([asked("committed_at", ">=", micros(of_long(70_000).committed_at))], {"limit": 10}, 10, 10 + 17),
        ([], {"limit": 10, "descending": True}, 10, 10),
        ([asked("version", "=", 77)], {}, 1, 1),
    ],
)
def test_a_few_versions_of_a_hundred_thousand_cost_a_few_requests(
    long_lake: tuple[FaultyStorage, Scope], filters: list[Filter], more: dict[str, Any], rows: int, most: int
) -> None:
    """Beside them is one look at which segments there are, the first time."""
    store, scope = long_lake
    found: list[list[Any]] = []
    assert (
        requests(store, lambda: found.extend(whole(scope, "history", "version", filters=filters, **more))) <= most + 1
    )
    assert len(found) == rows


ENDED = 300
"""So many transactions of the long lake were rolled back."""


def rolled_back(id_: str, at: datetime, reason: str) -> EndedRecord:
    return EndedRecord(
        format=1, transaction=id_, reason=reason, began_at=at, ended_at=at, base_version=0, isolation="SNAPSHOT"
    )


@pytest.fixture(scope="module")
def lost_lake(long_lake: tuple[FaultyStorage, Scope]) -> tuple[FaultyStorage, Scope]:
    """The same lake, of which records are kept of transactions that were rolled back, and of one that is open."""
    store, scope = long_lake
    for number in range(ENDED):
        at = T0 + timedelta(seconds=number)
        keep(scope.lake, rolled_back(f"lost-{number}", at, "why"))
    # Of one that a person ended its process tells, too, and later.
    keep(scope.lake, rolled_back("lost-7", T0 + timedelta(seconds=7, milliseconds=1), "told of it"))
    open_one = OpenRecord(
        format=1,
        transaction="open-1",
        state=State.INFLIGHT,
        base_version=LONG - 50,
        began_at=T0,
        seen_at=T0,
        isolation="SNAPSHOT",
        process="there:1",
    )
    write(scope.lake, open_one)
    return store, scope


NEWEST = [f"lost-{number}" for number in range(ENDED - 1, -1, -1)]


TRANSACTIONS: dict[str, tuple[list[Filter], dict[str, Any], list[str], int]] = {
    "what is in flight": ([asked("state", "=", "INFLIGHT")], {}, ["open-1"], 6),
    "what is open": ([asked("state", "in", values=["REQUESTED", "INFLIGHT"])], {}, ["open-1"], 6),
    "what is alive": ([asked("is_alive", "=", True)], {}, ["open-1"], 6),
    "what is committed": ([asked("state", "=", "COMPLETED")], {"limit": 3}, ["txn-1", "txn-2", "txn-3"], 10),
    "newer ones": ([asked("database_version", ">", LONG - 2)], {}, [f"txn-{LONG - 1}", f"txn-{LONG}"], 10),
    "a few that were rolled back": ([asked("state", "=", "ROLLED_BACK")], {"limit": 3}, NEWEST[:3], 5),
    "one that was rolled back": ([asked("transaction_id", "=", "lost-7")], {}, ["lost-7"], 8),
    "one that is open": ([asked("transaction_id", "=", "open-1")], {}, ["open-1"], 8),
    "one that is committed": ([asked("transaction_id", "=", f"txn-{LONG - 9}")], {}, [f"txn-{LONG - 9}"], 30),
    "the first that tells of it counts": ([asked("reason", "=", "told of it")], {}, [], ENDED + 10),
    "what cannot be": ([asked("state", "=", "ROLLED_BACK"), asked("reason", "null")], {}, [], 2),
    "the newest": ([], {"limit": 2, "descending": True}, [f"txn-{LONG}", f"txn-{LONG - 1}", *NEWEST[:2], "open-1"], 16),
}
"""What is asked of the lost lake: conditions, how many, whose rows these are, and how many requests that may take."""


@pytest.mark.parametrize("case", TRANSACTIONS)
def test_transactions_cost_what_is_asked_for(lost_lake: tuple[FaultyStorage, Scope], case: str) -> None:
    (store, scope), (filters, more, ids, most) = lost_lake, TRANSACTIONS[case]
    found: list[list[Any]] = []

    def ask() -> None:
        found.extend(whole(scope, "transactions", "transaction_id", filters=filters, **more))

    assert requests(store, ask) <= most
    assert [id_ for [id_] in found] == ids


@pytest.mark.parametrize(("version", "most"), [(LONG, 4), (LONG - 20, 45)])
def test_a_version_is_found_by_its_transaction_from_the_newest_on(
    long_lake: tuple[FaultyStorage, Scope], version: int, most: int
) -> None:
    store, scope = long_lake
    filters = [asked("transaction_id", "=", f"txn-{version}")]
    found: list[list[Any]] = []
    asks = requests(store, lambda: found.extend(whole(scope, "history", "version", filters=filters)))
    assert (found, asks <= most) == ([[version]], True)
    both = [asked("transaction_id", "in", values=[f"txn-{version}", f"txn-{version - 1}", "nobody"])]
    window = [asked("version", ">", version - 5)]
    assert whole(scope, "history", "version", filters=both + window) == [[version], [version - 1]]
    other = [asked("author", "=", "nobody")]
    assert whole(scope, "history", "version", filters=filters + other) == []


@pytest.mark.parametrize("looked_at", [1, 2, query.MOST_LOOKED_AT])
@pytest.mark.parametrize("table", ["history", "transactions"])
def test_the_first_of_some_transactions_by_their_ids_is_the_first(
    long_lake: tuple[FaultyStorage, Scope], monkeypatch: pytest.MonkeyPatch, table: str, looked_at: int
) -> None:
    """As Spark asks for them with ORDER BY version LIMIT."""
    monkeypatch.setattr(history, "MOST_LOOKED_AT", looked_at)
    _, scope = long_lake
    number = "version" if table == "history" else "database_version"
    ids = [f"txn-{version}" for version in (LONG - 1, LONG - 4, LONG - 7)]
    filters = [asked("transaction_id", "in", values=ids), asked(number, ">", LONG - 10)]

    def ask(**more: Any) -> list[int]:
        return [version for [version] in whole(scope, table, number, filters=filters, **more)]

    assert [ask(limit=limit) for limit in (0, 1, 2)] == [[], [LONG - 7], [LONG - 7, LONG - 4]]
    assert [sorted(ask(limit=limit)) for limit in (3, 4, None)] == [[LONG - 7, LONG - 4, LONG - 1]] * 3
    assert [ask(limit=limit, descending=True) for limit in (1, 2)] == [[LONG - 1], [LONG - 1, LONG - 4]]


def test_a_namespace_is_listed_without_the_others(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.run(lambda tx: tx.changing().create_namespace(("space",), {}))
    create(catalog, "space.c", "space.d", "space.e")
    scope, filters = Scope(catalog.lake, catalog.database()), [asked("namespace", "=", "default")]
    monkeypatch.setattr("builtins.sorted", lambda found, **_: [*found] if len([*found]) < 3 else pytest.fail("all"))
    assert {row[0] for row in whole(scope, "tables", "name", filters=filters)} == {"a", "b"}
    assert {table.name.table for table in listed(scope, filters, None).tables} == {"a", "b"}
    assert whole(scope, "tables", "name", filters=[asked("namespace", "=", "nowhere")]) == []


@pytest.mark.parametrize(
    ("op", "holds"),
    [("=", operator.eq), ("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge)],
)
def test_versions_are_found_by_their_time_though_a_part_of_the_history_is_lost(
    monkeypatch: pytest.MonkeyPatch, op: str, holds: Callable[[int, int], bool]
) -> None:
    """What is older than the lost part is there."""
    for module in ("segment", "past", "known", "log"):
        monkeypatch.setattr(f"lockstep.timeline.{module}.SEGMENT_VERSIONS", 10)
    entries = long_history(45)
    store = stored(entries)
    timeline = Timeline.open(store)
    timeline.mark_published(timeline.head.version)
    timeline.write_segments(39, at_most=4)
    expire(timeline, first_kept=40, wait=lambda: None)
    store.inner.delete(list_segments(store)[2].path)
    lake = Lake(store, Timeline.open(store), clock=lambda: T0, new_id=lambda: "x")
    scope = Scope(lake, lake.timeline.head)
    there = [version for [version] in whole(scope, "history", "version")]
    assert there == [*range(20), *range(30, 47)]
    for version, each in enumerate(entries):
        filters = [asked("committed_at", op, micros(each.committed_at))]
        found = [number for [number] in whole(scope, "history", "version", filters=filters)]
        assert found == [number for number in there if holds(number, version)], version
