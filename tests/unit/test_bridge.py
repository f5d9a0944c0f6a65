"""Attaching: which driver has which host, and for how long."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.spark import bridge
from tests.support.lakes import staged_commits


class Thing:
    """Anything of Spark's, with what a test gives it."""

    def __init__(self, **has: Any) -> None:
        vars(self).update(has)


class Driver:
    """A driver's Java without Spark: it takes the first host that is offered.

    Attributes:
        gateway: Py4J's way to it.
        taken: how many hosts were offered to it.
    """

    def __init__(self) -> None:
        self.gateway = Thing()
        self.taken = 0

    def attach(self, *_: object) -> bool:
        self.taken += 1
        return self.taken == 1

    def application(self, name: str) -> Any:
        """Return a session of a new SparkContext, whose application has this name and id."""
        jsc = Thing(hadoopConfiguration=lambda: None)
        context = Thing(_gateway=self.gateway, appName=name, applicationId=name, _jsc=jsc)
        return Thing(sparkContext=context, _jsparkSession=None)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    driver = Driver()
    monkeypatch.setattr(bridge, "_hosts", {})
    monkeypatch.setattr(bridge, "_require_shim", lambda spark: None)
    monkeypatch.setattr(bridge, "_shim", lambda spark: driver)
    monkeypatch.setattr("pyspark.java_gateway.ensure_callback_server_started", lambda gateway: None)
    monkeypatch.setattr("atexit.register", lambda end: None)
    yield driver
    monkeypatch.undo()


def test_a_driver_has_one_host(driver: Driver) -> None:
    one = driver.application("one")
    for _ in range(3):
        bridge.attach(one)
    assert driver.taken == len(bridge._hosts) == 1


def test_no_other_driver_is_taken_for_one_that_is_gone(driver: Driver) -> None:
    """An object's id is another's once it is gone: that driver would go without its host."""
    bridge.attach(driver.application("one"))
    kept = weakref.ref(driver.gateway)
    driver.gateway = Thing()
    gc.collect()
    assert kept() is not None
    bridge.attach(driver.application("two"))
    assert driver.taken == 2


def test_what_a_stopped_spark_left_open_is_rolled_back_when_the_next_one_is_attached(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No session of it is left to end it."""
    first = driver.application("one")
    bridge.attach(first)
    [attached] = bridge._hosts.values()
    closed: list[str] = []
    monkeypatch.setattr(attached.host, "begin_anew", closed.append)
    bridge.attach(first)
    bridge.attach(driver.application("one"))
    assert not closed, "the same application, by another object of Python's"
    second = driver.application("two")
    for _ in range(2):
        bridge.attach(second)
    assert closed == ["two"]
    assert len(bridge._hosts) == 1


FORK = """
import json, os, sys
from pathlib import Path
from lockstep.spark import bridge
from tests.support.client import Client
from tests.support.lakes import add, create
from tests.unit.test_bridge import Driver

driver = Driver()
bridge._require_shim = lambda spark: None
bridge._shim = lambda spark: driver
sys.modules["pyspark.java_gateway"].ensure_callback_server_started = lambda gateway: None
bridge.attach(driver.application("one"))
[attached] = bridge._hosts.values()
client = Client(attached.host, Path(sys.argv[1]))
create(client.lake(), "a")
client.begin()
client.stage(client.resolve("a", "append", writes=True)["uri"], 1, add("x"))
if (child := os.fork()) == 0:
    sys.exit()
os.waitpid(child, 0)
attached.host.keeper.close()  # as if killed: what is left is what the child has left
print(json.dumps(sorted(map(str, Path(sys.argv[1]).rglob("x")))), flush=True)
os._exit(0)
"""


def test_a_fork_that_ends_rolls_nothing_of_its_parents_back(tmp_path: Path) -> None:
    """Python calls what is to be done at exit in a fork, too, unless it ends by `os._exit`."""
    lake = tmp_path / "lake"
    program = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", FORK, str(lake)]
    run = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert len(json.loads(run.stdout)) == 1
    assert len(staged_commits(lake)) == 1
