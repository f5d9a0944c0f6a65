"""Delta's own log store for S3 in several drivers writes over commits, whatever S3A is set to; Lockstep notices.

`S3SingleDriverLogStore` looks whether a version is taken, and writes it a moment later. Each driver here is a process
of its own; a wire keeps back the answer to the last look of one of them until another has committed. `make test-s3`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.lake.verify import verify
from lockstep.storage.options import hadoop_settings, place_of
from tests.support import on_s3
from tests.support.child import Child
from tests.support.driver import PATIENCE_S, Driver
from tests.support.lakes import location
from tests.support.placed import delta, root_in
from tests.support.plain import plain_settings
from tests.support.sessions import DIRECT, INTERPRETED, ROOTS, SMALL
from tests.support.wire import Held, Wire

IS_WANTED = ROOTS.startswith("s3") and os.environ.get("AWS_ENDPOINT_URL") == DIRECT  # and no faults on the way
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IS_WANTED, reason="`make test-s3`")]

CONFS: dict[str, tuple[dict[str, str], int]] = {
    "as it comes": ({"fs.s3a.create.performance": "false"}, 2),
    "conditional": ({"fs.s3a.create.performance": "true", "fs.s3a.create.conditional.enabled": "true"}, 1),
}
"""What is set of S3A, and how often it is looked whether a version is there before it is written.

Hadoop 3.5.0 creates conditionally (HADOOP-19256), but for who asks it by `createFile`. Of `create`, which Delta calls,
`fs.s3a.create.performance` makes one that overwrites: it takes S3A's own look away, and adds no condition.
"""


class Writer(Child):
    """A driver of plain Delta, and the wire by which it reaches the store."""

    def __init__(self, folder: Path, wire: Wire) -> None:
        settings = {**SMALL, **INTERPRETED, **plain_settings(folder), **reached_by(wire.endpoint)}
        settings["spark.jars"] = ",".join([settings["spark.jars"], *map(str, on_s3.s3a_jars())])
        super().__init__("tests.support.s3_writer", json.dumps(settings), patience_s=PATIENCE_S)
        self.wire = wire

    def run(self, sql: str) -> list[str]:
        """Run a statement, and return what it threw."""
        thrown: list[str] = self.ask({"sql": sql})["thrown"]
        return thrown

    def held_at(self, version: int, sql: str, kind: str) -> Held:
        """Begin a statement, and return when it has looked for the last time whether a version is there."""
        conf, looks = CONFS[kind]
        held = self.wire.hold("HEAD", f"/{version:020d}.json", nth=looks)
        self.tell({"sql": sql, "conf": conf})
        assert held.came.wait(PATIENCE_S), "it never looked"
        return held


def reached_by(endpoint: str) -> dict[str, str]:
    """Return the settings of a plain Spark that reaches the tests' bucket by an address."""
    keys = {name: os.environ[f"AWS_{name.upper()}"] for name in ("access_key_id", "secret_access_key", "region")}
    found = hadoop_settings(place_of(ROOTS), {**keys, "endpoint": endpoint}, {})
    more = {
        "fs.s3a.impl.disable.cache": "true",  # which knows the settings of its first use alone
        "fs.s3a.connection.expect.continue": "false",  # which the wire does not say
    }
    log_store = {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore"}
    return log_store | {f"spark.hadoop.{name}": value for name, value in (found | more).items()}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Writer, Writer]]:
    with ExitStack() as stack:
        wires = [stack.enter_context(Wire(DIRECT)) for _ in range(2)]
        one, two = (stack.enter_context(Writer(tmp_path_factory.mktemp("plain"), wire)) for wire in wires)
        yield one, two


def as_spark(url: str) -> str:
    return url.replace("s3://", "s3a://", 1)


@pytest.mark.parametrize("kind", CONFS)
def test_of_two_plain_drivers_one_writes_over_the_other(pair: tuple[Writer, Writer], tmp_path: Path, kind: str) -> None:
    """Both are told that they have committed one version, and one commit is gone: why plain writers cannot be kept off.

    Should this fail since the second one is refused, docs/operating.md can tell plain writers what to set.
    """
    table = root_in(tmp_path)
    one, two = pair
    assert one.run(f"CREATE TABLE delta.`{as_spark(table)}` (id INT) USING delta") == []
    held = one.held_at(1, f"INSERT INTO delta.`{as_spark(table)}` VALUES (1)", kind)
    assert two.run(f"INSERT INTO delta.`{as_spark(table)}` VALUES (2)") == []
    held.go.set()
    assert one.answer()["thrown"] == []
    assert sorted(delta(table).to_pyarrow_table()["id"].to_pylist()) == [1], "what the second one committed is gone"


def test_what_a_plain_driver_writes_over_is_noticed(pair: tuple[Writer, Writer], tmp_path: Path) -> None:
    """A published commit of Lockstep's: each use of the table is refused from then on, and both commits are named."""
    root = root_in(tmp_path)
    plain = pair[0]
    with Driver(root) as ours:
        ours.sql("CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)")
        table = f"{root}/{location(TransactionalCatalog.open(root), 't')}"
        held = plain.held_at(2, f"INSERT INTO delta.`{as_spark(table)}` VALUES (3)", "as it comes")
        ours.sql("INSERT INTO t VALUES (2)")
        held.go.set()
        assert plain.answer()["thrown"] == [], "it was told that it has committed"
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
        ours.sql("CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)")
        table = f"{root}/{location(TransactionalCatalog.open(root), 't')}"
        held = one.held_at(2, f"INSERT INTO delta.`{as_spark(table)}` VALUES (3)", "as it comes")
        ours.sql("INSERT INTO t VALUES (2)")
        held.go.set()
        assert one.answer()["thrown"] == [], "it was told that it has committed"
        assert two.run(f"INSERT INTO delta.`{as_spark(table)}` VALUES (4)") == []
        assert ours.ask({"sql": "SELECT * FROM t"})["sqlstate"] == "40002"
        ours.sql("CALL lake.system.settle(table => 't', keep => 'both')")
        assert [row["id"] for row in ours.sql("SELECT id FROM t ORDER BY id")] == [1, 2, 3, 4]
        assert two.run(f"INSERT INTO delta.`{as_spark(table)}` SELECT max(id) + 1 FROM delta.`{as_spark(table)}`") == []
        assert [row["id"] for row in ours.sql("SELECT id FROM t ORDER BY id")] == [1, 2, 3, 4, 5]
    assert sorted(delta(table).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4, 5]
    reader = TransactionalCatalog.open(root)
    assert verify(reader.lake.storage, reader.timeline).differences == ()
