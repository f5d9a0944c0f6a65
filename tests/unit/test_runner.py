"""What runs the contract's files would say so if a record did not hold. The session here is a table of answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.contract import Case
from tests.support.runner import Failure, Result, run_case

ANSWERS: dict[str, Result | Failure] = {
    "one": Result(["a"], [[1]]),
    "two": Result(["a"], [[1], [2]]),
    "fails": Failure("40001", "collided in t\n\tat a.java.Class"),
    "fails without": Failure(None, "no state"),
    "begin SNAPSHOT": Result([], []),
}


@dataclass
class Answering:
    """A connection that has an answer for each statement, and remembers what it was asked."""

    asked: list[str] = field(default_factory=list)

    def run(self, sql: str) -> Result | Failure:
        self.asked.append(sql)
        return ANSWERS[sql]


def ran(tmp_path: Path, text: str, *, level: str = "") -> tuple[str, dict[str, Answering]]:
    """Run a file of this text; return what was wrong, and the connections that it opened."""
    path = tmp_path / "some.test"
    path.write_text(text, encoding="utf-8")
    opened: dict[str, Answering] = {}
    return run_case(Case("some", path, level), lambda name: opened.setdefault(name, Answering()), {"t": "two"}), opened


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("statement ok\none", id="succeeds"),
        pytest.param("query\none\n----\n1", id="rows"),
        pytest.param("statement error 40001\nfails\n----\nin t", id="error"),
        pytest.param("query rowsort\n${t}\n----\n2\n1", id="variable"),
        pytest.param("let n\none\n\nquery\none\n----\n1", id="let"),
    ],
)
def test_what_holds_is_not_wrong(tmp_path: Path, text: str) -> None:
    assert ran(tmp_path, text)[0] == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("statement ok\nfails", "failed with SQLSTATE 40001:\ncollided in t", id="fails"),
        pytest.param("query\nfails without\n----\n1", "failed with SQLSTATE None", id="query-fails"),
        pytest.param("query\none\n----\n2", "expected:\n  2\nfound:\n  1", id="other-rows"),
        pytest.param("statement error 40001\none", "found no error", id="no-error"),
        pytest.param("statement error 25P02\nfails", "expected SQLSTATE 25P02 , found 40001", id="other-state"),
        pytest.param("statement error 40001\nfails without", "found None", id="no-state"),
        pytest.param("statement error 40001\nfails\n----\nin u", "['in u']", id="other-message"),
        pytest.param("let n\ntwo", "expected one value", id="no-value"),
        pytest.param("statement ok\n${u}", "${u} has no value", id="no-variable"),
        pytest.param("statement ok\none\n\nstatement ok con2\nfails", "some.test:4 [con2]", id="where"),
    ],
)
def test_what_does_not_hold_is_told(tmp_path: Path, text: str, says: str) -> None:
    wrong, _ = ran(tmp_path, text)
    assert says in wrong
    assert "java" not in wrong


def test_it_ends_at_the_first_record_that_does_not_hold(tmp_path: Path) -> None:
    wrong, opened = ran(tmp_path, "statement ok\none\n\nstatement ok\nfails\n\nstatement ok\ntwo")
    assert wrong
    assert opened["con1"].asked == ["one", "fails"]


def test_each_connection_is_opened_once_and_gets_its_own_records(tmp_path: Path) -> None:
    text = "statement ok con2\none\n\nstatement ok\nbegin ${level}\n\nstatement ok con2\ntwo"
    wrong, opened = ran(tmp_path, text, level="SNAPSHOT")
    assert wrong == ""
    assert {name: each.asked for name, each in opened.items()} == {"con2": ["one", "two"], "con1": ["begin SNAPSHOT"]}
