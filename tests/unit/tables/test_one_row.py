"""What columns are set to is asked of each row by itself: no statement makes or loses rows by it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lockstep.errors import InvalidError, LockstepError, UnsupportedError
from lockstep.tables.conditions import checked
from lockstep.tables.opened import OpenLake
from lockstep.tables.queries import check_one_value_a_row
from tests.support.refused import refused_in

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
ROWS = [{"id": 1, "v": 10}, {"id": 2, "v": 20}]

NOT_OF_ONE_ROW = [
    "unnest([1, 2])",
    "unnest([])",
    "1 + unnest([1, 2])",
    "generate_subscripts([1, 2], 1)",
    "sum(source.v)",
    "count(*)",
    "product(source.v)",
    "row_number() OVER ()",
    "lag(source.v) OVER (ORDER BY source.id)",
    "COLUMNS(*)",
    "first(7)",
]


@pytest.fixture
def table(lake: OpenLake) -> OpenLake:
    """A lake with a table of two rows."""
    with lake.transaction() as tx:
        tx.create("t", SCHEMA).append(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    return lake


def unchanged(lake: OpenLake) -> bool:
    return lake.at()["t"].version == 0 and lake.at()["t"].to_arrow().sort_by("id").to_pylist() == ROWS


@pytest.mark.parametrize("text", NOT_OF_ONE_ROW)
def test_an_update_takes_none(table: OpenLake, text: str) -> None:
    of_target = text.replace("source.", "")
    for where in (None, "id = 1"):
        with pytest.raises(InvalidError), table.transaction() as tx:
            tx["t"].update({"v": of_target}, where)
    with pytest.raises(InvalidError), table.transaction() as tx:
        tx["t"].delete(f"{of_target} IS NOT NULL")
    assert unchanged(table)


@pytest.mark.parametrize("text", NOT_OF_ONE_ROW)
def test_no_clause_of_a_merge_takes_one(table: OpenLake, text: str) -> None:
    source = {"id": [1, 7], "v": [5, 6]}
    for clause in ("when_matched_update", "when_not_matched_insert", "when_not_matched_by_source_update"):
        said = text.replace("source.", "target.") if clause.endswith("source_update") else text
        for values, condition in (({"v": said}, None), ({"v": "1"}, f"({said}) IS NOT NULL")):
            with pytest.raises(InvalidError), table.transaction() as tx:
                getattr(tx["t"].merge(source, on="id"), clause)(values, condition).execute()
    assert unchanged(table)


@pytest.mark.parametrize("text", ["unnest([1])", "sum(v)", "row_number() OVER ()", "COLUMNS(*)"])
def test_they_are_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedError, match="no value of one row"):
        checked(text)


def test_a_query_is_refused_behind_a_word_at_which_the_parser_gives_up() -> None:
    """After `if` it takes the text for a command, and looks no further."""
    with pytest.raises(InvalidError, match="no expression"):
        checked("if = 1 OR (SELECT count(*) FROM target) = 3", columns=["if"])
    assert checked('"if" = 1', columns=["if"])


@pytest.mark.parametrize("text", ["unnest([])", "product(id)", "generate_subscripts([1, 2], 1)", "rank() OVER ()"])
def test_duckdb_refuses_what_the_parser_does_not_know(text: str) -> None:
    with pytest.raises(InvalidError):
        check_one_value_a_row({"target": SCHEMA.empty_table()}, "target", [text])


@pytest.mark.parametrize("text", ["__lockstep_index", "target.__LOCKSTEP_index + 1", '"__lockstep_file"', "#1"])
def test_what_is_lockstep_s_own_is_no_column(table: OpenLake, text: str) -> None:
    with table.transaction() as tx:
        for refused in (
            lambda: tx["t"].update({"v": text}),
            lambda: tx["t"].delete(f"({text}) = 1"),
            lambda: tx["t"].to_arrow(where=f"({text}) = 1"),
        ):
            with refused_in(tx, LockstepError) as error:
                refused()
            assert error.value.sqlstate == "42703"
    assert unchanged(table)


def test_functions_of_one_row_are_taken(table: OpenLake) -> None:
    with table.transaction() as tx:
        told = "list_sum([v * 2, 2]) + len(flatten([[1]])) + greatest(id, 0)"
        assert tx["t"].update({"v": told}, "random() >= 0") == 2
        assert tx["t"].update({"v": "v + list_max(range(3))"}, "id = 1") == 1
        assert tx["t"].to_arrow(["v"]).sort_by("v").column("v").to_pylist() == [26, 45]


@pytest.mark.parametrize("text", ["target", "TARGET", "source", "main.target", "temp.main.target", '"target"'])
def test_a_whole_row_is_no_column(table: OpenLake, text: str) -> None:
    """It has columns of Lockstep's own in it."""
    with table.transaction() as tx:
        t = tx["t"]
        for refused in (
            lambda: t.update({"v": f"len(({text})::VARCHAR)"}),
            lambda: t.delete(f"({text}) IS NOT NULL"),
            lambda: t.to_arrow(where=f"({text}) = {{'id': 1, 'v': v}}"),
            lambda: (
                t.merge({"id": [1]}, f"target.id = source.id AND ({text}) IS NOT NULL").when_matched_delete().execute()
            ),
            lambda: t.merge({"id": [1]}, "id").when_matched_delete(f"({text}) IS NOT NULL").execute(),
        ):
            with refused_in(tx, LockstepError) as error:
                refused()
            assert error.value.sqlstate == "42703"
    assert unchanged(table)


def test_a_column_may_be_called_as_a_side_of_a_merge(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        t = tx.create(
            "t", pa.schema([("id", pa.int64()), ("target", pa.int64()), ("s", pa.struct([("source", pa.int64())]))])
        )
        t.append({"id": [1], "target": [5]})
        assert t.update({"target": "target + target.target"}, "TARGET = 5 AND s.source IS NULL") == 1
        merge = t.merge({"id": [1, 2], "source": [3, 4]}, on="id").when_matched_update({"target": "target + source"})
        merge.when_not_matched_insert({"id": "id", "target": "source + source.source"})
        assert merge.execute() == (1, 1, 0)
        assert t.to_arrow(["target"]).sort_by("target").column("target").to_pylist() == [8, 13]


@pytest.mark.parametrize("on", ["id", "target.id = source.id", "source.id = target.id AND true -- and no more"])
def test_a_struct_called_as_the_other_side_of_a_merge_hides_no_key_of_it(lake: OpenLake, on: str) -> None:
    """As `source` is called in what Debezium sends: a row was inserted again, and others were deleted."""
    named = pa.struct([("id", pa.int64())])
    rows = pa.table({"id": [1, 2, 9], "target": pa.array([{"id": 3}] * 3, named)})
    with lake.transaction() as tx:
        t = tx.create("t", pa.schema([("id", pa.int64()), ("source", named)]))
        t.append({"id": [1, 2, 3], "source": [{"id": 7}] * 3})
        merge = t.merge(rows, on=on).when_matched_update({"source": "struct_pack(id := source.target.id)"})
        merge.when_not_matched_insert({"id": "source.id"}).when_not_matched_by_source_delete("source.id = 7")
        assert merge.execute() == (1, 2, 1)
        assert t.to_arrow().sort_by("id").to_pylist() == [
            {"id": 1, "source": {"id": 3}},
            {"id": 2, "source": {"id": 3}},
            {"id": 9, "source": None},
        ]
