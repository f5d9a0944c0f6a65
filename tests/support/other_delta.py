"""A Delta that is not as the one that Lockstep's jar was made for: its own jar, in which a name is another everywhere.

What is renamed is there for Delta itself, which works as before, and missing for whoever was compiled against the name.

    python -m tests.support.other_delta LAKE     runs some statements, with Delta's jars as LOCKSTEP_JARS says

It prints what they found, as JSON: the rows, and the class of the snapshot that Delta has of the table.
"""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

from lockstep.spark.jars import delta_jars


def renamed(folder: Path, name: str) -> Path:
    """Make Delta's jars in a folder, with another name of a class, a method or a field; return the folder.

    The new name is as long as the old one: in a class file, that stands before each.
    """
    folder.mkdir()
    old, new = name.encode(), (name[:-1] + "_").encode()
    for jar in delta_jars():
        if not jar.name.startswith("delta-spark"):
            shutil.copy(jar, folder)
            continue
        with zipfile.ZipFile(jar) as given, zipfile.ZipFile(folder / jar.name, "w") as made:
            found = 0
            for entry in given.infolist():
                data = given.read(entry)
                if entry.filename.endswith(".class"):
                    found += data.count(old)
                    data = data.replace(old, new)
                made.writestr(entry.filename.replace(name, new.decode()), data)
        assert found, f"nothing in {jar.name} is called {name}"
    return folder


def main(root: str) -> None:
    """Write and read a table outside of transactions and in one, and print what was found."""
    from pyspark.sql import SparkSession

    import lockstep
    from tests.spark.test_table_states import T, folder, kind, snapshot
    from tests.support.sessions import INTERPRETED, SMALL

    builder = lockstep.configure(SparkSession.builder.master("local[2]"), root=root)
    for key, value in {**SMALL, **INTERPRETED, "spark.sql.warehouse.dir": f"{root}-warehouse"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    def seen() -> dict[str, Any]:
        rows = sorted(row.id for row in spark.sql(f"SELECT id FROM {T}").collect())
        return {"rows": rows, "snapshot": kind(snapshot(spark, folder(spark)))}

    spark.sql(f"CREATE TABLE {T} (id BIGINT) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"INSERT INTO {T} SELECT id FROM range(5)")
    found = [seen()]
    with lockstep.transaction(spark):
        spark.sql(f"DELETE FROM {T} WHERE id = 2")
        found.append(seen())
    found.append(seen())
    spark.sql(f"UPDATE {T} SET id = 7 WHERE id = 0")
    found.append(seen())
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
