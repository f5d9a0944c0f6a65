"""The table of commits in an S3 server: each run is compared with one of its own round."""

from __future__ import annotations

from tests.bench.appending import Run
from tests.bench.s3 import CASES, DISTANCES_MS, section


def test_a_run_is_compared_with_the_same_round() -> None:
    """What else the machine did in a round slowed both: ratios of medians would tell of that, and not of the store."""
    [alone, apart, shared] = CASES
    rates = {(alone, 0): (10, 100), (alone, 10): (5, 50), (apart, 0): (20, 200), (apart, 10): (30, 300)}
    runs = {
        (case, ms): [Run(rate, 1000 / rate, 2.0) for rate in rates.get((case, ms), (1, 10))]
        for case in CASES
        for ms in DISTANCES_MS
    }
    text = section(runs, "versitygw")
    assert f"| {alone} | 10 ms | 27.5 | **0.50** | **1.0** |" in text
    assert f"| {apart} | 10 ms | 165.0 | **1.50** | **6.0** |" in text
    assert f"| {shared} | 60 ms |" in text
    assert "2 rounds" in text
    assert "in versitygw" in " ".join(text.split())
