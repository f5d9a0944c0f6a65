"""Calls of Spark's and Delta's Python API that change tables or ask for them: the rest of docs/statements.md."""

from __future__ import annotations

from tests.support.matrix import (
    TU,
    Case,
    Py,
    everywhere,
    group,
    one,
    tells,
)

API: tuple[Case, ...] = (
    *group(
        "DeltaTable",
        one(Py("$table.update('id = 1', {'v': 'v + 1'})")),
        one(Py("$table.delete('id = 1')"), core=True),
        one(
            Py(
                "$table.alias('t').merge($others.alias('s'), 't.id = s.id').whenMatchedDelete()"
                ".whenNotMatchedInsert(values={'id': 's.id', 'p': 's.name'})"
                ".whenNotMatchedBySourceUpdate(set={'v': '-1'}).execute()"
            ),
            before=TU,
        ),
        tells(Py("$table.toDF()")),
        tells(Py("$table.history()"), "version", "operation"),
        tells(Py("$table.detail()"), "format", "partitionColumns", "numFiles"),
    ),
    *group(
        "spark.catalog",
        tells(Py("spark.catalog.tableExists('$t')")),
        tells(Py("spark.catalog.getTable('$t')")),
        tells(Py("spark.catalog.listColumns('$t')")),
        tells(Py("[d.name for d in spark.catalog.listDatabases() if d.name == '$ns']")),
        tells(Py("[spark.catalog.setCurrentDatabase('$ns'), spark.catalog.currentDatabase()]")),
        tells(Py("[spark.catalog.cacheTable('$t'), spark.catalog.isCached('$t'), spark.catalog.uncacheTable('$t')]")),
        one(Py("spark.catalog.recoverPartitions('$t')"), refused=everywhere("0A000")),
    ),
)
