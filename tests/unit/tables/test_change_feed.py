"""A table with a change data feed: what each commit did to which rows, as another reader of feeds tells it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lockstep
from lockstep.lake.verify import verify
from lockstep.tables.opened import OpenLake

pytestmark = pytest.mark.long

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ODD = "z %20/é"
FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
KINDS: dict[str, dict[str, Any]] = {
    "files": {"properties": FEED},
    "vectors": {"properties": FEED | VECTORS},
    "partitions": {"properties": FEED, "partition_by": "v"},
    "both": {"properties": FEED | VECTORS, "partition_by": "v"},
}


def changes(lake: OpenLake, since: int) -> Counter[tuple[Any, ...]]:
    """Return what the table's versions after one say of rows: what became of each, and the row."""
    delta = lake.at()["t"].delta()
    if delta.version() <= since:
        return Counter()
    rows = pa.table(delta.load_cdf(starting_version=since + 1).read_all()).to_pylist()
    return Counter((row["_change_type"], row["id"], row["v"]) for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_each_statement_tells_its_rows(lake: OpenLake, kind: str) -> None:
    with lake.transaction() as tx:
        tx.create("t", SCHEMA, **KINDS[kind]).append({"id": [1, 2, 3, 4, 5], "v": ["a", "a", "b", "b", None]})
    steps: list[tuple[Any, set[tuple[Any, ...]]]] = [
        (lambda t: t.append({"id": [6], "v": ["c"]}), {("insert", 6, "c")}),
        (lambda t: t.delete("id = 1"), {("delete", 1, "a")}),
        (lambda t: t.update({"v": f"'{ODD}'"}, "id = 5"), {("update_preimage", 5, None), ("update_postimage", 5, ODD)}),
        (
            lambda t: (
                t.merge({"id": [2, 3, 9], "v": ["m", "gone", "n"]}, on="id")
                .when_matched_delete("source.v = 'gone'")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .when_not_matched_by_source_update({"v": "'o'"}, "target.id = 4")
                .execute()
            ),
            {
                ("delete", 3, "b"),
                ("update_preimage", 2, "a"),
                ("update_postimage", 2, "m"),
                ("update_preimage", 4, "b"),
                ("update_postimage", 4, "o"),
                ("insert", 9, "n"),
            },
        ),
        (lambda t: t.overwrite({"id": [7], "v": [ODD]}, f"v = '{ODD}'"), {("delete", 5, ODD), ("insert", 7, ODD)}),
    ]
    for number, (change, expected) in enumerate(steps, 1):
        with lake.transaction() as tx:
            change(tx["t"])
        assert changes(lake, number - 1) == Counter(expected)
    assert not verify(lake.catalog.lake.storage, lake.catalog.timeline).differences


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 5)),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("update"), st.integers(0, 5)),
    st.tuples(st.just("merge"), st.integers(0, 5)),
    st.tuples(st.just("overwrite"), st.integers(0, 5)),
    st.tuples(st.just("commit"), st.just(0)),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(steps=st.lists(STEPS, max_size=10))
def test_the_feed_of_any_program_makes_each_version_of_the_one_before(
    tmp_path_factory: pytest.TempPathFactory, kind: str, steps: list[tuple[str, int]]
) -> None:
    """Of several statements in one transaction, too: rows that go are those that were there."""
    lake = lockstep.open(str(tmp_path_factory.mktemp("lake")), create=True)
    with lake.transaction() as tx:
        tx.create("t", SCHEMA, **KINDS[kind]).append({"id": [0, 1, 2, 3], "v": ["0", "1", "0", "1"]})

    def rows() -> Counter[tuple[Any, ...]]:
        return Counter((row["id"], row["v"]) for row in lake.at()["t"].to_arrow().to_pylist())

    before, since = rows(), lake.at()["t"].version
    tx = lake.transaction().__enter__()
    for number, (what, key) in enumerate([*steps, ("commit", 0)]):
        if what == "append":
            tx["t"].append({"id": [key], "v": [f"{number}"]})
        elif what == "delete":
            tx["t"].delete(f"id = {key}")
        elif what == "update":
            tx["t"].update({"v": f"'u{number}'"}, f"id = {key}")
        elif what == "merge":
            merge = tx["t"].merge({"id": [key, 9], "v": [f"m{number}", "n"]}, on="id")
            merge.when_matched_update_all("target.v <> '1'").when_matched_delete()
            merge.when_not_matched_insert_all().execute()
        elif what == "overwrite":
            tx["t"].overwrite({"id": [key], "v": ["w"]}, f"id = {key}")
        else:
            tx.commit()
            told = changes(lake, since)
            for (change, *row), count in told.items():
                before[tuple(row)] += count if change in ("insert", "update_postimage") else -count
            assert +before == rows()
            assert all(count >= 0 for count in before.values()), "nothing goes that was not there"
            before, since = rows(), lake.at()["t"].version
            tx = lake.transaction().__enter__()
    tx.rollback()
