"""The commands that look after a lake, each carried out: what they say, ask, do, and leave when they may not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result

from lockstep.catalog import TransactionalCatalog
from lockstep.cli import arguments, upkeep
from lockstep.delta.actions import render
from lockstep.delta.log import commit_path
from lockstep.workers import Progress
from tests.support.commands import lockstep
from tests.support.lakes import add, append, create, location, named, open_catalog, remove, stage, stage_new
from tests.support.retained import AgedStorage, Ticking

DAY = timedelta(days=1)
AT_ONCE = ("--older-than", "0d", "--retain-last", 1, "--grace", "0d")


@pytest.fixture
def catalog(aged: AgedStorage, clock: Ticking, monkeypatch: pytest.MonkeyPatch) -> TransactionalCatalog:
    """A lake with the tables a, b and space.c, in each of which p gave way to q nine days ago."""
    catalog = open_catalog(aged, clock=clock)
    catalog.run(lambda tx: tx.changing().create_namespace(("space",), {}))
    create(catalog, "a", "b", "space.c", files=["p"])
    tx = catalog.begin()
    for table in ("a", "b", "space.c"):
        stage(catalog, tx, table, remove("p", deletionTimestamp=clock.ms), add("q"))
    catalog.commit(tx)
    clock.now += 9 * DAY
    append(catalog, "b", "later")
    monkeypatch.setattr(upkeep, "_lake", lambda _: open_catalog(aged, clock=clock).lake)
    return catalog


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What a progress bar is told."""
    told: list[tuple[int, int]] = []

    @contextmanager
    def progress() -> Iterator[Progress]:
        yield lambda done, total: told.append((done, total))

    monkeypatch.setattr(upkeep, "_progress", progress)
    return told


def run(command: str, *args: object) -> Result:
    done = lockstep(command, "the lake", *args)
    assert done.exit_code == 0, done.output
    return done


def read(command: str, *args: object) -> Any:
    return json.loads(run(command, *args, "--json").stdout)


def data(catalog: TransactionalCatalog, table: str) -> set[str]:
    return {path for path in catalog.lake.storage.list(location(catalog, table)) if not path.startswith(("_", "."))}


def litter(catalog: TransactionalCatalog) -> str:
    """Leave what a dead transaction staged, older than litter has to be; return where."""
    tx = catalog.begin()
    stage_new(catalog, tx, "never", add("x"))
    [folder] = tx.creations.folders()
    return folder


def test_expire_says_what_it_did_and_moves_the_bar(catalog: TransactionalCatalog, told: list[tuple[int, int]]) -> None:
    newest = catalog.timeline.head.version
    planned = run("expire", *AT_ONCE, "--dry-run").stdout
    assert planned == f"{newest} versions would expire; {newest} to {newest} can be read\n"
    assert told == []
    assert (
        run("expire", *AT_ONCE, "--yes").stdout == f"{newest} versions expired; {newest} to {newest + 1} can be read\n"
    )
    assert told == [(newest - 1, newest - 1)]  # entry 0 stays, and so does the newest
    assert read("status")["oldest_version"] == newest


def test_vacuum_deletes_of_one_table_of_a_namespace_or_of_all(
    catalog: TransactionalCatalog, told: list[tuple[int, int]]
) -> None:
    run("expire", *AT_ONCE, "--yes")
    told.clear()
    for args, left in (
        (("a",), [{"q"}, {"p", "q", "later"}, {"p", "q"}]),
        (("--namespace", "space"), [{"q"}, {"p", "q", "later"}, {"q"}]),
        ((), [{"q"}, {"q", "later"}, {"q"}]),
    ):
        planned = run("vacuum", *args, "--grace", "0d", "--dry-run").stdout
        assert planned.startswith("1 file (4 bytes) would be deleted; 0 files (0 bytes) would be marked"), planned
        assert "/p\n" in planned
        done = run("vacuum", *args, "--grace", "0d", "--yes").stdout
        assert done == "1 file (4 bytes) deleted; 0 files (0 bytes) are marked, for a run after the grace period\n"
        assert [data(catalog, table) for table in ("a", "b", "space.c")] == left
    assert told == [(1, 1)] * 3
    for args, state in ((("nowhere",), "42P01"), (("--namespace", "nowhere"), "3F000"), (("a..b",), "22023")):
        refused = lockstep("vacuum", "the lake", *args, "--yes")
        assert (refused.exit_code, state in refused.stderr) == (1, True), refused.output


def test_gc_deletes_litter_that_is_old_enough(
    catalog: TransactionalCatalog, clock: Ticking, told: list[tuple[int, int]]
) -> None:
    folder = litter(catalog)
    assert read("gc", "--grace", "0d", "--yes")["deleted_files"] == 0
    clock.now += 9 * DAY
    marked = run("gc", "--yes").stdout
    assert marked.startswith("0 files (0 bytes) deleted; 3 files"), marked
    assert catalog.lake.storage.list(folder)
    clock.now += 2 * DAY
    assert run("gc", "--yes").stdout.startswith("3 files")
    assert catalog.lake.storage.list(folder) == []
    assert told[-1][0] == told[-1][1] > 0


def test_maintain_does_all_of_it(catalog: TransactionalCatalog, told: list[tuple[int, int]]) -> None:
    planned = read("maintain", *AT_ONCE, "--dry-run")
    assert (planned["dry_run"], planned["expired"]["versions"]) == (True, catalog.timeline.head.version)
    said = run("maintain", *AT_ONCE, "--yes").stdout.splitlines()
    assert [line.split("; ")[0] for line in said] == [
        f"{catalog.timeline.head.version} versions expired",
        "3 files (12 bytes) deleted",
    ]
    assert [data(catalog, table) for table in ("a", "b", "space.c")] == [{"q"}, {"q", "later"}, {"q"}]
    assert [total for _, total in told] == [catalog.timeline.head.version - 1, 3]


def test_status_says_how_a_lake_is(catalog: TransactionalCatalog) -> None:
    newest = catalog.timeline.head.version
    assert f"versions that can be read  0 to {newest}" in run("status").stdout
    assert "1 file, " not in run("status").stdout
    run("expire", *AT_ONCE, "--yes")
    lines = {line.strip().split("  ")[0]: line for line in run("status").stdout.splitlines()}
    assert "3 files, 12 bytes" in lines["nobody needs"]
    assert "3 files" in lines["data"]
    found = read("status")
    assert (found["newest_version"], found["reclaimable_files"], found["tables"]) == (newest + 1, 3, 3)


def test_gc_says_what_would_go_and_leaves_it(
    catalog: TransactionalCatalog, clock: Ticking, told: list[tuple[int, int]]
) -> None:
    folder = litter(catalog)
    clock.now += 9 * DAY
    before = everything(catalog)
    planned = run("gc", "--grace", "0d", "--dry-run").stdout.splitlines()
    assert planned[0].startswith("3 files ("), planned
    assert "would be deleted; 0 files (0 bytes) would be marked, for a run after the grace period" in planned[0]
    assert f"  {folder}" in planned
    found = read("gc", "--grace", "0d", "--dry-run")
    assert (found["dry_run"], found["deleted_files"], folder in found["paths"]) == (True, 3, True)
    assert run("gc", "--dry-run").stdout.startswith("0 files (0 bytes) would be deleted; 3 files")
    assert (everything(catalog), told) == (before, [])


def test_of_very_many_paths_the_first_are_printed(
    catalog: TransactionalCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("expire", *AT_ONCE, "--yes")
    monkeypatch.setattr(upkeep, "MOST_SHOWN", 2)
    planned = run("vacuum", "--grace", "0d", "--dry-run").stdout.splitlines()
    assert [line.endswith("/p") for line in planned[1:3]] == [True, True]
    assert planned[3:] == ["  and 1 more; --json has all"]
    assert len(read("vacuum", "--grace", "0d", "--dry-run")["paths"]) == 3


def test_status_says_what_is_set_aside_and_of_what_nothing_may_be_deleted(catalog: TransactionalCatalog) -> None:
    """A plain writer wrote over a version of a, and the log of b has lost the commit that says what it had."""
    quiet = run("status").stdout
    assert "Set aside" not in quiet
    assert "Nothing of these" not in quiet
    append(catalog, "a", "ours")
    catalog.lake.upkeep.settle()
    place, version = location(catalog, "a"), catalog.database().tables[named("a")].version
    theirs = render([{"commitInfo": {"operation": "WRITE"}}, add("theirs")])
    catalog.lake.storage.put(commit_path(place, version), theirs)
    said = run("status").stdout
    _, aside = said.split("\nSet aside\n")
    aside, whole = aside.split("\nNothing of these may be deleted\n")
    assert aside.splitlines()[0].split() == ["table", "why"]
    assert [line.split("  ")[0] for line in aside.splitlines()[1:] if line] == ["default.a"]
    assert "settle" in aside
    assert whole.splitlines()[0].split() == ["folder", "why"]
    assert whole.splitlines()[1].startswith(f"{place}  ")
    assert "it is set aside" in whole
    assert "tables set aside" in said
    found = read("status")
    assert [*found["set_aside"]] == ["default.a"]
    assert place in found["kept_whole"]
    swept = run("vacuum", "--dry-run").stdout
    assert f"{place}  " in swept.split("\nNothing of these is deleted\n")[1]


@pytest.mark.parametrize("command", ["expire", "vacuum", "gc", "maintain"])
@pytest.mark.parametrize("answer", ["n\n", ""])
def test_who_says_no_has_nothing_done(
    catalog: TransactionalCatalog, clock: Ticking, command: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are told first what would go; an empty line, and an end, are a no."""
    litter(catalog)
    clock.now += 9 * DAY
    if command != "expire":
        run("expire", *AT_ONCE, "--yes")
    before = everything(catalog)
    monkeypatch.setattr(arguments, "can_ask", lambda: True)
    args = {"gc": ("--grace", "0d"), "vacuum": ("--grace", "0d")}.get(command, AT_ONCE)
    done = lockstep(command, "the lake", *args, answer=answer)
    assert "would" in done.stdout
    assert "Go on? [y/N]" in done.stdout
    assert done.exit_code == (0 if answer else 1)
    assert everything(catalog) == before
    again = lockstep(command, "the lake", *args, answer="y\n")
    assert again.exit_code == 0, again.output
    assert everything(catalog) != before


@pytest.mark.parametrize("command", ["expire", "vacuum", "gc", "maintain"])
def test_where_nobody_can_be_asked_nothing_is_done(catalog: TransactionalCatalog, command: str) -> None:
    before = everything(catalog)
    done = lockstep(command, "the lake")
    assert (done.exit_code, "nothing was deleted: give --yes" in done.stderr) == (1, True), done.output
    assert everything(catalog) == before


def everything(catalog: TransactionalCatalog) -> set[str]:
    return {found.path for found in catalog.lake.storage.walk("")}


def test_a_dry_run_of_maintain_lists_what_would_be_compacted_and_a_run_does_not(catalog: TransactionalCatalog) -> None:
    """Table b has two files, the others one; from here nothing is compacted."""
    before = catalog.lake.refresh().version
    found = read("maintain", "--dry-run")
    assert [(each["table"]["table"], each["files"], each["size"]) for each in found["to_compact"]] == [("b", 2, 2)]
    assert "Not compacted from here" in run("maintain", "--dry-run").output
    assert catalog.lake.refresh().version == before
    done = run("maintain", "--yes").output
    assert "ompacted" not in done
