"""`make bench-large`: the tables that it lays are what it says, and so is its page."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from tests.bench.large import ROWS, SIDES, WORKS, lay_files, lay_table, section


def test_a_table_is_laid_of_files_that_statistics_tell_apart(tmp_path: Path) -> None:
    lay_files(tmp_path / "laid", 3)
    for name in ("a", "b"):
        lay_table(tmp_path / name, tmp_path / "laid")
    tables = [DeltaTable(tmp_path / name) for name in ("a", "b")]
    assert [table.metadata().id for table in tables] == ["a", "b"]  # type: ignore[comparison-overlap]  # its stubs say a number
    rows = tables[0].to_pyarrow_table().sort_by("id")
    assert rows["id"].to_pylist() == list(range(3 * ROWS))
    assert tables[0].to_pyarrow_dataset().count_rows() == 3 * ROWS
    bounds = tables[0].get_add_actions(flatten=True)
    assert sorted(bounds["min.id"].to_pylist()) == [0, ROWS, 2 * ROWS]


def test_the_page_has_each_side_against_plain_delta() -> None:
    took = {"plain": [100.0, 100.0], "lockstep": [150.0, 150.0], "lockstep-kept": [50.0, 50.0]}
    assert took.keys() == SIDES.keys()
    text = section({5_000: dict.fromkeys(WORKS, took)}, 2)
    expected = "| 150 | 50 | 100 | **1.50** (1.50-1.50) | **0.50** (0.50-0.50) |"
    assert text.splitlines()[-len(WORKS) :] == [f"| 5,000 | {said} {expected}" for said in WORKS.values()]
