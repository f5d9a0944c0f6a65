"""A Spark driver that carries out steps, as a process of its own that can be killed.

python -m tests.judge.process <folder> <master>         a line of JSON in, a line of JSON out

{"open": name, "root": …, "zone": …, "records": "true"}   {"opened": name}
{"act": {…}, "in": name}                                  what `Actor.perform` answers
{"arm": "after-ratify"}                                   {"armed": …}; the next COMMIT stops there: {"stopped": …}
{"break": defect}                                         {"broken": …}; from now on one of `tests.judge.broken`
{"close": name}                                           {"closed": name}
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.judge.actor import Actor
from tests.judge.broken import put_in
from tests.judge.run import LATER
from tests.support.child import Parent
from tests.support.driver import STOPS, Driver
from tests.support.sessions import CATALOG, INTERPRETED, SMALL, new_session


class Process:
    """Such a process, as its coordinator sees it; started when it is first used, and again after its death."""

    def __init__(self, folder: Path, master: str) -> None:
        self._folder, self._master = folder, master
        self._driver: Driver | None = None
        self._names = 0
        self.deaths = 0

    def _asked(self, **request: Any) -> Mapping[str, Any]:
        if self._driver is None:
            folder = self._folder / str(self.deaths)
            self._driver = Driver(folder, "tests.judge.process", self._master)
        found: Mapping[str, Any] = self._driver.ask(request)
        return found

    def connect(self, root: Path, zone: str, records: bool) -> Remote:
        self._names += 1
        name = str(self._names)
        answer = self._asked(open=name, root=str(root), zone=zone, records=str(records))
        assert answer == {"opened": name}, answer
        return Remote(self, name)

    def break_(self, defect: str) -> None:
        """Put a defect in, in place of another."""
        self._asked(**{"break": defect})

    def kill(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver = None
            self.deaths += 1


@dataclass(frozen=True, slots=True)
class Remote:
    """A session in such a process."""

    process: Process
    name: str

    def perform(self, do: dict[str, str]) -> Mapping[str, Any]:
        return self.process._asked(act=do, **{"in": self.name})

    def die(self, do: dict[str, str], when: str) -> Mapping[str, Any]:
        """Begin a step, and be killed at a point of it; return an answer, if there was one before."""
        if when in LATER:
            self.process._asked(arm=when)
            answer = self.perform(do)
        else:
            answer = {"stopped": when}
        self.process.kill()
        return answer

    def close(self) -> None:
        if self.process._driver is not None:
            self.process._asked(close=self.name)


# --- inside the process -----------------------------------------------------------------------------------------------


def main(folder: str, master: str) -> None:
    """Answer requests until there are no more."""
    from pyspark.sql import SparkSession

    import lockstep

    parent = Parent()
    builder = lockstep.configure(SparkSession.builder.master(master), root=f"{folder}/unused", catalog=CATALOG)
    settings = {
        **SMALL,
        **INTERPRETED,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "1g",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    actors: dict[str, Actor] = {}
    for asked in parent.requests():
        if "open" in asked:
            session = new_session(spark, asked["root"])
            actors[asked["open"]] = Actor(session, asked["zone"], record_reads=asked["records"] == "True")
            parent.say({"opened": asked["open"]})
        elif "arm" in asked:
            STOPS[asked["arm"]](parent)
            parent.say({"armed": asked["arm"]})
        elif "break" in asked:
            put_in(asked["break"])
            parent.say({"broken": asked["break"]})
        elif "close" in asked:
            actors.pop(asked["close"]).close()
            parent.say({"closed": asked["close"]})
        else:
            parent.say(actors[asked["in"]].perform(asked["act"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
