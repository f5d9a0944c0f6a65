"""`make model` fails unless Alloy ran each command of the model, and each came to what the model says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from project.check_model import MODEL, expected, wrong

TEXT = """
check Promise { always x } for 3 expect 0
check Broken {
  flaw implies always x
} for 3 expect 1
run possible { some x } for 3 expect 1
"""


def test_what_is_expected_of_each_command() -> None:
    assert expected(TEXT) == {"Promise": False, "Broken": True, "possible": True}


@pytest.mark.parametrize(
    ("commands", "lines"),
    [
        ({"Promise": {}, "Broken": {"solution": [1]}, "possible": {"solution": [1]}}, []),
        (
            {"Promise": {"solution": [1]}, "Broken": {"solution": [1]}, "possible": {"solution": [1]}},
            ["Promise: there is a counterexample"],
        ),
        ({"Promise": {}, "Broken": {}, "possible": {"solution": [1]}}, ["Broken: nothing was found"]),
        ({"Promise": {}, "Broken": {"solution": [1]}}, ["possible: was not run"]),
        ({}, ["Promise: was not run", "Broken: was not run", "possible: was not run"]),
    ],
)
def test_a_run_that_is_not_as_expected_is_told(commands: dict[str, object], lines: list[str]) -> None:
    assert wrong(TEXT, {"commands": commands}) == lines


def test_no_command_is_without_expectation_and_the_page_has_them_all() -> None:
    model = MODEL.read_text(encoding="utf-8")
    names = re.findall(r"^(?:check|run) (\w+)", model, re.MULTILINE)
    assert list(expected(model)) == names
    page = Path(MODEL.parent, "README.md").read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in page] == []
    assert [name for name, is_found in expected(model).items() if is_found and name.startswith("Finds")] != []
