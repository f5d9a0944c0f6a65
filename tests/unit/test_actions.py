"""Delta's actions: lines, keys, footprints, counts, and paths that outlive the overlay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.delta.actions import Action, deletion_vector_id, only_recommits, parse, render, split
from lockstep.delta.combine.evolution import UNCLEAR
from lockstep.delta.counts import counts, total
from lockstep.delta.footprint import Footprint, VectorChange, footprint
from lockstep.delta.pruning.predicates import FileValues
from lockstep.delta.real_paths import assert_real, real_paths
from lockstep.errors import InvalidError
from lockstep.timeline.entry import Counts

OVERLAY = "lockstep://t1-5.s3a.my.bucket"


def add(path: str, rows: int | None = None, dv: int | None = None, change: bool = True) -> Action:
    return {"add": _file(path, rows, dv, change)}


def remove(path: str, rows: int | None = None, dv: int | None = None, change: bool = True) -> Action:
    return {"remove": _file(path, rows, dv, change)}


def _file(path: str, rows: int | None, dv: int | None, change: bool) -> dict[str, Any]:
    file: dict[str, Any] = {"path": path, "dataChange": change}
    if rows is not None:
        file["stats"] = json.dumps({"numRecords": rows, "minValues": {"a": 1}})
    if dv is not None:
        file["deletionVector"] = {"storageType": "u", "pathOrInlineDv": f"v{dv}", "offset": 1, "cardinality": dv}
    return file


# --- lines ---


def test_render_then_parse_gives_the_actions_back() -> None:
    actions: list[Action] = [
        {"commitInfo": {"operation": "a\u2028b\u0085c\nd"}},
        {"txn": {"appId": "x", "version": 2**62}},
    ]
    assert parse(render(actions)) == actions
    assert parse(render(actions).decode()) == actions
    assert render([]) == b""


def test_parse_allows_empty_lines_carriage_returns_and_null_members() -> None:
    assert parse('\n{"add":{"path":"a"},"remove":null}\r\n\n') == [{"add": {"path": "a"}}]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param('{"add":', id="cut short"),
        pytest.param("[1]", id="not an object"),
        pytest.param("{}", id="no action"),
        pytest.param('{"add":{},"remove":{}}', id="two actions"),
        pytest.param('{"add":1}', id="an action that is no object"),
        pytest.param('{"add":{"stats":NaN}}', id="not JSON"),
        pytest.param('{"add":{}}', id="a file without a path"),
        pytest.param('{"remove":{"path":5}}', id="a file whose path is a number"),
        pytest.param('{"cdc":{"path":null}}', id="a file whose path is null"),
        pytest.param('{"txn":{"version":1}}', id="an application without an id"),
        pytest.param('{"domainMetadata":{"configuration":"{}"}}', id="a domain without a name"),
        pytest.param('{"add":{"path":"a","stats":5}}', id="statistics that are no text"),
        pytest.param('{"add":{"path":"\ud800"}}', id="not UTF-8"),
    ],
)
def test_parse_names_the_malformed_line(line: str) -> None:
    with pytest.raises(InvalidError, match="line 2 "):
        parse('{"commitInfo":{}}\n' + line)


# --- keys ---


@pytest.mark.parametrize(
    ("descriptor", "id"),
    [
        pytest.param(None, None, id="none"),
        pytest.param({"storageType": "u", "pathOrInlineDv": "ab^-"}, "uab^-", id="no offset"),
        pytest.param({"storageType": "u", "pathOrInlineDv": "ab^-", "offset": None}, "uab^-", id="null offset"),
        pytest.param({"storageType": "u", "pathOrInlineDv": "ab^-", "offset": 0}, "uab^-@0", id="offset 0 is one"),
        pytest.param({"storageType": "i", "pathOrInlineDv": "wi5b"}, "iwi5b", id="inline"),
    ],
)
def test_the_unique_id_of_a_deletion_vector(descriptor: dict[str, Any] | None, id: str | None) -> None:
    assert deletion_vector_id(descriptor) == id


@pytest.mark.parametrize(
    ("commit", "recommits"),
    [
        pytest.param([add("p", change=False)], True, id="statistics"),
        pytest.param([add("c", change=False), remove("p", change=False)], False, id="OPTIMIZE"),
    ],
)
def test_only_recommits(commit: list[Action], recommits: bool) -> None:
    assert only_recommits(commit) is recommits


# --- footprint and counts ---


ANY = FileValues({}, None)
STATS_5 = '{"numRecords": 5, "minValues": {"a": 1}}'


def mark(value: int, removed: bool = False) -> Action:
    configuration = json.dumps({"rowIdHighWaterMark": value})
    return {"domainMetadata": {"domain": "delta.rowTracking", "configuration": configuration, "removed": removed}}


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        pytest.param([], Footprint(), id="nothing"),
        pytest.param([{"commitInfo": {"inCommitTimestamp": 7}}], Footprint(timestamp_ms=7), id="in-commit timestamp"),
        pytest.param([{"commitInfo": {"inCommitTimestamp": None}}], Footprint(), id="no in-commit timestamp"),
        pytest.param([{"metaData": {}}], Footprint(metadata=UNCLEAR), id="metadata"),
        pytest.param([{"protocol": {}}], Footprint(protocol=UNCLEAR), id="protocol"),
        pytest.param([{"txn": {"appId": "s"}}], Footprint(apps=frozenset("s")), id="streaming application"),
        pytest.param([{"domainMetadata": {"domain": "d"}}], Footprint(domains=frozenset("d")), id="domain"),
        pytest.param([mark(9), mark(19)], Footprint(row_id_mark=19), id="highest row id, and no domain"),
        pytest.param([mark(9, removed=True)], Footprint(), id="row tracking dropped"),
        pytest.param(
            [remove("p"), add("a", change=False), {"cdc": {"path": "c"}}],
            Footprint(removed_paths=frozenset("p"), added_paths=frozenset("a"), data_change=True, rows_removed=(ANY,)),
            id="files, not change files",
        ),
        pytest.param(
            [
                {"commitInfo": {"isBlindAppend": True}},
                {"add": {"path": "a", "partitionValues": {"p": "x"}, "stats": "{}"}},
            ],
            Footprint(
                added_paths=frozenset("a"), data_change=True, rows_added=(FileValues({"p": "x"}, "{}"),), blind=True
            ),
            id="rows come with what is known of them",
        ),
        pytest.param(
            [remove("p"), add("p", 5, dv=2)],
            Footprint(
                removed_paths=frozenset("p"),
                added_paths=frozenset("p"),
                data_change=True,
                rows_removed=(FileValues({}, STATS_5),),
                vectors={"p": VectorChange(None, split(add("p", 5, dv=2))[1]["deletionVector"])},
            ),
            id="a deletion vector: rows go, and the file's statistics still bound them",
        ),
        pytest.param(
            [remove("p", dv=2), add("p", 5)],
            Footprint(
                removed_paths=frozenset("p"),
                added_paths=frozenset("p"),
                data_change=True,
                rows_added=(FileValues({}, STATS_5),),
            ),
            id="a deletion vector taken back: rows come",
        ),
        pytest.param(
            [add("p", 5), remove("p"), add("p", 5, dv=2)],
            Footprint(
                removed_paths=frozenset("p"),
                added_paths=frozenset("p"),
                data_change=True,
                rows_added=(FileValues({}, STATS_5),) * 2,
                rows_removed=(FileValues({}, STATS_5),) * 2,
                covers_added=((ANY,),),
                covers_removed=((ANY,),),
            ),
            id="several commits of one file: both",
        ),
        pytest.param([add("a", change=False)], Footprint(added_paths=frozenset("a")), id="files without data change"),
        pytest.param(
            [{"remove": {"path": "p"}}],
            Footprint(removed_paths=frozenset("p"), data_change=True, rows_removed=(ANY,)),
            id="old remove",
        ),
    ],
)
def test_footprint(actions: list[Action], expected: Footprint) -> None:
    assert footprint(actions) == expected


def test_a_row_tracking_domain_without_a_mark_is_refused() -> None:
    with pytest.raises(InvalidError, match="rowIdHighWaterMark"):
        footprint([{"domainMetadata": {"domain": "delta.rowTracking", "configuration": "{}"}}])


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        pytest.param([add("a", 3), add("b", 4)], Counts(files_added=2, rows_added=7), id="rows from statistics"),
        pytest.param([add("a", 5, dv=2)], Counts(files_added=1, rows_added=3), id="deleted rows are not added"),
        pytest.param([remove("p", 5, dv=2)], Counts(files_removed=1, rows_removed=3), id="nor removed again"),
        pytest.param([add("a", 3), add("b")], Counts(files_added=2, rows_added=-1), id="unknown is not zero"),
        pytest.param([{"add": {"path": "a", "stats": "{"}}], Counts(files_added=1, rows_added=-1), id="broken stats"),
        pytest.param([remove("p"), add("p", dv=2)], Counts(rows_removed=2), id="first deletion vector"),
        pytest.param([remove("p", dv=2), add("p", dv=5)], Counts(rows_removed=3), id="next deletion vector"),
        pytest.param([remove("p", dv=5), add("p", dv=2)], Counts(rows_added=3), id="rows restored"),
        pytest.param([add("p", 9, change=False)], Counts(), id="a file added again for its statistics"),
        pytest.param(
            [remove("p", 9, change=False), add("c", 9, change=False)],
            Counts(files_added=1, files_removed=1),
            id="OPTIMIZE moves files, not rows",
        ),
    ],
)
def test_counts(commit: list[Action], expected: Counts) -> None:
    assert counts(commit) == expected


def test_total_is_the_sum_and_unknown_stays_unknown() -> None:
    expected = Counts(files_added=3, rows_added=-1, rows_removed=2)
    assert total([[add("a", 3)], [add("b")], [remove("a", 3), add("a", 3, dv=2)], [add("c", 1)]]) == expected


# --- paths ---


@pytest.mark.parametrize(
    ("path", "real"),
    [
        pytest.param("part-0.parquet", "part-0.parquet", id="relative"),
        pytest.param("s3a://b/x", "s3a://b/x", id="absolute elsewhere"),
        pytest.param("lockstep://t1-5.file/a/b%20c", "file:/a/b%20c", id="file, still URL-encoded"),
        pytest.param(OVERLAY + "/x", "s3a://my.bucket/x", id="a bucket with dots"),
        pytest.param("lockstep://t1-new.hdfs.nn:8020/x", "hdfs://nn:8020/x", id="a port"),
        pytest.param(
            "lockstep://t-1-2.abfss.c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x", id="user"
        ),
        pytest.param("lockstep://head.s3a.b/x", "s3a://b/x", id="autocommit"),
    ],
)
def test_real_paths(path: str, real: str) -> None:
    vector = {"storageType": "p", "pathOrInlineDv": path}
    actions: list[Action] = [
        *({kind: {"path": path, "deletionVector": vector}} for kind in ("add", "remove")),
        {"add": {"path": "a", "deletionVector": vector}},
        {"cdc": {"path": path}},
        {"sidecar": {"path": path}},
        {"metaData": {"configuration": {"location": path, "n": "1"}}},
        {"commitInfo": {"operationParameters": {"source": f"delta.`{path}`", "n": 1}}},
    ]
    before = json.dumps(actions)
    after = real_paths(actions)
    text = render(after).decode()
    assert json.dumps(actions) == before
    assert text.count(real) == before.count(path)
    assert parse(text.replace(real, path)) == actions
    assert_real(after)


@pytest.mark.parametrize(
    "action",
    [
        pytest.param(
            {"add": {"path": "a", "deletionVector": {"storageType": "i", "pathOrInlineDv": OVERLAY}}},
            id="inline vector",
        ),
        pytest.param({"add": {"path": "a", "stats": OVERLAY}}, id="statistics"),
        pytest.param({"metaData": {"schemaString": OVERLAY}}, id="schema"),
    ],
)
def test_data_is_no_path(action: Action) -> None:
    assert real_paths([action]) == [action]
    assert_real([action])


@pytest.mark.parametrize(
    "action",
    [
        pytest.param({"add": {"path": "lockstep://odd/x"}}, id="add"),
        pytest.param({"remove": {"path": "lockstep://odd/x"}}, id="remove"),
        pytest.param({"cdc": {"path": "lockstep://odd/x"}}, id="cdc"),
        pytest.param({"metaData": {"configuration": {"k": "at lockstep://odd/x"}}}, id="table property"),
        pytest.param(
            {"add": {"path": "a", "deletionVector": {"storageType": "p", "pathOrInlineDv": "lockstep://odd/x"}}},
            id="deletion vector",
        ),
    ],
)
def test_assert_real_refuses_what_could_not_be_rewritten(action: Action) -> None:
    with pytest.raises(InvalidError, match="lockstep://odd/x"):
        assert_real(real_paths([action]))


def test_assert_real_lets_a_statement_say_anything() -> None:
    assert_real([{"commitInfo": {"operationParameters": {"statements": "-- lockstep://odd/x"}}}])


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_survives_render_and_parse(text: str) -> None:
    assert parse(render([{"commitInfo": {"userMetadata": text}}])) == [{"commitInfo": {"userMetadata": text}}]


@pytest.mark.parametrize(
    ("operation", "metrics", "rows"),
    [
        pytest.param("DELETE", {"numDeletedRows": "3"}, (0, 3), id="a deleted row is removed"),
        pytest.param("UPDATE", {"numUpdatedRows": "2"}, (2, 2), id="an updated row is removed and added"),
        pytest.param(
            "MERGE",
            {"numTargetRowsInserted": "5", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "1"},
            (7, 3),
            id="a merge does all three",
        ),
        pytest.param("UPDATE", {}, (10, -1), id="without metrics the files tell, as far as they can"),
        pytest.param("WRITE", {"numOutputRows": "99"}, (10, -1), id="a write's files tell themselves"),
    ],
)
def test_a_statement_knows_its_rows(operation: str, metrics: dict[str, str], rows: tuple[int, int]) -> None:
    """The file that an UPDATE of two rows rewrites has many more: its metrics say what it did."""
    commit: list[Action] = [
        {"commitInfo": {"operation": operation, "operationMetrics": metrics}},
        {"remove": {"path": "a", "dataChange": True, "size": 1}},
        {"add": {"path": "b", "dataChange": True, "size": 1, "stats": '{"numRecords":10}'}},
    ]
    found = counts(commit)
    assert (found.rows_added, found.rows_removed) == rows
    assert (found.files_added, found.files_removed) == (1, 1)
