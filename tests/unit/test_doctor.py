"""`lockstep doctor`: each check says what there is, or what is wrong and what to do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockstep.errors import UnavailableError, UnsupportedError
from lockstep.spark.doctor import _python, conditional_writes, examine, java_of
from tests.support.commands import lockstep, make_orders, read
from tests.support.memory import MemoryStorage


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
    assert [each["what"] for each in found] == ["python", "pyspark", "java", "delta", "lake", "store", "clock"]
    assert set(root.rglob("*")) == before
    assert lockstep("doctor").stdout.count("ok") == 4


def test_what_is_wrong_is_told_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = lockstep("doctor", tmp_path / "nothing")
    assert done.exit_code == 1
    lines = [line for line in done.stdout.splitlines() if "WRONG" in line]
    assert [line.split()[0] for line in lines] == ["java", "lake"]
    assert f"no java in JAVA_HOME ({tmp_path})" in lines[0]


def test_a_clock_that_is_behind_the_lake_is_told(tmp_path: Path) -> None:
    make_orders(tmp_path / "lake")
    found = {each.what: each for each in examine(str(tmp_path / "lake"), now=lambda: datetime(2020, 1, 1, tzinfo=UTC))}
    assert not found["clock"].is_well
    assert "One of the two clocks is wrong" in found["clock"].detail
