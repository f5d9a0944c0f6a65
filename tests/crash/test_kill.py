"""Processes that are really killed, with SIGKILL, at the worst moments; and what the next one finds."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pyarrow.parquet import read_table

from lockstep.catalog import TransactionalCatalog
from lockstep.storage import open_storage
from tests.support.driver import Driver
from tests.support.lakes import create, files, named, open_catalog, replay
from tests.support.placed import delta_tables, matching, root_in

SET_UP = (
    "CREATE TABLE a (id BIGINT)",
    "CREATE TABLE b (id BIGINT, v STRING)",
    "INSERT INTO a VALUES (1)",
    "INSERT INTO b VALUES (1, 'old')",
)
TRANSACTION = (
    "BEGIN COMMENT 'to be killed'",
    "INSERT INTO a VALUES (2)",
    "UPDATE b SET v = 'new'",
    "CREATE TABLE c AS SELECT id FROM a",
)
BEFORE: dict[str, list[dict[str, Any]]] = {"a": [{"id": 1}], "b": [{"id": 1, "v": "old"}]}
AFTER: dict[str, list[dict[str, Any]]] = {
    "a": [{"id": 1}, {"id": 2}],
    "b": [{"id": 1, "v": "new"}],
    "c": [{"id": 1}, {"id": 2}],
}


COMMITS = "_delta_log/*.json"


def folders(root: str) -> list[str]:
    """Return where the lake's tables lie."""
    return [table.location for table in TransactionalCatalog.open(root).database().tables.values()]


def without_spark(root: str) -> dict[str, list[dict[str, Any]]]:
    """Open the lake as the next process does, and then read its tables as any Delta reader does."""
    rows = {name: table.to_pyarrow_table().to_pylist() for name, table in delta_tables(root).items()}
    return {name: sorted(found, key=lambda row: row["id"]) for name, found in rows.items()}


# Slow: each starts a Spark driver, which takes most of its ten seconds or so; the first case, another for a reader.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "expected", "published"),
    [
        ("between-publishes", AFTER, 1),
        pytest.param("after-ratify", AFTER, 0, marks=pytest.mark.deep),  # so dies a stream in test_streaming.py
        ("before-ratify", BEFORE, 0),
    ],
)
def test_a_driver_killed_in_its_commit(
    tmp_path: Path, point: str, expected: dict[str, list[dict[str, Any]]], published: int
) -> None:
    """Before the one write that ratifies: the version before. After it: the version after, complete in all tables.

    What the driver after it leaves open when its Spark is stopped is rolled back.
    """
    root = root_in(tmp_path)
    with Driver(root) as driver:
        driver.sql(*SET_UP)
        before = len(matching(root, COMMITS))
        driver.sql(*TRANSACTION)
        assert driver.ask({"stop": point}) == {"armed": point}
        assert driver.ask({"sql": "COMMIT"}) == {"stopped": point}
        driver.kill()
    assert len(matching(root, COMMITS)) == before + published
    if point == "between-publishes":
        with Driver(root) as next_session:
            for name, rows in expected.items():
                assert next_session.sql(f"SELECT * FROM {name} ORDER BY id") == rows
            (begun,) = next_session.sql("BEGIN")
            next_session.sql("INSERT INTO a VALUES (3)")
            staged = f"_delta_log/_lockstep/{begun['transaction_id']}/*.json"
            assert matching(root, staged)
            assert next_session.ask({"end": ""}) == {"ended": True}
            assert not matching(root, staged), "the end of Spark rolls back"
    assert without_spark(root) == expected


@pytest.mark.deep  # it starts a Spark driver; one that lives is in tests/spark/test_checkpoints_after_commit.py
def test_a_driver_killed_right_after_its_commit_leaves_whole_checkpoints(tmp_path: Path) -> None:
    """COMMIT answers once they are written, as a statement of plain Delta does."""
    root = root_in(tmp_path)
    with Driver(root) as driver:
        for name, policy in (("a", "classic"), ("b", "v2")):
            properties = f"'delta.checkpointInterval' = '1', 'delta.checkpointPolicy' = '{policy}'"
            driver.sql(f"CREATE TABLE {name} (id BIGINT) TBLPROPERTIES ({properties})")
        driver.sql("BEGIN", "INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)", "COMMIT")
        driver.kill()
    store = open_storage(root)
    hints = [store.get(path) or b"" for path in matching(root, "_delta_log/_last_checkpoint")]
    assert [json.loads(hint)["version"] for hint in hints] == [1, 1]
    checkpoints = matching(root, f"_delta_log/{1:020d}.checkpoint.*")
    assert [len([path for path in checkpoints if path.startswith(folder)]) for folder in folders(root)] == [1, 1]
    parts = [*matching(root, "_delta_log/[0-9]*.parquet"), *matching(root, "_delta_log/_sidecars/[!.]*")]
    tables = [read_table(BytesIO(store.get(path) or b"")) for path in parts]
    added = [file["path"] for table in tables for file in table["add"].to_pylist() if file is not None]
    assert len(added) == 2
    files = [path.rpartition("/")[2] for path in matching(root, "part-*[0-9a-z].parquet")]
    assert sorted(added) == sorted(files), "of each table its file"
    assert not matching(root, "*.tmp"), "nothing is half written"


COMMITTER = """
import sys
from itertools import count
from lockstep.storage import open_storage
from tests.support.lakes import add, open_catalog, stage

root, process = sys.argv[1:]
catalog = open_catalog(open_storage(root))
for n in count():
    tx = catalog.begin(isolation="SNAPSHOT")
    for name in "ab":
        stage(catalog, tx, name, add(f"{process}-{n}"))
    catalog.commit(tx)
    print(f"{process}-{n}", flush=True)
"""


# Slow: twelve processes, one after the other's death, each starting Python and reading the timeline that has grown.
@pytest.mark.slow
def test_of_processes_killed_wherever_they_are_no_commit_is_half(tmp_path: Path, repository: Path) -> None:
    """Two at a time commit to both tables as fast as they can, and die after an answer, in the middle of the next."""
    root = root_in(tmp_path)
    create(open_catalog(open_storage(root, create=True)), "a", "b")
    answered: set[str] = set()
    for round_ in range(6):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", COMMITTER, root, f"{round_}{each}"],
                stdout=subprocess.PIPE,
                text=True,
                cwd=repository,
            )
            for each in "xy"
        ]
        for process in running:
            assert process.stdout is not None
            answered |= {process.stdout.readline().strip() for _ in range(2 + round_)}
        for process in running:
            process.kill()
        for process in running:
            answered |= set(process.communicate()[0].split("\n")[:-1])
    catalog = open_catalog(open_storage(root))
    assert files(catalog, "a") == files(catalog, "b")
    assert "" not in answered
    assert answered <= files(catalog, "a"), "who was told that it is committed can rely on it"
    assert len(files(catalog, "a") - answered) <= 12, "each process had one commit under way"
    for version in range(1, catalog.timeline.head.version + 1):
        tables = catalog.as_of(version).tables
        seen = [replay(catalog.lake.storage, tables[named(n)].location, tables[named(n)].version) for n in "ab"]
        assert seen[0] == seen[1], f"database version {version}"
