"""What a Spark with Delta is told that has never loaded Lockstep: the other side of every comparison."""

from __future__ import annotations

from pathlib import Path

from lockstep.spark.jars import delta_jars
from lockstep.spark.session import DELTA_CATALOG, DELTA_EXTENSION


def plain_settings(folder: Path) -> dict[str, str]:
    """Return the settings of such a Spark, whose tables and all else lie in a folder."""
    return {
        "spark.sql.extensions": DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
        "spark.jars": ",".join(map(str, delta_jars())),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
