"""The `conftest.py` of dbt-spark's own tests when they run elsewhere than its authors run them: see `dbt.py`.

Theirs knows Databricks and Hive's Thrift server, and leaves out what one of them lacks; here nothing is left out.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

pytest_plugins = ["dbt.tests.fixtures.project"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "skip_profile(*profiles): those of theirs that lack what the test needs")


@pytest.fixture(scope="session")
def dbt_profile_target() -> dict[str, Any]:
    """Return the profile of all tests; each has a schema of its own."""
    parameters = json.loads(os.environ["DBT_SPARK_SETTINGS"])
    return {"type": "spark", "method": "session", "host": "session", "server_side_parameters": parameters}
