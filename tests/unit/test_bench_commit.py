"""What `make bench` measures of COMMIT itself is a COMMIT that happens: no other target runs that code."""

from __future__ import annotations

from pathlib import Path

from lockstep.catalog import TransactionalCatalog
from lockstep.timeline.entry import Name
from tests.bench.commit import TABLES, commit_cost


def test_every_measured_commit_is_in_the_timeline(tmp_path: Path) -> None:
    catalog = TransactionalCatalog.open(f"file://{tmp_path}", create=True)
    text = commit_cost(lambda: catalog, 2)
    assert [line.split(" | ")[0] for line in text.splitlines() if "**" in line] == [f"| {n}" for n in TABLES]
    database = catalog.database()
    for tables in TABLES:
        versions = [database.tables[Name(("default",), f"t{tables}_{i}")].version for i in range(tables)]
        assert versions == [2] * tables  # made, and appended to twice
