"""A lake in HDFS as far as it needs none: URLs, refusals, and the two ways to a driver."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import lockstep
from lockstep.catalog import TransactionalCatalog
from lockstep.errors import InvalidError, UnavailableError, UnsupportedError
from lockstep.spark import files
from lockstep.spark.files import OverPipes, OverPy4J
from lockstep.storage import hadoop, open_storage, url_of
from lockstep.storage.hadoop import connect
from lockstep.storage.outside import OutsideStorage
from lockstep.storage.urls import comparable


@pytest.fixture(autouse=True)
def no_driver() -> Iterator[None]:
    before = [*hadoop._connected]
    connect(None)
    yield
    connect(before[0] if before else None)


def answering(**answer: Any) -> bytes:
    return json.dumps(answer).encode() + b"\n"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("hdfs://", "names no name node: write hdfs://name:8020/path"),
        ("hdfs:///lake", "names no name node"),
        ("hdfs://me@name/lake", r"the root \(hdfs://…\) has a user before its name node"),
        ("hdfs://name/a/../b", "is not a path in this store"),
        ("hdfs://name//lake", "is not a path in this store"),
        ("hdfs://name/a:b", "has a colon in its path"),
    ],
)
def test_a_url_of_hdfs_that_can_be_no_root_is_refused(url: str, message: str) -> None:
    for call in (url_of, open_storage, lambda url: lockstep.conf(root=url)):
        with pytest.raises(InvalidError, match=message):
            call(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("viewfs://cluster/lake", "use the hdfs:// URL that the mount leads to"),
        ("webhdfs://name/lake", "use the name node's own hdfs://"),
        ("swebhdfs://name/lake", "use the name node's own hdfs://"),
        ("ofs://om/volume/bucket/lake", "use Ozone's S3 gateway by s3://"),
        ("o3fs://bucket.volume/lake", "use Ozone's S3 gateway by s3://"),
        ("maprfs:///lake", "use a local path, file://, s3://, s3a://, gs://, abfss:// or hdfs://"),
    ],
)
def test_other_file_systems_of_hadoop_are_refused_by_name(url: str, said: str) -> None:
    """Their renames may replace, or take several steps; the message says what to use."""
    for call in (url_of, open_storage, lambda url: lockstep.conf(root=url)):
        with pytest.raises(UnsupportedError, match=said) as caught:
            call(url)
        assert caught.value.sqlstate == "0A000"


def test_without_a_driver_hdfs_is_refused_with_what_to_do() -> None:
    for call in (open_storage, lambda url: TransactionalCatalog.open(url, create=True)):
        with pytest.raises(UnsupportedError, match="Use the lake in a Spark session") as caught:
            call("hdfs://name/lake")
        assert caught.value.sqlstate == "0A000"
    with pytest.raises(UnsupportedError, match="is used through Spark alone"):
        lockstep.open("hdfs://name/lake")


def test_a_driver_beside_it_does_not_make_python_read_hdfs_alone() -> None:
    """Readers of tables without Spark have no client of HDFS, whatever this process has."""
    connect(lambda request: answering())
    with pytest.raises(UnsupportedError, match=r"`CALL <catalog>.system.export` copies it"):
        lockstep.open("hdfs://name/lake")


def test_hdfs_takes_no_options_of_a_store() -> None:
    for call in (
        lambda: open_storage("hdfs://name/lake", options={"endpoint": "http://x"}),
        lambda: lockstep.conf(root="hdfs://name/lake", options={"endpoint": "http://x"}),
    ):
        with pytest.raises(InvalidError, match=r"takes no options of a store \(endpoint\): .* spark.hadoop"):
            call()
    assert not [key for key in lockstep.conf(root="hdfs://name/lake", jars=False) if key.startswith("spark.hadoop.dfs")]


def test_the_options_of_a_lake_are_not_those_of_its_tables_in_hdfs() -> None:
    connect(lambda request: answering(kind="file"))
    lake = OutsideStorage(open_storage("s3://bucket/lake", options={"region": "x"}), {"region": "x"})
    assert lake.exists("hdfs://name/table/_delta_log/0.json")
    assert lake.beside("hdfs://name/other").url == "hdfs://name/other"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("hdfs://name/lake", "hdfs://name:8020/lake"),
        ("hdfs://name/lake/", "hdfs://name/lake"),
        ("hdfs://name", "hdfs://name:8020/"),
    ],
)
def test_one_folder_of_hdfs_has_one_comparable_url(one: str, other: str) -> None:
    assert comparable(one) == comparable(other)
    assert comparable("hdfs://name:9000/lake") != comparable("hdfs://name/lake")


def test_what_hadoop_throws_says_whether_a_write_may_be_done() -> None:
    for may_be_done in (True, False):
        failure = {"kind": "java.io.IOException", "message": "IOException: no", "may_be_done": may_be_done}
        connect(lambda request, failure=failure: answering(error=failure))  # type: ignore[misc]
        with pytest.raises(UnavailableError, match="cannot write f/a in hdfs://name/lake: IOException: no") as caught:
            open_storage("hdfs://name/lake").put_if_absent("f/a", b"")
        assert caught.value.definite != may_be_done


def test_a_long_file_is_in_doubt_only_once_its_end_was_asked_for() -> None:
    """Before that nothing is renamed, whatever became of a request."""
    long = bytes(hadoop.PIECE_BYTES + 1)
    for lost in ("begin", "piece", "finish"):
        asked: list[str] = []

        def losing(request: bytes, lost: str = lost, asked: list[str] = asked) -> bytes:
            asked.append(json.loads(request.partition(b"\n")[0])["op"])
            if asked[-1] == lost:
                raise UnavailableError("lost")
            return answering(written=True)

        connect(losing)
        with pytest.raises(UnavailableError, match="cannot write f/a in hdfs://name/lake: lost") as caught:
            open_storage("hdfs://name/lake").put_if_absent("f/a", long)
        assert caught.value.definite == (lost != "finish")
        assert (asked[-1] == "abort") == (lost != "finish")


# --- the two ways to a driver -----------------------------------------------------------------------------------------


class Driver:
    """The other end of the pipes: it has the lines, and answers when it is told to."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.came = threading.Semaphore(0)

    def say(self, line: bytes) -> None:
        self.lines.append(line)
        self.came.release()

    def heard(self) -> tuple[bytes, bytes]:
        assert self.came.acquire(timeout=60)
        word, number, request = self.lines.pop().split(b" ")
        assert word == OverPipes.WORD
        return number, base64.b64decode(request)


def test_each_who_asks_over_pipes_gets_its_own_answer() -> None:
    driver = Driver()
    pipes = OverPipes(driver.say)
    with ThreadPoolExecutor(5) as pool:
        told = {text: pool.submit(pipes, text) for text in (b"one\nline", b"two", b"", bytes(range(256)), b"five")}
        for number, request in [driver.heard() for _ in told]:
            pipes.heard(number + b" " + base64.b64encode(b"to " + request))
        assert {text: future.result(60) for text, future in told.items()} == {text: b"to " + text for text in told}
    pipes.heard(b"77 " + base64.b64encode(b"nobody asked"))


def test_who_waits_when_the_driver_ends_is_told_that_it_may_be_done() -> None:
    driver = Driver()
    pipes = OverPipes(driver.say)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pipes, b"write")
        driver.heard()
        pipes.end()
        with pytest.raises(UnavailableError, match="the driver ended before it answered") as caught:
            waiting.result(60)
    assert not caught.value.definite
    with pytest.raises(UnavailableError, match="the driver has ended") as caught:
        pipes(b"write")
    assert caught.value.definite


def test_a_pipe_that_nobody_reads_is_a_driver_that_has_ended() -> None:
    def say(_: bytes) -> None:
        raise BrokenPipeError

    with pytest.raises(UnavailableError, match="the driver has ended") as caught:
        OverPipes(say)(b"write")
    assert not caught.value.definite


class Gateway:
    """As Py4J shows the one method that is called."""

    def __init__(self, call: Any) -> None:
        self.jvm = self.lockstep = self.spark = self.Bridge = self
        self.files = call


def test_no_answer_in_time_says_whether_the_request_went_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What still waits for a thread has not been asked, and never will be."""
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(files, "MOST_AT_ONCE", 1)
    begun, go = threading.Event(), threading.Event()

    def stuck(_: object, request: bytes) -> bytes:
        begun.set()
        go.wait(60)
        return request

    over = OverPy4J(Gateway(stuck), lambda: None)
    submit = over._threads.submit

    def submitted(*call: Any) -> Any:
        future = submit(*call)
        assert begun.wait(60), "the first request is with its thread before anybody's patience begins"
        return future

    monkeypatch.setattr(over._threads, "submit", submitted)
    try:
        for definite in (False, True):
            with pytest.raises(UnavailableError, match=r"no answer within 0\.05 seconds") as caught:
                over(b"write")
            assert caught.value.definite == definite
    finally:
        go.set()


def test_a_jvm_that_has_ended_is_an_error_that_says_so() -> None:
    def gone(*_: object) -> bytes:
        raise ConnectionRefusedError("connection refused")

    with pytest.raises(UnavailableError, match=r"JVM did not answer \(connection refused\)") as caught:
        OverPy4J(Gateway(gone), lambda: None)(b"write")
    assert not caught.value.definite
