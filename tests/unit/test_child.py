"""How tests start a process of their own and ask it: whatever happens to it is told, and nothing of it stays."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from lockstep.storage import open_storage
from tests.support.child import Child, EndedError
from tests.support.lakes import create, open_catalog
from tests.support.plain import check_plain

MODULE = "tests.support.recoverer"


def test_each_request_has_an_answer_and_the_end_of_input_ends_it(tmp_path: Path) -> None:
    create(open_catalog(open_storage(str(tmp_path / "lake"), create=True)), "a")
    with closing(Child(MODULE)) as child:
        for _ in range(2):
            assert child.ask(str(tmp_path / "lake")) == {"versions": {"default.a": 0}, "set_aside": []}
    assert child.returncode == 0


def test_a_process_that_fails_is_told_at_once_and_again() -> None:
    with Child(MODULE, errors=subprocess.DEVNULL) as child:
        child.tell(1)
        for _ in range(2):
            with pytest.raises(EndedError, match=rf"{MODULE} ended with exit code 1"):
                child.answer()
        with pytest.raises(EndedError):
            list(child.rest())


def test_patience_ends() -> None:
    with Child(MODULE, patience_s=0.1) as child, pytest.raises(AssertionError, match=r"no answer .* within 0.1 s"):
        child.answer()
    assert child.returncode == -9, "nothing is left running"


def test_what_it_prints_is_no_answer(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w") as errors, closing(Child("tests.unit.test_child", errors=errors)) as child:
        assert list(child.rest()) == ["an answer"]
    assert "printed" in (tmp_path / "errors").read_text()


def test_a_process_with_lockstep_is_not_plain_delta() -> None:
    with pytest.raises(AssertionError, match=r"plain Delta has loaded \['lockstep'"):
        check_plain()


if __name__ == "__main__":
    from tests.support.child import Parent

    parent = Parent()
    print("printed")
    subprocess.run(["echo", "printed, too"], check=True)
    parent.say("an answer")
