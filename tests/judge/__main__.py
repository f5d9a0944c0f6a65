"""Random programs on real Spark drivers for as long as you like, some killed, each judged.

    python -m tests.judge --seconds 3600 --seed 7 --processes 3 --kills 0.3         `make soak-spark`
    python -m tests.judge --known                                                   the programs of old faults alone

Session n of a program runs in process n modulo --processes; process 0 is never killed. With --master, all but the first
process start their Spark there: local-cluster[1,1,1024] has executors of their own. What is wrong is told with the
program's steps, answers and entries, and again with as few steps as still show it (--shrink). The exit code is 1 then.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from lockstep.timeline.entry import Isolation
from tests.judge import known, lake
from tests.judge.history import History, tell
from tests.judge.judging import judge
from tests.judge.process import Process, Remote
from tests.judge.program import PLAIN, Begin, End, Program, Step, generate
from tests.judge.run import LATER, Connect, run
from tests.judge.units import Anomaly


class Campaign:
    """Processes, templates, and a folder for lakes."""

    def __init__(self, folder: Path, processes: int, master: str) -> None:
        self._folder = folder
        masters = ["local[1]"] + [master] * (processes - 1)
        self.processes = [Process(folder / f"process{n}", each) for n, each in enumerate(masters)]
        self._templates: dict[int, lake.Template] = {}
        self._lakes = itertools.count()

    def template(self, layout: int) -> lake.Template:
        if layout not in self._templates:
            root = self._folder / f"template{layout}"
            session = self.processes[0].connect(root, "UTC", records=False)
            self._templates[layout] = lake.make(root, layout, lambda text: _made(session, text))
        return self._templates[layout]

    def judged(self, program: Program, deaths: Mapping[int, str]) -> tuple[History, list[Anomaly]]:
        root = self._folder / f"lake{next(self._lakes)}"  # never one twice: drivers remember what they read
        count = len(program.zones)

        def connect(n: int) -> Connect:
            return self.processes[0 if n == count else n % len(self.processes)].connect

        history = run(
            program, self.template(program.layout), root, connect, deaths=deaths, processes=len(self.processes)
        )
        found = judge(history)
        if not found:
            shutil.rmtree(root)
        return history, found

    def close(self) -> None:
        for process in self.processes:
            process.kill()


def _made(session: Remote, text: str) -> None:
    answer = session.perform({"do": "sql", "sql": text})
    assert "rows" in answer, (text, answer)


def deaths_of(program: Program, processes: int, chance: float) -> dict[int, str]:
    """Return at which steps the process of a step's session is killed, by the program's seed: one at most."""
    rng = random.Random(f"{program.seed}/deaths")
    ends = [
        number
        for number, step in enumerate(program.steps)
        if step.session != PLAIN and step.session % processes and step.means == End(commits=True)
    ]
    return {rng.choice(ends): rng.choice(("before", *LATER))} if ends and rng.random() < chance else {}


def shrunk(campaign: Campaign, program: Program, kind: str, seconds: float) -> Program:
    """Leave out steps as long as the same kind of anomaly shows; without kills."""
    until = time.monotonic() + seconds
    for size in (8, 4, 2, 1):
        at = 0
        while at < len(program.steps) and time.monotonic() < until:
            fewer = replace(program, steps=tuple(_balanced([*program.steps[:at], *program.steps[at + size :]])))
            found = [] if len(fewer.steps) == len(program.steps) else campaign.judged(fewer, {})[1]
            if any(anomaly.kind == kind for anomaly in found) and not any(a.kind == "error" for a in found):
                program = fewer
            else:
                at += size
    return program


def _balanced(steps: list[Step]) -> Iterator[Step]:
    """Leave out what has lost its beginning: uses of frames that nobody makes, ends of what nobody began."""
    made: set[str] = set()
    began: set[int] = set()
    for step in steps:
        if isinstance(step.means, Begin):
            if step.session in began:
                continue
            began.add(step.session)
        if isinstance(step.means, End):
            if step.session not in began:
                continue
            began.remove(step.session)
        name = step.do.get("frame", "")
        if step.do["do"] in ("collect", "cache", "view") and name not in made:
            continue
        if (
            (view := getattr(step.means, "frame", ""))
            and step.do["do"] == "sql"
            and step.do["sql"].startswith("SELECT")
            and view not in made
        ):
            continue
        made |= {name, step.do.get("view", "")}
        yield step


def programs(arguments: argparse.Namespace) -> Iterator[tuple[str, Program]]:
    for name in arguments.known or known.TEXTS:
        yield name, known.program(name)
    if arguments.known is None:
        for seed in itertools.count(arguments.seed):
            yield f"seed {seed}", generate(seed, isolation=arguments.level, length=arguments.length)


def main() -> int:
    arguments = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="lockstep-judge-"))
    campaign = Campaign(folder, arguments.processes, arguments.master)
    until = time.monotonic() + arguments.seconds
    wrong: Counter[str] = Counter()
    try:
        for name, program in programs(arguments):
            if time.monotonic() > until:
                break
            started = time.monotonic()
            deaths = deaths_of(program, arguments.processes, arguments.kills if arguments.known is None else 0)
            history, found = campaign.judged(program, deaths)
            kinds = Counter(anomaly.kind for anomaly in found)
            wrong.update(kinds)
            print(_line(name, history, deaths, time.monotonic() - started), dict(kinds) or "", flush=True)
            if found:
                print("\n".join(map(str, found)), tell(history), sep="\n", flush=True)
            if found and arguments.shrink and name.startswith("seed"):
                small = shrunk(campaign, program, found[0].kind, arguments.shrink)
                history, found = campaign.judged(small, {})
                print(f"{name}, in {len(small.steps)} steps:", *found, tell(history), sep="\n", flush=True)
    finally:
        campaign.close()
        if not wrong:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{sum(wrong.values())} anomalies: {dict(wrong)}" + f"; the lakes are in {folder}" * bool(wrong))
    return int(bool(wrong))


def _line(name: str, history: History, deaths: Mapping[int, str], seconds: float) -> str:
    ends = Counter(
        done.answer.get("sqlstate", "killed" if "stopped" in done.answer else "committed")
        for done in history.done
        if done.step.means == End(commits=True)
    )
    program = history.program
    how = f"{program.isolation}, {len(history.done)} steps, {dict(ends)}, {dict(deaths) or 'no death'}"
    return f"{name}: {how}, {seconds:.0f} s"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.judge", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--length", type=int, default=30, help="steps of a program, about")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kills", type=float, default=0.2, help="how likely a program is to lose a process")
    parser.add_argument("--level", choices=Isolation.__args__, default=None)  # type: ignore[attr-defined]
    parser.add_argument("--master", default="local[1]", help="of all processes but the first")
    parser.add_argument("--shrink", type=float, default=0, help="seconds to spend on making what was found small")
    parser.add_argument("--known", nargs="*", metavar="NAME", help="programs of old faults alone: these, or all")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
