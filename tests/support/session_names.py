"""Sessions in which a lake stands for Spark's session catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException


def opened(spark: Any, root: Any, said: dict[str, str]) -> Any:
    """Open a session whose current catalog is Spark's, with these catalogs of a lake and their `session-names`."""
    session = spark.newSession()
    for catalog, value in said.items():
        session.conf.set(f"spark.sql.catalog.{catalog}", "lockstep.spark.LockstepCatalog")
        session.conf.set(f"spark.sql.catalog.{catalog}.root", str(root))
        session.conf.set(f"spark.sql.catalog.{catalog}.session-names", value)
    return session


def refused(run: Callable[[], Any], state: str, match: str | None = None) -> None:
    """Assert that something is refused with this SQLSTATE."""
    with pytest.raises(PySparkException, match=match) as caught:
        run()
    assert caught.value.getSqlState() == state, caught.value
