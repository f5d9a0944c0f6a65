"""What a program's steps came to: the answers, and the lake's versions around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.timeline.entry import Entry
from tests.judge.model import Bag, State
from tests.judge.program import Program, Step


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was carried out: its answer, and the newest database version before and after it."""

    step: Step
    answer: Mapping[str, Any]
    before: int
    after: int

    @property
    def failed(self) -> bool:
        return "rows" not in self.answer


@dataclass(frozen=True, slots=True)
class History:
    """All that is known of a run of a program.

    Attributes:
        start: what the lake held at database version `version`.
        entries: the timeline behind that.
        contents: what the tables held in the end.
        ids: the tables' ids, by their short names.
        physical: the tables' physical column names, likewise.
        processes: session n ran in process n modulo this.
    """

    program: Program
    done: Sequence[Done]
    start: State
    version: int
    entries: Sequence[Entry]
    contents: Mapping[str, Bag]
    ids: Mapping[str, str]
    physical: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    processes: int = 1


def tell(history: History) -> str:
    """Return a history as a person reads it: steps, answers, and database versions."""
    lines = []
    for number, done in enumerate(history.done):
        rows = done.answer.get("rows", (done.answer.get("sqlstate"), str(done.answer.get("message"))[:150]))
        at = str(done.before) if done.after == done.before else f"{done.before} -> {done.after}"
        told = " ".join(str(value) for key, value in done.step.do.items() if key != "folder" and value != "sql")
        lines.append(f"{number:3} [{at}] s{done.step.session}: {told}\n        {rows}")
    for entry in history.entries:
        read = [(str(r.name), r.version, r.predicates) for r in entry.reads]
        what = f"version {entry.version} {entry.kind} {entry.transaction.id} from {entry.transaction.base_version}"
        lines.append(f"{what}, read {read}")
    return "\n".join(lines)
