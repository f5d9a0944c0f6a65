"""Which cases of the suites do not pass and why, as a file says it, and whether a run agrees.

A line for each, of five fields between ` | `; `expected.txt` is that file:

    delta.test_sql.DeltaSqlTests.test_vacuum | design | transaction | 25001 | VACUUM cannot be rolled back

the case; the kind of the reason; the settings in which it fails; what the text of its failure contains; the reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Setting = Literal["statements", "transaction", "plain"]
"""Each statement on its own; each case in one transaction; as `statements`, but without Lockstep's catalog."""

Kind = Literal["design", "spark", "delta", "dbt", "translation", "fault"]
"""Why a case does not pass.

design: Lockstep refuses it, and means to.
spark: Spark does it for its own catalog alone, not for any other.
delta: Delta cannot do it, in any catalog.
dbt: dbt cannot do it in any catalog, or its test asks for what is not here (`plain`).
translation: it is about what the adapter has changed, and fails on Delta's own catalog as well (`plain`).
fault: it should pass.
"""

SETTINGS: tuple[Setting, ...] = get_args(Setting)
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Expected:
    """A case that does not pass in some settings."""

    case: str
    kind: Kind
    settings: frozenset[Setting]
    shows: str
    why: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case: `failure` is its error's text, or None; `skipped` is its own reason to skip itself."""

    case: str
    setting: Setting
    failure: str | None = None
    skipped: str = ""
    seconds: float = 0.0


def parse(text: str) -> list[Expected]:
    """Return the lines of a list.

    Raises:
        ValueError: a line that is not of the form, or the same case and setting twice.
    """
    found: list[Expected] = []
    seen: set[tuple[str, Setting]] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) != 5 or not all(fields):
            raise ValueError(f"line {number}: expected `case | kind | settings | shows | why`")
        case, kind, named, shows, why = fields
        settings = [setting for setting in SETTINGS if setting in named.split()]
        if kind not in KINDS or sorted(settings) != sorted(named.split()):
            raise ValueError(f"line {number}: kinds are {', '.join(KINDS)}, settings are {', '.join(SETTINGS)}")
        if kind in ("dbt", "translation") and "plain" not in settings:
            raise ValueError(f"line {number}: what is not Lockstep's must fail without Lockstep too")
        if again := [setting for setting in settings if (case, setting) in seen]:
            raise ValueError(f"line {number}: {case} in {again[0]} has a line already")
        seen |= {(case, setting) for setting in settings}
        found.append(Expected(case, kind, frozenset(settings), shows, why))
    return found


def disagreements(outcomes: Iterable[Outcome], expected: Sequence[Expected], *, complete: bool) -> list[str]:
    """Return in what a run and the list differ; `complete` if the run was of all cases."""
    by_key = {(line.case, setting): line for line in expected for setting in line.settings}
    found: list[str] = []
    ran: set[tuple[str, Setting]] = set()
    for outcome in outcomes:
        ran.add((outcome.case, outcome.setting))
        line = by_key.get((outcome.case, outcome.setting))
        where = f"{outcome.case} ({outcome.setting})"
        if outcome.failure is not None and line is None:
            found.append(f"{where} fails, and is not in the list: {summary(outcome.failure)}")
        elif outcome.failure is None and line is not None:
            found.append(f"{where} is in the list, but passes: take its line out")
        elif outcome.failure is not None and line is not None and line.shows not in outcome.failure:
            found.append(f"{where} fails as the list says, but without {line.shows!r}: {summary(outcome.failure)}")
    settings_run = {setting for _, setting in ran}
    if complete:
        found += [
            f"{case} ({setting}) is in the list, but there is no such case"
            for case, setting in by_key
            if (case, setting) not in ran and setting in settings_run
        ]
    return found


def summary(failure: str) -> str:
    """Return the line of a failure's text that says what happened: the last one that names an error."""
    lines = [line.strip() for line in failure.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|SystemExit)\b", line)]
    return (named or lines or [""])[-1][:300]


def numbers(outcomes: Iterable[Outcome]) -> dict[tuple[str, Setting], Counter[str]]:
    """Return, by module and setting, how many passed, failed and skipped themselves."""
    found: dict[tuple[str, Setting], Counter[str]] = {}
    for outcome in outcomes:
        module = outcome.case.rsplit(".", 2)[0]
        result = "failed" if outcome.failure is not None else "skipped" if outcome.skipped else "passed"
        found.setdefault((module, outcome.setting), Counter())[result] += 1
    return found
