"""The core of the contract where executors are processes of their own, as on a real cluster.

`local[2]` hides what only the driver knows: there, executors are its threads. The URI of a table must carry all that
an executor needs to read a transaction's log.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.contract import find
from tests.support.on_cluster import check_on_cluster

ONE_VERSION = ["test_a_statement_is_known_however_deep_delta_goes_meanwhile"]
"""What of a statement's one version is tried there too: tables whose logs the executors read."""


@pytest.mark.slow  # a JVM has one SparkContext, so this is a second Spark: a driver and two executors to start
@pytest.mark.cluster
@pytest.mark.timeout(1200)  # about a minute on two idle cores, ten on two busy ones
def test_the_core_of_the_contract_holds_with_separate_executors(repository: Path) -> None:
    names = [case.id for case in find(repository / "sql", tag="core")]
    tests = [f"tests/spark/test_contract.py::test_contract[{name}]" for name in names]
    tests += [f"tests/spark/test_one_version.py::{name}" for name in ONE_VERSION]
    check_on_cluster(repository, tests)
