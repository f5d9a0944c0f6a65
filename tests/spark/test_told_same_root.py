"""A catalog's options alone say where its store is: Spark's side is told by Lockstep, before it looks at the root.

On servers of this process, whose buckets no other test has. `make test-s3`, whose sample has these, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lockstep.errors import LockstepError
from lockstep.spark.raised import from_spark
from tests.support.s3 import KEYS, moto, serving
from tests.support.sessions import ROOTS

pytestmark = pytest.mark.skipif(not ROOTS.startswith("s3"), reason="`make test-s3`")

_numbers = itertools.count()
CLASS = "lockstep.spark.LockstepCatalog"


class Catalogs:
    """Catalogs that a driver says, or a session, of a bucket of its own in a server of its own."""

    def __init__(self, spark: Any, bucket: str, endpoint: str) -> None:
        self.spark, self.bucket, self.endpoint = spark, bucket, endpoint
        self.conf = spark._jsc.hadoopConfiguration()
        self._of_driver = spark._jsparkSession.sparkContext().conf()
        self._said: list[str] = []

    def settings(self, name: str, **store: str) -> dict[str, str]:
        told = {"root": f"s3://{self.bucket}/lake", "create": "true"}
        told |= {f"store.{key}": value for key, value in {**KEYS, "endpoint": self.endpoint, **store}.items()}
        return {f"spark.sql.catalog.{name}": CLASS} | {f"spark.sql.catalog.{name}.{k}": v for k, v in told.items()}

    def session(self, name: str, *, is_of_driver: bool = True, **store: str) -> Any:
        """Return a session with a catalog."""
        settings = self.settings(name, **store)
        if is_of_driver:
            for key, value in settings.items():
                self._of_driver.set(key, value)
            self._said += settings
        session = self.spark.newSession()
        for key, value in settings.items() if not is_of_driver else ():
            session.conf.set(key, value)
        return session

    def told(self) -> set[str]:
        """Return the names of what is set for the bucket, without what they begin with."""
        return {*self.conf.getPropsWithPrefix(f"fs.s3a.bucket.{self.bucket}.")}

    def forget(self) -> None:
        for key in self._said:
            self._of_driver.remove(key)
        for name in self.told():
            self.conf.unset(f"fs.s3a.bucket.{self.bucket}.{name}")


@pytest.fixture
def catalogs(spark_session: Any) -> Iterator[Catalogs]:
    bucket = f"told{next(_numbers)}"
    with ExitStack() as stack:
        endpoint = stack.enter_context(serving(moto(), bucket=bucket))
        found = Catalogs(spark_session, bucket, endpoint)
        stack.callback(found.forget)
        yield found


@pytest.fixture
def name() -> str:
    """Return a catalog's name that no other test has."""
    return f"told{next(_numbers)}"


def use(session: Any, catalog: str) -> list[int]:
    session.sql(f"CREATE TABLE IF NOT EXISTS {catalog}.default.t AS SELECT 1 AS id").collect()
    return [row.id for row in session.sql(f"SELECT id FROM {catalog}.default.t").collect()]


def refusal(act: Callable[[], Any]) -> LockstepError:
    with pytest.raises(PySparkException) as caught:
        act()
    error = from_spark(caught.value)
    assert error is not None, caught.value
    return error


def test_what_a_catalog_says_is_enough(catalogs: Catalogs, name: str) -> None:
    """Nothing of s3a is set for the bucket, and the environment has another server's address. All sessions have it."""
    assert not catalogs.told()
    session = catalogs.session(name)
    assert use(session, name) == [1]
    assert {"endpoint", "access.key", "secret.key", "aws.credentials.provider"} <= catalogs.told()
    session.sql(f"USE {name}")
    session.sql("BEGIN")
    session.sql(f"INSERT INTO {name}.default.t VALUES (2)")
    session.sql("COMMIT")
    other = catalogs.spark.newSession()
    assert sorted(row.id for row in other.sql(f"SELECT id FROM {name}.default.t").collect()) == [1, 2]


def test_a_catalog_of_a_session_alone_is_told_to_nobody(catalogs: Catalogs, name: str) -> None:
    """All sessions have the same file systems; whoever says it in a session says Hadoop's settings there, too."""
    session = catalogs.session(name, is_of_driver=False)
    error = refusal(lambda: use(session, name))
    assert error.sqlstate in ("F0000", "42501", "58030")
    assert "was set by this session, and is not told to Spark" in error.message
    assert not catalogs.told()


def test_what_spark_opened_before_is_refused_by_name(catalogs: Catalogs, name: str) -> None:
    """It goes to the environment's server, and would in executors."""
    session = catalogs.session(name)
    with pytest.raises((PySparkException, Py4JJavaError)):
        session.read.parquet(f"s3a://{catalogs.bucket}/raw").collect()
    error = refusal(lambda: use(session, name))
    assert f"Spark had opened this store before catalog {name} was used for the first time" in error.message
    assert not catalogs.told()


def test_what_somebody_has_set_is_kept_and_named(catalogs: Catalogs, name: str) -> None:
    """The address is another one: the look at the root finds that."""
    catalogs.conf.set(f"fs.s3a.bucket.{catalogs.bucket}.endpoint", "http://127.0.0.1:9")
    catalogs.conf.set(f"fs.s3a.bucket.{catalogs.bucket}.attempts.maximum", "1")
    catalogs.conf.set(f"fs.s3a.bucket.{catalogs.bucket}.retry.limit", "1")
    error = refusal(lambda: use(catalogs.session(name), name))
    assert f"Spark keeps what is set: fs.s3a.bucket.{catalogs.bucket}.endpoint;" in error.message
    assert "path.style.access" not in catalogs.told()


def test_two_catalogs_of_a_bucket_that_say_other_keys_are_refused_by_name(catalogs: Catalogs, name: str) -> None:
    assert use(catalogs.session(name), name) == [1]
    second = f"{name}_too"
    error = refusal(lambda: use(catalogs.session(second, secret_access_key="planted"), second))
    assert error.sqlstate == "F0000"
    assert f"catalog {second} says other options of s3a://{catalogs.bucket}/lake than catalog {name}" in error.message
    assert f"fs.s3a.bucket.{catalogs.bucket}.secret.key" in error.message
    assert "planted" not in error.message
    third = f"{name}_three"
    assert use(catalogs.session(third), third) == [1], "one that says the same"
