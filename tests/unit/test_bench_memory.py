"""The measurement of a process that lives for long does what it says, for some transactions."""

from __future__ import annotations

import pytest

from tests.bench.memory import AT, run


@pytest.mark.parametrize("case", ["many", "python"])
def test_a_case_has_a_line_with_a_figure_for_each_part(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(case, 0)
    says, count, *figures = capsys.readouterr().out.strip("| \n").split(" | ")
    assert (bool(says), count, len(figures)) == (True, "10", len(AT))
    assert all(int(figure) > 10 for figure in figures)
