"""Keys of a store that are right, wrong or of a session, on both sides: a server that looks at signatures says which.

`make test-s3 S3_SERVER=versitygw`: Lockstep's requests and Spark's are both signed, and refused if they are not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import lockstep
from lockstep.errors import LockstepError, StoreRefusedError
from lockstep.spark.raised import from_spark
from lockstep.storage import open_storage
from lockstep.storage.options import hadoop_settings, place_of
from tests.support import on_s3, servers
from tests.support.sessions import CATALOG, DIRECT, ROOTS

pytestmark = pytest.mark.skipif(not on_s3.ASKS_FOR_KEYS, reason="`make test-s3 S3_SERVER=versitygw`")

STATEMENTS = (
    "CREATE TABLE lake.default.t (id INT)",
    "SHOW TABLES IN lake",
    "SHOW NAMESPACES IN lake",
    "SELECT * FROM lake.system.history",
)
WRONG = {**servers.OWN_KEYS, "secret_access_key": "planted"}


def opened(spark: Any, root: Path | str, keys: dict[str, str], *, lockstep_too: bool = True) -> Any:
    """Return a session on a lake that gives Spark's side these keys of the tests' bucket, and Lockstep's, if asked."""
    session, options = spark.newSession(), {**keys, "endpoint": DIRECT}
    session.conf.set(f"spark.sql.catalog.{CATALOG}.root", str(root))
    for name, value in options.items() if lockstep_too else ():
        session.conf.set(f"spark.sql.catalog.{CATALOG}.store.{name}", value)
    for name, value in hadoop_settings(place_of(ROOTS), options, {}).items():
        session.conf.set(name, value)
    session.conf.set("fs.s3a.impl.disable.cache", "true")  # which knows the keys of its first use
    return session


def refused(session: Any, statement: str) -> LockstepError:
    with pytest.raises(PySparkException) as caught:
        session.sql(statement).collect()
    error = from_spark(caught.value)
    assert error is not None, caught.value
    return error


def test_wrong_keys_of_both_sides_are_told_as_a_refusal(spark_session: Any, root: Path | str) -> None:
    """By each statement, at once, and nothing is run again; the key itself is in no message."""
    session = opened(spark_session, root, WRONG)
    for statement in STATEMENTS:
        error = refused(session, statement)
        assert (type(error), error.sqlstate) == (StoreRefusedError, "42501"), error
        assert "SignatureDoesNotMatch" in error.message
        assert "would be refused again" in error.message
        assert "planted" not in error.message
    begun: list[int] = []

    def work(_: Any) -> None:
        begun.append(1)
        session.sql(STATEMENTS[0])

    with pytest.raises(StoreRefusedError):
        lockstep.run(session, work)
    assert len(begun) <= 1, "it is not run again"
    assert not [*open_storage(str(root)).walk("")]


def test_wrong_keys_of_sparks_side_alone_are_told(spark_session: Any, root: Path | str) -> None:
    session = opened(spark_session, root, WRONG, lockstep_too=False)
    for statement in STATEMENTS:
        error = refused(session, statement)
        assert (type(error).__name__, error.sqlstate) == ("ConfigurationError", "42501"), error
        assert "Spark may not read" in error.message
        assert "planted" not in error.message


@pytest.mark.parametrize("lockstep_too", [True, False])
def test_a_token_that_the_server_does_not_take_is_told(
    spark_session: Any, root: Path | str, lockstep_too: bool
) -> None:
    """The server takes none (400, as S3 says of one that has expired), so both sides sent theirs, and understand."""
    keys = {**servers.OWN_KEYS, "session_token": "planted"}
    error = refused(opened(spark_session, root, keys, lockstep_too=lockstep_too), STATEMENTS[0])
    name = "StoreRefusedError" if lockstep_too else "ConfigurationError"
    assert (type(error).__name__, error.sqlstate, "planted" in error.message) == (name, "42501", False), error


def test_a_bucket_that_is_not_there_is_told(spark_session: Any) -> None:
    session = opened(spark_session, f"{ROOTS}-mistyped/lake", servers.OWN_KEYS)
    error = refused(session, STATEMENTS[0])
    assert (type(error), error.sqlstate, "NoSuchBucket" in error.message) == (StoreRefusedError, "22023", True), error
