"""A Spark driver that a test can kill: a process of its own, which runs the SQL that it is told to.

python -m tests.support.driver <root> [<arbiter>]      a line of JSON in, a line of JSON out, until its input ends

{"sql": "SELECT 1 AS x"}           {"columns": ["x"], "rows": [[1]]}, or {"sqlstate": "40001", "message": "…"}
{"open": "con1", "root": "/lake"}  {"opened": "con1"}: a further session, on a lake of its own
{"sql": …, "session": "con1"}      the same as the first, in that session
{"stream": "/checkpoint"}          {"streamed": [0, 1]}: rows of `source` into `a` and `b`, and the batches that it took
{"end": ""}                        {"ended": true}: Spark was stopped, and the process goes on
{"stop": "after-ratify"}           {"armed": "after-ratify"}; later, when a COMMIT comes to that point, {"stopped": …}
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.support import on_azure, on_hdfs, on_s3
from tests.support.child import Child, Parent
from tests.support.runner import Failure, Result
from tests.support.sessions import CATALOG, INTERPRETED, ROOTS, SMALL, SparkConnection, new_session

PATIENCE_S = 180.0
"""How long an answer may take: a first statement on a busy machine with two cores takes long, and never this long."""


class Driver(Child):
    """The process as its test sees it."""

    def __init__(self, root: Path | str, module: str = "tests.support.driver", *arguments: str) -> None:
        super().__init__(module, str(root), *arguments, errors=subprocess.DEVNULL, patience_s=PATIENCE_S)
        self._names = itertools.count(1)

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        """Run statements that must succeed in its first session, and return the rows of the last."""
        return DriverSession(self, "").sql(*statements)

    def connect(self, root: Path | str) -> DriverSession:
        """Open a session of its own on a lake."""
        name = str(next(self._names))
        assert self.ask({"open": name, "root": str(root)}) == {"opened": name}
        return DriverSession(self, name)


@dataclass(frozen=True, slots=True)
class DriverSession:
    """One session of the process; it runs records of the contract."""

    driver: Driver
    name: str

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        """Run statements that must succeed, and return the rows of the last."""
        rows: list[dict[str, Any]] = []
        for statement in statements:
            answer = self.run(statement)
            assert isinstance(answer, Result), f"{statement}: {answer}"
            rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        return rows

    def run(self, sql: str) -> Result | Failure:
        self.tell(sql)
        return self.answer()

    def tell(self, sql: str) -> None:
        """Begin a statement; `answer` waits for its end."""
        self.driver.tell({"sql": sql, "session": self.name})

    def answer(self) -> Result | Failure:
        answer = self.driver.answer()
        if "rows" in answer:
            return Result(answer["columns"], answer["rows"])
        return Failure(answer["sqlstate"], answer["message"])


# --- inside the process -----------------------------------------------------------------------------------------------


def main(root: str, arbiter: str | None = None) -> None:
    """Answer requests until there are no more."""
    from pyspark.sql import SparkSession

    import lockstep

    parent = Parent()
    builder = SparkSession.builder.master("local[1]")
    if ROOTS.startswith("s3") or on_azure.IS_WANTED:
        jars = on_azure.abfs_jars() if on_azure.IS_WANTED else on_s3.s3a_jars()
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    options = on_azure.OPTIONS if on_azure.IS_WANTED else None
    builder = lockstep.configure(builder, root=root, catalog=CATALOG, create=True, arbiter=arbiter, options=options)
    settings = {
        **SMALL,
        **INTERPRETED,
        "spark.sql.warehouse.dir": tempfile.mkdtemp() if ROOTS else f"{root}-warehouse",
        "spark.driver.memory": "1g",
    }
    if on_hdfs.IS_WANTED:
        settings |= on_hdfs.SOONER
    if on_azure.IS_WANTED:
        settings |= on_azure.WITHOUT_TLS
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sql(f"USE {CATALOG}")
    sessions = {"": SparkConnection(spark)}
    for asked in parent.requests():
        if "stop" in asked:
            STOPS[asked["stop"]](parent)
            parent.say({"armed": asked["stop"]})
        elif "stream" in asked:
            parent.say({"streamed": stream(spark, asked["stream"])})
        elif "end" in asked:
            spark.stop()
            parent.say({"ended": True})
        elif "open" in asked:
            sessions[asked["open"]] = SparkConnection(new_session(spark, asked["root"]))
            parent.say({"opened": asked["open"]})
        else:
            parent.say(asdict(sessions[asked.get("session", "")].run(asked["sql"])))


def stream(spark: Any, checkpoint: str) -> list[int]:
    """Carry what is new in `source` into `a` and `b`, until there is no more; return the batches that wrote."""
    import lockstep

    written = []

    def load(frame: Any, number: int) -> None:
        written.append(number)
        frame.createOrReplaceTempView("batch")
        for table in "ab":
            frame.sparkSession.sql(f"INSERT INTO {CATALOG}.default.{table} SELECT id FROM batch")

    source = spark.readStream.table(f"{CATALOG}.default.source")
    writer = source.writeStream.foreachBatch(lockstep.foreach_batch(load, application="from source to a and b"))
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    return written


def stop(parent: Parent, point: str) -> None:
    """Stay here until killed."""
    parent.say({"stopped": point})
    threading.Event().wait()


def before_ratify(parent: Parent) -> None:
    from lockstep.timeline.log import Timeline

    _replace(Timeline, "append", lambda original: lambda *args, **kwargs: stop(parent, "before-ratify"))


def after_ratify(parent: Parent) -> None:
    from lockstep.lake.publisher import Publisher

    _replace(Publisher, "try_publish", lambda original: lambda *args, **kwargs: stop(parent, "after-ratify"))


def between_publishes(parent: Parent) -> None:
    """Let the first table through, and stop all others; say so when the first is done."""
    from lockstep.lake import publisher

    turn = threading.Lock()
    done: list[object] = []

    def one(original: Callable[..., Any]) -> Callable[..., Any]:
        def publish(*args: Any, **kwargs: Any) -> Any:
            with turn:
                if done:
                    stop(parent, "between-publishes")
                done.append(original(*args, **kwargs))
                return done[0]

        return publish

    _replace(publisher, "publish", one)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


STOPS = {"before-ratify": before_ratify, "after-ratify": after_ratify, "between-publishes": between_publishes}


if __name__ == "__main__":
    main(*sys.argv[1:])
