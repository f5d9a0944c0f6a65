"""TPC-H's tests of consistency (clause 3.3) and isolation (clause 3.4.2), with its ACID transaction in two sessions.

The specification's second transaction waits for the first. Here nobody waits: the `COMMIT` of the second is refused
(40001), and it runs again. Clause 3.3.3 wants 100 transactions from each stream; here it is two.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from string import Template
from typing import Any

import pytest

import lockstep
from lockstep.scripts.splitting import Statement, split
from tests.support.runner import Failure, Result
from tests.support.sessions import CATALOG, SparkConnection, new_session

# Slow: nine tables are loaded, and each ACID transaction is eight statements.
pytestmark = [pytest.mark.long, pytest.mark.slow]

DEMO = Path(__file__).parents[2] / "sql" / "demo"
PRICING_SUMMARY = """
SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice), count(*) FROM lake.tpch.lineitem
WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAYS GROUP BY ALL ORDER BY ALL
"""
"""The columns of TPC-H's query 1 that the ACID transaction changes, and the count."""


def script(name: str) -> list[Statement]:
    return split((DEMO / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def lake(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with TPC-H's tables at scale factor 0.001: 1,500 orders."""
    folder = tmp_path_factory.mktemp("tpch")
    program = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or shutil.which("tpchgen-cli")
    assert program is not None, "tpchgen-cli is missing: pip install 'lockstep-delta[demo]'"
    generated = folder / "generated"
    subprocess.run(
        [program, "parquet", "--scale-factor", "0.001", "--output-dir", str(generated), "--quiet"], check=True
    )
    session = new_session(spark_session, folder / CATALOG)
    session.conf.set("tpch.data", str(generated))
    for statement in script("load.sql"):
        session.sql(statement.text)
    return folder / CATALOG


@dataclass(frozen=True, slots=True)
class Line:
    """What the ACID transaction changes of line 1 of an order, and of the order; and what it leaves in HISTORY."""

    quantity: Decimal
    price: Decimal
    total: Decimal
    deltas: tuple[int, ...]

    def raised(self, delta: int) -> tuple[Decimal, Decimal]:
        """Return quantity and price as clause 3.1.5 has them after the transaction."""
        cent = Decimal("0.01")
        cost = (self.price / self.quantity).quantize(cent, ROUND_FLOOR) * delta
        return self.quantity + delta, self.price + cost.quantize(cent, ROUND_FLOOR)


class Stream:
    """A session that runs TPC-H's ACID transaction (clause 3.1.5) and ACID query (clause 3.1.6)."""

    def __init__(self, spark: Any, lake: Path) -> None:
        self.session = new_session(spark, lake)

    def one(self, sql: str) -> Any:
        [row] = self.session.sql(sql).collect()
        return row

    def start(self, order: int, delta: int) -> None:
        """Run the ACID transaction, but for its COMMIT."""
        self._run(self._parameters(order, delta) + [each.text for each in script("acid.sql")[:-1]])

    def commit_each(self, orders: tuple[int, ...], delta: int) -> None:
        """Run whole ACID transactions one after the other, each again where another was first."""
        body = [each.text for each in script("acid.sql") if not each.text.startswith(("BEGIN", "COMMIT"))]

        for order in orders:
            statements = self._parameters(order, delta) + body
            lockstep.run(self.session, self._transaction(statements), attempts=20)

    def end(self, how: str) -> Result | Failure:
        return SparkConnection(self.session).run(how)

    def acid_query(self, order: int) -> Decimal:
        charge = "floor(floor(l_extendedprice * (1 - l_discount), 2) * (1 + l_tax), 2)"
        return self.one(f"SELECT sum({charge}) FROM lake.tpch.lineitem WHERE l_orderkey = {order}")[0]

    def line(self, order: int) -> Line:
        where = f"l_orderkey = {order} AND l_linenumber = 1 AND o_orderkey = l_orderkey"
        values = "l_quantity, l_extendedprice, o_totalprice"
        history = f"SELECT sort_array(collect_list(h_delta)) FROM lake.tpch.history WHERE h_o_key = {order}"
        row = self.one(f"SELECT {values}, ({history}) FROM lake.tpch.lineitem, lake.tpch.orders WHERE {where}")
        quantity, price, total, deltas = row
        return Line(quantity, price, total, tuple(deltas))

    def pricing_summary(self) -> list[Any]:
        return list(self.session.sql(PRICING_SUMMARY).collect())

    def _transaction(self, statements: list[str]) -> Callable[[Any], None]:
        return lambda tx: self._run(statements)

    def _run(self, statements: list[str]) -> None:
        for statement in statements:
            self.session.sql(statement)

    def _parameters(self, order: int, delta: int) -> list[str]:
        values = {"o_key": f"BIGINT DEFAULT {order}", "l_key": "INT DEFAULT 1", "delta": f"INT DEFAULT {delta}"}
        return [f"DECLARE OR REPLACE VARIABLE {name} {value}" for name, value in values.items()]


@pytest.fixture
def one(spark_session: Any, lake: Path) -> Stream:
    return Stream(spark_session, lake)


@pytest.fixture
def two(spark_session: Any, lake: Path) -> Stream:
    return Stream(spark_session, lake)


# Each test has an order of its own, so that they may run in any order. TPC-H's keys are 1-7, 32-39, 64-71, …


@pytest.mark.parametrize(
    ("order", "how", "deltas"), [pytest.param(1, "COMMIT", (7,), id="1"), pytest.param(2, "ROLLBACK", (), id="2")]
)
def test_a_query_sees_nothing_of_an_update_that_is_open(
    one: Stream, two: Stream, order: int, how: str, deltas: tuple[int, ...]
) -> None:
    """Isolation tests 1 and 2: the query need not wait for the end, nor does its transaction see it afterwards."""
    before, total = one.line(order), one.acid_query(order)
    one.start(order, 7)
    two.session.sql("BEGIN READ ONLY")
    assert (two.acid_query(order), two.line(order)) == (total, before)
    assert isinstance(one.end(how), Result)
    assert (two.acid_query(order), two.line(order)) == (total, before)
    two.session.sql("COMMIT")
    after = two.line(order)
    assert after.deltas == deltas
    assert (after.quantity, after.price) == (before.raised(7) if deltas else (before.quantity, before.price))
    assert two.acid_query(order) == after.total


def test_3_an_update_beside_one_that_commits_runs_again(one: Stream, two: Stream) -> None:
    """Isolation test 3: `T2.L_EXTENDEDPRICE = T1.L_EXTENDEDPRICE + DELTA1 * (T1.L_EXTENDEDPRICE / T1.L_QUANTITY)`."""
    before = one.line(3)
    one.start(3, 5)
    two.start(3, 9)
    assert isinstance(one.end("COMMIT"), Result)
    refused = two.end("COMMIT")
    assert isinstance(refused, Failure)
    assert refused.sqlstate == "40001"
    between = two.line(3)
    assert ((between.quantity, between.price), between.deltas) == (before.raised(5), (5,))
    two.start(3, 9)
    assert isinstance(two.end("COMMIT"), Result)
    after = one.line(3)
    assert ((after.quantity, after.price), after.deltas) == (between.raised(9), (5, 9))
    assert one.acid_query(3) == after.total


def test_4_an_update_beside_one_that_rolls_back_commits(one: Stream, two: Stream) -> None:
    """Isolation test 4: `T2.L_EXTENDEDPRICE = T1.L_EXTENDEDPRICE`."""
    before = one.line(4)
    one.start(4, 5)
    two.start(4, 9)
    assert isinstance(one.end("ROLLBACK"), Result)
    assert isinstance(two.end("COMMIT"), Result)
    after = one.line(4)
    assert ((after.quantity, after.price), after.deltas) == (before.raised(9), (9,))
    assert one.acid_query(4) == after.total


def test_5_a_reader_of_another_table_is_done_while_an_update_is_open(one: Stream, two: Stream) -> None:
    """Isolation test 5: it reads PARTSUPP, and both make progress."""
    before = one.line(5)
    one.start(5, 3)
    two.session.sql("BEGIN")
    [part] = two.one("SELECT min(ps_partkey) FROM lake.tpch.partsupp")
    assert two.one(f"SELECT count(*) FROM lake.tpch.partsupp WHERE ps_partkey = {part}") == (4,)
    assert isinstance(two.end("COMMIT"), Result)
    assert isinstance(one.end("COMMIT"), Result)
    after = two.line(5)
    assert ((after.quantity, after.price), after.deltas) == (before.raised(3), (3,))


def test_6_an_update_is_done_while_queries_go_on(one: Stream, two: Stream) -> None:
    """Isolation test 6: queries before and after an update in one transaction agree, and do not delay it."""
    one.session.sql("BEGIN READ ONLY")
    before = one.pricing_summary()
    two.start(6, 1)
    assert isinstance(two.end("COMMIT"), Result)
    assert one.pricing_summary() == before
    one.session.sql("COMMIT")
    assert one.pricing_summary() != before


@pytest.mark.deep
def test_orders_cost_what_their_lines_add_up_to_whatever_runs_beside(one: Stream, two: Stream, lake: Path) -> None:
    """The consistency test, of all orders and not of a sample of ten; the streams change the same two orders."""
    before = [one.line(order) for order in (32, 33)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        mine = pool.submit(one.commit_each, (32, 33), 2)
        theirs = pool.submit(two.commit_each, (33, 32), 4)
        mine.result()
        theirs.result()
    after = [one.line(order) for order in (32, 33)]
    assert [line.quantity for line in after] == [line.quantity + 2 + 4 for line in before]
    assert [line.deltas for line in after] == [(2, 4), (2, 4)]
    version = lockstep.TransactionalCatalog.open(str(lake)).timeline.head.version
    query = Template((DEMO / "consistent.sql").read_text(encoding="utf-8"))
    for each in (1, version):
        (statement,) = split(query.substitute(version=each))
        assert one.one(statement.text)["wrong"] == 0, f"database version {each}"
