"""What the commands about copies print, ask and show: plans, refusals, what was done, and bars on a terminal."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.cli import arguments
from lockstep.exports.export import Asked, Exporter
from lockstep.exports.promote import Promoter
from lockstep.storage import open_storage
from lockstep.timeline.entry import ExportMode
from tests.support.commands import lockstep, read
from tests.support.exports import file
from tests.support.lakes import create, remove
from tests.support.promotions import build, change, file_names, rewrite
from tests.support.terminals import shown_on_terminal


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake whose database version 2 has the tables a, b and c with four files of data."""
    build(open_storage(str(tmp_path / "lake"), create=True))
    return tmp_path / "lake"


@pytest.fixture
def clone(root: Path) -> Path:
    """A clone of it in which b has a file more."""
    to = root.parent / "clone"
    read("clone", root, to)
    change(TransactionalCatalog.open(str(to)), "b", file("mine"))
    return to


def everything(*folders: Path) -> dict[Path, bytes]:
    """Return all of some lakes, but for the timelines' hints, which are written in the background."""
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.name != "_latest"]
    return {path: path.read_bytes() for path in paths}


def files_of_b(root: Path) -> list[str]:
    return file_names(TransactionalCatalog.open(str(root)), "b")


# --- promote ----------------------------------------------------------------------------------------------------------


def test_what_would_be_promoted_is_told_and_nothing_is_written(root: Path, clone: Path) -> None:
    before = everything(root, clone)
    planned = lockstep("promote", clone, "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert planned.stdout == (
        f"file://{clone}: to be promoted to file://{root}, database version 1: 1 table, 1 file of 5 bytes; nothing is "
        "in the way\n"
    )
    found = read("promote", clone, "--dry-run")
    assert (found["is_done"], found["tables"], found["files"], found["database_version"]) == (False, 1, 1, None)
    assert everything(root, clone) == before


@pytest.mark.parametrize("as_json", [True, False])
def test_with_yes_it_is_promoted_unasked(root: Path, clone: Path, as_json: bool) -> None:
    newest = TransactionalCatalog.open(str(root)).database().version
    if as_json:
        done = read("promote", clone, "--yes")
        assert (done["is_done"], done["files"], done["database_version"]) == (True, 1, newest + 1)
    else:
        said = lockstep("promote", clone, "--yes")
        assert said.exit_code == 0, said.output
        assert said.stdout == (
            f"file://{clone}: promoted to file://{root}, database version 1: 1 table, 1 file of 5 bytes; it is "
            f"database version {newest + 1}\n"
        )
    assert files_of_b(root) == ["mine", "p"]
    entry = read("show", root, "latest")
    assert entry["transaction"]["statements"] == ["lockstep promote"]


def test_promote_asks_and_a_no_changes_nothing(root: Path, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(root, clone)
    for more in ((), ("--json",)):
        refused = lockstep("promote", clone, *more)
        assert (refused.exit_code, "nothing was promoted: give --yes" in refused.stderr) == (1, True), refused.output
        assert "to be promoted" in refused.stdout if not more else refused.stdout == "", "JSON is printed once"
    monkeypatch.setattr(arguments, "can_ask", lambda: True)
    for no in ("n\n", "\n"):
        asked = lockstep("promote", clone, answer=no)
        assert (asked.exit_code, "to be promoted" in asked.stdout, "Go on? [y/N]" in asked.stdout) == (0, True, True)
    assert everything(root, clone) == before
    done = lockstep("promote", clone, answer="y\n")
    assert (done.exit_code, ": promoted to" in done.stdout) == (0, True), done.output
    assert files_of_b(root) == ["mine", "p"]


def test_a_clone_in_which_nothing_was_changed_is_promoted_by_doing_nothing(root: Path, tmp_path: Path) -> None:
    read("clone", root, tmp_path / "same")
    before = everything(root)
    done = lockstep("promote", tmp_path / "same", "--yes")
    assert (done.exit_code, done.stdout.endswith("0 tables, 0 files of 0 bytes; nothing is changed\n")) == (0, True)
    assert everything(root) == before


@pytest.mark.parametrize("args", [("--dry-run",), ("--yes",), ("--yes", "--json")])
def test_what_cannot_be_promoted_says_why(root: Path, clone: Path, args: tuple[str, ...]) -> None:
    rewrite(TransactionalCatalog.open(str(clone)))
    change(TransactionalCatalog.open(str(root)), "a", remove("p"), file("theirs"), operation="UPDATE")
    before = everything(root)
    refused = lockstep("promote", clone, *args)
    assert (refused.exit_code, refused.stdout, "55000" in refused.stderr) == (1, "", True), refused.output
    assert everything(root) == before
    no_clone = lockstep("promote", root, *args)
    assert (no_clone.exit_code, "is no clone" in no_clone.stderr) == (1, True), no_clone.output


# --- clone and import ---------------------------------------------------------------------------------------------


def test_what_would_be_cloned_is_told_and_nothing_is_written(root: Path, tmp_path: Path) -> None:
    before = everything(root)
    planned = lockstep("clone", root, tmp_path / "to", "--dry-run")
    assert (planned.exit_code, planned.stdout) == (
        0,
        f"file://{tmp_path}/to: to be exported, partial, database version 2: 3 tables, 4 files of 20 bytes\n",
    )
    assert (everything(root), (tmp_path / "to").exists()) == (before, False)
    done = lockstep("clone", root, tmp_path / "to")
    [export] = read("exports", root)
    assert done.stdout == (
        f"file://{tmp_path}/to: exported, partial, database version 2: 3 tables, 4 files of 20 bytes; needs files of "
        f"file://{root} (export {export['id']})\n"
    )


@pytest.mark.parametrize("mode", ["partial", "full"])
def test_what_would_be_imported_is_told_and_nothing_is_written(root: Path, tmp_path: Path, mode: str) -> None:
    eod = tmp_path / "eod.json"
    assert lockstep("export", root, eod, "--mode", "minimal").exit_code == 0
    before = everything(root)
    planned = lockstep("import", root, eod, tmp_path / "to", "--mode", mode, "--dry-run")
    assert planned.exit_code == 0, planned.output
    assert planned.stdout.startswith(
        f"file://{tmp_path}/to: to be exported, {mode}, database version 2: 3 tables, 4 files of 20 bytes"
    )
    assert read("import", root, eod, tmp_path / "to", "--mode", mode, "--dry-run")["is_done"] is False
    assert (everything(root), (tmp_path / "to").exists()) == (before, False)
    done = lockstep("import", root, eod, tmp_path / "to", "--mode", mode)
    assert done.stdout.startswith(
        f"file://{tmp_path}/to: exported, {mode}, database version 2: 3 tables, 4 files of 20 bytes"
    )


# --- how far it is ------------------------------------------------------------------------------------------------


class Told:
    """What is told how far something is: in order, of each thing up to all of it, and by one thread at a time."""

    def __init__(self) -> None:
        self.counts: dict[str, list[tuple[int, int]]] = {}
        self._alone = threading.Lock()

    def __call__(self, what: str, done: int, total: int) -> None:
        assert self._alone.acquire(blocking=False), "two threads at a time"
        self.counts.setdefault(what, []).append((done, total))
        self._alone.release()


def up_to(total: int) -> list[tuple[int, int]]:
    return [(done, total) for done in range(1, total + 1)]


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("full", {"tables": up_to(3), "files": up_to(5), "logs": up_to(3)}),
        ("partial", {"tables": up_to(3), "logs": up_to(3)}),
        ("minimal", {"tables": up_to(3)}),
    ],
)
def test_an_export_tells_how_far_it_is(
    root: Path, tmp_path: Path, mode: ExportMode, told: dict[str, list[tuple[int, int]]]
) -> None:
    progress = Told()
    Exporter(TransactionalCatalog.open(str(root)).lake, progress=progress).run(
        Asked(to=str(tmp_path / "to"), mode=mode)
    )
    assert progress.counts == told


def test_a_promotion_tells_how_far_it_is(root: Path, clone: Path) -> None:
    copy, lake = (TransactionalCatalog.open(str(path)).lake for path in (clone, root))
    for dry_run, told in ((True, {"tables": up_to(1)}), (False, {"tables": up_to(1), "files": up_to(1)})):
        progress = Told()
        Promoter(copy, lake, author="ada", progress=progress).run(dry_run=dry_run)
        assert progress.counts == told


def promote_it(_: Path, clone: Path) -> tuple[object, ...]:
    return ("promote", clone, "--yes")


def export_it(root: Path, _: Path) -> tuple[object, ...]:
    return ("export", root, root.parent / "to")


def clean_it(root: Path, _: Path) -> tuple[object, ...]:
    """Leave a file that no version names, a month old."""
    catalog = TransactionalCatalog.open(str(root))
    create(catalog, "x")
    litter = root / next(t.location for t in catalog.database().tables.values() if t.name.table == "x") / "l.parquet"
    litter.write_bytes(b"rows")
    month = litter.stat().st_mtime - 30 * 86_400
    os.utime(litter, (month, month))
    return ("gc", root, "--grace", "0d", "--yes")


@pytest.mark.parametrize(
    ("command", "bars"),
    [
        (export_it, ("tables", "files", "logs")),
        (promote_it, ("tables", "files")),
        (clean_it, ("deleting",)),
    ],
)
def test_a_terminal_shows_bars_and_a_pipe_does_not(
    root: Path, clone: Path, command: Callable[[Path, Path], tuple[object, ...]], bars: tuple[str, ...]
) -> None:
    """With a terminal of its own, as a shell starts it; what the command says is not among the bars."""
    args = command(root, clone)
    code, out, err = shown_on_terminal(*args)
    assert code == 0, err
    for bar in bars:
        assert bar in err
    assert "100%" in err
    assert "\x1b" not in out
    assert out.count("\n") == 1
    quiet = lockstep("export", root, root.parent / "quiet")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
