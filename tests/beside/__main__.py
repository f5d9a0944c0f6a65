"""`python -m tests.beside`: minutes of it, seed after seed (`make soak-writers`)."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

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
    args = parser.parse_args()
    for seed in range(args.seed, args.seed + args.rounds):
        folder = Path(tempfile.mkdtemp(prefix=f"lockstep-beside-{seed}-"))
        verdict = run(folder, args.seconds, seed, killed=args.killed, spark=args.spark, kinds=args.kinds)
        print(f"seed {seed}: {dict(verdict.answers)}; a person decided about {verdict.decided}", flush=True)
        for (kind, answer), count in sorted(verdict.kinds.items(), key=str):
            print(f"    {kind}, {answer or 'killed'}: {count}", flush=True)
        for (kind, why), count in sorted(verdict.reasons.items(), key=str):
            print(f"    {kind} was not done {count} times: {why}", flush=True)
        if verdict.wrong:
            print("\n".join(verdict.wrong[:50]), f"\nsee {folder}")
            return 1
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
