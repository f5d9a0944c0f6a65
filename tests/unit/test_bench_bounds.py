"""A bound that a benchmark does not keep fails it, once the page is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bench import __main__ as bench
from tests.bench import long_transaction as long
from tests.bench import slow, tpch, turns
from tests.bench.appending import Run
from tests.bench.bounds import Bound, exit_if_missed, missed
from tests.bench.commit import CommitCost


@pytest.mark.parametrize(
    ("bound", "is_kept"),
    [
        (Bound("at most, below", 1.0, 1.05), True),
        (Bound("at most, the bound itself", 1.05, 1.05), True),
        (Bound("at most, above", 1.06, 1.05), False),
        (Bound("at least, above", 10.3, 10, is_least=True), True),
        (Bound("at least, the bound itself", 10, 10, is_least=True), True),
        (Bound("at least, below", 9.9, 10, is_least=True), False),
        (Bound("no number", float("nan"), 1.05), False),
        (Bound("no number", float("nan"), 10, is_least=True), False),
    ],
    ids=lambda value: value.what if isinstance(value, Bound) else "",
)
def test_a_figure_keeps_its_bound_or_does_not(bound: Bound, is_kept: bool) -> None:
    assert (bound.is_kept, bound.verdict) == (is_kept, "yes" if is_kept else "**no**")
    assert missed([bound]) == ([] if is_kept else [str(bound)])


def test_one_bound_that_is_missed_ends_the_process_with_one_and_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    kept, broken = Bound("a read", 1.0, 1.1), Bound("a write", 1.2, 1.1)
    exit_if_missed([kept])
    with pytest.raises(SystemExit) as ended:
        exit_if_missed([kept, broken])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "bench: not kept: a write: 1.2, and the bound is at most 1.1\n"


def run_of(module: Any, monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    monkeypatch.setattr("sys.argv", ["bench"])
    monkeypatch.setattr(module, "DOCUMENT", page)
    if hasattr(module, "render_docs"):
        monkeypatch.setattr(module.render_docs, "write", lambda: None)
    module.main()


def check_outcome(module: Any, monkeypatch: pytest.MonkeyPatch, page: Path, *, fails: bool) -> None:
    """Run a benchmark, and see that it fails and says "no" in its page, or does neither."""
    if fails:
        with pytest.raises(SystemExit) as ended:
            run_of(module, monkeypatch, page)
        assert ended.value.code == 1
    else:
        run_of(module, monkeypatch, page)
    assert ("**no**" in page.read_text(encoding="utf-8")) == fails


def test_the_slow_store_is_written_down_before_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("", encoding="utf-8")
    monkeypatch.setattr(slow, "measure", lambda writers, *_, **__: Run(10.0 if writers == 1 else 50.0, 1, 1))
    with pytest.raises(SystemExit) as ended:
        run_of(slow, monkeypatch, page)
    assert ended.value.code == 1
    assert "| 50.0 | **5.0** |" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("took", "said"),
    [
        pytest.param((11.0, 9.0, 4.0), "| **1.10** (1.10-1.10) | 1.05 | **no** |", id="dearer than plain Delta"),
        pytest.param(
            (9.0, 11.0, 4.0),
            "`BEGIN; ROLLBACK` takes 11 (11-11) ms; at most 10, kept: **no**. In turn, two `SET` on plain Delta take 8",
            id="nothing is dear",
        ),
        pytest.param((9.0, 9.0, 6.0), "| **0.90** (0.90-0.90) | 1.05 | yes |", id="COMMIT is dear"),
    ],
)
def test_the_comparison_with_plain_delta_is_written_down_before_it_fails(
    took: tuple[float, float, float], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, nothing, commit = took
    page = tmp_path / "page.md"
    page.write_text("", encoding="utf-8")
    works = [bench.Comparison(work, [ours, ours], [10.0, 10.0], [10.2, 10.2]) for work in bench.WORKS]
    monkeypatch.setattr(bench, "measure", lambda *_, **__: bench.Measured(works, [nothing, nothing], [8.0, 8.0]))
    cost = CommitCost("## COMMIT itself\n", [Bound("COMMIT", commit, 5.0)])
    monkeypatch.setattr(bench, "commit_cost", lambda *_: cost)
    with pytest.raises(SystemExit) as ended:
        run_of(bench, monkeypatch, page)
    assert ended.value.code == 1
    assert said in page.read_text(encoding="utf-8")
    assert "against the first: BEGIN" in page.read_text(encoding="utf-8")
    assert "SELECT 1: 1.02 (1.02-1.02)." in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("shared", "each", "fails"), [(400, 401, False), (399, 500, True), (500, 399, True)])
def test_turns_bring_as_many_commits_as_promised_or_fail(
    shared: float, each: float, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("", encoding="utf-8")

    def measured(*_: object, **how: bool) -> turns.Run:
        return turns.Run((shared if how["shared"] else each) if how["turns"] else 1.0, 1, 1, 1)

    monkeypatch.setattr(turns, "measure", measured)
    monkeypatch.setattr(turns, "measure_disk", lambda *_: turns.Run(1_000.0, 1, 1, 1))
    check_outcome(turns, monkeypatch, page, fails=fails)


class Played:
    """A side whose rounds take what they are told to."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def ask(self, _: object) -> Any:
        return json.loads(json.dumps(self._answer))


@pytest.mark.parametrize(("queries", "refreshes", "fails"), [(101, 104, False), (103, 100, True), (100, 106, True)])
def test_tpch_keeps_both_bounds_or_fails(
    queries: float, refreshes: float, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("", encoding="utf-8")

    @contextmanager
    def both(*_: object) -> Iterator[tuple[Played, Played]]:
        yield Played({"queries": queries, "refreshes": refreshes}), Played({"queries": 100, "refreshes": 100})

    monkeypatch.setattr(tpch, "generated", lambda *_: None)
    monkeypatch.setattr(tpch, "both", both)
    check_outcome(tpch, monkeypatch, page, fails=fails)


@pytest.mark.parametrize(("after", "jobs", "fails"), [(109.0, 1, False), (112.0, 1, True), (100.0, 4, True)])
def test_a_long_transaction_reads_as_fast_and_with_as_many_jobs_or_fails(
    after: float, jobs: int, fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("", encoding="utf-8")
    first, last = long.Reads([100.0, 100.0], 1), long.Reads([after, after], jobs)
    monkeypatch.setattr(long, "measure", lambda *_: (first, last))
    check_outcome(long, monkeypatch, page, fails=fails)
