"""A Spark driver that a test can kill: a process of its own, which runs the SQL that it is told to.

python -m tests.support.driver <root>       a line of JSON in, a line of JSON out, until the end of its input

{"sql": "SELECT 1 AS x"}           {"columns": ["x"], "rows": [[1]]}, or {"sqlstate": "40001", "message": "…"}
{"open": "con1", "root": "/lake"}  {"opened": "con1"}: a further session, on a lake of its own
{"sql": …, "session": "con1"}      the same as the first, in that session
{"stream": "/checkpoint"}          {"streamed": [0, 1]}: rows of `source` into `a` and `b`, and the batches that it took
{"end": ""}                        {"ended": true}: Spark was stopped, and the process goes on
{"stop": "after-ratify"}           {"armed": "after-ratify"}; later, when a COMMIT comes to that point, {"stopped": …}
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

from tests.support.runner import Failure, Result
from tests.support.sessions import CATALOG, INTERPRETED, SMALL, SparkConnection, new_session

PATIENCE_S = 180.0
"""How long an answer may take: a first statement on a busy machine with two cores takes long, and never this long."""


class Driver:
    """The process as its test sees it; a context manager that leaves nothing running."""

    def __init__(self, root: Path, repository: Path, module: str = "tests.support.driver", *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(root), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=repository,
            start_new_session=True,  # a group of its own: Python and the JVM are killed as one
        )
        self._answers: Queue[dict[str, Any]] = Queue()
        self._names = itertools.count(1)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(json.JSONDecodeError):  # Spark, too, prints
                self._answers.put(json.loads(line))

    def tell(self, **request: Any) -> None:
        """Send a request, and go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the next answer."""
        try:
            return self._answers.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError(f"no answer within {PATIENCE_S} s; exit code {self._process.poll()}") from None

    def sql(self, *statements: str) -> list[dict[str, Any]]:
        """Run statements that must succeed, and return the rows of the last."""
        rows: list[dict[str, Any]] = []
        for statement in statements:
            self.tell(sql=statement)
            answer = self.answer()
            assert "rows" in answer, f"{statement}: {answer}"
            rows = [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
        return rows

    def connect(self, root: Path) -> DriverSession:
        """Open a session of its own on a lake."""
        name = str(next(self._names))
        self.tell(open=name, root=str(root))
        assert self.answer() == {"opened": name}
        return DriverSession(self, name)

    def kill(self) -> None:
        """Kill Python and the JVM as a power cut would, and wait until both are gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@dataclass(frozen=True, slots=True)
class DriverSession:
    """One session of the process; it runs records of the contract."""

    driver: Driver
    name: str

    def run(self, sql: str) -> Result | Failure:
        self.driver.tell(sql=sql, session=self.name)
        answer = self.driver.answer()
        if "rows" in answer:
            return Result(answer["columns"], answer["rows"])
        return Failure(answer["sqlstate"], answer["message"])


# --- inside the process -----------------------------------------------------------------------------------------------


def main(root: str) -> None:
    """Answer requests until there are no more."""
    from pyspark.sql import SparkSession

    import lockstep

    builder = lockstep.configure(SparkSession.builder.master("local[1]"), root=root, catalog=CATALOG)
    settings = {
        **SMALL,
        **INTERPRETED,
        "spark.sql.warehouse.dir": f"{root}-warehouse",
        "spark.driver.memory": "1g",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sql(f"USE {CATALOG}")
    sessions = {"": SparkConnection(spark)}
    for line in sys.stdin:
        asked = json.loads(line)
        if "stop" in asked:
            STOPS[asked["stop"]]()
            say(armed=asked["stop"])
        elif "stream" in asked:
            say(streamed=stream(spark, asked["stream"]))
        elif "end" in asked:
            spark.stop()
            say(ended=True)
        elif "open" in asked:
            sessions[asked["open"]] = SparkConnection(new_session(spark, asked["root"]))
            say(opened=asked["open"])
        else:
            say(**asdict(sessions[asked.get("session", "")].run(asked["sql"])))


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


def say(**answer: Any) -> None:
    print(json.dumps(answer, default=str), flush=True)


def stop(point: str) -> None:
    """Stay here until killed."""
    say(stopped=point)
    threading.Event().wait()


def before_ratify() -> None:
    from lockstep.timeline.log import Timeline

    _replace(Timeline, "append", lambda original: lambda *args, **kwargs: stop("before-ratify"))


def after_ratify() -> None:
    from lockstep.lake.publisher import Publisher

    _replace(Publisher, "try_publish", lambda original: lambda *args, **kwargs: stop("after-ratify"))


def between_publishes() -> None:
    """Let the first table through, and stop all others; say so when the first is done."""
    from lockstep.lake import publisher

    turn = threading.Lock()
    done: list[object] = []

    def one(original: Callable[..., Any]) -> Callable[..., Any]:
        def publish(*args: Any, **kwargs: Any) -> Any:
            with turn:
                if done:
                    stop("between-publishes")
                done.append(original(*args, **kwargs))
                return done[0]

        return publish

    _replace(publisher, "publish", one)


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


STOPS = {"before-ratify": before_ratify, "after-ratify": after_ratify, "between-publishes": between_publishes}


if __name__ == "__main__":
    main(sys.argv[1])
