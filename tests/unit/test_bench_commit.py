"""What `make bench` measures of COMMIT itself is a COMMIT that happens: no other target runs that code."""

from __future__ import annotations

from pathlib import Path

from lockstep.catalog import TransactionalCatalog
from lockstep.timeline.entry import Name
from tests.bench.commit import TABLES, commit_cost


def test_every_measured_commit_is_in_the_timeline(tmp_path: Path) -> None:
    catalog = TransactionalCatalog.open(f"file://{tmp_path}", create=True)
    cost = commit_cost(lambda: catalog, 2)
    rows = [line.split(" | ") for line in cost.text.splitlines() if line.startswith(tuple(f"| {n} |" for n in TABLES))]
    assert [(row[0], row[2], row[3]) for row in rows] == [
        (f"| {n}", f"{most:g}", bound.verdict) for (n, most), bound in zip(TABLES.items(), cost.bounds, strict=True)
    ]
    database = catalog.database()
    for tables in TABLES:
        versions = [database.tables[Name(("default",), f"t{tables}_{i}")].version for i in range(tables)]
        assert versions == [2] * tables  # made, and appended to twice
