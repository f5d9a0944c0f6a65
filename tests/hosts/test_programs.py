"""spark-sql, and a driver's end: programs that are started, and end, as their users start and end them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.spark.jars import session_jars
from tests.support.gate import wait_until
from tests.support.hosts import command, environment, hosts_of, run_program, settings
from tests.support.lakes import named, staged_commits
from tests.support.sessions import CATALOG

# Slow: each test starts a Spark of its own, since its end is what it is about.
pytestmark = [pytest.mark.long, pytest.mark.slow]


def said(tmp_path: Path) -> dict[str, str]:
    """Return the settings of a driver whose lake and all else lie in a folder."""
    return settings(tmp_path, tmp_path / CATALOG) | {"spark.sql.catalogImplementation": "in-memory"}


def spark_sql(
    tmp_path: Path, script: str, conf: Mapping[str, str] = MappingProxyType({}), jars: Iterable[Path] = ()
) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "script.sql"
    file.write_text(script, encoding="utf-8")
    return run_program(tmp_path, "spark-sql", {**said(tmp_path), **conf}, "-f", str(file), jars=jars)


def test_a_script_of_spark_sql_commits_and_what_it_leaves_open_is_rolled_back(tmp_path: Path) -> None:
    done = spark_sql(
        tmp_path,
        f"""USE {CATALOG};
        CREATE TABLE a (id INT) USING delta; CREATE TABLE b (id INT) USING delta;
        BEGIN TRANSACTION COMMENT 'semicolons; inside';
        INSERT INTO a VALUES (1);
        INSERT INTO b SELECT id + 1 FROM a;
        UPDATE nosuch SET id = 2; -- refused while it is analyzed, so it is no failed write
        COMMIT;
        BEGIN;
        INSERT INTO a VALUES (3);
        SELECT 'seen', count(*) FROM a;
        """,
        {"spark.hadoop.hive.cli.errors.ignore": "true"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("SQLSTATE") == 1, done.stderr
    assert "seen\t2" in done.stdout
    lake = TransactionalCatalog.open(str(tmp_path / CATALOG))
    assert [lake.database().tables[named(name)].version for name in "ab"] == [1, 1]
    assert lake.timeline.entries(1)[-1].transaction.message == "semicolons; inside"
    assert not staged_commits(tmp_path / CATALOG), "the host rolled back when its driver ended"
    assert re.search(
        r"^Lockstep: transaction \w+ was open when Spark stopped, and was rolled back", done.stderr, re.MULTILINE
    )


@pytest.mark.deep  # spark-sql, beside it, starts in the same way
def test_scala_typed_into_spark_shell_is_one_transaction(tmp_path: Path) -> None:
    lines = f"""
        Seq("a", "b").foreach(name => spark.sql(s"CREATE TABLE {CATALOG}.default.$name (id BIGINT)"))
        spark.sql("BEGIN")
        spark.range(3).write.mode("append").saveAsTable("{CATALOG}.default.a")
        spark.table("{CATALOG}.default.a").where("id > 0").write.mode("append").saveAsTable("{CATALOG}.default.b")
        spark.sql("COMMIT").select("tables_changed", "rows_added").show()
        spark.sql("BEGIN")
        spark.sql("DELETE FROM {CATALOG}.default.a")
        :quit
    """
    typed = "\n".join(line.strip() for line in lines.splitlines())
    done = run_program(tmp_path, "spark-shell", said(tmp_path), typed=typed)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\|\s*2\|\s*5\|", done.stdout), done.stdout
    lake = TransactionalCatalog.open(str(tmp_path / CATALOG))
    assert [lake.database().tables[named(name)].version for name in "ab"] == [1, 1]
    assert not staged_commits(tmp_path / CATALOG), "what was open was rolled back with the end of the shell"


def test_a_python_without_lockstep_is_an_error_that_says_what_to_type(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec "{sys.executable}" -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    done = spark_sql(
        tmp_path, f"SELECT 1; CREATE TABLE {CATALOG}.t (id INT) USING delta;", {"spark.lockstep.python": str(bare)}
    )
    assert done.returncode != 0
    for text in (
        "LOCKSTEP_NO_HOST",
        f"{bare} -m pip install 'lockstep-delta[spark]==",
        "--conf spark.lockstep.python=",
    ):
        assert text in done.stderr, text
    assert not (tmp_path / CATALOG).exists()


def delta_for_another_spark(jars: list[Path], folder: Path) -> list[Path]:
    other = folder / "delta-spark_3.5_2.13-4.4.0.jar"
    [delta] = [jar for jar in jars if jar.name.startswith("delta-spark_")]
    shutil.copy(delta, other)
    return [other if jar == delta else jar for jar in jars]


def shim_for_another_delta(jars: list[Path], folder: Path) -> list[Path]:
    shim, *deltas = jars
    other = folder / shim.name
    with zipfile.ZipFile(shim) as found, zipfile.ZipFile(other, "w") as made:
        for entry in found.infolist():
            content = found.read(entry)
            if entry.filename == "lockstep/spark/Built$.class":
                assert content.count(b"4.4.0") == 1
                content = content.replace(b"4.4.0", b"4.3.0")
            made.writestr(entry, content)
    return [other, *deltas]


@pytest.mark.parametrize(
    ("mixed", "says"),
    [
        (delta_for_another_spark, "this is a delta-spark for Spark 3.5, and Lockstep's jar was made for a delta-spark"),
        (shim_for_another_delta, "this is Delta 4.4, and Lockstep's jar was made for Delta 4.3. What goes together"),
    ],
)
def test_what_does_not_go_together_is_refused_when_spark_starts(
    mixed: Callable[[list[Path], Path], list[Path]], says: str, tmp_path: Path
) -> None:
    done = spark_sql(tmp_path, "SELECT 1;", jars=mixed(session_jars(), tmp_path))
    assert done.returncode != 0
    assert says in done.stderr
    assert not (tmp_path / CATALOG).exists()


def test_a_killed_driver_takes_its_host_along(tmp_path: Path) -> None:
    """`spark-sql` waits for more of its script, with a transaction open; then it is killed."""
    with subprocess.Popen(
        command("spark-sql", said(tmp_path)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd=tmp_path, env=environment(), text=True,
    ) as driver:  # fmt: skip
        assert driver.stdin is not None
        assert driver.stdout is not None
        print(
            f"USE {CATALOG}; CREATE TABLE t (id INT) USING delta; BEGIN; INSERT INTO t VALUES (1);", file=driver.stdin
        )
        print("SELECT 'all', 'is written';", file=driver.stdin, flush=True)
        assert any("all\tis written" in line for line in driver.stdout)
        [host] = hosts_of(driver.pid)
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    wait_until(lambda: not Path(f"/proc/{host}").exists(), f"process {host} outlived its driver")
    lake = TransactionalCatalog.open(str(tmp_path / CATALOG))
    assert lake.database().tables[named("t")].version == 0
