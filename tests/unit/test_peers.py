"""`make bench-peers`: what its writers are told to do, what the page says of it, and what is drawn from the page."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest

from project import render_peers, render_scale
from tests.bench.page import paragraph
from tests.bench.peers.__main__ import PROMISED, WORKS, WRITERS, Run, bounds, cell, report, tables_of
from tests.bench.peers.systems import OURS
from tests.bench.peers.writing import worked

SVG = "{http://www.w3.org/2000/svg}"


def test_writers_share_tables_or_have_their_own() -> None:
    tables = {work: {tuple(tables_of(work, 0, writer)) for writer in range(WRITERS)} for work in WORKS}
    assert {work: (len(each), len(next(iter(each)))) for work, each in tables.items()} == {
        "one table": (1, 1),
        "a table each": (WRITERS, 1),
        "two tables": (1, 2),
    }
    assert not set(tables_of("one table", 0, 0)) & set(tables_of("one table", 1, 0)), "each round has its own"


class Clock:
    """Every transaction takes a second, and the first ones are refused."""

    def __init__(self, *, refused: int) -> None:
        self.now = 0.0
        self._refused = refused

    def commit(self, _: Sequence[str]) -> bool:
        self.now += 1
        self._refused -= 1
        return self._refused < 0


def test_a_refused_transaction_is_counted_and_its_time_is_that_of_the_one_that_commits() -> None:
    clock = Clock(refused=2)
    assert worked(clock.commit, ["t"], 5, lambda: clock.now) == ([3, 1, 1], 2)


def test_a_writer_that_is_always_refused_ends_in_time() -> None:
    clock = Clock(refused=99)
    assert worked(clock.commit, ["t"], 5, lambda: clock.now) == ([], 5)


PAGE = report(
    {
        "ours": {work: [Run(10 * n, [0.001, 0.002], 0), Run(30 * n, [0.003], 1)] for n, work in enumerate(WORKS, 1)},
        "theirs": "no server here",
        "others": {work: [Run(0, [], 9), Run(0, [], 9)] for work in WORKS},
    },
    {"ours": "all", "theirs": "all", "others": "nothing"},
    3,
)


def test_the_page_has_medians_what_was_refused_and_why_a_system_is_missing() -> None:
    assert "| ours | **20** (2, 3) | **40** (2, 3) | **60** (2, 3) | 3 | all |" in PAGE
    assert "| theirs | not measured: no server here | | | | |" in PAGE
    assert "| others | **0** (-) | **0** (-) | **0** (-) | 54 | nothing |" in PAGE
    assert "promises 400 a second of one table, and of a table each. What is durable" in " ".join(PAGE.split())
    assert cell([Run(1, [0.001] * 99 + [1.0], 0)]) == "**1** (1, 1000)"


@pytest.mark.parametrize(
    ("rates", "kept"),
    [
        pytest.param((400, 401), "yes and yes", id="both"),
        pytest.param((399, 500), "**no** and yes", id="one table is slow"),
        pytest.param((500, 399), "yes and **no**", id="a table each is slow"),
        pytest.param(None, "**no** and **no**", id="not measured"),
    ],
)
def test_what_our_core_promises_is_said_and_judged(rates: tuple[float, float] | None, kept: str) -> None:
    works = {work: [Run(1.0, [0.001], 0)] for work in WORKS}
    if rates is not None:
        works |= {work: [Run(rate, [0.001], 0)] for work, rate in zip(PROMISED, rates, strict=True)}
    ours = works if rates is not None else "no disk"
    text = report({OURS: ours, "ours": works}, {OURS: "all", "ours": "all"}, 3)
    assert f"a table each (kept: {kept}). What is durable" in " ".join(text.split())
    assert all(bound.is_kept for bound in bounds(ours)) == ("no" not in kept)


def test_the_picture_has_the_figures_of_the_page() -> None:
    page = f"<!-- peers -->\n{PAGE}\n<!-- /peers -->\n| elsewhere | **9** (1, 1) | **9** (1, 1) | **9** (1, 1) |\n"
    assert render_peers.rates(page) == [("ours", (20, 40, 60)), ("others", (0, 0, 0))]
    bars = list(ET.fromstring(render_peers.svg(page)).iter(f"{SVG}rect"))[1:]
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert widths[:3] == pytest.approx([widths[2] / 3, widths[2] * 2 / 3, widths[2]], abs=0.1)
    assert widths[3:] == [0, 0, 0]


def test_the_curves_are_those_of_the_simulated_table() -> None:
    page = (
        "<!-- writers -->\n| S3, a process each: 10 | 1 | **0.8** | 1 |\n"
        "| S3, a process each: 1,000 | 100 | **10.0** | 1 |\n"
        "| S3, 20 a process: 10 | 1 | **1.0** | 1 |\n<!-- /writers -->\n| S3, not drawn: 10 | 1 | **1.0** | 1 |\n"
    )
    assert render_scale.curves(page) == {
        "S3, a process each": [(10, 0.8), (1000, 10.0)],
        "S3, 20 a process": [(10, 1.0)],
    }
    [line, _] = ET.fromstring(render_scale.svg(page)).iter(f"{SVG}polyline")
    (left, low), (right, high) = (map(float, point.split(",")) for point in line.attrib["points"].split())
    assert (left, right) == (render_scale.LEFT, render_scale.RIGHT)
    assert high < low


def test_a_paragraph_fits_the_page() -> None:
    text = paragraph(
        """some   words
        and `code` """
        + "more " * 40
    )
    assert max(map(len, text.splitlines())) <= 119
    assert text.startswith("some words and `code` more")
