"""`python -m tests.beside`: minutes of it, seed after seed (`make soak-writers`)."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.bench.page import DOCUMENT, with_section
from tests.beside.page import MARK, section
from tests.beside.run import run


def main() -> int:
    """Run rounds until the time is over, or one of them finds something; its folder stays then."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30, help="of each round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--killed", type=float, default=0.5, help="how many writers are killed, of 1")
    parser.add_argument(
        "--spark", action="store_true", help="Spark drivers too, with Lockstep and without: rounds of minutes"
    )
    parser.add_argument("--kinds", nargs="*", default=[], help="the writers, to see whose fault something is")
    parser.add_argument("--write", action="store_true", help="put what came of it into docs/benchmarks.md")
    args = parser.parse_args()
    verdicts = []
    for seed in range(args.seed, args.seed + args.rounds):
        folder = Path(tempfile.mkdtemp(prefix=f"lockstep-beside-{seed}-"))
        verdict = run(folder, args.seconds, seed, killed=args.killed, spark=args.spark, kinds=args.kinds)
        print(f"seed {seed}: {dict(verdict.answers)}; killed {dict(verdict.kills)}", flush=True)
        print(f"    acknowledged writes: {dict(verdict.acknowledged)}; expired: {verdict.expired}", flush=True)
        if verdict.settled:
            print(
                f"    a person settled {dict(verdict.settled)}, and decided about rows: {verdict.decided}", flush=True
            )
        for (kind, answer), count in sorted(verdict.kinds.items(), key=str):
            print(f"    {kind}, {answer or 'killed'}: {count}", flush=True)
        for (kind, why), count in sorted(verdict.reasons.items(), key=str):
            print(f"    {kind} was not done {count} times: {why}", flush=True)
        if verdict.wrong:
            print("\n".join(verdict.wrong[:50]), f"\nsee {folder}")
            return 1
        verdicts.append(verdict)
        shutil.rmtree(folder)
    if args.write:
        said = " ".join(each for each in sys.argv[1:] if each != "--write")
        text = section(verdicts, args.seconds, f"make soak-writers SOAK_ARGS='{said}'" if said else "make soak-writers")
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
