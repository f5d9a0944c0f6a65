"""Spark on Azure's protocol of blobs, by `abfs`: what this store has otherwise than S3. `make test-azure`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from lockstep.storage import open_storage
from tests.support import on_azure, servers

pytestmark = pytest.mark.skipif(not on_azure.IS_WANTED, reason="`make test-azure`")

OTHER_ACCOUNT = "toldaccount"
"""An account of which Hadoop is told nothing, until a catalog is used."""


@dataclass(frozen=True, slots=True)
class Told:
    """A catalog that the driver says, and nothing else of its store."""

    session: Any
    conf: Any
    name: str


@pytest.fixture
def told(spark_session: Any) -> Iterator[Told]:
    with servers.azurite(OTHER_ACCOUNT) as server:
        name = "told"
        settings = {"root": server.url("lake"), "create": "true"}
        settings |= {f"store.{key}": value for key, value in server.options.items()}
        of_driver = spark_session._jsparkSession.sparkContext().conf()
        said = {f"spark.sql.catalog.{name}": "lockstep.spark.LockstepCatalog"}
        said |= {f"spark.sql.catalog.{name}.{key}": value for key, value in settings.items()}
        for key, value in said.items():
            of_driver.set(key, value)
        yield Told(spark_session.newSession(), spark_session._jsc.hadoopConfiguration(), name)
        for key in said:
            of_driver.remove(key)


def test_what_a_catalog_says_is_enough_for_azure(told: Told, spark_session: Any) -> None:
    """The environment has another server's address."""
    host = f"{OTHER_ACCOUNT}.dfs.core.windows.net"
    assert told.conf.get(f"fs.azure.abfs.endpoint.{host}") is None
    told.session.sql(f"CREATE TABLE {told.name}.default.t AS SELECT 1 AS id")
    told.session.sql(f"USE {told.name}")
    told.session.sql("BEGIN")
    told.session.sql("INSERT INTO default.t VALUES (2)")
    told.session.sql("CREATE TABLE default.u AS SELECT id + 1 AS id FROM default.t")
    told.session.sql("COMMIT")
    other = spark_session.newSession()
    assert sorted(row.id for row in other.sql(f"SELECT id FROM {told.name}.default.u").collect()) == [2, 3]
    assert told.conf.get(f"fs.azure.fns.account.service.type.{host}") == "BLOB"


def test_of_plain_writers_that_rename_to_one_name_in_azure_one_does(spark_session: Any, root: str) -> None:
    """As Delta's own log store for Azure commits, beside Lockstep's writes on the condition that nothing is there."""
    jvm, storage = spark_session._jvm, open_storage(root)
    base = jvm.org.apache.hadoop.fs.Path(f"{root}/renamed")
    files = base.getFileSystem(spark_session._jsc.hadoopConfiguration())

    def write(number: int) -> Any:
        path = jvm.org.apache.hadoop.fs.Path(base, f"tmp-{number}")
        stream = files.create(path, False)
        stream.write(f"{number}".encode())
        stream.close()
        return path

    for turn in range(8):
        name = f"{turn:020}.json"
        sources = [write(4 * turn + number) for number in range(3)]
        to = jvm.org.apache.hadoop.fs.Path(base, name)
        with ThreadPoolExecutor(4) as pool:
            renames = [pool.submit(renamed, files, source, to) for source in sources]
            ours = pool.submit(storage.try_put, f"renamed/{name}", b"ours")
            done = [each.result() for each in renames]
        assert [*done, ours.result()].count(True) == 1
        winner = "ours" if ours.result() else str(4 * turn + done.index(True))
        assert storage.get(f"renamed/{name}") == winner.encode()


def renamed(files: Any, source: Any, to: Any) -> bool:
    """Rename as Delta's log store does, which takes either answer of a file that is there for the same."""
    try:
        return bool(files.rename(source, to))
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() != "org.apache.hadoop.fs.FileAlreadyExistsException":
            raise
        return False


def test_folders_that_abfs_marks_are_no_files_of_a_table(spark: Any, root: str) -> None:
    """It makes an empty object for each folder that it makes."""
    spark.sql("CREATE TABLE t AS SELECT 1 AS id")
    names = {each.path for each in open_storage(root).walk("")}
    marks = {name for name in names if any(other.startswith(f"{name}/") for other in names)}
    assert marks, "there are some"
