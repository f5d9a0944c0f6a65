"""What Spark reads of lakes that were looked after: random histories, of which `make soak-retention` runs more."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException

from lockstep.lake.upkeep import Upkeep
from lockstep.timeline import fence
from lockstep.timeline.entry import Name
from tests.support.at_once import at_once
from tests.support.retention_machine import RetentionMachine, live
from tests.support.retention_model import TABLES, Tables, rows_of
from tests.support.sessions import new_session

pytestmark = [pytest.mark.long, pytest.mark.slow]

EXAMPLES = max(5, int(os.environ.get("LOCKSTEP_SOAK_EXAMPLES", "0")) // 20)
STEPS = 40


def reads(session: Any, version: int, tables: Tables) -> dict[Name, set[tuple[str, int]]]:
    """Return the rows of a database version's tables, each with the name of its file."""
    found: dict[Name, set[tuple[str, int]]] = {name: set() for name in tables}
    queries = [
        f"SELECT {at}, _metadata.file_name, id FROM {name.table} FOR SYSTEM_VERSION AS OF {version}"
        for at, name in enumerate(tables)
    ]
    names = list(tables)
    for at, path, row in session.sql(" UNION ALL ".join(queries)).collect():
        assert (path, row) not in found[names[at]], f"{names[at]} has the row {row} of {path} twice"
        found[names[at]].add((path, row))
    return found


def refusal(session: Any, version: int, name: Name) -> str | None:
    """Return the SQLSTATE with which a table of a database version is refused."""
    with pytest.raises(PySparkException) as caught:
        session.sql(f"SELECT * FROM {name.table} FOR SYSTEM_VERSION AS OF {version}").collect()
    return caught.value.getSqlState()


def check(machine: RetentionMachine, session: Any) -> None:
    """See that Spark reads all that can be read as the model has it, and is refused what cannot."""
    kept, seen = machine.whole(), set()
    for version in kept:
        tables = machine.versions[version]
        logs = frozenset(machine.catalog.timeline.at(version).tables.values())
        if not tables or logs in seen:  # fences and tags: the same versions of the same logs
            continue
        seen.add(logs)
        expected = {name: rows_of(content) for name, (_, content) in tables.items()}
        assert reads(session, version, tables) == expected, f"database version {version}"
        for name in set(TABLES) - tables.keys():
            assert refusal(session, version, name) == "42P01"
    readable = {*machine.readable()}  # more than what is whole: of some a clean-up from outside took one table's log
    expired = [version for version, tables in machine.versions.items() if tables and version not in readable]
    if expired:
        [name, *_] = machine.versions[expired[-1]]
        assert refusal(session, expired[-1], name) == "72000"


@pytest.mark.deep  # tests/unit/retention/test_machine.py runs the same machine without Spark
def test_spark_reads_every_version_that_is_kept(spark_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "GRACE_SECONDS", 0.0)  # no process but this one
    monkeypatch.setattr(Upkeep, "add", at_once)  # its calls of the store are counted, and the lake goes at the end

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.reuse, Phase.generate],  # to make a history small runs it hundreds of times, each with Spark
    )
    @given(st.data())
    def histories(data: st.DataObject) -> None:
        machine = RetentionMachine()
        try:
            live(machine, data, STEPS)
            check(machine, new_session(spark_session, machine.root))
        finally:
            machine.teardown()

    histories()
