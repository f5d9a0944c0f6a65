"""What all tests share: where the repository is, and how Spark starts, if a test asks for it.

`LOCKSTEP_TEST_MASTER` starts Spark elsewhere than in one process: `test_cluster.py` does so. With
`LOCKSTEP_TEST_SHARD=1/4` a fourth of the tests run; 0/4, 2/4 and 3/4 are the others. With `LOCKSTEP_TEST_FIRST=1` a
test with Spark is deep but for the first of its sets of parameters.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from pytest_spark.config import SparkConfigBuilder  # type: ignore[import-untyped]

import lockstep
from tests.support import on_azure, on_hdfs, on_s3
from tests.support.contract import Case
from tests.support.sessions import CATALOG, INTERPRETED, JAVA, LASTING_JAVA, ROOTS, SMALL
from tests.support.sparks import is_before

# Every Java that a test starts, those too that it starts as a user would, without settings of a small Spark.
os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA)
# Spark starts its Python workers by this name; the first python3 of the PATH is another one, without what tests need.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# One process opens some hundred lakes, each of which holds a few files; many a shell lets it have 1,024.
_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if _soft != resource.RLIM_INFINITY and _soft < 16_384:
    _most = 16_384 if _hard == resource.RLIM_INFINITY else min(_hard, 16_384)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_most, _hard))

WITH_SPARK = {"crash", "hosts", "spark"}
"""Folders of tests, each of which takes seconds."""

MASTER = os.environ.get("LOCKSTEP_TEST_MASTER", "local[2]")

# A deadline for each example judges the machine, which may be busy, and not the code; so does one for drawing them.
# Examples are the same in each run, for a commit is to be judged by what it changes: `make soak-retention`, `fuzz` and
# the profile "long" look for what nobody has met yet.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="LOCKSTEP_SOAK_EXAMPLES" not in os.environ,
)
settings.load_profile("unhurried")
# For hours of tests/unit/test_model.py: other examples each time.
settings.register_profile(
    "long",
    max_examples=5_000,
    stateful_step_count=50,
    deadline=None,
    derandomize=False,
    suppress_health_check=[*HealthCheck],
)

_folder = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Say how pytest-spark starts Spark; the first test that needs it does.

    Here and not in `tests/spark`: pytest-spark takes the settings that are there when pytest prints its header, before
    pytest reads the `conftest.py` of a folder below the one it was pointed at.
    """
    folder = Path(tempfile.mkdtemp(prefix="lockstep-tests-"))
    config.stash[_folder] = folder
    settings = {
        **SMALL,
        "spark.sql.scripting.enabled": "true",  # as it is in every Spark but 4.0
        **INTERPRETED,
        **_lockstep_settings(folder),
        "spark.driver.extraJavaOptions": LASTING_JAVA,
        "spark.master": MASTER,
        "spark.app.name": "lockstep tests",
        "spark.sql.catalogImplementation": "in-memory",  # pytest-spark's default is Hive, which takes seconds to start
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.executor.memory": "1g",
    }
    if is_before("4.2"):  # PySpark leaves it to the garbage collector to close its sockets
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
        config.addinivalue_line(
            "filterwarnings", "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        )
    SparkConfigBuilder.initialize([f"{key}: {value}" for key, value in settings.items()])


def _lockstep_settings(folder: Path) -> dict[str, str]:
    """Return Lockstep's settings, wherever the tests' lakes are to lie."""
    if ROOTS.startswith("s3"):
        return on_s3.settings()
    if on_azure.IS_WANTED:
        return on_azure.settings()
    if ROOTS:
        return lockstep.conf(root=f"{ROOTS}/unused", catalog=CATALOG, create=True) | on_hdfs.SOONER
    return lockstep.conf(root=str(folder / "unused"), catalog=CATALOG)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark what is deep, then keep the tests of a shard, if one is asked for, and put the slowest files first.

    So the last files of two processes end together. Between the two, plugins leave out what is deep, and shuffle.
    """
    mark_later_parameters(items, int(os.environ.get("LOCKSTEP_TEST_FIRST", "0")))
    yield
    if shard := os.environ.get("LOCKSTEP_TEST_SHARD"):
        number, of = map(int, shard.split("/"))
        shards: list[list[pytest.Item]] = [[] for _ in range(of)]
        for item in items:
            shards[crc32(item.nodeid.encode()) % of].append(item)
        items[:] = shards.pop(number)
        config.hook.pytest_deselected(items=[item for others in shards for item in others])
    items.sort(key=lambda item: (item.path.name != "test_contract.py", "/tests/unit/" in item.path.as_posix()))


def mark_later_parameters(items: list[pytest.Item], first: int) -> None:
    """Mark tests that use Spark deep, but for so many of each one's sets of parameters; 0: mark none.

    The others are the same rule in other words. Of the contract those files are that say so. `make test` and
    `make test-deep` part them so, in whatever order they come; all other targets run all.
    """
    if not first:
        return
    tests = defaultdict[str, list[pytest.Function]](list)
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder not in WITH_SPARK or not isinstance(item, pytest.Function):
            continue
        if item.path.name == "test_contract.py":
            case = item.callspec.params["case"]
            if isinstance(case, Case) and case.left_out:
                item.add_marker(case.left_out)
        else:
            tests[item.nodeid.partition("[")[0]].append(item)
    for sets in tests.values():
        for each in sorted(sets, key=_place)[first:]:
            each.add_marker(pytest.mark.deep)


def _place(case: pytest.Function) -> tuple[int, ...]:
    """Return where a test stands among those of other parameters, as they are written."""
    return tuple(case.callspec.indices.values()) if hasattr(case, "callspec") else ()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_folder], ignore_errors=True)


@pytest.fixture(scope="session")
def repository() -> Path:
    """Return the folder that this source tree lies in."""
    return Path(__file__).parents[1]
