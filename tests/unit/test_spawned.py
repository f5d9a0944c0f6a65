"""The host as a process of its own, spoken to as the shim does."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep import __version__
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import staged_path
from lockstep.spark.host.uris import Uris
from tests.support.client import usual
from tests.support.lakes import add, create, lay, named

ROOM_FOR_NO_STACK = 4 * 1024 * 1024
"""A thread's stack has 8 MB."""

COMMAND = (sys.executable, "-P", "-m", "lockstep.spark.spawned")


class Child:
    """A spawned host, and the way the shim has to it."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.hello = json.loads(self._line())
        self._say({"application": "tests"})
        self.options = {"root": str(root), "create": "true"}

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def _say(self, line: Any, number: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((number + json.dumps(line) + "\n").encode())
        self.process.stdin.flush()

    def send(self, number: int, op: str, session: str = "s1", **args: Any) -> None:
        request = {"op": op, "session": session, **usual(op, "lake", self.options), **args}
        self._say(request, f"{number} ")

    def answer(self) -> tuple[int, dict[str, Any]]:
        number, _, answer = self._line().partition(" ")
        return int(number), json.loads(answer)

    def ask(self, op: str, session: str = "s1", **args: Any) -> dict[str, Any]:
        self.send(1, op, session, **args)
        number, answer = self.answer()
        assert number == 1
        return answer

    def look(self) -> None:
        """Have the host know that Spark sees its lake."""
        look = self.ask("tables", namespace=["default"])["look"]
        seen = Path(look["uri"].removeprefix("lockstep://head.file")).read_bytes()
        told = {"root": look["root"], "settings": {}, "file_system": "…", "failures": [], "message": None}
        told |= {"length": len(seen), "digest": hashlib.sha256(seen).hexdigest()}
        told |= {"kept": [], "others": {}, "untold": None, "beside": []}
        assert self.ask("saw_root", **told) == {"ok": {}}

    def begin(self, session: str = "s1") -> str:
        answer = self.ask("begin", session)
        return str(answer["ok"]["transaction_id"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    lake = TransactionalCatalog.open(str(tmp_path / "lake"), create=True)
    create(lake, "a")
    return tmp_path / "lake"


@pytest.fixture
def child(root: Path) -> Iterator[Child]:
    child = Child(root)
    with child.process:
        child.look()
        yield child
        child.process.kill()


def stage(child: Child, root: Path) -> Path:
    """Write into the open transaction of s1, as Delta would; return the staged commit's file."""
    catalog = TransactionalCatalog.open(str(root))
    uri = child.ask("resolve", namespace=[], table="a", use="append", writes=True)["ok"]["uri"]
    view = Uris(catalog.lake.storage.url).parse(uri)
    assert view.transaction is not None
    path = staged_path(view.location, view.transaction, 1)
    lay(catalog.lake.storage, view.location, [add("x")])
    catalog.lake.storage.put(path, render([{"commitInfo": {"operation": "WRITE"}}, add("x")]))
    assert child.ask("staged", uri=uri, version=1, text=None, has_read=False) == {"ok": {"claims": False}}
    return root / path


def test_it_says_which_version_it_is_and_whose_its_transactions_are(child: Child, root: Path) -> None:
    assert child.hello == {"version": __version__, "process": child.process.pid}
    child.begin()
    stage(child, root)
    assert child.ask("commit")["ok"]["tables_changed"] == 1
    catalog = TransactionalCatalog.open(str(root))
    assert catalog.database().tables[named("a")].version == 1
    assert catalog.timeline.entries(1)[-1].transaction.application == "tests"


def test_an_answer_comes_to_the_request_that_asked(child: Child) -> None:
    """Many threads of the driver ask at once, each in a session of its own."""
    for number in range(50):
        child.send(number, "begin", f"s{number}")
    begun = dict(child.answer() for _ in range(50))
    for number in range(50):
        child.send(number, "rollback", f"s{number}")
    ended = dict(child.answer() for _ in range(50))
    ids = {number: answer["ok"]["transaction_id"] for number, answer in begun.items()}
    assert ids == {number: answer["ok"]["transaction_id"] for number, answer in ended.items()}
    assert len(set(ids.values())) == 50


def test_what_cannot_be_answered_is_an_error_and_not_the_end(child: Child) -> None:
    assert child.ask("no such thing")["error"]["condition"] == "LOCKSTEP_INTERNAL"
    assert child.ask("commit")["error"]["sqlstate"] == "25P01"


@pytest.mark.skipif(sys.platform != "linux", reason="limits a running process")
def test_where_there_can_be_no_more_threads_requests_wait_and_nothing_ends(child: Child, root: Path) -> None:
    """A container has so many at most, the JVM's among them; who ends takes all open transactions along."""
    id_ = child.begin()
    pages = int(Path(f"/proc/{child.process.pid}/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + ROOM_FOR_NO_STACK
    _, most = resource.prlimit(child.process.pid, resource.RLIMIT_AS)
    resource.prlimit(child.process.pid, resource.RLIMIT_AS, (room, most))
    for number in range(100):
        child.send(number, "tables", f"s{number}", namespace=["default"])
    answers = dict(child.answer() for _ in range(100))
    assert [answers[number]["ok"]["names"] for number in range(100)] == [["a"]] * 100
    resource.prlimit(child.process.pid, resource.RLIMIT_AS, (most, most))
    assert child.ask("commit")["ok"]["transaction_id"] == id_


def test_what_is_no_request_is_an_error_and_not_the_end(child: Child) -> None:
    """The shim waits for the answer of each number, whatever it sent."""
    assert child.process.stdin is not None
    for line in (b"7 ", b"7 \xff\xfe", b"7 []", b"7 {"):
        child.process.stdin.write(line + b"\n")
        child.process.stdin.flush()
        number, answer = child.answer()
        assert (number, answer["error"]["condition"]) == (7, "LOCKSTEP_INTERNAL")
    assert child.begin()


def test_nobody_but_its_driver_can_speak_to_it(child: Child) -> None:
    """It listens on no port, and what it reads from and writes to are pipes that have no name."""
    child.begin()
    process = Path(f"/proc/{child.process.pid}")
    handles = {handle.name: str(handle.readlink()) for handle in (process / "fd").iterdir()}
    assert handles["0"].startswith("pipe:")
    sockets = {target.removeprefix("socket:[").removesuffix("]") for target in handles.values() if "socket:" in target}
    listening, inode, state = "0A", 9, 3
    for table in ("tcp", "tcp6"):
        lines = [line.split() for line in (process / "net" / table).read_text(encoding="ascii").splitlines()[1:]]
        assert not [line for line in lines if line[state] == listening and line[inode] in sockets]


def test_it_ends_with_its_input_and_rolls_back(child: Child, root: Path) -> None:
    child.begin()
    staged = stage(child, root)
    assert staged.exists()
    assert child.process.stdin is not None
    child.process.stdin.close()
    assert child.process.wait(timeout=30) == 0
    assert not staged.exists()
    assert TransactionalCatalog.open(str(root)).database().version == 1


def test_an_interrupt_of_the_terminal_is_not_for_it(child: Child) -> None:
    child.process.send_signal(signal.SIGINT)
    assert child.begin(), "it goes on"


def test_a_killed_driver_takes_it_along(root: Path) -> None:
    """Whatever ended the driver, its end of the pipe is closed with it."""
    driver = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({list(COMMAND)!r}, stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", driver], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert json.loads(parent.stdout.readline())["process"] == child, "it has started"
        parent.kill()
        # Its standard output is the parent's, which is at its end when both are gone, and not before.
        reading = threading.Thread(target=parent.stdout.read, daemon=True)
        reading.start()
        reading.join(timeout=30)
        is_over = not reading.is_alive()
        if not is_over:
            os.kill(child, signal.SIGKILL)
    assert is_over, f"process {child} outlived its driver"
