"""What tables ask of rows: CHECK constraints, also of what is stored as null; and defaults of columns."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from lockstep.errors import InvalidError, LockstepError, UnsupportedError
from lockstep.tables.opened import OpenLake
from tests.support.python_tables import made_by_spark, rows
from tests.support.refused import refused_in


def field(name: str, type_: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": more}


# --- constraints ------------------------------------------------------------------------------------------------------

WRITES: dict[str, Any] = {
    "append": lambda t, value: t.append({"id": [value]}),
    "overwrite": lambda t, value: t.overwrite({"id": [value]}),
    "overwrite of some": lambda t, value: t.overwrite({"id": pa.array([value], pa.int64())}, "id IS NULL OR id < 9"),
    "update": lambda t, value: t.update({"id": "NULL" if value is None else str(value)}),
    "merge": lambda t, value: (
        t.merge({"k": [1], "id": pa.array([value], pa.int64())}, on="target.id = source.k")
        .when_matched_update({"id": "source.id"})
        .execute()
    ),
    "insert of a merge": lambda t, value: (
        t.merge({"id": pa.array([value], pa.int64())}, on="id").when_not_matched_insert({"id": "source.id"}).execute()
    ),
}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("value", [-5, None])
def test_a_constraint_holds_of_all_that_is_written_and_null_does_not_keep_it(
    table: OpenLake, how: str, value: int | None
) -> None:
    with table.transaction() as tx:
        tx["t"].alter.add_constraint({"Positive": "id > 0"})
        with refused_in(tx, InvalidError, r"the constraint positive \(id > 0\)") as refused:
            WRITES[how](tx["t"], value)
        assert refused.value.sqlstate == "23514"
        WRITES[how](tx["t"], 7)
    assert 7 in [row["id"] for row in rows(table)]
    assert table.at()["t"].delta().metadata().configuration == {"delta.constraints.positive": "id > 0"}
    with table.transaction() as tx:
        tx["t"].alter.drop_constraint("POSITIVE")
        tx["t"].append({"id": [-1]})


EMPTY: dict[str, Any] = {
    "append": lambda t: t.append({"id": [2], "p": [""]}),
    "append of more": lambda t: t.append({"id": [2], "p": [""], "new": [1]}, schema_mode="merge"),
    "overwrite": lambda t: t.overwrite({"id": [2], "p": [""]}),
    "overwrite of some": lambda t: t.overwrite({"id": [2], "p": [""]}, "id = 2"),
    "update": lambda t: t.update({"p": "''"}),
    "merge": lambda t: t.merge({"id": [1], "p": [""]}, on="id").when_matched_update({"p": "source.p"}).execute(),
    "insert of a merge": lambda t: t.merge({"id": [2], "p": [""]}, on="id").when_not_matched_insert_all().execute(),
}


@pytest.mark.parametrize("how", EMPTY)
def test_an_empty_text_that_is_stored_as_null_is_judged_as_null(lake: OpenLake, how: str) -> None:
    with lake.transaction() as tx:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        feed = {"delta.enableChangeDataFeed": "true"}
        t = tx.create("t", schema, partition_by="p", properties=feed)
        t.append({"id": [1], "p": ["a"]})
        t.alter.add_constraint({"some": "p <> 'x'"})
        with refused_in(tx, InvalidError, "the constraint some") as refused:
            EMPTY[how](t)
        assert refused.value.sqlstate == "23514"
        strict = tx.create(
            "strict", pa.schema([schema.field(0), schema.field(1).with_nullable(False)]), partition_by="p"
        )
        strict.append({"id": [1], "p": ["a"]})
        with refused_in(tx, InvalidError, "an empty text in it is null") as refused:
            EMPTY[how](strict)
        assert refused.value.sqlstate == "23502"
        t.alter.drop_constraint("some")
        EMPTY[how](t)
    assert None in [row["p"] for row in rows(lake)]


def test_an_empty_text_is_not_what_is_replaced_where_it_is_stored_as_null(lake: OpenLake) -> None:
    with lake.transaction() as tx:
        t = tx.create("t", pa.schema([("id", pa.int64()), ("p", pa.string())]), partition_by="p")
        with refused_in(tx, InvalidError, "1 of the rows are not what is replaced") as refused:
            t.overwrite({"id": [1], "p": [""]}, "p = ''")
        assert refused.value.sqlstate == "23514"
        t.overwrite({"id": [1], "p": [""]}, "p IS NULL")


def test_constraints_that_are_not_taken(table: OpenLake) -> None:
    with table.transaction() as tx:
        alter = tx["t"].alter
        for name, text, sqlstate in (
            ("c", "id > 1", "23514"),
            ("c", "id % 2 = 1", "0A000"),
            ("c", "id > 0; DROP TABLE t", "0A000"),
            ("c", "nosuch > 0", "0A000"),
            ("c", "", "0A000"),
            ("a b", "id > 0", "22023"),
        ):
            with refused_in(tx, LockstepError) as refused:
                alter.add_constraint({name: text})
            assert refused.value.sqlstate == sqlstate
        alter.add_constraint({"c": "id > 0"})
        with refused_in(tx, InvalidError, "has a constraint C") as refused:
            alter.add_constraint({"C": "id > 0"})
        assert refused.value.sqlstate == "42710"
        with refused_in(tx, InvalidError, "no constraint other") as refused:
            alter.drop_constraint("other")
        assert refused.value.sqlstate == "42704"


def test_a_row_that_was_there_does_not_keep_others_from_going(lake: OpenLake) -> None:
    """Rows of a rewritten file are no news: a delete beside one that breaks a constraint of Spark's is a delete."""
    made_by_spark(lake, [field("id", "long")], ["checkConstraints"])
    with lake.transaction() as tx:
        tx["t"].append({"id": [-1, 2]})
    with lake.transaction() as tx:
        tx["t"].append({"id": [3]})
        assert tx["t"].delete("id = 2") == 1
    assert rows(lake) == [{"id": -1}, {"id": 3}]


# --- defaults ---------------------------------------------------------------------------------------------------------


def test_columns_that_rows_do_not_have_get_their_defaults(lake: OpenLake) -> None:
    made_by_spark(
        lake,
        [
            field("id", "long"),
            field("n", "integer", CURRENT_DEFAULT="42"),
            field("s", "string", CURRENT_DEFAULT="'new'"),
            field("at", "timestamp", CURRENT_DEFAULT="current_timestamp()"),
            field("too", "timestamp", CURRENT_DEFAULT="CURRENT_TIMESTAMP"),
        ],
        ["allowColumnDefaults"],
    )
    before = dt.datetime.now(dt.UTC)
    with lake.transaction() as tx:
        t = tx["t"]
        t.append([{"id": 1}])
        t.append({"id": [2], "n": [None], "s": ["given"]})
        t.overwrite({"id": [3]}, "id = 3")
        merge = t.merge({"id": [4, 5], "x": [1, 3]}, on="id")
        merge.when_not_matched_insert({"id": "source.id", "n": "source.x"}, "source.x = 1")
        merge.when_not_matched_insert({"id": "source.id", "at": "now()"}, "source.x = 2")
        merge.when_not_matched_insert({"id": "source.id"}).execute()
    found = rows(lake)
    assert [(row["id"], row["n"], row["s"]) for row in found] == [
        (1, 42, "new"),
        (2, None, "given"),
        (3, 42, "new"),
        (4, 1, "new"),
        (5, 42, "new"),
    ]
    assert all(before - dt.timedelta(seconds=1) <= row["at"] <= dt.datetime.now(dt.UTC) for row in found)
    assert [row["too"] for row in found] == [row["at"] for row in found]
    assert found[3]["at"] == found[4]["at"]


def test_a_default_that_is_not_understood_is_refused_where_it_is_needed(lake: OpenLake) -> None:
    made_by_spark(lake, [field("id", "long"), field("u", "string", CURRENT_DEFAULT="uuid()")], ["allowColumnDefaults"])
    with lake.transaction() as tx:
        t = tx["t"]
        for change in (
            lambda: t.append({"id": [1]}),
            lambda: t.overwrite({"id": [1]}),
            lambda: t.merge({"id": [1]}, on="id").when_not_matched_insert({"id": "source.id"}).execute(),
        ):
            with refused_in(tx, UnsupportedError, r"allowColumnDefaults \(u: uuid\(\)\)"):
                change()
        assert t.append({"id": [1], "u": ["mine"]}) == 1
        assert t.update({"id": "2"}) == 1
        merge = t.merge({"id": [2, 3], "u": ["m", "new"]}, on="id").when_matched_update({"u": "source.u"})
        assert merge.execute() == (0, 1, 0)
        merge.when_not_matched_insert(
            {"id": "source.id", "u": "source.u"}, "source.id > 5"
        ).when_not_matched_insert_all()
        assert merge.execute() == (1, 1, 0)
        t.merge({"id": [3]}, on="id").when_matched_delete().execute()
    assert rows(lake) == [{"id": 2, "u": "m"}]
