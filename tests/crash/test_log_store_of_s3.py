"""Plain Delta's drivers on S3: its own log store writes over commits, and `ConditionalS3LogStore` never does.

`S3SingleDriverLogStore` looks whether a version is taken, and writes it a moment later. Each driver here is a process
of its own; a wire keeps back what the store answers to it, or loses it. `make test-s3`.

Both log stores are in each driver: Delta's own for `s3://`, and Lockstep's for `s3a://`, of which S3A makes the same.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.lake.verify import verify
from lockstep.spark.jars import shim_jar
from lockstep.storage.options import hadoop_settings, place_of
from tests.support import on_s3, s3
from tests.support.child import Child, EndedError
from tests.support.driver import PATIENCE_S, Driver
from tests.support.lakes import location
from tests.support.placed import delta, matching, root_in
from tests.support.plain import plain_settings
from tests.support.sessions import DIRECT, INTERPRETED, ROOTS, SMALL
from tests.support.wire import Fault, Held, Wire

IS_WANTED = ROOTS.startswith("s3") and os.environ.get("AWS_ENDPOINT_URL") == DIRECT  # and no faults on the way
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IS_WANTED, reason="`make test-s3`")]

CONFS: dict[str, tuple[dict[str, str], int]] = {
    "as it comes": ({"fs.s3a.create.performance": "false"}, 2),
    "conditional": ({"fs.s3a.create.performance": "true", "fs.s3a.create.conditional.enabled": "true"}, 1),
}
"""What is set of S3A, and how often Delta's log store looks whether a version is there before it writes it.

Hadoop 3.5.0 creates conditionally (HADOOP-19256), but for who asks it by `createFile`. Of `create`, which Delta calls,
`fs.s3a.create.performance` makes one that overwrites: it takes S3A's own look away, and adds no condition.
"""

SOON_UP = {"fs.s3a.attempts.maximum": "1", "fs.s3a.retry.limit": "0"}
"""What has S3A and the SDK under it give up at once."""

ENDPOINT = "fs.s3a.bucket.lake.endpoint"
"""What says where the tests' bucket is."""

PAST_THE_WIRE = {ENDPOINT: DIRECT}
"""For what meets no fault: each request over a wire has connections of its own, which takes long."""


class Writer(Child):
    """A driver of plain Delta, and the wire by which it reaches the store."""

    def __init__(self, folder: Path, wire: Wire) -> None:
        settings = {**SMALL, **INTERPRETED, **plain_settings(folder), **reached_by(wire.endpoint)}
        settings["spark.jars"] = ",".join([settings["spark.jars"], *map(str, [shim_jar(), *on_s3.s3a_jars()])])
        super().__init__("tests.support.s3_writer", json.dumps(settings), patience_s=PATIENCE_S)
        self.wire = wire

    def run(self, sql: str, conf: Mapping[str, str] | None = None) -> list[str]:
        """Run a statement, and return what it threw."""
        thrown: list[str] = self.ask({"sql": sql, "conf": dict(conf or {})})["thrown"]
        return thrown

    def held_at(self, version: int, sql: str, kind: str) -> Held:
        """Begin a statement, and return when it has looked for the last time whether a version is there."""
        conf, looks = CONFS[kind]
        held = self.wire.hold("HEAD", f"/{version:020d}.json", nth=looks)
        self.tell({"sql": sql, "conf": conf})
        assert held.came.wait(PATIENCE_S), "it never looked"
        return held

    def acknowledged(self, *, dies: bool = False) -> set[int]:
        """Return what it has appended, at the end of that, or, killed now, until then."""
        if dies:
            os.killpg(self._process.pid, signal.SIGKILL)
        found = set()
        try:
            while "id" in (answer := self.answer()):
                assert answer["thrown"] == []
                found.add(answer["id"])
        except EndedError:
            assert dies
        return found


def reached_by(endpoint: str) -> dict[str, str]:
    """Return the settings of a plain Spark that reaches the tests' bucket by an address, and its log stores."""
    keys = {name: os.environ[f"AWS_{name.upper()}"] for name in ("access_key_id", "secret_access_key", "region")}
    found = hadoop_settings(place_of(ROOTS), {**keys, "endpoint": endpoint}, {})
    more = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.s3.impl.disable.cache": "true",
        "fs.s3a.impl.disable.cache": "true",  # which knows the settings of its first use alone
        "fs.s3a.connection.expect.continue": "false",  # which the wire does not say
    }
    log_stores = {
        "spark.delta.logStore.s3.impl": "io.delta.storage.S3SingleDriverLogStore",
        "spark.delta.logStore.s3a.impl": "lockstep.spark.ConditionalS3LogStore",
    }
    return log_stores | {f"spark.hadoop.{name}": value for name, value in (found | more).items()}


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Callable[[], Writer]]]:
    """Return two functions, each of which returns a driver that lives: another one, where a test has killed it."""
    with ExitStack() as stack:

        def make() -> Callable[[], Writer]:
            wire = stack.enter_context(Wire(DIRECT))
            made: list[Writer] = []

            def living() -> Writer:
                if not made or made[-1].returncode is not None:
                    made.append(stack.enter_context(Writer(tmp_path_factory.mktemp("plain"), wire)))
                return made[-1]

            return living

        yield [make(), make()]


@pytest.fixture
def pair(drivers: list[Callable[[], Writer]]) -> tuple[Writer, Writer]:
    one, two = (driver() for driver in drivers)
    return one, two


@pytest.fixture
def one(drivers: list[Callable[[], Writer]]) -> Writer:
    return drivers[0]()


def conditional(url: str) -> str:
    """Return the URL by which drivers of plain Delta write a table with Lockstep's log store."""
    return url.replace("s3://", "s3a://", 1)


@pytest.fixture
def table(one: Writer, tmp_path: Path) -> str:
    """Return the URL of a table without rows, at version 0."""
    url = root_in(tmp_path)
    assert one.run(f"CREATE TABLE delta.`{conditional(url)}` (id INT) USING delta", PAST_THE_WIRE) == []
    return url


def insert(table: str, id: int) -> str:
    return f"INSERT INTO delta.`{table}` VALUES ({id})"


def rows(table: str) -> list[int]:
    found: list[int] = delta(table).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def versions(table: str) -> list[int]:
    return [int(PurePosixPath(path).stem) for path in matching(table, "_delta_log/*.json")]


# --- Delta's own log store --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CONFS)
def test_of_two_plain_drivers_one_writes_over_the_other(pair: tuple[Writer, Writer], tmp_path: Path, kind: str) -> None:
    """Both are told that they have committed one version, and one commit is gone: why there is another log store.

    Should this fail since the second one is refused, docs/operating.md can tell plain writers what else to set.
    """
    table = root_in(tmp_path)
    one, two = pair
    assert one.run(f"CREATE TABLE delta.`{table}` (id INT) USING delta") == []
    held = one.held_at(1, insert(table, 1), kind)
    assert two.run(insert(table, 2)) == []
    held.go.set()
    assert one.answer()["thrown"] == []
    assert rows(table) == [1], "what the second one committed is gone"


def written_over(ours: Driver, one: Writer, root: str) -> str:
    """Have a plain driver write over a published commit of Lockstep's, and return the table."""
    ours.sql("CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)")
    table = f"{root}/{location(TransactionalCatalog.open(root), 't')}"
    held = one.held_at(2, insert(table, 3), "as it comes")
    ours.sql("INSERT INTO t VALUES (2)")
    held.go.set()
    assert one.answer()["thrown"] == [], "it was told that it has committed"
    return table


def test_what_a_plain_driver_writes_over_is_noticed(one: Writer, tmp_path: Path) -> None:
    """A published commit of Lockstep's: each use of the table is refused from then on, and both commits are named."""
    root = root_in(tmp_path)
    with Driver(root) as ours:
        written_over(ours, one, root)
        for statement in ("SELECT * FROM t", "INSERT INTO t VALUES (4)"):
            answer = ours.ask({"sql": statement})
            assert answer["sqlstate"] == "40002", answer
            assert "a plain Delta writer wrote over version 2" in answer["message"]
    reader = TransactionalCatalog.open(root)
    assert verify(reader.lake.storage, reader.timeline).differences, "and `lockstep verify` says so"


def test_both_commits_are_there_once_a_person_says_so(pair: tuple[Writer, Writer], tmp_path: Path) -> None:
    """What was told to have committed is there once, to Lockstep, to plain drivers and to delta-rs."""
    root = root_in(tmp_path)
    one, two = pair
    with Driver(root) as ours:
        table = written_over(ours, one, root)
        assert two.run(insert(table, 4)) == []
        assert ours.ask({"sql": "SELECT * FROM t"})["sqlstate"] == "40002"
        ours.sql("CALL lake.system.settle(table => 't', keep => 'both')")
        assert [row["id"] for row in ours.sql("SELECT id FROM t ORDER BY id")] == [1, 2, 3, 4]
        assert two.run(f"INSERT INTO delta.`{table}` SELECT max(id) + 1 FROM delta.`{table}`") == []
        assert [row["id"] for row in ours.sql("SELECT id FROM t ORDER BY id")] == [1, 2, 3, 4, 5]
    assert sorted(delta(table).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 5]
    reader = TransactionalCatalog.open(root)
    assert verify(reader.lake.storage, reader.timeline).differences == ()


# --- Lockstep's log store ---------------------------------------------------------------------------------------------


def test_with_our_log_store_nobody_writes_over_anybody(pair: tuple[Writer, Writer], tmp_path: Path) -> None:
    """Two plain drivers and Lockstep append to one table, as fast as they can, and one of them is killed meanwhile."""
    root = root_in(tmp_path)
    one, two = pair
    with Driver(root) as ours:
        ours.sql("CREATE TABLE t (id INT)")
        table = f"{root}/{location(TransactionalCatalog.open(root), 't')}"
        sent = {one: range(100, 108), two: range(200, 300)}
        for driver, ids in sent.items():
            driver.tell({"append": conditional(table), "ids": list(ids), "threads": 2, "conf": PAST_THE_WIRE})
        for id in range(4):
            ours.sql(f"INSERT INTO t VALUES ({id})")
        done = {*range(4), *one.acknowledged(), *two.acknowledged(dies=True)}
        assert done >= {*range(4), *sent[one]}
        assert 0 < len(done & {*sent[two]}) < len(sent[two]), "it was killed in the middle"
        seen = Counter(row["id"] for row in ours.sql("SELECT id FROM t"))
    assert seen == Counter(rows(table)), "Lockstep has what the log says"
    assert set(seen.values()) == {1}, "nothing is there twice"
    assert set(seen) >= done, "each row is there of which its writer was told so"
    assert versions(table) == [*range(len(seen) + 1)], "each commit has a version of its own"
    reader = TransactionalCatalog.open(root)
    assert not verify(reader.lake.storage, reader.timeline).differences


def test_who_comes_second_goes_on_to_the_next_version(pair: tuple[Writer, Writer], table: str) -> None:
    one, two = pair
    held = one.wire.hold("PUT", ".parquet")
    one.tell({"sql": insert(conditional(table), 1)})
    assert held.came.wait(PATIENCE_S), "it has its data, and has read the log"
    assert two.run(insert(conditional(table), 2), PAST_THE_WIRE) == []
    held.go.set()
    assert one.answer()["thrown"] == []
    log = f"/{PurePosixPath(table).name}/_delta_log"
    tried = [path for method, path in one.wire.requests if method == "PUT" and path.endswith(".json") and log in path]
    assert [int(PurePosixPath(path).stem) for path in tried] == [1, 2]
    assert (rows(table), versions(table)) == ([1, 2], [0, 1, 2])


@pytest.mark.parametrize("fault", ["lost answer", "503 after"])
def test_a_commit_that_is_sent_again_finds_itself(one: Writer, table: str, fault: Fault) -> None:
    """S3A sends it again, and hears that it is there: its own first try, which is no other writer."""
    one.wire.next("PUT", f"/{1:020d}.json", fault)
    assert one.run(insert(conditional(table), 1)) == []
    one.wire.deliver()
    assert (rows(table), versions(table)) == ([1], [0, 1])


def test_where_nobody_knows_it_is_said_and_it_is_there_once_at_most(one: Writer, table: str) -> None:
    """Nothing is there when it is looked, for the requests are still under way; all of them arrive later."""
    one.wire.next("PUT", f"/{1:020d}.json", "late", times=100)
    thrown = one.run(insert(conditional(table), 1), SOON_UP)
    one.wire.number({})
    assert f"[LOCKSTEP_COMMIT_UNKNOWN] Nobody knows whether {conditional(table)}/_delta_log/{1:020d}.json" in thrown[0]
    assert versions(table) == [0]
    assert one.wire.deliver() > 1
    assert (rows(table), versions(table)) == ([1], [0, 1])


def test_an_s3a_without_the_condition_is_refused(one: Writer, table: str) -> None:
    thrown = one.run(insert(conditional(table), 1), {"fs.s3a.create.conditional.enabled": "false"})
    assert "[LOCKSTEP_UNSUPPORTED]" in thrown[0]
    assert versions(table) == [0]


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """Return the URL of a table to be in moto's bucket; Delta remembers a table by that, whichever server it is in."""
    return f"s3a://lake/{tmp_path.name}"


def test_a_store_that_ignores_the_condition_is_refused(one: Writer, elsewhere: str) -> None:
    with s3.serving(s3.Ignoring(s3.moto())) as endpoint:
        thrown = one.run(f"CREATE TABLE delta.`{elsewhere}` (id INT) USING delta", {ENDPOINT: endpoint})
        prefix = elsewhere.removeprefix("s3a://lake/")
        found = s3.client(endpoint, s3.KEYS).list_objects_v2(Bucket="lake", Prefix=prefix).get("Contents", [])
    assert "[LOCKSTEP_UNSUPPORTED]" in thrown[0]
    assert not [each["Key"] for each in found if not each["Key"].endswith("/")], "no commit, and nothing of the look"


def test_a_conflict_of_which_nothing_comes_is_tried_again(one: Writer, elsewhere: str) -> None:
    """S3 says 409 to one of two at once, or to both; then nobody has written."""
    contended = s3.Contended(s3.moto())
    with s3.serving(contended) as endpoint:
        told = {ENDPOINT: endpoint}
        assert one.run(f"CREATE TABLE delta.`{elsewhere}` (id INT) USING delta", told) == []
        contended.left = 2
        assert one.run(insert(elsewhere, 1), told) == []
    assert contended.left == 0
