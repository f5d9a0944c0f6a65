"""Run schedules by the thousand, or one of them again; or a commit with each fault, or each two, of its requests.

python -m tests.sim --schedules 10000           the seeds 0 to 9999: `make soak-sim`
python -m tests.sim --seed 7 --trace            one of them, with each step
python -m tests.sim --faults 2                  all double faults of a commit of three tables
python -m tests.sim --upkeep --schedules 3000   lakes that are looked after: versions expire, and files go
python -m tests.sim --arbiter …                 the same in lakes whose versions an arbiter decides
python -m tests.sim --keeping --schedules 1000  lakes of which copies are made, beside expiry and what deletes
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from itertools import product

from tests.sim import commit_faults, keeping, schedule
from tests.sim.repeating import repeatable

TOLD = 10
"""Of so many findings of one schedule it is told."""


def main() -> int:
    """Do what the arguments say; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="see tests/README.md")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--schedules", type=int, default=1, help="how many seeds")
    parser.add_argument("--trace", action="store_true", help="print each step")
    parser.add_argument("--faults", type=int, choices=(1, 2), help="all faults of one commit instead, and all pairs")
    parser.add_argument("--every", type=int, default=1, help="one out of so many pairs")
    parser.add_argument("--arbiter", action="store_true", help="in lakes that have one")
    parser.add_argument("--upkeep", action="store_true", help="in lakes that are looked after")
    parser.add_argument("--keeping", action="store_true", help="in lakes of which copies are made, alone")
    given = parser.parse_args()
    repeatable()
    if given.faults is not None:
        return int(_commits(given.faults, given.every, has_arbiter=given.arbiter) > 0)
    lakes = {"has_arbiter": given.arbiter, "has_upkeep": given.upkeep}
    failed = _schedules(given.seed, given.schedules, is_traced=given.trace, is_keeping=given.keeping, **lakes)
    return int(failed > 0)


def _schedules(
    first: int, count: int, *, is_traced: bool, has_arbiter: bool, has_upkeep: bool, is_keeping: bool
) -> int:
    """Run schedules, and return how many found something."""
    counts: Counter[str] = Counter()
    failed = digest = 0
    more = "".join(
        f"--{name} "
        for name, is_so in {"arbiter": has_arbiter, "upkeep": has_upkeep, "keeping": is_keeping}.items()
        if is_so
    )
    began = time.monotonic()
    for seed in range(first, first + count):
        if is_keeping:
            result = keeping.run(seed, is_traced=is_traced)
        else:
            result = schedule.run(seed, is_traced=is_traced, has_arbiter=has_arbiter, has_upkeep=has_upkeep)
        counts.update(result.counts)
        digest = result.digest
        for line in result.trace:
            print(line)
        if result.findings:
            failed += 1
            print(
                f"seed {seed}: {len(result.findings)} findings; again: python -m tests.sim {more}--seed {seed} --trace"
            )
            for finding in result.findings[:TOLD]:
                print(f"    {finding}", flush=True)
    seconds = time.monotonic() - began
    print(f"{count} schedules, {failed} with findings, in {seconds:.1f} s: {dict(counts)}, last digest {digest:08x}")
    return failed


def _commits(faults: int, every: int, *, has_arbiter: bool) -> int:
    """Run commits with all faults, and return how many found something."""
    failed = 0
    for lake, kind in product(commit_faults.lakes(has_arbiter=has_arbiter), commit_faults.COMMITS):
        told: Counter[str] = Counter()
        for planned, arrival, result in commit_faults.cases(lake, kind, faults, every=every):
            told[", ".join(result.told)] += 1
            failed += bool(result.findings)
            if result.findings:
                met = {number: (*result.calls[number], fault) for number, fault in planned.items()}
                print(f"commit ({kind}), late writes once {arrival}: {met}: {result.findings}", flush=True)
        print(f"commit ({kind}): {sum(told.values())} runs, told {dict(told.most_common(5))}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
