"""A stream into two tables whose driver is killed with SIGKILL, before and after a batch's COMMIT."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.driver import Driver
from tests.support.placed import delta_tables, root_in


def ids(root: str, name: str) -> list[int]:
    """Read a table as any Delta reader does."""
    found: list[int] = delta_tables(root)[name].to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


@pytest.mark.deep  # three Spark drivers, one after the other's death; tests/spark/test_streaming.py has one that lives
def test_each_row_arrives_once_in_both_tables_whenever_the_driver_dies(tmp_path: Path) -> None:
    """Before COMMIT, the batch is run again; after it, and before Spark's checkpoint knows, it is passed over."""
    root, checkpoint = root_in(tmp_path), str(tmp_path / "checkpoint")

    with Driver(root) as first:
        first.sql(*(f"CREATE TABLE {name} (id BIGINT)" for name in ("source", "a", "b")))
        first.sql("INSERT INTO source VALUES (1)")
        assert first.ask({"stream": checkpoint}) == {"streamed": [0]}
        first.sql("INSERT INTO source VALUES (2)")
        die_in_a_batch(first, "before-ratify", checkpoint)
    assert (ids(root, "a"), ids(root, "b")) == ([1], [1])

    with Driver(root) as second:
        die_in_a_batch(second, "after-ratify", checkpoint)
    assert (ids(root, "a"), ids(root, "b")) == ([1, 2], [1, 2])
    assert not (Path(checkpoint) / "commits" / "1").exists(), "Spark does not know of it"

    with Driver(root) as third:
        third.sql("INSERT INTO source VALUES (3)")
        assert third.ask({"stream": checkpoint}) == {"streamed": [2]}, "batch 1 was not run again"
    assert (ids(root, "a"), ids(root, "b")) == ([1, 2, 3], [1, 2, 3])


def die_in_a_batch(driver: Driver, point: str, checkpoint: str) -> None:
    assert driver.ask({"stop": point}) == {"armed": point}
    assert driver.ask({"stream": checkpoint}) == {"stopped": point}
    driver.kill()
