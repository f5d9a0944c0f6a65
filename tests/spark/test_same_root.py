"""Spark's side and Lockstep's look at one root, or nothing is read or written.

Hadoop is made to look elsewhere as users do it: of a folder by a mount table (`fs.file.impl`), of a bucket by another
endpoint, that of a second server; of HDFS by a mount table, too. `make test-s3`, `make test-azure` and `make test-hdfs`
run these tests there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.errors import PySparkException

from lockstep.spark.raised import from_spark
from lockstep.storage import open_storage, url_of
from lockstep.timeline.log import Timeline
from tests.support import on_azure, on_hdfs, servers
from tests.support.s3 import KEYS, moto, serving
from tests.support.sessions import ROOTS

Elsewhere = Mapping[str, str]
"""What a session sets to look elsewhere."""

FILE_SYSTEM = {
    "": "LocalFileSystem",
    "abfss": "AzureBlobFileSystem",
    "hdfs": "DistributedFileSystem",
    "s3": "S3AFileSystem",
}[ROOTS.partition("://")[0]]
ENTRY = "_lockstep/timeline/00000000000000000000.json"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def other_root(stack: ExitStack, root: Path | str, tmp_path: Path) -> tuple[str, dict[str, str], Elsewhere]:
    """Return another place by the name of this lake's root: its URL, how Lockstep opens it, and how Spark does."""
    if on_hdfs.IS_WANTED:
        return f"{root}-elsewhere", {}, mounted(urlsplit(str(root)).path, f"{root}-elsewhere", urlsplit(ROOTS).netloc)
    if on_azure.IS_WANTED:
        options = stack.enter_context(servers.azurite()).options
        return str(root), {**options}, asking(options["endpoint"])
    if ROOTS:
        bucket = urlsplit(ROOTS).netloc
        endpoint = stack.enter_context(serving(moto(), bucket=bucket))
        return str(root), {**KEYS, "endpoint": endpoint}, asking(endpoint)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    return str(elsewhere), {}, mounted(str(root), f"file://{elsewhere}")


def asking(endpoint: str) -> dict[str, str]:
    """Return the settings by which Hadoop asks another server for the store that lakes lie in."""
    store = urlsplit(ROOTS)
    if on_azure.IS_WANTED:
        address = urlsplit(endpoint).netloc
        return {f"fs.azure.abfs.endpoint.{store.hostname}": address, "fs.abfss.impl.disable.cache": "true"}
    return {f"fs.s3a.bucket.{store.netloc}.endpoint": endpoint, "fs.s3a.impl.disable.cache": "true"}


def mounted(at: str, folder: str, name_node: str = "") -> dict[str, str]:
    """Return the settings by which Hadoop sees a folder, a URL, at another path, and all else as it is."""
    scheme = "hdfs" if name_node else "file"
    real = "org.apache.hadoop.hdfs.DistributedFileSystem" if name_node else "org.apache.hadoop.fs.LocalFileSystem"
    table = f"fs.viewfs.mounttable.{name_node.partition(':')[0] or 'default'}"
    return {
        f"fs.{scheme}.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        f"fs.{scheme}.impl.disable.cache": "true",
        f"fs.viewfs.overload.scheme.target.{scheme}.impl": real,
        f"{table}.link.{at}": folder,
        f"{table}.linkFallback": f"{scheme}://{name_node}/",
    }


def set_all(session: Any, settings: Elsewhere) -> None:
    for name, value in settings.items():
        session.conf.set(name, value)


def refused(session: Any, statement: str) -> tuple[str, str, str]:
    with pytest.raises(PySparkException) as caught:
        session.sql(statement).collect()
    error = from_spark(caught.value)
    assert error is not None, caught.value
    return type(error).__name__, error.sqlstate, error.message


def names_in(root: Path | str) -> list[str]:
    """Return what the lake has, as Lockstep sees it."""
    return sorted(found.path for found in open_storage(str(root)).walk(""))


STATEMENTS = ("CREATE TABLE t (id INT)", "SHOW TABLES", "BEGIN", "SELECT * FROM t", "SELECT * FROM lake.system.history")


def test_a_session_whose_spark_sees_an_empty_place_is_refused(
    connect: Callable[[], Any], root: Path | str, other_root: tuple[str, dict[str, str], Elsewhere]
) -> None:
    """A lake that the session makes is looked at, too: its first entry is where Spark does not look."""
    session, (url, options, settings) = connect(), other_root
    set_all(session, settings)
    for statement in STATEMENTS:
        name, state, message = refused(session, statement)
        assert (name, state) == ("ConfigurationError", "F0000")
        for said in (ENTRY, url_of(str(root)), "Spark sees no such file", *settings_shown(settings)):
            assert said in message
    assert [name for name in names_in(root) if "/store/" not in name] == [ENTRY], "made, and nothing else"
    assert not list(open_storage(url, options=options).walk(""))


def settings_shown(settings: Elsewhere) -> list[str]:
    shown = re.compile(r"\.endpoint($|\.)|^fs\.(file|hdfs)\.impl$")
    return [f"{name}={value}" for name, value in settings.items() if shown.search(name)]


def test_a_session_whose_spark_sees_another_lake_is_refused(
    connect: Callable[[], Any], other_root: tuple[str, dict[str, str], Elsewhere]
) -> None:
    """Both are new, and have an entry 0: those are two."""
    session, (url, options, settings) = connect(), other_root
    Timeline.create(open_storage(url, options=options))
    set_all(session, settings)
    for statement in STATEMENTS:
        name, state, message = refused(session, statement)
        assert (name, state, "another file of this name" in message) == ("ConfigurationError", "F0000", True)


def test_a_lake_is_looked_at_once(spark: Any, other: Any, asked: list[dict[str, Any]], root: Path | str) -> None:
    """Not for each statement, and not for each session: what the first one saw counts."""
    spark.sql("CREATE TABLE t AS VALUES (1) AS t(id)").collect()
    for session in (spark, other):
        session.sql("BEGIN")
        session.sql("INSERT INTO t VALUES (2)")
        session.sql("COMMIT")
        assert session.sql("SELECT * FROM t").count() > 1
    [saw] = [request for request in asked if request["op"] == "saw_root"]
    assert (saw["failures"], saw["message"]) == ([], None)
    assert saw["file_system"].endswith(FILE_SYSTEM)
    (entry,) = [each.size for each in open_storage(str(root)).walk("") if each.path == ENTRY]
    assert saw["length"] == entry


def test_a_session_that_sees_the_same_by_another_way_goes_on(
    connect: Callable[[], Any], root: Path | str, tmp_path: Path
) -> None:
    if ROOTS:
        pytest.skip("a mount is of a folder")
    session = connect()
    (tmp_path / "way").symlink_to(root)
    Path(root).mkdir()
    set_all(session, mounted(str(root), f"file://{tmp_path / 'way'}"))
    session.sql("CREATE TABLE t AS VALUES (1) AS t(id)").collect()
    assert [row.id for row in session.sql("SELECT * FROM t").collect()] == [1]


def test_a_root_that_spark_may_not_read_is_an_error_of_its_own(connect: Callable[[], Any], stack: ExitStack) -> None:
    if not ROOTS or on_hdfs.IS_WANTED:
        pytest.skip("whoever runs tests of files may be root, who may read all")
    bucket = urlsplit(ROOTS).netloc.partition("@")[0]
    endpoint = stack.enter_context(serving(Denying(), bucket=bucket))
    session = connect()
    set_all(session, asking(endpoint))
    name, state, message = refused(session, "SHOW TABLES")
    assert (name, state, urlsplit(endpoint).netloc in message) == ("ConfigurationError", "42501", True)


class Denying:
    """Lets a bucket be made, and nothing be read."""

    def __init__(self) -> None:
        self._app = moto()

    def __call__(self, environ: Any, start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == "PUT":
            return self._app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
