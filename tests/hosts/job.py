"""What test_standalone.py submits: one transaction over two tables, whose tasks meet with what a cluster does to tasks.

spark-submit … job.py <folder> <kill | speculate | plain>
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import lockstep

TASKS = 6
ROWS = 600
WAIT_SECONDS = 120


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def main(folder: str, what: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    lockstep.attach(spark)

    @udf("int")
    def value(id: int) -> int:
        """The row's number; the first of the last task's rows does what this job is about, once."""
        context = TaskContext.get()
        if id == ROWS - 1:
            attempts = Path(folder, f"attempt-{context.taskAttemptId()}")
            if what == "kill" and not [*Path(folder).glob("attempt-*")]:
                attempts.touch()
                os.kill(parent(os.getppid()), signal.SIGKILL)  # the worker's daemon is a child of the executor
            attempts.touch()
            end = time.monotonic() + WAIT_SECONDS
            while what == "speculate" and len([*Path(folder).glob("attempt-*")]) < 2:  # until there is another attempt
                assert time.monotonic() < end, "no speculative attempt came"
                time.sleep(0.05)
        return id

    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.n")
    for name in "ab":
        spark.sql(f"CREATE TABLE lake.n.{name} (id INT) USING delta")
    rows = spark.range(0, ROWS, 1, TASKS)
    with lockstep.transaction(spark) as tx:
        rows.select(value("id").alias("id")).write.mode("append").saveAsTable("lake.n.a")
        spark.sql("INSERT INTO lake.n.b SELECT id + 1000 FROM lake.n.a")
        spark.sql("DELETE FROM lake.n.b WHERE id % 2 = 0")
    print("committed", tx.version, *(spark.table(f"lake.n.{name}").count() for name in "ab"))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
