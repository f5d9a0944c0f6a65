"""What docs/benchmarks.md says of rounds that writers of several kinds had beside each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.bench.page import conditions, paragraph
from tests.beside.judging import Verdict
from tests.beside.person import Decision

MARK = "beside"
ANSWERS = {"done": "done", "refused": "refused", "unknown": "unknown", None: "killed before an answer"}
"""What an operation came to, and the heading of its column."""


def section(verdicts: Sequence[Verdict], seconds: float, command: str) -> str:
    """Return what the page says of rounds, in none of which the judge found anything."""
    kinds, kills = sum((each.kinds for each in verdicts), Counter()), sum((each.kills for each in verdicts), Counter())
    settled = sum((each.settled for each in verdicts), Counter())
    acknowledged = sum((each.acknowledged for each in verdicts), Counter())
    operations = sum(kinds.values())
    intro = paragraph(
        f"{len(verdicts)} rounds of {seconds:g} seconds each, with a judge after each who found nothing wrong"
        f" (`{command}`; [what it asks](../tests/README.md#writers-of-several-kinds-beside)). {operations:,} operations"
        f" were begun, and {sum(kills.values())} writers were killed: {_listed(kills)}. Of the writes of each kind of"
        f" writer so many were acknowledged: {_listed(acknowledged)}; a round in which one has next to none fails."
        f" {sum(each.expired for each in verdicts):,} versions of the lake had expired when the judge came."
        f" {_settled(settled)} On {conditions()}; this says what was tried, not how fast it is."
    )
    headings = " | ".join(ANSWERS.values())
    rows = [
        " | ".join(["", kind, *(_count(kinds[kind, answer]) for answer in ANSWERS), ""]).strip()
        for kind in sorted({kind for kind, _ in kinds})
    ]
    why = paragraph(
        "*Refused* is what another writer's commit came before, of Lockstep's transactions and of delta-rs's alike, or"
        " what met a table while it was set aside; nothing of it was there."
    )
    table = "\n".join([f"| operation | {headings} |", "|---|---|---|---|---|", *rows])
    return f"## Writers of several kinds beside each other\n\n{intro}\n\n{table}\n\n{why}\n"


def _settled(counts: Counter[Decision]) -> str:
    if not counts:
        return "No collision with a plain writer's commit set a table aside."
    decisions = _listed(Counter({_words(*each): count for each, count in counts.items()}))
    times = "once" if counts.total() == 1 else f"{counts.total()} times"
    return f"A collision with a plain writer's commit set a table aside {times}, and a person settled it: {decisions}."


def _words(keep: str, way: str) -> str:
    return f"{keep} by {'the command' if way == 'command' else 'the core'}"


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"


def _count(count: int) -> str:
    return f"{count:,}" if count else ""
