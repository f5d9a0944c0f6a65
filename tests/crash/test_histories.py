"""Random transactions of several processes, some killed: what they saw is what their isolation level promises.

And the same with a rule of Lockstep taken out, where it must not be. See `tests.support.history` for the judge.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from lockstep.model import Isolation
from tests.support.campaign import PROMISED, Campaign, judge, run

# Slow: each test starts several processes, anew after each death, and lets them work for some seconds.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("isolation", PROMISED)
def test_what_clients_see_is_what_their_level_promises(tmp_path: Path, isolation: Isolation) -> None:
    """Four clients, killed twice each; the seed is pytest's, so a failing run can be repeated, as far as one can."""
    outcome = run(tmp_path, Campaign(seed=random.randrange(10**6), isolation=isolation))
    found = judge(outcome)
    assert not found, f"{outcome}\n" + "\n".join(map(str, found))
    status = Counter(tx.status for tx in outcome.history)
    assert status["ok"] > 120, "most transactions commit"
    assert status["fail"] > 10, "and some do not, for they are in each other's way"
    assert outcome.kills > 4


ROUNDS = 3
"""How many seeds a defect is given to show: nearly always the first will do, but a machine may run one by one."""


@pytest.mark.parametrize(
    ("defect", "isolation", "shown"),
    [
        ("no-conflicts", "SNAPSHOT", {"G-single", "duplicate"}),
        ("reads-unchecked", "SERIALIZABLE", {"G2-item"}),
        ("late-snapshot", "SNAPSHOT", {"G-single", "total"}),
        ("early-publish", "SERIALIZABLE", {"G1a"}),
        ("old-snapshot", "SNAPSHOT", {"G-single-realtime"}),
    ],
)
def test_a_rule_that_is_missing_shows(tmp_path: Path, defect: str, isolation: Isolation, shown: set[str]) -> None:
    """Few keys and long pauses, so that transactions meet."""
    for seed in range(ROUNDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        few = Campaign(
            seed=seed, isolation=isolation, scripts=25, tables=2, keys=1, kills=0, pause_ms=20, broken=defect
        )
        if shown <= {anomaly.name for anomaly in judge(run(folder, few))}:
            return
    pytest.fail(f"{ROUNDS} histories without {shown}")
