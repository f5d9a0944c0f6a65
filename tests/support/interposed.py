"""Something that happens while Spark analyzes a statement: between the host's answers about two of its relations."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lockstep.spark import bridge
from lockstep.spark.host.host import Host
from lockstep.storage import url_of
from lockstep.timeline.log import Timeline


def host_of(spark: Any) -> Host:
    """Return the host that answers a session's Spark from this process."""
    return bridge._hosts[id(spark.sparkContext._gateway)].host


def timeline_of(spark: Any) -> Timeline:
    """Return the timeline of a session's lake, as the host of this process has it in memory."""
    root = url_of(spark.conf.get("spark.sql.catalog.lake.root"))
    [found] = {house.catalog.timeline for house in host_of(spark).lakehouses if house.catalog.lake.storage.url == root}
    return found


class Interposer:
    """Stands before a host, and has something else happen once, after an answer of its choice and before it is heard.

    What happens is real: another session's statement, another process' commit. It runs on a thread of its own, for a
    callback of Py4J may share its thread with the statement that waits for the answer.
    """

    def __init__(self, host: Host) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answer = host.call
        self._then: Callable[[], object] | None = None

    def once(self, then: Callable[[], object]) -> None:
        """Have this happen when the next table or view has been answered about."""
        self._then = then
        self.asked.clear()

    def restart(self) -> None:
        """Let a host that remembers nothing answer from now on."""
        self._answer = Host("restarted").call

    @property
    def has_happened(self) -> bool:
        return self._then is None

    def call(self, request: str) -> str:
        answer = self._answer(request)
        asked = json.loads(request)
        if asked["op"] in ("resolve", "view") and {"look", "unsaid"}.isdisjoint(json.loads(answer)):
            self.asked.append(asked)
            then, self._then = self._then, None
            if then is not None:
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(then).result()
        return answer
