"""Writers that race for one table: none fails, none starves, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.storage import open_storage
from tests.support.lakes import files, open_catalog
from tests.support.placed import root_in
from tests.support.writers import TABLE, TURNS, run_writers


@pytest.mark.parametrize("policy", [TURNS, "losers first"])
def test_of_many_writers_of_one_table_none_fails_and_none_starves(tmp_path: Path, policy: str) -> None:
    root = root_in(tmp_path)
    reports = run_writers(root, writers=6, appends=6, policy=policy)
    catalog = open_catalog(open_storage(root))
    assert files(catalog, TABLE) == {f"w{writer}-{n}" for writer in range(6) for n in range(6)}
    attempts = [n for report in reports for n in report.attempts]
    assert policy == TURNS or max(attempts) > 1, "they did race"
    # Far above what is seen (8 or so), far below the thousand that are allowed.
    assert max(attempts) < 60
    # By what landed, and not by how long it took: a busy machine may keep one or two of them from running at all.
    # Without turns so few appends may well come to the same few writers, who are just the ones that run.
    first_end = min(max(report.versions) for report in reports)
    had_a_turn = [report for report in reports if min(report.versions) < first_end]
    assert policy != TURNS or len(had_a_turn) > 3, "when the first has all its appends, most others have some"
