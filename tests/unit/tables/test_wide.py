"""Tables of many columns: what a statement does for each column does not grow with the number of the others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lockstep.tables import layout
from lockstep.tables.opened import OpenLake
from lockstep.tables.schema import arrow_field

COLUMNS = [f"c{number}" for number in range(200)]
ROUNDS = 60
"""So often each column may be looked at in all of the statements."""


def test_a_column_is_not_looked_at_once_for_each_other(lake: OpenLake, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def counted(field: dict[str, Any], column: str) -> pa.Field:
        nonlocal looks
        looks += 1
        return arrow_field(field, column)

    with lake.transaction() as tx:
        table = tx.create("t", pa.schema([(name, pa.int64()) for name in COLUMNS]))
        monkeypatch.setattr(layout, "arrow_field", counted)
        table.append({name: [1, 2] for name in COLUMNS})
        table.update({"c0": "c0 + 10"}, "c1 = 2")
        source = {name: [2, 3] for name in COLUMNS}
        table.merge(source, on="c1").when_matched_update_all().when_not_matched_insert_all().execute()
        rows = table.to_arrow(where="c1 > 1").sort_by("c1").to_pylist()
    assert rows == [dict.fromkeys(COLUMNS, 2), dict.fromkeys(COLUMNS, 3)]
    assert looks < ROUNDS * len(COLUMNS)
