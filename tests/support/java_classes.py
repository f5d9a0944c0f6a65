"""Make an archive of the classes that a Spark loads: `python -m tests.support.java_classes FILE`.

Tests start some hundred Sparks, and each spends seconds on reading and linking the same 20,000 classes. A Java that is
given such an archive (class data sharing, https://openjdk.org/jeps/350) maps them into its memory instead. It looks at
whether the archive is of its own version, class path and options, and does without if it is not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import lockstep
from tests.support.sessions import CATALOG, PLAIN_JAVA, SMALL

STATEMENTS = f"""
USE {CATALOG}
CREATE TABLE t (id BIGINT, name STRING) USING delta
BEGIN
INSERT INTO t SELECT id, concat('n', id) FROM range(10)
UPDATE t SET name = 'x' WHERE id = 1
DELETE FROM t WHERE id = 2
MERGE INTO t USING (SELECT 3 AS id) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = 'y'
COMMIT
SELECT name, count(*) FROM t JOIN (SELECT max(id) AS last FROM t) ON id <= last GROUP BY name ORDER BY name
SELECT * FROM t VERSION AS OF 0
OPTIMIZE t
DESCRIBE HISTORY t
SHOW TABLES
DROP TABLE t
""".strip().splitlines()


def main(archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = SMALL | lockstep.conf(root=f"{folder}/lake", catalog=CATALOG, create=True)
        settings["spark.driver.extraJavaOptions"] = f"{PLAIN_JAVA} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
        settings["spark.sql.warehouse.dir"] = f"{folder}/warehouse"
        builder = SparkSession.builder.master("local[2]")
        for key, value in settings.items():
            builder.config(key, value)
        spark = builder.getOrCreate()
        for statement in STATEMENTS:
            spark.sql(statement).collect()
        java = spark.sparkContext._gateway.proc
        spark.stop()
        java.stdin.close()  # it ends then, and writes the archive
        java.wait(timeout=600)
    if not archive.exists():
        print("archive: this Java makes none, so tests take longer to start Spark")
        archive.touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
