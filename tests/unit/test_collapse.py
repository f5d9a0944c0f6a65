"""Collapsing a transaction's staged commits: tables of named cases, and a model that replays both ways."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lockstep.delta.actions import Action, LogicalFile, bodies, logical_file, split
from lockstep.delta.combine.collapse import collapse, created_paths, created_vectors

Commit = list[Action]


def described(key: LogicalFile, change: bool) -> dict[str, Any]:
    path, dv = key
    vector = {"deletionVector": {"storageType": "u", "pathOrInlineDv": dv[1:], "cardinality": 1}} if dv else {}
    return {"path": path, "dataChange": change, **vector}


def file(name: str, change: bool = True) -> dict[str, Any]:
    """A file by name: `p` without, `p/1` with deletion vector 1."""
    path, _, dv = name.partition("/")
    return described((path, f"u{dv}" if dv else None), change)


def commit(operation: str, text: str, **info: Any) -> Commit:
    """A staged commit in shorthand: `+a` and `-p` change data, `~+c` and `~-p` do not, `c:x` is a change file."""
    actions: Commit = [{"commitInfo": {"operation": operation, **info}}]
    for word in text.split():
        sign, change = word.lstrip("~"), not word.startswith("~")
        if word.startswith("c:"):
            actions.append({"cdc": {"path": word[2:]}})
        else:
            actions.append({"add" if sign[0] == "+" else "remove": file(sign[1:], change)})
    return actions


def merged(commits: Sequence[Commit], **changes: Any) -> list[list[Action]]:
    arguments = {"pin": 4, "transaction_id": "t1", "statements": (), "timestamp_ms": 99, "engine": "E"}
    return collapse(commits, **{**arguments, **changes})


def one(commits: Sequence[Commit], **changes: Any) -> list[Action]:
    (result,) = merged(commits, **changes)
    return result


def shorthand(actions: Iterable[Action]) -> str:
    words = []
    for kind, body in map(split, actions):
        if kind in ("add", "remove"):
            path, dv = logical_file(body)
            quiet = "" if body["dataChange"] else "~"
            words.append(f"{quiet}{'+' if kind == 'add' else '-'}{path}{'/' + dv[1:] if dv else ''}")
    return " ".join(words)


@pytest.mark.parametrize(
    ("statements", "net"),
    [
        pytest.param(["+a", "+b"], "+a +b", id="add, add"),
        pytest.param(["+a", "-a", "-p"], "-p", id="added and removed: gone"),
        pytest.param(["-p", "-q"], "-p -q", id="removes stay"),
        pytest.param(["-p +p/1", "-p/1 +p/2"], "-p +p/2", id="deletion vectors: from the pin's to the last"),
        pytest.param(["-p +p/1", "-p/1"], "-p", id="deletion vector, then the file removed"),
        pytest.param(["+a", "-a +a/1"], "+a/1", id="a new file with a deletion vector is only added"),
        pytest.param(["+a", "-a +a/1", "-a/1"], "", id="a new file with a deletion vector, gone"),
        pytest.param(["-p +a", "+p -a"], "~+p", id="removed and restored: no row changed"),
        pytest.param(["-p +p/1", "-p/1 +p"], "~+p", id="deletion vector undone"),
        pytest.param(["+a", "-a", "+a"], "+a", id="new, gone, restored: still new"),
        pytest.param(["~+p", "+a"], "+a ~+p", id="statistics for an old file"),
        pytest.param(["~+p", "-p"], "-p", id="an old file with new statistics, removed: the remove must stay"),
        pytest.param(["+a", "~+a"], "+a", id="statistics for a new file: its rows are new"),
        pytest.param(["~-p ~+p/1", "~+p/1"], "~-p ~+p/1", id="deletion vector rewritten, and statistics"),
    ],
)
def test_net_files(statements: list[str], net: str) -> None:
    """The table of files in the module's docstring, and its combinations."""
    actions = merged([commit("WRITE", text) for text in statements])
    assert sorted(shorthand(actions[0] if actions else []).split()) == sorted(net.split())


@pytest.mark.parametrize(
    ("statements", "net"),
    [
        pytest.param(["+a", "~-a ~+c"], "+c", id="insert, optimize it"),
        pytest.param(["+a", "~-a ~-p ~+c"], "-p +c", id="insert, optimize it with an old file"),
        pytest.param(["~-p ~+c", "-c"], "-p", id="optimize, delete the result"),
        pytest.param(["~-p ~+c", "-c +c/1"], "-p +c/1", id="optimize, delete rows of the result"),
        pytest.param(["~-p ~+c", "-c +d"], "-p +d", id="optimize, update the result"),
        pytest.param(["~-p ~+c", "~-c ~-q ~+d"], "~-p ~-q ~+d", id="optimize twice"),
        pytest.param(["~-p ~+c", "+a"], "~-p ~+c +a", id="optimize, insert beside it"),
        pytest.param(["~-p ~+c", "~-c ~-q ~+d", "-d"], "-p -q", id="a change reaches back through two"),
        pytest.param(["+a", "~-a ~-p ~+c", "~-c ~-q ~+d"], "-p -q +d", id="a change reaches on through two"),
        pytest.param(["~-p ~+c", "-c +p"], "~+p", id="optimize, restore"),
        pytest.param(["-p +p/1", "~-p/1 ~+c"], "-p +c", id="delete rows, purge"),
        pytest.param(["+a", "~+a ~+p", "~-p ~+c"], "+a ~-p ~+c", id="statistics for both tie nothing together"),
        pytest.param(["~-p", "+a"], "~-p +a", id="a file without rows removed"),
    ],
)
def test_data_change(statements: list[str], net: str) -> None:
    """The table of dataChange in the module's docstring, mirrored and chained."""
    actions = one([commit("WRITE", text) for text in statements])
    assert sorted(shorthand(actions).split()) == sorted(net.split())


NOTHING = {f"numTargetRows{done}": "0" for done in ("Inserted", "Updated", "Deleted")}


def test_a_merge_that_changed_no_row_only_rearranged_files() -> None:
    """As CDCReader.shouldSkipFileActionsInCommit, whose metrics the merged commit has lost."""
    merge = commit("MERGE", "-p +c", operationMetrics=NOTHING)
    assert shorthand(one([merge, commit("WRITE", "+a")])) == "~-p ~+c +a"
    some = commit("MERGE", "-p +c", operationMetrics={**NOTHING, "numTargetRowsUpdated": "1"})
    assert shorthand(one([some, commit("WRITE", "+a")])) == "-p +c +a"


def test_the_last_of_each_wins_and_the_order_is_fixed() -> None:
    def domain(name: str, value: str) -> Action:
        return {"domainMetadata": {"domain": name, "configuration": value, "removed": False}}

    def app(name: str, version: int) -> Action:
        return {"txn": {"appId": name, "version": version}}

    first = [{"cdc": {"path": "x"}}, {"add": file("a")}, {"metaData": {"id": "1"}}, {"protocol": {"v": 1}}]
    first += [app("s", 1), app("u", 5), domain("d", "1"), domain("e", "5")]
    second = [{"remove": file("p", change=False)}, {"metaData": {"id": "2"}}, {"protocol": {"v": 2}}]
    second += [app("s", 2), domain("d", "2")]
    _, *rest = one([first, second])
    assert rest == [
        *({"protocol": {"v": 2}}, {"metaData": {"id": "2"}}),
        *(app("s", 2), app("u", 5), domain("d", "2"), domain("e", "5")),
        *({"remove": file("p", change=False)}, {"add": file("a")}, {"cdc": {"path": "x"}}),
    ]


ROW_IDS: Action = {"domainMetadata": {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":9}'}}


@pytest.mark.parametrize(
    "commits",
    [
        pytest.param([], id="no commit"),
        pytest.param([commit("OPTIMIZE", "")], id="commitInfo only"),
        pytest.param([commit("DELETE", ""), commit("UPDATE", "")], id="commitInfo only, twice"),
        pytest.param([commit("WRITE", "+a"), commit("DELETE", "-a")], id="nothing left"),
        pytest.param([[*commit("WRITE", "+a"), ROW_IDS], commit("DELETE", "-a")], id="nothing left but row ids"),
    ],
)
def test_a_no_op_makes_no_commit(commits: list[Commit]) -> None:
    assert merged(commits) == []


def test_what_is_left_beside_files_makes_a_commit() -> None:
    txn = {"txn": {"appId": "s", "version": 1}}
    assert len(merged([[*commit("WRITE", "+a"), txn], commit("DELETE", "-a")])) == 1


WRITE, MERGE, UPDATE = commit("WRITE", "+a"), commit("MERGE", "+a c:x"), commit("UPDATE", "c:y -p +b")
ADD_COLUMNS = [*commit("ADD COLUMNS", ""), {"metaData": {}}]


@pytest.mark.parametrize(
    ("commits", "operations"),
    [
        pytest.param([MERGE], ["MERGE"], id="one statement"),
        pytest.param([commit("OPTIMIZE", ""), MERGE], ["MERGE"], id="one and a no-op"),
        pytest.param([MERGE, UPDATE], ["MERGE", "UPDATE"], id="two with cdc"),
        pytest.param([WRITE, UPDATE], ["WRITE", "UPDATE"], id="implied and cdc"),
        pytest.param([UPDATE, commit("DELETE", "-q")], ["UPDATE", "DELETE"], id="cdc and implied"),
        pytest.param([UPDATE, commit("OPTIMIZE", "~-q ~+c")], ["TRANSACTION"], id="cdc and OPTIMIZE"),
        pytest.param([WRITE, commit("DELETE", "-p")], ["TRANSACTION"], id="no cdc"),
        pytest.param([ADD_COLUMNS, MERGE], ["TRANSACTION"], id="DDL and cdc"),
        pytest.param([WRITE, [{"future": {}}]], ["WRITE", None], id="an action nobody knows"),
    ],
)
def test_statements_stay_separate_where_one_feed_of_changes_would_be_wrong(
    commits: list[Commit], operations: list[str | None]
) -> None:
    result = merged(commits)
    assert [actions[0]["commitInfo"].get("operation") for actions in result] == operations
    assert {actions[0]["commitInfo"]["txnId"] for actions in result} == {"t1"}


def test_a_single_statement_keeps_its_commit_info() -> None:
    info = {"operationParameters": {"predicate": "[]"}, "operationMetrics": {"n": "1"}, "tags": {"a": "b"}}
    single = commit("MERGE", "+a", **info)
    single.reverse()
    result = one([single], statements=["MERGE INTO t"])
    info["operationParameters"] = {"predicate": "[]", "lockstepTransaction": "t1"}
    assert result == [{"commitInfo": {"operation": "MERGE", **info, "txnId": "t1"}}, {"add": file("a")}]
    assert "txnId" not in single[1]["commitInfo"]


def test_a_merged_commit_says_what_the_transaction_was() -> None:
    metrics = {"numOutputRows": "3"}
    first = commit("WRITE", "+a", isBlindAppend=True, isolationLevel="Serializable", operationMetrics=metrics)
    second = commit("DELETE", "-p", isBlindAppend=False, isolationLevel="WriteSerializable", userName="u", txnId="x")
    assert one([first, second], statements=["INSERT …", "DELETE …"])[0]["commitInfo"] == {
        "timestamp": 99,
        "operation": "TRANSACTION",
        "operationParameters": {"statements": '["INSERT …","DELETE …"]', "lockstepTransaction": "t1"},
        "readVersion": 4,
        "userName": "u",
        "isBlindAppend": False,
        "isolationLevel": "WriteSerializable",
        "operationMetrics": {
            "numAddedFiles": "1",
            "numRemovedFiles": "1",
            "numFilesAddedAgain": "0",
            "numOutputRows": "3",
        },
        "engineInfo": "E",
        "txnId": "t1",
    }


@pytest.mark.parametrize(
    ("infos", "field", "value"),
    [
        pytest.param([{"isBlindAppend": True}] * 2, "isBlindAppend", True, id="blind if all are"),
        pytest.param([{"isBlindAppend": True}, {}], "isBlindAppend", False, id="not blind if one does not say"),
        pytest.param([{"inCommitTimestamp": 7}, {"inCommitTimestamp": 9}], "inCommitTimestamp", 9, id="last timestamp"),
        pytest.param([{"inCommitTimestamp": 7}, {}], "inCommitTimestamp", None, id="timestamps disabled on the way"),
        pytest.param([{"tags": {"a": "1", "b": "1"}}, {"tags": {"a": "1"}}], "tags", {"a": "1"}, id="tags of all"),
        pytest.param([{"tags": {"a": "1"}}, {"tags": None}], "tags", None, id="no tag of all"),
        pytest.param([{"userMetadata": "m"}, {"userMetadata": None}], "userMetadata", "m", id="last user metadata"),
        pytest.param([{"isolationLevel": "odd"}, {}], "isolationLevel", None, id="no known level"),
    ],
)
def test_what_is_said_of_the_whole(infos: list[dict[str, Any]], field: str, value: Any) -> None:
    commits = [commit("WRITE", f"+{n}", **info) for n, info in enumerate(infos)]
    assert one(commits)[0]["commitInfo"].get(field) == value


def test_a_new_table_read_no_version_and_operations_stand_in_for_statements() -> None:
    info = one([commit("CREATE TABLE", "+a"), commit("WRITE", "+b")], pin=-1)[0]["commitInfo"]
    assert "readVersion" not in info
    assert json.loads(info["operationParameters"]["statements"]) == ["CREATE TABLE", "WRITE"]


# --- what ROLLBACK may delete ---


FOREIGN = ("CLONE", "CONVERT", "COMPUTE STATS", "ROW TRACKING BACKFILL", "Manual Update", "CREATE TABLE")


@pytest.mark.parametrize(
    ("commits", "created"),
    [
        pytest.param([commit("WRITE", "+a"), commit("MERGE", "-a +b c:x")], {"a", "b", "x"}, id="written here"),
        pytest.param([commit("UPDATE", "-p +p/1")], set(), id="a deletion vector on an old file"),
        pytest.param([commit("UPDATE", "-p +p/1"), commit("UPDATE", "-p/1 +p/2")], set(), id="two of them"),
        pytest.param([commit("WRITE", "+a"), commit("UPDATE", "-a +a/1")], {"a"}, id="a deletion vector on a new file"),
        pytest.param([commit("RESTORE", "+z"), commit("UPDATE", "-z +z/1")], set(), id="restored, then changed"),
        pytest.param([commit("RESTORE", "+z"), commit("WRITE", "+z")], set(), id="restored, then as if written"),
        pytest.param([commit("DELETE", "-p"), commit("WRITE", "+p")], set(), id="removed before"),
        pytest.param([commit("OPTIMIZE", "~-p ~+c")], {"c"}, id="optimized"),
        pytest.param([commit("WRITE", "~+p")], set(), id="an old file again"),
        *(pytest.param([commit(operation, "+a")], set(), id=operation) for operation in FOREIGN),
        pytest.param([[{"add": file("a")}]], set(), id="no operation"),
        pytest.param([[*commit("WRITE", ""), {"add": {"path": "d=1%252F2%20/a"}}]], {"d=1%2F2 /a"}, id="URL-decoded"),
    ],
)
def test_created_paths(commits: list[Commit], created: set[str]) -> None:
    assert created_paths(commits) == created


@pytest.mark.parametrize(
    ("commits", "created"),
    [
        pytest.param([commit("WRITE", "+a"), commit("DELETE", "-a +a/1")], ["1"], id="on a new file"),
        pytest.param([commit("DELETE", "-p +p/1"), commit("UPDATE", "-p/1 +p/2")], ["1", "2"], id="on an old file"),
        pytest.param([commit("CLONE", "+z"), commit("DELETE", "-z +z/1")], ["1"], id="on a file of another's"),
        pytest.param([commit("UPDATE", "-p/1 +p/1")], [], id="an old vector again"),
        pytest.param([commit("DELETE", "-p/1"), commit("WRITE", "+q/1")], [], id="removed before"),
        pytest.param([commit("RESTORE", "+z/1"), commit("UPDATE", "-z/1 +z/2")], ["2"], id="restored, then changed"),
        pytest.param([commit("WRITE", "~+p/1")], [], id="an old file again"),
        *(pytest.param([commit(operation, "+a/1")], [], id=operation) for operation in FOREIGN),
    ],
)
def test_created_vectors(commits: list[Commit], created: list[str]) -> None:
    assert [vector["pathOrInlineDv"] for vector in created_vectors(commits)] == created


@pytest.mark.parametrize(
    "path",
    ["/a", "%2Fa", "file:/a", "s3a://b/a", "lockstep://t.file/a", "../a", "x/%2E%2E/a", "_delta_log/0.json", "file:a"],
)
def test_a_path_outside_the_tables_folder_is_never_ours(path: str) -> None:
    assert created_paths([[{"commitInfo": {"operation": "WRITE"}}, {"add": {"path": path}}]]) == set()


# --- the model ---


Live: TypeAlias = dict[str, str | None]
"""The files of a table: the deletion vector of each path."""


@dataclass
class Model:
    """A table being changed: the live files, what rows each logical file holds, and the commits so far."""

    live: Live
    rows: dict[LogicalFile, frozenset[int]]
    commits: list[Commit] = field(default_factory=list)
    history: list[Live] = field(default_factory=list)
    next: int = 100

    def fresh(self) -> int:
        self.next += 1
        return self.next

    def content(self, path: str) -> frozenset[int]:
        return self.rows[path, self.live[path]]

    def step(self, kind: str, chosen: list[str], at: int) -> None:
        before = dict(self.live)
        union = frozenset[int]().union(*(self.content(path) for path in chosen))
        quiet = kind in ("optimize", "statistics")
        if kind == "insert":
            self.write(frozenset({self.fresh(), self.fresh()}))
        elif kind == "delete rows":
            for path in chosen:
                vector = f"u{self.fresh()}"
                self.rows[path, vector] = frozenset(sorted(self.content(path))[1:])
                self.live[path] = vector
        elif kind == "restore":
            self.live = dict(self.history[at % len(self.history)]) if self.history else self.live
        elif kind != "statistics":
            for path in chosen:
                del self.live[path]
            if kind != "delete":
                self.write(union if kind != "update" else frozenset(self.fresh() for _ in union))
        again = chosen if kind == "statistics" else []
        gone = [key for key in before.items() if key[0] not in self.live or self.live[key[0]] != key[1]]
        come = [key for key in self.live.items() if key[0] not in before or before[key[0]] != key[1] or key[0] in again]
        info = {"operation": "MERGE", "operationMetrics": NOTHING} if kind == "idle merge" else {"operation": kind}
        files = [*(("remove", key) for key in gone), *(("add", key) for key in come)]
        self.commits.append([{"commitInfo": info}, *({sort: described(key, not quiet)} for sort, key in files)])
        self.history.append(before)

    def write(self, rows: frozenset[int]) -> None:
        path = f"f{self.fresh()}"
        self.live[path] = None
        self.rows[path, None] = rows


Case: TypeAlias = tuple[Live, Model]
STEPS = ("insert", "delete", "delete rows", "update", "optimize", "statistics", "restore", "idle merge")


@st.composite
def transactions(draw: st.DrawFn) -> Case:
    pin: Live = {"p": None, "q": "u1", "r": None}
    rows = {("p", None): frozenset({1, 2}), ("q", "u1"): frozenset({3}), ("r", None): frozenset({4, 5})}
    model = Model(dict(pin), rows)
    for kind in draw(st.lists(st.sampled_from(STEPS), max_size=8)):
        files = sorted(model.live)
        chosen = draw(st.lists(st.sampled_from(files), min_size=1, max_size=3, unique=True)) if files else []
        if chosen or kind in ("insert", "restore"):
            model.step(kind, chosen, draw(st.integers(0, 7)))
    return pin, model


def replay(live: Live, commits: Iterable[Sequence[Action]]) -> set[LogicalFile]:
    """Action reconciliation as the protocol has it: the newest reference of each logical file counts."""
    files: set[LogicalFile] = set(live.items())
    for actions in commits:
        files -= {logical_file(body) for body in bodies(actions, "remove")}
        files |= {logical_file(body) for body in bodies(actions, "add")}
    return files


@given(transactions())
def test_the_collapsed_commit_replays_to_the_same_table(case: Case) -> None:
    pin, model = case
    before = deepcopy(model.commits)
    result = merged(model.commits)
    assert len(result) <= 1
    assert replay(pin, result) == replay(pin, model.commits) == set(model.live.items())
    assert model.commits == before, "the staged commits are left as they were"


@given(transactions())
def test_each_path_is_at_most_once_an_add_and_once_a_remove(case: Case) -> None:
    """Protocol, "Add File and Remove File": anything else in one commit is illegal."""
    for actions in merged(case[1].commits):
        adds, removes = bodies(actions, "add"), bodies(actions, "remove")
        assert all(len({f["path"] for f in files}) == len(files) for files in (adds, removes))
        assert not {logical_file(f) for f in adds} & {logical_file(f) for f in removes}


@given(transactions())
def test_readers_of_changes_see_what_changed(case: Case) -> None:
    """Rows added minus rows removed, by the dataChange files alone, are the rows the transaction changed."""
    pin, model = case
    assume(len(model.commits) > 1)  # a single statement is Delta's own
    feed: Counter[int] = Counter()
    for kind, body in (split(action) for actions in merged(model.commits) for action in actions):
        if kind in ("add", "remove") and body["dataChange"]:
            (feed.update if kind == "add" else feed.subtract)(model.rows[logical_file(body)])
    change = Counter(row for path in model.live for row in model.content(path))
    change.subtract(row for key in pin.items() for row in model.rows[key])
    assert {row: n for row, n in feed.items() if n} == {row: n for row, n in change.items() if n}


@given(transactions())
def test_rollback_never_deletes_a_file_of_the_pin(case: Case) -> None:
    pin, model = case
    commits = [[{"commitInfo": {"operation": "WRITE"}}, *actions[1:]] for actions in model.commits]
    assert created_paths(commits).isdisjoint(pin)
