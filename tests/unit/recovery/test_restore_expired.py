"""A table whose DROP has expired comes back to a version that a tag keeps: what it was last, the history says.

The files are real: Python writes the tables, and upkeep deletes what no version needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import commit_path
from lockstep.errors import ExpiredError, ForeignCommitError, InvalidError, MissingFilesError, UndefinedError
from lockstep.lake.verify import verify
from lockstep.recovery.changes import undrop
from lockstep.recovery.dropped import dropped_tables
from lockstep.recovery.tags import new_tag
from lockstep.retention.ages import Retention
from lockstep.retention.upkeep import maintain
from lockstep.storage import open_storage
from lockstep.tables.opened import OpenLake
from lockstep.timeline import fence
from lockstep.timeline.segment import FOLDER as SEGMENTS
from tests.support.lakes import named, open_catalog
from tests.support.retained import AgedStorage, Ticking

SCHEMA = pa.schema([("id", pa.int64())])
VECTORS = {"delta.enableDeletionVectors": "true"}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenLake:
    """Return a lake with a clock of its own: table t of two files, of which a tag keeps one state."""
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)  # no process but this one
    clock = Ticking()
    store = AgedStorage(open_storage(str(tmp_path / "lake"), create=True), clock)
    found = OpenLake(open_catalog(store, clock=clock), {})
    with found.transaction() as tx:
        tx.create("t", SCHEMA, properties=VECTORS).append({"id": [1, 2]})
    with found.transaction() as tx:
        tx["t"].append({"id": [3]})
    tag(found.catalog, "kept")
    return found


def tag(catalog: TransactionalCatalog, name: str) -> None:
    ddl = new_tag(name, version=None, days=None, comment="", now=catalog.lake.clock())
    catalog.run(lambda tx: tx.changing().create_tag(ddl))


def ids(lake: OpenLake, name: str = "t") -> list[int]:
    return sorted(lake.at()[name].to_arrow()["id"].to_pylist())


def drop(lake: OpenLake, name: str = "t") -> None:
    with lake.transaction() as tx:
        tx.drop(name)


def write(lake: OpenLake, *statements: Callable[[Any], object], name: str = "t") -> None:
    for statement in statements:
        with lake.transaction() as tx:
            statement(tx[name])


def data_files(lake: OpenLake) -> set[str]:
    """Return the data files that there are, by their paths in the lake."""
    return {found.path for found in lake.catalog.lake.storage.walk("") if found.path.endswith((".parquet", ".bin"))}


def years_later(lake: OpenLake) -> None:
    """Let all expire but what tags keep, and have what nobody needs deleted."""
    core, clock = lake.catalog.lake, lake.catalog.lake.clock
    assert isinstance(clock, Ticking)
    for _ in range(3):
        clock.now += timedelta(days=400)
        write_something(lake)
        maintain(core, replace(Retention.of({"retention-versions": "1"}), age=timedelta(days=1)))


def write_something(lake: OpenLake) -> None:
    """Make a version that changes nothing of t."""
    number = lake.catalog.timeline.head.version
    lake.catalog.run(lambda tx: tx.changing().create_namespace((f"n{number}",), {}))


def renamed(lake: OpenLake) -> None:
    write(lake, lambda t: t.overwrite({"id": [9]}))
    with lake.transaction() as tx:
        tx.rename("t", "u")
    write(lake, lambda u: u.append({"id": [10]}), name="u")
    drop(lake, "u")


def twice(lake: OpenLake) -> None:
    write(lake, lambda t: t.delete("id = 1"))
    drop(lake)
    tx = lake.catalog.begin()
    undrop(lake.catalog.lake, tx, named("t"))
    lake.catalog.commit(tx)
    write(lake, lambda t: t.append({"id": [7]}))
    drop(lake)


def plainly(lake: OpenLake) -> None:
    table = lake.catalog.database().tables[named("t")]
    folder = lake.catalog.lake.storage.url.removeprefix("file://")
    plain = pa.table({"id": [20]}, schema=SCHEMA)
    write_deltalake(f"{folder}/{table.location}", plain, mode="append")
    assert 20 in ids(lake)
    drop(lake)


def written(lake: OpenLake) -> None:
    write(lake, lambda t: t.delete("id = 1"), lambda t: t.overwrite({"id": [9]}))
    drop(lake)


HISTORIES: dict[str, Callable[[OpenLake], None]] = {
    "unchanged": drop,
    "written": written,
    "renamed": renamed,
    "dropped twice": twice,
    "written by a plain writer": plainly,
}


@pytest.mark.parametrize("history", HISTORIES)
def test_it_comes_back_as_the_tag_has_it(lake: OpenLake, history: str) -> None:
    kept = data_files(lake)
    HISTORIES[history](lake)
    last = data_files(lake)
    years_later(lake)
    assert data_files(lake) == kept, "upkeep has left what the tag needs, and nothing else"
    assert (last == kept) == (history == "unchanged")
    assert list(dropped_tables(lake.catalog.timeline)) == [], "its DROP has expired"
    planned = lake.restore("kept", tables=["t"], dry_run=True)
    done = lake.restore("kept", tables=["t"])
    assert [change.change for change in planned.changes] == [change.change for change in done.changes] == ["created"]
    assert ids(lake) == [1, 2, 3]
    write(lake, lambda t: t.append({"id": [4]}))
    years_later(lake)
    assert ids(lake) == [1, 2, 3, 4]
    assert verify(lake.catalog.lake.storage, lake.catalog.timeline).differences == ()


def test_a_process_that_never_knew_it_brings_it_back(lake: OpenLake) -> None:
    write(lake, lambda t: t.overwrite({"id": [9]}))
    drop(lake)
    years_later(lake)
    other = OpenLake(open_catalog(lake.catalog.lake.storage, clock=lake.catalog.lake.clock), {})
    other.restore("kept")
    assert ids(other) == [1, 2, 3]


def test_what_it_was_last_is_gone_with_the_drop(lake: OpenLake) -> None:
    """UNDROP brings back the last state, which nobody kept."""
    drop(lake)
    years_later(lake)
    with pytest.raises(UndefinedError):
        undrop(lake.catalog.lake, lake.catalog.begin(), named("t"))


def test_without_the_history_nobody_knows_how_it_was_last(lake: OpenLake) -> None:
    drop(lake)
    years_later(lake)
    store = lake.catalog.lake.storage
    for name in store.list(SEGMENTS):
        store.delete(f"{SEGMENTS}/{name}")
    other = OpenLake(open_catalog(store, clock=lake.catalog.lake.clock), {})
    before = other.catalog.timeline.head.version
    with pytest.raises(ExpiredError, match=r"table default\.t cannot come back: its DROP has expired"):
        other.restore("kept", tables=["t"])
    assert other.catalog.timeline.head.version == before


@pytest.mark.parametrize(
    "made",
    [lambda data: data.replace(b"lockstepTransaction", b"another"), lambda data: data[:-9]],
    ids=["whole", "torn"],
)
def test_a_commit_that_a_plain_writer_took_is_refused_as_ever(lake: OpenLake, made: Callable[[bytes], bytes]) -> None:
    """The timeline's commit was never in the log, and expired with the drop: who wrote the log's, it says itself."""
    table = lake.catalog.database().tables[named("t")]
    drop(lake)
    years_later(lake)
    store = lake.catalog.lake.storage
    path = commit_path(table.location, table.version)
    store.put(path, made(store.get(path) or b""))
    with pytest.raises(ForeignCommitError, match="is not what database version 2 committed"):
        lake.restore("kept", tables=["t"])


def test_the_tag_must_be_there_at_the_commit(lake: OpenLake) -> None:
    """Upkeep may take what it kept as soon as it is gone."""
    drop(lake)
    years_later(lake)
    tx = lake.transaction().__enter__()
    tx.restore("kept", tables=["t"])
    other = open_catalog(lake.catalog.lake.storage, clock=lake.catalog.lake.clock)
    other.run(lambda it: it.changing().drop_tag("kept"))
    clock = lake.catalog.lake.clock
    assert isinstance(clock, Ticking)
    clock.now += timedelta(days=2)
    maintain(other.lake, Retention.of({"retention-versions": "1"}))
    with pytest.raises(MissingFilesError, match="database version 3, which transaction"):
        tx.commit()


def test_what_a_plain_writer_did_behind_the_drop_is_refused(lake: OpenLake) -> None:
    table = lake.catalog.database().tables[named("t")]
    drop(lake)
    years_later(lake)
    store = lake.catalog.lake.storage
    newest = store.get(commit_path(table.location, table.version))
    assert newest is not None
    store.put(commit_path(table.location, table.version + 1), newest)
    with pytest.raises(InvalidError, match="a plain Delta writer wrote it after"):
        lake.restore("kept", tables=["t"])


@pytest.mark.parametrize("is_tagged", [False, True])
def test_what_is_listed_as_dropped_can_come_back(lake: OpenLake, is_tagged: bool) -> None:
    """Of the last version before a DROP alone it can: what keeps the DROP's own version does not keep that one."""
    write(lake, lambda t: t.append({"id": [4]}))
    if is_tagged:
        tag(lake.catalog, "last")
    drop(lake)
    dropped_by = lake.catalog.timeline.head.version
    clock = lake.catalog.lake.clock
    assert isinstance(clock, Ticking)
    clock.now += timedelta(days=400)
    write_something(lake)
    for _ in range(2):
        maintain(lake.catalog.lake, replace(Retention.of({"retention-versions": "2"}), age=timedelta(days=1)))
        clock.now += timedelta(days=1)
    assert lake.catalog.timeline.head.expired.first_kept == dropped_by
    if is_tagged:
        [listed] = lake.dropped()
        assert lake.undrop("t") == lake.catalog.timeline.head.version
        assert (listed.version, ids(lake)) == (dropped_by, [1, 2, 3, 4])
    else:
        assert lake.dropped() == []
        with pytest.raises(UndefinedError, match="no dropped table default"):
            lake.undrop("t")
