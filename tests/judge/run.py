"""Runs a program on a lake of its own, step by step, wherever its sessions are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from tests.judge import lake
from tests.judge.history import Done, History
from tests.judge.model import Bag
from tests.judge.program import Program, Step


class Session(Protocol):
    """Where steps are carried out."""

    def perform(self, do: dict[str, str]) -> Mapping[str, Any]:
        """Carry out one step, and return its answer."""

    def die(self, do: dict[str, str], when: str) -> Mapping[str, Any]:
        """Begin a step and be killed in it, with all sessions of the same process."""

    def close(self) -> None:
        """End it."""


LATER = ("before-ratify", "after-ratify", "between-publishes")
"""Points of a COMMIT at which a process can be killed; before it, too: "before"."""


Connect = Callable[[Path, str, bool], Session]
"""Opens a session on a lake: its root, its time zone, and whether reads are recorded."""


def run(
    program: Program,
    template: lake.Template,
    root: Path,
    connect: Callable[[int], Connect],
    *,
    deaths: Mapping[int, str] | None = None,
    processes: int = 1,
) -> History:
    """Run a program on a copy of a lake; `connect` tells how the session of a number is opened.

    One session more than the program has, the last, is that of plain writers, and reads all in the end. `deaths` says
    by which step a process is killed, and when; what its sessions were to do after that is left out.
    """
    lake.copy(template, root)
    sessions = [connect(n)(root, zone, program.record_reads) for n, zone in enumerate((*program.zones, "UTC"))]
    folders = lake.locations(root, program.tables)
    try:
        done: list[Done] = []
        before = template.version
        dead: set[int] = set()
        for number, step in enumerate(program.steps):
            if step.session in dead:
                continue
            told = _told(step, program, root, template.version, folders)
            if when := (deaths or {}).get(number):
                answer = sessions[step.session].die(told, when)
                dead |= {n for n, other in enumerate(sessions) if _process(other) is _process(sessions[step.session])}
            else:
                answer = sessions[step.session].perform(told)
            after = lake.head(root, before)
            done.append(Done(step, answer, before, after))
            before = after
        for n, session in enumerate(sessions):
            if n not in dead:
                session.perform({"do": "sql", "sql": "ROLLBACK"})
        contents = {
            table.name: _bag(sessions[-1].perform({"do": "sql", "sql": lake.select_all(table)}))
            for table in program.tables
        }
    finally:
        for session in sessions:
            session.close()
    return History(
        program=program,
        done=done,
        start=template.start,
        version=template.version,
        entries=lake.entries(root, template.version),
        contents=contents,
        ids={name: id for name, (id, _) in folders.items()},
        processes=processes,
        physical={name: lake.physical_names(folder) for name, (_, folder) in folders.items()},
    )


def _process(session: Session) -> object:
    return getattr(session, "process", None)


def _told(
    step: Step, program: Program, root: Path, version: int, folders: Mapping[str, tuple[str, Path]]
) -> dict[str, str]:
    """Put in what a program cannot know: numbers and folders."""
    do = {key: value.replace("${start}", str(version)) for key, value in step.do.items()}
    if do["do"] == "plain":
        name = next(table.name for table in program.tables if table.spark == do["table"])
        do["folder"] = str(folders[name][1])
    if do["do"] == "cold":
        do["root"] = str(root)
    return do


def _bag(answer: Mapping[str, Any]) -> Bag:
    if "rows" not in answer:
        raise AssertionError(f"the tables cannot be read: {answer}")
    return Counter(tuple(row) for row in answer["rows"])
