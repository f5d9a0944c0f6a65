"""Every call of Spark's and Delta's Python API that changes tables or asks for them: the rest of docs/statements.md."""

from __future__ import annotations

from tests.support.matrix import (
    CHANGES,
    COLUMNS,
    EMPTY,
    NEW,
    TU,
    TWICE,
    Case,
    Py,
    T,
    everywhere,
    group,
    new,
    one,
    tells,
)

API: tuple[Case, ...] = (
    *group(
        "DataFrame.write",
        new(Py("$rows.write.format('delta').saveAsTable('$new')"), before=T),
        new(Py("$rows.write.format('delta').option('path', '$elsewhere').saveAsTable('$new')"), before=T),
        one(Py("$rows.write.format('delta').mode('append').saveAsTable('$t')")),
        one(
            Py("$others.write.format('delta').mode('append').option('mergeSchema', True).saveAsTable('$t')"),
            before=TU,
        ),
        one(
            Py("$others.write.format('delta').mode('overwrite').option('overwriteSchema', True).saveAsTable('$t')"),
            before=TU,
        ),
        one(Py("$rows.limit(1).write.format('delta').mode('overwrite').saveAsTable('$t')")),
        one(
            Py(
                "$rows.where('id = 1').write.format('delta').mode('overwrite')"
                ".option('replaceWhere', \"p = 'x'\").saveAsTable('$t')"
            )
        ),
        one(
            Py(
                "$rows.where('id = 1').write.format('delta').mode('overwrite')"
                ".option('partitionOverwriteMode', 'dynamic').saveAsTable('$t')"
            )
        ),
        one(Py("$others.write.format('delta').mode('ignore').saveAsTable('$t')"), before=TU),
        one(Py("$others.write.format('delta').saveAsTable('$t')"), before=TU, refused=everywhere("42P07")),
        new(Py("$rows.write.format('delta').partitionBy('p').saveAsTable('$new')"), before=T),
        new(
            Py("$rows.write.format('delta').clusterBy('id').saveAsTable('$new')"), before=T, refused=everywhere("0AKDC")
        ),
        one(Py("$rows.write.insertInto('$t')")),
        one(Py("$rows.where('id = 1').write.insertInto('$t', overwrite=True)")),
    ),
    *group(
        "DataFrame.writeTo",
        new(
            Py("$rows.writeTo('$new').using('delta').partitionedBy(F.col('p')).tableProperty('a', 'b').create()"),
            before=T,
            look=(*NEW, "SHOW TBLPROPERTIES $new ('a')"),
        ),
        one(Py("$others.writeTo('$t').using('delta').replace()"), before=TU),
        one(Py("$others.writeTo('$t').using('delta').createOrReplace()"), before=TU),
        one(Py("$rows.writeTo('$t').append()")),
        one(Py("$rows.where('id = 1').writeTo('$t').overwrite(F.expr(\"p = 'x'\"))")),
        one(Py("$rows.where('id = 1').writeTo('$t').overwritePartitions()")),
        one(
            Py("$others.alias('s').mergeInto('$t', F.expr('$t.id = s.id')).whenMatched().delete().merge()"),
            before=TU,
        ),
        tells(Py("spark.read.option('versionAsOf', 0).table('$t')"), before=TWICE),
        tells(
            Py("spark.read.option('readChangeFeed', True).option('startingVersion', 1).table('$t')"),
            "id",
            "_change_type",
            before=CHANGES,
        ),
    ),
    *group(
        "DeltaTable",
        new(
            Py(
                "DeltaTable.create(spark).tableName('$catalog.$new').addColumn('id', 'INT')"
                ".addColumn('twice', 'INT', generatedAlwaysAs='id * 2').partitionedBy('id')"
                ".comment('c').property('a', 'b').execute()"
            ),
            look=("DESCRIBE $new", "SHOW TBLPROPERTIES $new ('a')"),
            refused={"plain": "42601"},
        ),
        one(
            Py("DeltaTable.createIfNotExists(spark).tableName('$catalog.$t').addColumn('other', 'INT').execute()"),
            COLUMNS,
            before=EMPTY,
            refused={"plain": "42601"},
        ),
        one(
            Py("DeltaTable.replace(spark).tableName('$catalog.$t').addColumn('other', 'INT').execute()"),
            COLUMNS,
            before=EMPTY,
            refused={"plain": "42601"},
        ),
        one(
            Py(
                "DeltaTable.createOrReplace(spark).tableName('$catalog.$t').addColumn('other', 'INT')"
                ".clusterBy('other').execute()"
            ),
            COLUMNS,
            before=EMPTY,
            refused={"plain": "42601"},
        ),
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
        one(
            Py(
                "$table.alias('t').merge($others.alias('s'), 't.id = s.id').withSchemaEvolution()"
                ".whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()"
            ),
            before=TU,
        ),
        one(Py("$table.restoreToVersion(0)"), before=TWICE),
        one(Py("$table.optimize().executeCompaction()"), before=TWICE),
        one(Py("$table.optimize().where(\"p = 'x'\").executeZOrderBy('id')"), before=TWICE),
        one(Py("$table.vacuum()"), before=EMPTY, refused={"transaction": "25001"}),
        one(Py("$table.generate('symlink_format_manifest')"), before=EMPTY, refused={"transaction": "25001"}),
        one(
            Py("$table.upgradeTableProtocol(1, 5)"),
            "SHOW TBLPROPERTIES $t ('delta.minWriterVersion')",
            before=EMPTY,
        ),
        one(
            Py("$table.addFeatureSupport('typeWidening')"),
            "SHOW TBLPROPERTIES $t ('delta.feature.typeWidening')",
            before=EMPTY,
        ),
        one(
            Py("$table.dropFeatureSupport('typeWidening')"),
            "SHOW TBLPROPERTIES $t ('delta.feature.typeWidening')",
            before=(*EMPTY, "ALTER TABLE $t SET TBLPROPERTIES ('delta.feature.typeWidening' = 'supported')"),
        ),
        new(
            Py("$table.clone('$catalog.$new', isShallow=True)"),
            before=T,
            refused={"plain": "42601"},
            why="in spark_catalog names have two parts",
        ),
        tells(Py("$table.toDF()")),
        tells(Py("$table.history()"), "version", "operation"),
        tells(Py("$table.detail()"), "format", "partitionColumns", "numFiles"),
    ),
    *group(
        "spark.catalog",
        tells(Py("spark.catalog.tableExists('$t')")),
        tells(Py("spark.catalog.getTable('$t')")),
        tells(
            Py("[t.name for t in spark.catalog.listTables('$catalog.$ns') if t.name == '$t_name']"),
            refused=everywhere("42846"),
        ),
        tells(Py("spark.catalog.listColumns('$t')")),
        tells(Py("spark.catalog.databaseExists('$catalog.$ns')")),
        tells(Py("spark.catalog.getDatabase('$catalog.$ns').name")),
        tells(Py("[d.name for d in spark.catalog.listDatabases() if d.name == '$ns']")),
        tells(Py("[spark.catalog.setCurrentDatabase('$ns'), spark.catalog.currentDatabase()]")),
        new(Py("spark.catalog.createTable('$new', source='delta', schema=$rows.schema)"), before=T),
        tells(Py("[spark.catalog.cacheTable('$t'), spark.catalog.isCached('$t'), spark.catalog.uncacheTable('$t')]")),
        one(Py("spark.catalog.refreshTable('$t')"), before=EMPTY),
        one(Py("spark.catalog.recoverPartitions('$t')"), refused=everywhere("0A000")),
    ),
)
