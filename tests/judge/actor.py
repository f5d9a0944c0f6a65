"""Carries out a program's steps on Spark sessions, in whatever process these are.

    {"do": "sql", "sql": …}                                     a statement; its rows
    {"do": "table", "frame": f, "table": …, "where": …}         f = spark.table(…).where(…)
    {"do": "query", "frame": f, "sql": …}                       f = spark.sql(…)
    {"do": "collect", "frame": f, "how": "as is"}               f.collect(): no new plan
    {"do": "collect", "frame": f, "how": …, "where": …}         f.where(…), then its rows, its count or its greatest k
    {"do": "cache", "frame": f}                                 f.cache()
    {"do": "view", "frame": f, "view": v}                       f.createOrReplaceTempView(v)
    {"do": "cache table", "table": …}                           spark.catalog.cacheTable(…)
    {"do": "uses cache", "sql": …}                              whether the plan of a query reads what is cached
    {"do": "plain", "folder": …, "rows": …, "columns": …}       a plain Delta writer appends, by path
    {"do": "cold", "root": …}                                   Delta forgets its logs, and loses their checksums

An answer is {"rows": […]}, or {"sqlstate": …, "message": …}.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.judge.tables import SHOWN
from tests.support.runner import Failure
from tests.support.sessions import SparkConnection

Answer = dict[str, Any]


class Actor:
    """One session, and the frames that it has made."""

    def __init__(self, session: Any, zone: str, *, record_reads: bool) -> None:
        self.session = session
        self._frames: dict[str, Any] = {}
        session.conf.set("spark.sql.session.timeZone", zone)
        session.conf.set("lockstep.record_reads", str(record_reads).lower())
        session.udf.register("is_odd", lambda k: None if k is None else k % 2 == 1, "boolean")

    def perform(self, do: dict[str, str]) -> Answer:
        """Carry out one step; what fails is an answer, too."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from lockstep.spark.script import state_of

        try:
            return self._done(do)
        except PySparkException as error:
            return {"sqlstate": error.getSqlState(), "message": _short(str(error))}
        except Py4JJavaError as error:
            return {"sqlstate": state_of(error.java_exception), "message": _short(str(error))}

    def _done(self, do: dict[str, str]) -> Answer:
        match do["do"]:
            case "sql":
                return self._sql(do["sql"])
            case "table":
                frame = self.session.table(do["table"])
                self._frames[do["frame"]] = frame.alias("f").where(do["where"]) if do.get("where") else frame
            case "query":
                self._frames[do["frame"]] = self.session.sql(do["sql"])
            case "collect":
                return self._collect(do)
            case "cache":
                self._frames[do["frame"]].cache()
            case "view":
                self._frames[do["frame"]].createOrReplaceTempView(do["view"])
            case "cache table":
                self.session.catalog.cacheTable(do["table"])
            case "uses cache":
                plan = self.session.sql(do["sql"])._jdf.queryExecution().withCachedData().toString()
                return {"rows": [["InMemoryRelation" in plan]]}
            case "plain":
                self._plain(do)
            case "cold":
                self._cool(Path(do["root"]))
            case other:
                raise ValueError(other)
        return {"rows": []}

    def _sql(self, text: str) -> Answer:
        found = SparkConnection(self.session).run(text)
        if isinstance(found, Failure):
            return {"sqlstate": found.sqlstate, "message": _short(found.message)}
        return {"rows": [list(row) for row in found.rows], "columns": list(found.columns)}

    def _collect(self, do: dict[str, str]) -> Answer:
        if do["how"] == "as is":
            return {"rows": [[row[column] for column in SHOWN] for row in self._frames[do["frame"]].collect()]}
        frame = self._frames[do["frame"]].alias("f")
        if do["where"]:
            frame = frame.where(do["where"])
        if do["how"] == "count":
            return {"rows": [[frame.count()]]}
        if do["how"] == "max":
            return {"rows": [list(row) for row in frame.selectExpr("max(k)").collect()]}
        return {"rows": [list(row) for row in frame.select(*SHOWN).collect()]}

    def _plain(self, do: dict[str, str]) -> None:
        rows = self.session.sql(do["rows"]).toDF(*do["columns"].split(","))
        rows.write.format("delta").mode("append").save(do["folder"])

    def _cool(self, root: Path) -> None:
        for checksum in root.glob("**/_delta_log/*.crc"):
            checksum.unlink(missing_ok=True)
        for checksum in root.glob("**/_delta_log/.*.crc.crc"):
            checksum.unlink(missing_ok=True)
        self.session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()

    def die(self, do: dict[str, str], when: str) -> Answer:
        """Refuse: this session's process is the test's own."""
        raise NotImplementedError(f"{do} {when}")

    def close(self) -> None:
        """Forget what the session has cached, and end what is open."""
        from lockstep.spark.bridge import is_open

        self._frames.clear()
        if is_open(self.session):
            self._sql("ROLLBACK")
        self.session.catalog.clearCache()


def _short(message: str) -> str:
    return "\n".join(line for line in message.splitlines() if not line.lstrip().startswith("at "))[:2000]
