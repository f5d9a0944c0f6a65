"""How cases of others come to use a catalog's tables: changes of their text, and names in place of paths.

The suites make tables at paths, and tables of Spark's own catalog with Spark's own formats. Lockstep's tables have
names and are Delta's, so a path becomes a name, another format becomes Delta, and the name of the session's catalog
becomes that of the lake. Nothing else of a case changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_FORMATS = ((r"USING parquet\b", "USING delta"), (r'\b(using\(|format=)"parquet"', r'\1"delta"'))
"""Of tables that have a name. Files that a case writes with `.format("parquet")` stay what they are."""


def translated_source(source: str, catalog: str) -> str:
    """Return a module's text with Delta in place of parquet, and `catalog` in place of `spark_catalog`."""
    for pattern, put in _FORMATS:
        source = re.sub(pattern, put, source)
    return re.sub(r"\bspark_catalog\b", catalog, source)


def table_of(path: str, namespace: str) -> str:
    """Return the name of the table that stands for one at a path; `namespace` ends with a dot, if it is not empty.

    >>> table_of("/tmp/x-1/tempFile", "lake.default.")
    'lake.default.at_tmp_x_1_tempFile'
    """
    return f"{namespace}at_" + re.sub(r"\W+", "_", path).strip("_")


def translated_sql(statement: str, tables: Mapping[str, str]) -> str:
    """Return a statement with the tables' names in place of their paths: after `delta.`, or as VACUUM's string.

    >>> translated_sql("VACUUM '/tmp/a' RETAIN 0 HOURS", {"/tmp/a": "lake.default.a"})
    'VACUUM lake.default.a RETAIN 0 HOURS'
    """
    for path, table in tables.items():
        statement = re.sub(rf"delta\.`{re.escape(path)}`|(?<=VACUUM )'{re.escape(path)}'", table, statement)
    return statement
