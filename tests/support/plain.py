"""A Spark with Delta that has never loaded Lockstep: the other side of every comparison.

Its settings are made by who starts its process; the rest is for that process itself, and imports nothing of Lockstep.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plain_settings(folder: Path) -> dict[str, str]:
    """Return the settings of such a Spark, whose tables and all else lie in a folder."""
    from lockstep.spark.configuration import DELTA_CATALOG, DELTA_EXTENSION
    from lockstep.spark.jars import delta_jars

    return {
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
        "spark.jars": ",".join(map(str, delta_jars())),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }


def plain_spark(settings: Mapping[str, str], *, has_jar: bool = False) -> Any:
    """Start a Spark with these settings in a process that is to be plain Delta's.

    Args:
        settings: as `plain_settings` returns them, and more.
        has_jar: whether Lockstep's jar is there, for its log store, and nothing else of it.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if has_jar:
        assert "lockstep" not in session.conf.get("spark.sql.extensions")
        return session
    try:
        session._jvm.org.apache.spark.util.Utils.classForName("lockstep.spark.LockstepCatalog", True, False)
    except Exception:  # noqa: BLE001 - it must not be there
        check_plain()
        return session
    raise AssertionError("Lockstep is on the class path of what is to be plain Delta")


def check_plain() -> None:
    """See that this process has not loaded Lockstep; after each thing that it does."""
    loaded = sorted(name for name in sys.modules if name.split(".")[0] == "lockstep")
    assert not loaded, f"plain Delta has loaded {loaded}"
