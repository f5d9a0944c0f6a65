"""Lockstep: multi-table ACID transactions for Spark SQL over ordinary Delta tables, with no server.

import lockstep
from pyspark.sql import SparkSession

spark = lockstep.configure(SparkSession.builder, root="/data/lake", catalog="lake").getOrCreate()
with lockstep.transaction(spark) as tx:
    spark.sql("INSERT INTO lake.sales.orders VALUES (1, 9.5)")
    spark.sql("UPDATE lake.sales.totals SET amount = amount + 9.5")
print(tx.version)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep import errors
from lockstep._version import __version__

if TYPE_CHECKING:
    from lockstep.catalog import TransactionalCatalog
    from lockstep.spark.bridge import attach
    from lockstep.spark.configuration import conf, configure
    from lockstep.spark.session import run, transaction
    from lockstep.spark.streaming import foreach_batch
    from lockstep.spark.travel import at
    from lockstep.tables.opened import open
    from lockstep.timeline.log import Timeline

__all__ = [
    "Timeline",
    "TransactionalCatalog",
    "__version__",
    "at",
    "attach",
    "conf",
    "configure",
    "errors",
    "foreach_batch",
    "open",
    "run",
    "transaction",
]

_HOMES = {
    "Timeline": "lockstep.timeline.log",
    "TransactionalCatalog": "lockstep.catalog",
    "at": "lockstep.spark.travel",
    "attach": "lockstep.spark.bridge",
    "foreach_batch": "lockstep.spark.streaming",
    "open": "lockstep.tables.opened",
    **dict.fromkeys(("conf", "configure"), "lockstep.spark.configuration"),
    **dict.fromkeys(("run", "transaction"), "lockstep.spark.session"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import lockstep` stays light."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lockstep' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        from lockstep.errors import UnsupportedError

        raise UnsupportedError(
            f"lockstep.{name} takes pyspark, which this Python does not have: pip install 'lockstep-delta[spark]'"
        ) from error


def __dir__() -> list[str]:
    """Return the public names, those not yet imported among them: what `dir` and completion show."""
    return list(__all__)
