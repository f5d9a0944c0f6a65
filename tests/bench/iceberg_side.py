"""The side of `make bench-iceberg` that has Iceberg's tables in a Nessie, told what to do line by line.

    python -m tests.bench.iceberg_side SETTINGS PORT

A transaction is what Nessie's guide makes of several statements (https://projectnessie.org/guides/transactions): a
branch, on which they run, and which is merged at once. Spark's SQL has no word for that without Nessie's own extension,
of which there is none for Spark 4.1, so this asks the server itself: two requests before them, and five behind.
"""

from __future__ import annotations

import json
import re
import sys
from itertools import count
from typing import Any

from tests.bench.peers.nessie import Nessie
from tests.bench.side import TABLES, Workload, serve
from tests.support.child import Parent
from tests.support.plain import plain_spark

TABLE = re.compile(rf"\b({'|'.join(TABLES)})\b")


class OnBranches(Workload):
    """The same statements on Iceberg's tables."""

    CATALOG = "nessie"
    FORMAT = "iceberg"

    def __init__(self, spark: Any, nessie: Nessie) -> None:
        self._nessie = nessie
        self._numbers = count(1)
        super().__init__(spark)

    def _inside(self, *statements: str, read_only: bool = False) -> None:
        branch = f"b{next(self._numbers)}"
        self._nessie.branch(branch)
        super()._inside(*(TABLE.sub(rf"`\1@{branch}`", text) for text in statements))
        (self._nessie.drop if read_only else self._nessie.merge)(branch)


def main(settings: str, port: str) -> None:
    parent = Parent()
    spark = plain_spark(json.loads(settings))
    spark.sparkContext.setLogLevel("ERROR")
    serve(parent, OnBranches(spark, Nessie(port)), is_plain=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
