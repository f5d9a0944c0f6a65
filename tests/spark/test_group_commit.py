"""Sessions of one driver that commit at once: their transactions share puts, and each is whole or not there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from deltalake import DeltaTable

import lockstep
from lockstep.lake.verify import verify
from lockstep.timeline.files import version_in

pytestmark = pytest.mark.long

SESSIONS = 6
ROUNDS = 4


def files_of_entries(root: Path) -> int:
    return sum(version_in(path.name) is not None for path in (root / "_lockstep" / "timeline").iterdir())


@pytest.mark.parametrize("isolation", ["SERIALIZABLE", pytest.param("SNAPSHOT", marks=pytest.mark.deep)])
def test_sessions_that_commit_at_once_lose_and_double_nothing(
    spark: Any, connect: Any, root: Path, isolation: str
) -> None:
    """Each moves rows from its own table to another of its own; all but one COMMIT wait for the one before them."""
    for me in range(SESSIONS):
        for side in "ab":
            spark.sql(f"CREATE TABLE lake.default.{side}{me} (id BIGINT, moved INT)")
        spark.sql(f"INSERT INTO lake.default.a{me} SELECT id, 0 FROM range({ROUNDS})")
    sessions = [connect() for _ in range(SESSIONS)]
    together = Barrier(SESSIONS)

    def work(me: int) -> None:
        session = sessions[me]
        for number in range(ROUNDS):
            session.sql(f"BEGIN ISOLATION LEVEL {isolation}")
            moved = f"SELECT id, {number} FROM lake.default.a{me} WHERE id = {number}"
            session.sql(f"INSERT INTO lake.default.b{me} {moved}")
            session.sql(f"DELETE FROM lake.default.a{me} WHERE id = {number}")
            together.wait()
            session.sql("COMMIT")

    with ThreadPoolExecutor(SESSIONS) as pool:
        list(pool.map(work, range(SESSIONS)))
    for me in range(SESSIONS):
        assert spark.table(f"lake.default.a{me}").count() == 0
        rows = spark.table(f"lake.default.b{me}").collect()
        assert sorted((row.id, row.moved) for row in rows) == [(n, n) for n in range(ROUNDS)]
    catalog = lockstep.TransactionalCatalog.open(str(root))
    for name, table in catalog.database().tables.items():
        rows = DeltaTable(str(root / table.location)).to_pyarrow_table().num_rows  # one who knows nothing of Lockstep
        assert rows == (ROUNDS if name.table.startswith("b") else 0)
    versions = catalog.database().version + 1
    assert files_of_entries(root) < versions, "some of them shared a put"
    assert not verify(catalog.lake.storage, catalog.timeline).differences
