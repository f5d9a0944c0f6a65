"""`lockstep doctor`: each check says what there is, or what is wrong and what to do."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import UnavailableError, UnsupportedError
from lockstep.spark.doctor import _python, conditional_writes, examine, java_of
from tests.support.adopting import adopted, plain_table
from tests.support.commands import lockstep, make_orders, read
from tests.support.lakes import create
from tests.support.memory import MemoryStorage
from tests.support.users import somebody


class Replacing(MemoryStorage):
    """A store that ignores `If-None-Match`, as some do that call themselves compatible with S3."""

    def try_put(self, path: str, data: bytes) -> bool:
        self.put(path, data)
        return True


class Keeping(MemoryStorage):
    """A store whose user may not delete, and is not told."""

    def delete_folder(self, path: str) -> None:
        del path


def test_a_store_that_knows_conditional_writes_is_well_and_stays_as_it_was() -> None:
    store = MemoryStorage()
    assert conditional_writes(store) == "reads, writes only what is absent, deletes"
    assert store.files == {}


@pytest.mark.parametrize(
    ("store", "why"), [(Replacing(), "writers of one new object were told"), (Keeping(), "is still there")]
)
def test_a_store_that_would_lose_commits_or_keeps_litter_is_told(store: MemoryStorage, why: str) -> None:
    with pytest.raises(UnavailableError, match=why):
        conditional_writes(store)


@pytest.mark.parametrize(
    ("said", "is_well"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('java version "21" 2023-09-19 LTS', True),
        ('openjdk version "11.0.2" 2019-01-15', False),
        ('java version "1.8.0_292"', False),
        ("", False),
        ("a riddle", False),
    ],
)
def test_which_java_spark_runs_on(said: str, is_well: bool) -> None:
    if is_well:
        assert said in java_of("/java", said)
        return
    with pytest.raises(UnsupportedError, match=r"/java is .*: Spark needs Java 17 or newer"):
        java_of("/java", said)


def test_an_old_python_is_told() -> None:
    with pytest.raises(UnsupportedError, match=r"needs 3\.11 or newer"):
        _python((3, 10))


def test_this_machine_and_a_lake_are_well(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    make_orders(root)
    before = set(root.rglob("*"))
    found = read("doctor", root)
    assert [each["what"] for each in found] == [
        "python",
        "pyspark",
        "java",
        "delta",
        "lake",
        "store",
        "tables",
        "clock",
    ]
    assert set(root.rglob("*")) == before
    assert lockstep("doctor").stdout.count("ok") == 4


def test_what_is_wrong_is_told_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = lockstep("doctor", tmp_path / "nothing")
    assert done.exit_code == 1
    lines = [line for line in done.stdout.splitlines() if "WRONG" in line]
    assert [line.split()[0] for line in lines] == ["java", "lake"]
    assert f"no java in JAVA_HOME ({tmp_path})" in lines[0]


def test_a_package_that_is_missing_is_told_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as the interpreter marks what it could not find
    done = lockstep("doctor")
    assert (done.exit_code, done.exception is None or isinstance(done.exception, SystemExit)) == (1, True)
    wrong = {line.split()[0] for line in done.stdout.splitlines() if "WRONG" in line}
    assert "pyspark" in wrong
    assert "pip install pyspark" in done.stdout

    def no_version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr("lockstep.spark.doctor.metadata.version", no_version)
    assert "pyspark is not installed: pip install pyspark" in lockstep("doctor").stdout


@pytest.fixture
def with_adopted() -> Iterator[tuple[Path, Path]]:
    """A lake with the tables a and b, and c, which lies elsewhere; all of it open to everybody."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-doctor-"))  # pytest's own are closed to other users
    catalog = TransactionalCatalog.open(str(folder / "lake"), create=True)
    create(catalog, "a", "b")
    adopted(catalog, "c", plain_table(folder / "elsewhere", 1))
    catalog.lake.upkeep.settle()
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    yield folder / "lake", folder / "elsewhere"
    shutil.rmtree(folder)


@contextmanager
def closed(folder: Path, mode: int) -> Iterator[None]:
    """Have a table's folders so, and be somebody for whom that counts."""
    places = [folder, folder / "_delta_log"]
    for place in reversed(places):
        place.chmod(mode)
    try:
        with somebody():
            yield
    finally:
        for place in places:
            place.chmod(0o777)


@pytest.mark.parametrize(("mode", "what"), [(0o000, "read"), (0o555, "written")])
def test_each_tables_folder_is_tried(with_adopted: tuple[Path, Path], mode: int, what: str) -> None:
    """Of a table that was adopted it may be somebody else's, whatever may be done in the lake's."""
    root, elsewhere = with_adopted
    before = set(root.parent.rglob("*"))
    with closed(elsewhere, mode):
        found = {each.what: each for each in examine(str(root))}
    assert (found["store"].is_well, found["tables"].is_well) == (True, False)
    assert "of 3 tables 1 cannot be used: default.c at " in found["tables"].detail
    assert f"{elsewhere}: it cannot be {what}" in found["tables"].detail
    found = {each.what: each for each in examine(str(root))}
    assert found["tables"].detail == "the logs of 3 tables: read, written and deleted in"
    assert set(root.parent.rglob("*")) == before


def test_a_bounded_number_of_tables_is_tried_and_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.spark.doctor.MOST_TABLES", 2)
    create(TransactionalCatalog.open(str(tmp_path / "lake"), create=True), "a", "b", "c")
    found = {each.what: each for each in examine(str(tmp_path / "lake"))}
    assert (
        found["tables"].detail == "the logs of 2 tables: read, written and deleted in; the other 1 were not looked at"
    )


def test_a_clock_that_is_behind_the_lake_is_told(tmp_path: Path) -> None:
    make_orders(tmp_path / "lake")
    found = {each.what: each for each in examine(str(tmp_path / "lake"), now=lambda: datetime(2020, 1, 1, tzinfo=UTC))}
    assert not found["clock"].is_well
    assert "One of the two clocks is wrong" in found["clock"].detail
