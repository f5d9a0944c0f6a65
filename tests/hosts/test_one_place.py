"""A lake in S3 whose store is said in one place, with a key that is used, and that nothing shows.

`make test-s3 S3_SERVER=versitygw`: the server takes only what is signed with the key. The environment has no key here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from lockstep.spark.jars import session_jars
from lockstep.storage import open_storage
from tests.support import on_s3
from tests.support.hosts import environment, settings, spark_home
from tests.support.placed import root_in
from tests.support.ports import free_port
from tests.support.servers import OWN_KEYS
from tests.support.sessions import CATALOG, DIRECT, ROOTS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not ROOTS.startswith("s3"), reason="`make test-s3`")]

SECRET = OWN_KEYS["secret_access_key"]
STORE = {**OWN_KEYS, "endpoint": DIRECT}
SECONDS = 300
T = f"{CATALOG}.default.t"


def shows_the_key(text: str) -> bool:
    return any(each in text for each in (SECRET, quote(SECRET), quote(SECRET, safe="")))


def without_keys() -> dict[str, str]:
    """Return an environment that says nothing of S3."""
    return {name: value for name, value in environment().items() if not name.startswith("AWS_")}


def command_lines() -> str:
    """Return what each user of this machine can read of all processes, but of the server, which is told its key so."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_text(errors="replace").replace("\0", " "))
        except OSError:  # it ended while it was looked at
            continue
    return "\n".join(line for line in found if "versitygw --access" not in line)


# --- spark-sql, with all in spark-defaults.conf -----------------------------------------------------------------------

STATEMENTS = f"""
CREATE TABLE {T} AS SELECT id FROM range(0, 200, 1, 4);
BEGIN;
INSERT INTO {T} SELECT id FROM range(200, 300, 1, 2);
UPDATE {T} SET id = -id WHERE id >= 290;
COMMIT;
SELECT 'counted', count(*), count_if(id < 0) FROM {T};
EXPLAIN EXTENDED SELECT count(*) FROM {T};
DESCRIBE EXTENDED {T};
SHOW CREATE TABLE {T};
SELECT * FROM {CATALOG}.system.settings;
SELECT * FROM {CATALOG}.system.history;
SELECT nothing FROM {T};
SELECT raise_error(concat('of row ', id)) FROM {T};
SELECT * FROM parquet.`s3a://lake/there-is-none`;
SELECT * FROM {T} FOR SYSTEM_VERSION AS OF 99;
SET spark.sql.catalog.{CATALOG}.store.secret_access_key;
SET;
SET -v;
ADD FILE {__file__};
SELECT 'all', 'is written';
"""
"""What is typed; `ADD FILE` has Spark tell its UI and its event log once more how it is set, Hadoop with it."""


QUERIES = "sql?details=true&planDescription=true&length=100"


@dataclass
class Shown:
    """What a Spark showed and wrote down while it used the lake, by where; and how its tasks were run."""

    texts: dict[str, str]
    environment: dict[str, Any]
    executors: list[dict[str, Any]]


@contextmanager
def typed(folder: Path, conf: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Type all statements into spark-sql; yield what it printed and its application, while it is there."""
    defaults = folder / "conf"
    defaults.mkdir()
    text = "".join(f"{name} {value}\n" for name, value in conf.items())
    (defaults / "spark-defaults.conf").write_text(text, encoding="utf-8")
    (defaults / "log4j2.properties").write_text(LOG, encoding="utf-8")
    with (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [str(spark_home() / "bin/spark-sql")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
            cwd=folder, env={**without_keys(), "SPARK_CONF_DIR": str(defaults)}, text=True,
        )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        print(STATEMENTS, file=process.stdin, flush=True)
        printed = []
        for line in process.stdout:
            printed.append(line)
            if line.startswith("all\tis written"):
                break
        else:
            pytest.fail((folder / "err").read_text(errors="replace")[-5000:])
        [application] = json.loads(got(conf, "api/v1/applications"))
        yield "".join(printed), application["id"]
        rest, _ = process.communicate("quit;\n", timeout=SECONDS)
        assert not shows_the_key(rest)
    finally:
        process.kill()
        process.wait()


LOG = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n%ex
logger.ours.name = lockstep
logger.ours.level = debug
"""


def got(conf: Mapping[str, str], path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{conf['spark.ui.port']}/{path}") as answer:
        text: str = answer.read().decode()
    return text


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return root_in(tmp_path_factory.mktemp("one_place"))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, root: str) -> Shown:
    if not on_s3.ASKS_FOR_KEYS:
        pytest.skip("`make test-s3 S3_SERVER=versitygw`")
    folder = tmp_path_factory.mktemp("spark")
    events = folder / "events"
    events.mkdir()
    conf = settings(folder, Path()) | {
        f"spark.sql.catalog.{CATALOG}.root": root,
        **{f"spark.sql.catalog.{CATALOG}.store.{name}": value for name, value in STORE.items()},
        "spark.jars": ",".join(map(str, [*session_jars(), *on_s3.s3a_jars()])),
        "spark.master": "local-cluster[2,1,1024]",
        "spark.executor.memory": "1g",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(free_port()),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
    }
    assert not [name for name in conf if "s3a" in name], "the store is said once"
    with typed(folder, conf) as (printed, application):
        texts = {"printed": printed, "command lines": command_lines()}
        of_it = f"api/v1/applications/{application}"
        for path in ("environment", QUERIES, "jobs", "stages", "allexecutors"):
            texts[path] = got(conf, f"{of_it}/{path}")
        for number in range(len(json.loads(texts[QUERIES]))):
            texts[f"execution {number}"] = got(conf, f"SQL/execution/?id={number}")
        for path in ("environment/", "SQL/", "executors/"):
            texts[f"page {path}"] = got(conf, path)
    work = spark_home() / "work" / application
    for name, place in (("event log", events), ("log of the driver", folder / "err"), ("logs of executors", work)):
        files = [each for each in (place, *place.rglob("*")) if each.is_file() and each.suffix != ".jar"]
        texts[name] = "\n".join(each.read_text(errors="replace") for each in files)
    storage = open_storage(root, options=STORE)
    texts["the lake"] = "\n".join((storage.get(each.path) or b"").decode(errors="replace") for each in storage.walk(""))
    shutil.rmtree(work)
    return Shown(texts, json.loads(texts["environment"]), json.loads(texts["allexecutors"]))


def test_executors_of_their_own_write_and_read_what_one_place_says(shown: Shown) -> None:
    """Nothing of s3a is set, and the server takes what is signed alone: so each of them was told the key."""
    assert "counted\t300\t10\n" in shown.texts["printed"]
    at_work = [each["id"] for each in shown.executors if each["id"] != "driver" and each["completedTasks"]]
    assert len(at_work) == 2, shown.executors


def test_a_key_that_is_used_is_nowhere(shown: Shown) -> None:
    """Not in the lake, errors, plans, settings, pages, the event log, logs, nor on a command line."""
    assert not [where for where, text in shown.texts.items() if shows_the_key(text)]
    for where in ("printed", "environment", "event log", "the lake", "logs of executors", "log of the driver"):
        assert len(shown.texts[where]) > 1000, f"{where}: what is looked through is what there was"
    assert "Physical Plan" in shown.texts["printed"]
    assert "of row" in shown.texts["log of the driver"], "the errors are there"


def test_spark_shows_that_there_is_a_key(shown: Shown) -> None:
    """By its names: the catalog's, and what Hadoop was told."""
    said = dict(shown.environment["sparkProperties"]) | dict(shown.environment["hadoopProperties"])
    for name in (f"spark.sql.catalog.{CATALOG}.store.secret_access_key", "fs.s3a.bucket.lake.secret.key"):
        assert said[name] == "*********(redacted)"
        assert name in shown.texts["event log"]
    assert said["fs.s3a.bucket.lake.endpoint"] == DIRECT


# --- PySpark ----------------------------------------------------------------------------------------------------------

PROGRAM = """
import json, sys
import lockstep
from pyspark.sql import SparkSession
told = json.loads(sys.stdin.readline())
builder = SparkSession.builder.master("local[1]")
for name, value in told["settings"].items():
    builder = builder.config(name, value)
spark = lockstep.configure(builder, root=told["root"], create=True, options=told["options"]).getOrCreate()
spark.range(3).write.parquet(told["raw"])
spark.sql("CREATE TABLE lake.default.u AS SELECT 1 AS id")
print(json.dumps([spark.read.parquet(told["raw"]).count(), spark.table("lake.default.u").count()]), flush=True)
sys.stdin.readline()
spark.stop()
both = lockstep.conf(root=told["root"], options=told["options"])
for name, value in both.items():
    if name.startswith("spark.sql."):
        builder = builder.config(name, value)
second = builder.getOrCreate()
lockstep.attach(second)
key = "fs.s3a.bucket.lake.secret.key"
answer = [second._jsc.hadoopConfiguration().get(key), second.table("lake.default.u").count()]
print(json.dumps([*answer, second._jsc.hadoopConfiguration().get(key) == told["options"]["secret_access_key"]]))
"""


def test_options_are_not_on_the_command_line_of_java(tmp_path: Path) -> None:
    """And hold from the start: what lies beside the lake is written and read before any of its tables is.

    A second Spark of the same JVM has a Hadoop of its own, which is told by what is set for the catalog.
    """
    root = root_in(tmp_path)
    told = {
        "root": root,
        "raw": f"{root}-raw".replace("s3://", "s3a://"),
        "options": STORE,
        "settings": {"spark.ui.enabled": "false", "spark.jars": ",".join(map(str, on_s3.s3a_jars()))},
    }
    environment = {name: value for name, value in without_keys().items() if name != "SPARK_HOME"}
    with (tmp_path / "err").open("wb") as err, subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
        cwd=tmp_path, env=environment, text=True,
    ) as program:  # fmt: skip
        assert program.stdin is not None
        assert program.stdout is not None
        print(json.dumps(told), file=program.stdin, flush=True)
        answer = program.stdout.readline()
        found = command_lines()
        rest, _ = program.communicate("\n", timeout=SECONDS)
    assert json.loads(answer or "null") == [3, 1], (tmp_path / "err").read_text(errors="replace")[-3000:]
    assert f"spark.sql.catalog.lake.root={root}" in found, "its command line was looked at"
    assert not shows_the_key(found)
    assert json.loads(rest) == [None, 1, True]
