"""Lockstep with a fault put back on purpose, to see that the judge finds it: `make test-judge`.

    python -m tests.judge.broken [NAME …]

The faults that these stand for were the shim's. What it tells Python, and what it is told, passes through one method
(`Host.call`), so each is put back there: reads that are lost, statements that are forgotten, tables that nobody looks
at, caches that stay. Each must show in the small programs that are named beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Defect:
    """What is done to requests and to answers, and in which programs of `tests.judge.known` it must show."""

    shows_in: tuple[str, ...]
    request: Callable[[Message], Message] = lambda asked: asked
    answer: Callable[[Message, Message], Message] = lambda asked, answered: answered


def _last_read_wins(asked: Message) -> Message:
    """Keep one read of each table, the last."""
    if "reads" not in asked:
        return asked
    return {**asked, "reads": list({read["table"]: read for read in asked["reads"] or []}.values())}


def _reads_are_lost(asked: Message) -> Message:
    return {**asked, "reads": []} if "reads" in asked else asked


def _second_table_is_live(asked: Message) -> Message:
    """Forget the statement after its first relation: what follows is read as it is when the query runs."""
    if asked["op"] != "resolve":
        return asked
    asked = {**asked, "ahead": []}  # what is not told ahead is asked for when Spark asks
    is_later = asked.get("use") == "pinned" and asked.get("seen")
    return {**asked, "use": "live", "pin": None, "seen": []} if is_later else asked


def _nobody_looks(asked: Message) -> Message:
    return {**asked, "mentioned": []} if "mentioned" in asked else asked


def _versions_are_not_told(asked: Message) -> Message:
    """Take from COMMIT, too, what it would find a read of another version by."""
    if asked["op"] != "commit":
        return asked
    return {**asked, "reads": [{**read, "head": False} for read in asked["reads"] or []]}


def _any_frame_passes(asked: Message, answered: Message) -> Message:
    return {"ok": {}} if asked["op"] == "snapshot" else answered


DEFECTS: Mapping[str, Defect] = {
    "last-read-wins": Defect(("filtered-twice", "frame-view-twice"), request=_last_read_wins),
    "reads-are-lost": Defect(("cached-query", "cached-insert-select", "planned-before-begin"), request=_reads_are_lost),
    "second-table-is-live": Defect(("live-in-subquery", "many-cold-tables"), request=_second_table_is_live),
    "nobody-looks": Defect(("plain-below-view", "plain-below-join"), request=_nobody_looks),
    "any-frame-passes": Defect(("frame-older-than-begin",), request=_versions_are_not_told, answer=_any_frame_passes),
}


_whole: list[Callable[..., str]] = []
"""`Host.call` as it is."""


def put_in(name: str) -> None:
    """Put a defect into the Lockstep of this process, in place of another."""
    from lockstep.spark.host.host import Host

    _whole.append(Host.call)
    defect, call = DEFECTS[name], _whole[0]

    def broken(self: Host, request: str | bytes) -> str:
        asked = defect.request(json.loads(request))
        return json.dumps(defect.answer(asked, json.loads(call(self, json.dumps(asked)))))

    Host.call = broken  # type: ignore[method-assign]


def main(names: list[str]) -> int:
    """Run what must show each defect; return 1 if one does not."""
    from tests.judge import known
    from tests.judge.__main__ import Campaign

    missed = 0
    campaign = Campaign(Path(tempfile.mkdtemp(prefix="lockstep-broken-")), 1, "local[1]")
    try:
        for name in names or DEFECTS:
            campaign.template(0)
            campaign.processes[0].break_(name)
            for program in DEFECTS[name].shows_in:
                _, found = campaign.judged(known.program(program), {})
                kinds = sorted({anomaly.kind for anomaly in found})
                print(f"{name}: {program}: {', '.join(kinds) or 'NOT FOUND'}", flush=True)
                missed += not kinds
    finally:
        campaign.close()
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
