"""Tables in a registered location, at another server with other keys, in one transaction with tables below the root.

The server is one of this process, with a bucket that no other test has, and takes only what is signed with its own key:
nothing of s3a is set for it but what Lockstep tells. `make test-s3`, whose Spark has s3a.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException

from lockstep.errors import LockstepError
from lockstep.spark.raised import from_spark
from lockstep.tables.by_deltalake import options_of
from tests.support.placed import root_in
from tests.support.s3 import Guarded, moto, serving
from tests.support.sessions import ROOTS

pytestmark = pytest.mark.skipif(not ROOTS.startswith("s3"), reason="`make test-s3`")

_numbers = itertools.count()
SECRET = "planted/SECRET"


class Warehouse:
    """A folder in a bucket of a server of its own, and the sessions of a driver that register it."""

    def __init__(self, spark: Any, bucket: str, endpoint: str, root: str) -> None:
        self.spark, self.root = spark, root
        self.url = f"s3://{bucket}/warehouse"
        keys = {"access_key_id": f"key-of-{bucket}", "secret_access_key": SECRET, "region": "us-east-1"}
        self.options = {**keys, "endpoint": endpoint}
        self.conf = spark._jsc.hadoopConfiguration()
        self.prefix = f"fs.s3a.bucket.{bucket}."
        self._of_driver = spark._jsparkSession.sparkContext().conf()
        self._said: list[str] = []

    def session(self, name: str, *, is_of_driver: bool = True, only: bool = True, **options: str) -> Any:
        """Return a session with a catalog of a lake.

        Args:
            options: instead of those that are right; none at all, if one is empty.
        """
        said = {"root": self.root, "create": "true", "locations-only": str(only).lower()}
        if "" not in options.values():
            store = {f"locations.there.store.{key}": value for key, value in {**self.options, **options}.items()}
            said |= {"locations.there.url": self.url, **store}
        settings = {f"spark.sql.catalog.{name}": "lockstep.spark.LockstepCatalog"}
        settings |= {f"spark.sql.catalog.{name}.{key}": value for key, value in said.items()}
        session = self.spark.newSession()
        for key, value in settings.items():
            if is_of_driver:
                self._of_driver.set(key, value)
                self._said.append(key)
            else:
                session.conf.set(key, value)
        return session if not is_of_driver else self.spark.newSession()

    def write(self, name: str, *ids: int) -> None:
        rows = pa.table({"id": pa.array(ids, pa.int64())})
        write_deltalake(f"{self.url}/{name}", rows, storage_options=options_of(self.url, self.options))

    def ids(self, name: str) -> list[int]:
        """Return what delta-rs reads there."""
        table = DeltaTable(f"{self.url}/{name}", storage_options=options_of(self.url, self.options))
        return sorted(table.to_pyarrow_table()["id"].to_pylist())

    def forget(self) -> None:
        for key in self._said:
            self._of_driver.remove(key)
        for name in self.conf.getPropsWithPrefix(self.prefix):
            self.conf.unset(f"{self.prefix}{name}")


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where the lake is: on a local disk, unless a test says otherwise."""
    kind = getattr(request, "param", "a disk")
    return str(tmp_path / "lake") if kind == "a disk" else root_in(tmp_path)


@pytest.fixture
def warehouse(spark_session: Any, root: str) -> Iterator[Warehouse]:
    bucket = f"there{next(_numbers)}"
    with ExitStack() as stack:
        app = Guarded(moto(), bucket, f"key-of-{bucket}")
        endpoint = stack.enter_context(serving(app, bucket=bucket))
        found = Warehouse(spark_session, bucket, endpoint, root)
        stack.callback(found.forget)
        yield found


@pytest.fixture
def name() -> str:
    """Return a catalog's name that no other test has."""
    return f"located{next(_numbers)}"


def ids(session: Any, query: str) -> list[int]:
    return sorted(row[0] for row in session.sql(query).collect())


def refusal(act: Callable[[], Any]) -> LockstepError:
    with pytest.raises(PySparkException) as caught:
        act()
    error = from_spark(caught.value)
    assert error is not None, caught.value
    assert SECRET not in error.message
    return error


@pytest.mark.parametrize("root", ["a disk", "the tests' own bucket"], indirect=True)
def test_a_table_there_and_one_below_the_root_change_in_one_transaction(warehouse: Warehouse, name: str) -> None:
    warehouse.write("orders", 1, 2)
    spark = warehouse.session(name)
    orders, home, made = (f"{name}.default.{table}" for table in ("orders", "home", "made"))
    spark.sql(f"CALL {name}.system.adopt(table => 'default.orders', location => '{warehouse.url}/orders')").collect()
    spark.sql(f"CREATE TABLE {home} AS SELECT 10L AS id")
    spark.sql(f"USE {name}")
    spark.sql("BEGIN")
    spark.sql(f"INSERT INTO {orders} VALUES (3)")
    spark.sql(f"UPDATE {orders} SET id = 20 WHERE id = 2")
    spark.sql(f"INSERT INTO {home} SELECT id FROM {orders}")
    spark.sql(f"CREATE TABLE {made} USING delta LOCATION '{warehouse.url}/made' AS SELECT id FROM {home}")
    assert ids(spark, f"SELECT id FROM {orders}") == [1, 3, 20]
    assert warehouse.ids("orders") == [1, 2]
    [version] = {row.database_version for row in spark.sql("COMMIT").collect()}

    assert (ids(spark, f"SELECT id FROM {orders}"), ids(spark, f"SELECT id FROM {home}")) == (
        [1, 3, 20],
        [1, 3, 10, 20],
    )
    assert warehouse.ids("orders") == [1, 3, 20], "an ordinary Delta table"
    assert warehouse.ids("made") == [1, 3, 10, 20]
    assert ids(spark, f"SELECT id FROM {orders} FOR SYSTEM_VERSION AS OF {version - 1}") == [1, 2]

    spark.sql("BEGIN")
    spark.sql(f"DELETE FROM {orders}")
    spark.sql(f"INSERT INTO {home} VALUES (5)")
    spark.sql("ROLLBACK")
    assert ids(spark, f"SELECT id FROM {orders}") == [1, 3, 20]
    spark.sql(f"VACUUM {orders}").collect()
    spark.sql(f"CALL {name}.system.maintain()").collect()
    shown = {row["name"]: row["value"] for row in spark.sql(f"SELECT * FROM {name}.system.settings").collect()}
    assert shown[f"spark.sql.catalog.{name}.locations.there.url"] == warehouse.url
    assert SECRET not in str(shown)
    spark.sql(f"CALL {name}.system.release(table => 'default.orders')").collect()
    assert warehouse.ids("orders") == [1, 3, 20]


def test_what_is_set_of_all_buckets_by_hand_is_not_about_a_location(warehouse: Warehouse, name: str) -> None:
    """Spark would write files to that server, and the log would go to the location's."""
    warehouse.write("orders", 1)
    was = warehouse.conf.get("fs.s3a.endpoint")
    warehouse.conf.set("fs.s3a.endpoint", "http://127.0.0.1:1")
    try:
        spark = warehouse.session(name)
        where = f"CALL {name}.system.adopt(table => 'default.orders', location => '{warehouse.url}/orders')"
        spark.sql(where).collect()
        spark.sql(f"INSERT INTO {name}.default.orders VALUES (2)")
        assert warehouse.ids("orders") == [1, 2]
    finally:
        warehouse.conf.unset("fs.s3a.endpoint") if was is None else warehouse.conf.set("fs.s3a.endpoint", was)


def test_who_registers_nothing_there_uses_nothing_there(warehouse: Warehouse, name: str) -> None:
    """An entry of the timeline may name any place."""
    warehouse.write("orders", 1)
    spark = warehouse.session(name)
    where = f"CALL {name}.system.adopt(table => 'default.orders', location => '{warehouse.url}/orders')"
    spark.sql(where).collect()
    other = f"{name}_only"
    session = warehouse.session(other, endpoint="")
    orders = f"{other}.default.orders"
    for statement in (
        f"SELECT * FROM {orders}",
        f"SELECT * FROM {orders} FOR SYSTEM_VERSION AS OF 1",
        f"INSERT INTO {orders} VALUES (2)",
        f"CREATE TABLE {other}.default.t USING delta LOCATION '{warehouse.url}/t' AS SELECT 1 AS id",
    ):
        error = refusal(lambda statement=statement: session.sql(statement).collect())  # type: ignore[misc]
        assert error.sqlstate == "42501", statement
        assert "lies neither below the lake's root" in error.message
    session.sql(f"DROP TABLE {orders}").collect()
    assert warehouse.ids("orders") == [1], "it is let go without a look"


def test_a_location_that_a_session_alone_says_is_refused(warehouse: Warehouse, name: str) -> None:
    """All sessions have the same file systems, and nothing is looked at in a location that would show a difference."""
    session = warehouse.session(name, is_of_driver=False)
    error = refusal(lambda: session.sql(f"SHOW TABLES IN {name}.default").collect())
    assert error.sqlstate == "F0000"
    assert f"Spark may reach s3a://{warehouse.url.removeprefix('s3://')}" in error.message
    assert "was set by this session" in error.message
    assert not warehouse.conf.getPropsWithPrefix(warehouse.prefix)


def test_a_second_catalog_that_says_other_keys_of_the_bucket_is_refused(warehouse: Warehouse, name: str) -> None:
    warehouse.session(name).sql(f"SHOW TABLES IN {name}.default").collect()
    second = f"{name}_too"
    session = warehouse.session(second, access_key_id="another-key")
    error = refusal(lambda: session.sql(f"SHOW TABLES IN {second}.default").collect())
    assert error.sqlstate == "F0000"
    assert f"catalog {second} says other options of" in error.message
    assert f"{warehouse.prefix}access.key" in error.message
    assert "another-key" not in error.message
