"""Random programs do in Lockstep what they do in plain Delta: `tests/fuzz`, and `make fuzz` for more of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from tests.fuzz.broken import put_back
from tests.fuzz.differential import Differential
from tests.fuzz.process import PlainDelta
from tests.fuzz.program import write
from tests.fuzz.shrink import text
from tests.fuzz.steps import Block
from tests.support.sessions import new_session

pytestmark = pytest.mark.long

SEEDS = (101, 103)

TABLE = "CREATE TABLE t0 (k BIGINT, p STRING) USING delta PARTITIONED BY (p)"
TRACKED = f"{TABLE} TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
FAULTS = {
    "a file that is there counts twice": (
        "counted-twice",
        [TABLE, *(f"INSERT INTO t0 VALUES ({k}, '{p}')" for k, p in enumerate("xyy"))],
        ["ALTER TABLE t0 SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')", "OPTIMIZE t0 WHERE p = 'y'"],
        [],
    ),
    "commit versions in a data file": (
        "renumbered",
        [TRACKED],
        ["INSERT INTO t0 VALUES (1, 'x')", "INSERT INTO t0 VALUES (2, 'x')", "OPTIMIZE t0"],
        [],
    ),
    "row ids in a data file": (
        "renumbered",
        [TRACKED],
        ["INSERT INTO t0 VALUES (1, 'x')", "UPDATE t0 SET p = 'y' WHERE p = 'x'"],
        ["INSERT INTO t0 VALUES (2, 'w')"],
    ),
}
"""What is taken out of Lockstep, what is done first, in a transaction, and beside it."""


@pytest.fixture(scope="module")
def differential(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Differential]:
    folder = tmp_path_factory.mktemp("differential")
    with closing(PlainDelta(folder / "plain")) as plain:
        yield Differential(lambda root: new_session(spark_session, root), plain, folder / "lakes")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.deep) for seed in SEEDS[1:])])
def test_a_program_does_what_it_does_in_plain_delta(seed: int, differential: Differential) -> None:
    program = write(seed)
    found = differential.run(program).wrong
    assert not found, f"{text(program)}\n\n" + "\n".join(found)


@pytest.mark.slow
@pytest.mark.skipif("LOCKSTEP_TEST_JUDGE" not in os.environ, reason="takes minutes: make test-judge")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_was_mended_is_found(
    fault: str, differential: Differential, monkeypatch: pytest.MonkeyPatch
) -> None:
    defect, first, statements, beside = FAULTS[fault]
    numbers = count(1)
    steps = [[{"id": next(numbers), "sql": text} for text in texts] for texts in (first, statements, beside)]
    made: Block = {"id": 0, "kind": "alone", "steps": steps[0]}
    transaction: Block = {
        "id": 1,
        "kind": "transaction",
        "steps": steps[1],
        "other": steps[2],
        "at": 1,
        "end": "COMMIT",
    }
    program = {"name": "fault", "blocks": [made, transaction]}
    assert not differential.run(program).wrong
    put_back(defect, monkeypatch.setattr)
    assert differential.run(program).wrong
