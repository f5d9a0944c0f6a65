"""Properties of tables: what each may be set to, as Delta takes it, judged before anything is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lockstep.errors import InvalidError, LockstepError, UnsupportedError
from lockstep.tables.opened import OpenLake
from lockstep.tables.properties import PROPERTIES, interval
from tests.support.refused import refused_in
from tests.support.table_properties import VALUES

SCHEMA = pa.schema([("id", pa.int64())])

REFUSED: dict[str, tuple[dict[Any, Any], type[LockstepError]]] = {
    "unknown to Delta": ({"delta.apendOnly": "true"}, InvalidError),
    "unknown to Delta, of others": ({"delta.targetFileSize": "1"}, InvalidError),
    "no name after delta": ({"delta.": "1"}, InvalidError),
    "unknown to Lockstep": ({"lockstep.external": "warn"}, InvalidError),
    "spelled otherwise": ({"Lockstep.external_commits": "warn"}, InvalidError),
    "empty key": ({"": "1"}, InvalidError),
    "blank key": ({" ": "1"}, InvalidError),
    "no text as a key": ({1: "1"}, InvalidError),
    "no text as a value": ({"mine": 1}, InvalidError),
    "a boolean": ({"delta.appendOnly": True}, InvalidError),
    "null": ({"mine": None}, InvalidError),
    **{key: ({key: "x"}, InvalidError) for key in ("comment", "location", "provider", "owner", "external", "OWNER")},
    "twice": ({"delta.appendOnly": "true", "DELTA.appendonly": "false"}, InvalidError),
    "a feature's value": ({"delta.feature.deletionVectors": "yes"}, InvalidError),
    "a feature": ({"delta.feature.deletionVectors": "supported"}, UnsupportedError),
    "a constraint": ({"delta.constraints.c": "id > 0"}, UnsupportedError),
    "row tracking": ({"delta.enableRowTracking": "true"}, UnsupportedError),
    "a protocol": ({"delta.minReaderVersion": "3"}, UnsupportedError),
    "mapping by id": ({"delta.columnMapping.mode": "id"}, UnsupportedError),
    "what Delta keeps itself": ({"delta.columnMapping.maxColumnId": "5"}, UnsupportedError),
    "uniform": ({"delta.universalFormat.enabledFormats": "iceberg"}, UnsupportedError),
    "a log that is shorter than what it names": ({"delta.logRetentionDuration": "6 days"}, InvalidError),
    "files longer than the log": ({"delta.deletedFileRetentionDuration": "31 days"}, InvalidError),
    "both": (
        {"delta.deletedFileRetentionDuration": "3 days", "delta.logRetentionDuration": "2 days"},
        InvalidError,
    ),
}


def test_each_property_has_a_case() -> None:
    assert VALUES.keys() - {"lockstep.external_commits"} == {each.key for each in PROPERTIES.values()}


@pytest.mark.parametrize("key", VALUES)
def test_values_that_delta_takes_are_taken_and_no_others(lake: OpenLake, key: str) -> None:
    taken, refused = VALUES[key]
    with lake.transaction() as tx:
        for value in refused:
            with refused_in(tx, InvalidError, "expected") as error:
                tx.create("t", SCHEMA, properties={key: value})
            assert error.value.sqlstate == "22023", value
        assert not tx.tables
        for number, value in enumerate(taken):
            tx.create(f"t{number}", SCHEMA, properties={key: value})
    delta = lake.at()["t0"].delta()
    assert delta.metadata().configuration[key] == taken[0]
    known = PROPERTIES.get(key.lower())
    if known is None or known.when == "at any time":
        with lake.transaction() as tx:
            tx["t0"].alter.set_table_properties({key: taken[-1]})
            for value in refused:
                with refused_in(tx, InvalidError, "expected"):
                    tx["t0"].alter.set_table_properties({key: value})
            tx["t1"].alter.unset_table_properties([key])
        assert lake.at()["t0"].delta().metadata().configuration == {key: taken[-1]}
        assert lake.at()["t1"].delta().metadata().configuration == {}


@pytest.mark.parametrize("case", REFUSED)
def test_properties_that_are_refused_leave_nothing(lake: OpenLake, case: str) -> None:
    properties, kind = REFUSED[case]
    with lake.transaction() as tx:
        tx.create("t", SCHEMA)
    for change in (
        lambda tx: tx.create("other", SCHEMA, properties=properties),
        lambda tx: tx["t"].alter.set_table_properties(properties),
    ):
        with lake.transaction() as tx, refused_in(tx, kind) as error:
            change(tx)
        assert type(error.value) is kind
        assert error.value.sqlstate == ("22023" if kind is InvalidError else "0A000")
    assert lake.at().tables == [lake.at()["t"].name]
    assert lake.at()["t"].version == 0


def test_properties_of_ones_own_are_free(lake: OpenLake) -> None:
    mine = {"team": "", "delta": "1", "deltas.x": "1", "lockstep": "2", "Delta_x": "é", "option.x": "y", "My.Own": "\n"}
    with lake.transaction() as tx:
        tx.create("t", SCHEMA, properties=mine).alter.set_table_properties({"more": "1"})
    assert lake.at()["t"].delta().metadata().configuration == {**mine, "more": "1"}


def test_retention_that_stood_there_is_not_judged_by_other_properties(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        kept = {"delta.deletedFileRetentionDuration": "60 days", "delta.logRetentionDuration": "90 days"}
        alter = tx.create("t", SCHEMA, properties=kept).alter
        with refused_in(tx, InvalidError, "shorter"):
            alter.unset_table_properties(["delta.LOGretentionDuration"])
        alter.set_table_properties({"delta.logRetentionDuration": "60 days"})


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1 microsecond", 1),
        ("interval 1 week 2 days 3 hours 4 minutes 5.25 seconds 6 milliseconds", 788645256000),
        ("- 1 day 2 days", 86400 * 10**6),
        ("2592000000 milliseconds", 30 * 86400 * 10**6),
        ("+7\tdays", 7 * 86400 * 10**6),
        ("interval\t7 days", None),
        ("999999999999999 hours", None),
    ],
)
def test_intervals(text: str, micros: int | None) -> None:
    assert interval(text) == micros
