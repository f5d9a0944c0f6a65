"""dbt-spark's own tests, most of them classes of dbt-tests-adapter, by dbt in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from lockstep.spark.jars import session_jars
from tests.suites.expected import Outcome, Setting
from tests.support.dbt import DBT
from tests.support.hosts import settings
from tests.support.plain import plain_settings
from tests.support.sessions import CATALOG, INTERPRETED

LEFT_OUT = ("test_query_timeout.py",)
"""Its query is to be given up by Databricks after some seconds; nobody gives it up here, and it takes for ever."""

LAKE = f"spark.sql.catalog.{CATALOG}"
OURS = ("spark.lockstep.", "lockstep.", "spark.hadoop.fs.lockstep.", "spark.delta.logStore.lockstep.")


def run(source: Path, setting: Setting, only: str) -> Iterator[Outcome]:
    """Run the tests below `source`, dbt-spark's `tests/functional`; each statement commits on its own.

    Raises:
        RuntimeError: pytest could not run them; it said why on the standard error.
    """
    with tempfile.TemporaryDirectory(prefix="lockstep-dbt-") as name:
        folder = Path(name)
        shutil.copytree(source, folder / "tests" / "functional")
        shutil.copy(Path(__file__).with_name("dbt_conftest.py"), folder / "tests" / "functional" / "conftest.py")
        results = folder / "results.xml"
        tests = "tests/functional/adapter"
        left_out = [f"--ignore={tests}/{file}" for file in LEFT_OUT]
        junit = [f"--junitxml={results}", "-o", "junit_logging=system-out"]  # dbt says there what went wrong
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *junit, *left_out, tests]
        subprocess.run(
            [str(Path(DBT).with_name("python")), *command, *(["-k", only] if only else [])],
            cwd=folder,
            env=os.environ | {"DBT_SPARK_SETTINGS": json.dumps(spark_settings(folder, setting))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,  # some fail; what became of each is in the results
        )
        if not results.is_file():
            raise RuntimeError("dbt-spark's tests did not run")
        yield from read(results.read_text(encoding="utf-8"), setting)


def spark_settings(folder: Path, setting: Setting) -> dict[str, str]:
    """Return the Spark of a setting: with a lake as its default catalog, or with plain Delta."""
    common = settings(folder, folder / CATALOG) | INTERPRETED
    common |= {"spark.jars": ",".join(map(str, session_jars())), "spark.sql.catalogImplementation": "in-memory"}
    if setting == "plain":
        kept = {key: value for key, value in common.items() if not key.startswith((LAKE, *OURS))}
        # What names no format is Delta's, as it is in a lake.
        return kept | plain_settings(folder) | {"spark.sql.sources.default": "delta"}
    return common | {"spark.sql.defaultCatalog": CATALOG}


def read(results: str, setting: Setting) -> Iterator[Outcome]:
    """Return what became of each test, from pytest's JUnit XML; a failure's text begins with what dbt printed."""
    for case in ET.fromstring(results).iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}".replace("tests.functional.adapter", "dbt")
        failure = None
        if (problem := next((found for found in case if found.tag in ("failure", "error")), None)) is not None:
            failure = case.findtext("system-out", "") + (problem.text or problem.attrib["message"])
        skipped = case.find("skipped")
        yield Outcome(
            name,
            setting,
            failure,
            "" if skipped is None else skipped.get("message", ""),
            float(case.get("time", 0)),
        )
