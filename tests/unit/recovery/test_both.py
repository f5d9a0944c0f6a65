"""What both sides of a table that has diverged come to in one commit behind theirs, and which pairs cannot: cases."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.delta.actions import Action, LogicalFile, bodies
from lockstep.delta.snapshot import Snapshot
from lockstep.recovery.both import TwoSides, both, why_not_both
from tests.support.lakes import CONSTRAINT, PROTOCOL, add, metadata, remove

COMMON = 4
"""The version of the table p, q, r at which the two sides part."""

UPGRADED: Action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
LATER: Action = {"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}}
CDC: Action = {"cdc": {"path": "c", "partitionValues": {}, "size": 1, "dataChange": False}}


NOW = 7


def base(*actions: Action, **configuration: str) -> Snapshot:
    found = Snapshot()
    found.take([PROTOCOL, metadata(**configuration), add("p"), add("q"), add("r"), *actions])
    return found


def sides(ours: Sequence[Sequence[Action]], log: Sequence[Sequence[Action]], of: Snapshot | None = None) -> TwoSides:
    """Return a table that has diverged: from `COMMON` on, what the commits of both sides say."""

    def numbered(commits: Sequence[Sequence[Action]]) -> dict[int, Sequence[Action]]:
        return {version: [*commit] for version, commit in enumerate(commits, COMMON + 1)}

    return TwoSides(COMMON, of or base(), numbered(ours), numbered(log))


def settled(found: TwoSides) -> tuple[list[Action], Snapshot]:
    """Return the commit that keeps both, and the table behind it; it may be found done."""
    actions = both(found, COMMON + len(found.log) + 1, now_ms=NOW)
    after = found.there
    after.take(actions)
    once = {**after.files}
    after.take(actions)
    assert after.files == once
    return actions, after


def vector(name: str) -> dict[str, Any]:
    return {"storageType": "i", "pathOrInlineDv": name, "sizeInBytes": 1, "cardinality": 1}


def deleted(path: str, name: str) -> list[Action]:
    """Delete rows of a file by a vector."""
    return [remove(path), add(path, deletionVector=vector(name))]


def txn(application: str, number: int = 1) -> Action:
    return {"txn": {"appId": application, "version": number}}


def domain(name: str, text: str = "{}") -> Action:
    return {"domainMetadata": {"domain": name, "configuration": text, "removed": False}}


def mark(number: int) -> Action:
    return domain("delta.rowTracking", json.dumps({"rowIdHighWaterMark": number}))


def moved(number: int) -> Action:
    """Metadata of a table whose identity column has given out ids up to a number."""
    identity = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.highWaterMark": number}
    body = metadata()["metaData"]
    schema = json.loads(body["schemaString"])
    schema["fields"][0]["metadata"] = identity
    return {"metaData": {**body, "schemaString": json.dumps(schema)}}


TXN = txn("s")

Case = tuple[Sequence[Sequence[Action]], Sequence[Sequence[Action]]]

GO_IN: dict[str, tuple[Case, set[str]]] = {
    "both append": (([[add("o")]], [[add("t")]]), {"p", "q", "r", "o", "t"}),
    "theirs goes on": (([[add("o")]], [[add("t")], [remove("t"), add("t2")]]), {"p", "q", "r", "o", "t2"}),
    "each replaces another file": (
        ([[remove("p"), add("o")]], [[remove("q"), add("t")]]),
        {"o", "t", "r"},
    ),
    "theirs overwrites all, ours appends": (
        ([[add("o")]], [[remove("p"), remove("q"), remove("r"), add("t")]]),
        {"o", "t"},
    ),
    "theirs compacts, ours appends": (
        ([[add("o")]], [[remove("p", dataChange=False), remove("q", dataChange=False), add("t", dataChange=False)]]),
        {"o", "t", "r"},
    ),
    "ours compacts, theirs appends": (
        ([[remove("p", dataChange=False), remove("q", dataChange=False), add("o", dataChange=False)]], [[add("t")]]),
        {"o", "t", "r"},
    ),
    "ours deletes rows, theirs others": ((([deleted("p", "a")]), [deleted("q", "b")]), {"p", "q", "r"}),
    "several of ours": (
        ([[add("o"), remove("p")], [remove("o"), add("o2")], [add("o3")]], [[add("t")]]),
        {"q", "r", "o2", "o3", "t"},
    ),
    "ours goes on with what the log has, too": (
        ([[add("o")], [remove("p"), add("o2")]], [[add("t")], [remove("p"), add("o2")]]),
        {"q", "r", "o", "o2", "t"},
    ),
    "the log has what took back the missing one": (
        ([[add("o")], [remove("o"), add("o2")]], [[add("t")], [remove("o"), add("o2")]]),
        {"p", "q", "r", "o2", "t"},
    ),
    "the log lacks what took back what it has": (
        ([[add("o")], [remove("o"), add("o2")]], [[add("o")], [add("t")]]),
        {"p", "q", "r", "o2", "t"},
    ),
    "nothing of ours is missing": (([[add("o")]], [[add("o")], [add("t")]]), {"p", "q", "r", "o", "t"}),
}


@pytest.mark.parametrize("case", GO_IN)
def test_where_they_do_not_conflict_each_file_is_as_the_side_has_it_that_touched_it(case: str) -> None:
    (ours, log), expected = GO_IN[case]
    found = sides(ours, log)
    assert why_not_both(found) is None
    wanted, there = found.wanted.files, {**found.there.files}
    actions, after = settled(found)
    assert {path for path, _ in after.files} == expected
    for file in after.files.keys() - found.base.files.keys():
        assert file in wanted or file in there
    assert len(bodies(actions, "metaData")) == 1
    assert bodies(actions, "protocol") == []


CONFLICTS: dict[str, tuple[Case, str]] = {
    "both removed a file": (([[remove("p"), add("o")]], [[remove("p"), add("t")]]), "both changed data file p"),
    "both removed two": (([[remove("p"), remove("q")]], [[remove("p"), remove("q"), TXN]]), "data file p and 1 more"),
    "both deleted rows of a file": ((([deleted("p", "a")]), [deleted("p", "b")]), "which of its rows are deleted"),
    "ours deleted rows of what theirs removed": (([deleted("p", "a")], [[remove("p")]]), "both changed data file p"),
    "theirs told statistics anew": (
        ([[remove("p")]], [[add("p", dataChange=False, stats="{}")]]),
        "both changed data file p",
    ),
    "theirs changed what ours had added": (([[add("o")]], [[remove("o"), add("t")]]), "both changed data file o"),
    "theirs changed what the log has of ours": (
        ([[add("o")], [add("o2")], [add("o3")]], [[add("t")], [add("o2")], [remove("o2"), add("t2")]]),
        "both changed data file o2",
    ),
    "both changed metadata": (([[metadata("a")]], [[metadata("b")]]), "schema or properties"),
    "theirs added a constraint": (([[add("o")]], [[CONSTRAINT]]), "schema or properties"),
    "ours added a constraint": (([[CONSTRAINT]], [[add("t")]]), "schema or properties"),
    "both gave out identities": (([[moved(3), add("o")]], [[moved(2), add("t")]]), "schema or properties"),
    "theirs upgraded the protocol": (([[add("o")]], [[UPGRADED, CONSTRAINT]]), "schema or properties"),
    "theirs upgraded to what is not known": (([[add("o")]], [[LATER]]), "its protocol"),
    "both did a batch": (([[add("o"), txn("s")]], [[add("t"), txn("s")]]), "the streaming application s"),
    "both set a domain": (([[domain("d", "1")]], [[domain("d", "2")]]), "the metadata domain d"),
    "a shared commit gave out row ids": (
        ([[add("o")], [add("o2", baseRowId=5), mark(5)]], [[add("t")], [add("o2", baseRowId=5), mark(5)]]),
        "version 6 is the same on both sides, and gave out row ids",
    ),
    "an action of ours that nobody knows": (([[add("o"), {"new": {}}]], [[add("t")]]), r"ours .* not known here \(new"),
    "an action of theirs that nobody knows": (
        ([[add("o")]], [[add("t"), {"new": {}}]]),
        r"version 5 of the log .* not known here \(new",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONFLICTS)
def test_where_they_conflict_both_cannot_be_kept(case: str) -> None:
    (ours, log), reason = CONFLICTS[case]
    found = why_not_both(sides(ours, log))
    assert found is not None
    assert re.search(reason, found), found


def test_rows_that_ours_moved_under_ids_of_its_own_cannot_land_behind_others() -> None:
    ours = [
        [add("o", baseRowId=10, defaultRowCommitVersion=COMMON + 1), mark(10)],
        [
            remove("o", baseRowId=10, defaultRowCommitVersion=COMMON + 1),
            add("o2", baseRowId=11, defaultRowCommitVersion=COMMON + 2),
            mark(11),
        ],
    ]
    assert "row ids stand in its data files" in (why_not_both(sides(ours, [[add("t")]])) or "")


def test_a_table_that_takes_appends_only_has_nothing_removed_that_held_rows() -> None:
    """What ours compacted is told as it was, if that can be; several commits would be told as a change of rows."""
    properties = {"delta.appendOnly": "true"}
    compacted = [remove("p", dataChange=False), remove("q", dataChange=False), add("o", dataChange=False)]
    assert why_not_both(sides([compacted], [[add("t")]], base(**properties))) is None
    reason = why_not_both(sides([compacted, [add("o2")]], [[add("t")]], base(**properties)))
    assert "appends only" in (reason or "")
    assert why_not_both(sides([[add("o")], [add("o2")]], [[add("t")]], base(**properties))) is None


# --- what is not a file -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"), [([metadata(note="x")], [add("t")]), ([add("o")], [metadata(note="x"), add("t")])]
)
def test_metadata_that_one_side_changed_so_that_the_other_need_not_mind_stays(
    ours: list[Action], theirs: list[Action]
) -> None:
    found = sides([ours], [theirs])
    assert why_not_both(found) is None
    actions, _ = settled(found)
    assert [body["configuration"] for body in bodies(actions, "metaData")] == [{"note": "x"}]


def test_a_feature_that_ours_brought_and_that_asks_nothing_is_told() -> None:
    features = ["appendOnly", "invariants"]
    before = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}
    after = {
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [*features, "identityColumns"]}
    }
    found = sides([[after]], [[add("t")]], base(before))
    assert why_not_both(found) is None
    assert bodies(settled(found)[0], "protocol") == [after["protocol"]]
    found = sides([[add("o")]], [[after, add("t")]], base(before))
    assert why_not_both(found) is None
    assert bodies(settled(found)[0], "protocol") == []
    assert found.there.protocol == after["protocol"]


def test_batches_and_domains_are_each_as_the_side_recorded_them_that_did() -> None:
    before = base(txn("ours", 1), txn("theirs", 1), domain("mine", "1"), domain("yours", "1"))
    ours = [add("o"), txn("ours", 2), domain("mine", "2")]
    theirs = [add("t"), txn("theirs", 3), domain("yours", "3")]
    actions, after = settled(sides([ours], [theirs], before))
    assert {name: body["version"] for name, body in after.transactions.items()} == {"ours": 2, "theirs": 3}
    assert {name: body["configuration"] for name, body in after.domains.items()} == {"mine": "2", "yours": "3"}
    assert [body["appId"] for body in bodies(actions, "txn")] == ["ours"]


def test_the_one_commit_of_ours_is_told_as_it_was() -> None:
    """Its change files too, and which files hold no new rows: so the feed of changes says the same."""
    updated = [remove("p"), add("o"), CDC]
    actions, _ = settled(sides([updated], [[add("t")]]))
    gone = remove("p", deletionTimestamp=NOW)  # from now on: until now the log has had it
    assert [action for action in actions if "metaData" not in action] == [gone, *updated[1:]]
    compacted = [remove("p", dataChange=False), add("o", dataChange=False)]
    actions, _ = settled(sides([compacted], [[add("t")]]))
    gone = remove("p", dataChange=False, deletionTimestamp=NOW)
    assert [action for action in actions if "metaData" not in action] == [gone, *compacted[1:]]


def test_several_commits_of_ours_are_told_as_one_change_of_rows() -> None:
    ours = [[remove("p"), add("o"), CDC], [remove("q", dataChange=False), add("o2", dataChange=False)]]
    actions, _ = settled(sides(ours, [[add("t")]]))
    assert bodies(actions, "cdc") == []
    files = [body for kind in ("remove", "add") for body in bodies(actions, kind)]
    assert [(body["path"], body["dataChange"]) for body in files] == [
        *(("p", True), ("q", True), ("o", True), ("o2", True)),
    ]


@pytest.mark.parametrize("commits", [1, 2])
def test_no_row_id_is_given_out_twice(commits: int) -> None:
    before = base(add("old", baseRowId=0, defaultRowCommitVersion=1), mark(9))
    new = {"defaultRowCommitVersion": COMMON + 1}
    one = [add("o", baseRowId=10, **new), add("o2", baseRowId=12, **new), mark(14)]
    kept = [remove("old", baseRowId=0), add("old", baseRowId=0, defaultRowCommitVersion=1, deletionVector=vector("a"))]
    ours = [[*one, *kept]] if commits == 1 else [one, kept]
    found = sides(ours, [[add("t", baseRowId=10, **new), mark(10)], [add("t2", baseRowId=11, **new), mark(30)]], before)
    assert why_not_both(found) is None
    actions, after = settled(found)
    ids = {path: add["baseRowId"] for (path, _), add in after.files.items() if "baseRowId" in add}
    assert ids == {"t": 10, "t2": 11, "o": 31, "o2": 33, "old": 0}
    versions = {body["path"]: body["defaultRowCommitVersion"] for body in bodies(actions, "add")}
    assert versions == {"o": COMMON + 3, "o2": COMMON + 3, "old": 1}
    [told] = bodies(actions, "domainMetadata")
    assert json.loads(told["configuration"]) == {"rowIdHighWaterMark": 35}


# --- any histories ----------------------------------------------------------------------------------------------------


@st.composite
def commits_of(draw: st.DrawFn, who: str) -> list[list[Action]]:
    """Some commits of one side, each of which removes files that it sees, or gives them vectors, and adds others."""
    seen: set[LogicalFile] = {("p", None), ("q", None), ("r", None)}
    made = []
    for number in range(draw(st.integers(1, 3))):
        commit: list[Action] = []
        for file in draw(st.lists(st.sampled_from(sorted(seen, key=str)), unique=True, max_size=2)) if seen else []:
            path, of = file
            commit.append(remove(path, **({"deletionVector": vector(of[1:])} if of else {})))
            seen.discard(file)
            if draw(st.booleans()):
                name = f"{who}{number}"
                commit.append(add(path, deletionVector=vector(name)))
                seen.add((path, f"i{name}"))
        for each in range(draw(st.integers(0, 2))):
            commit.append(add(f"{who}{number}{each}"))
            seen.add((f"{who}{number}{each}", None))
        made.append(commit)
    return made


@given(commits_of("o"), commits_of("t"), st.data())
def test_it_is_what_would_be_had_ours_been_done_behind_theirs(
    ours: list[list[Action]], theirs: list[list[Action]], data: st.DataObject
) -> None:
    """And the other way round; the log may have some commits of ours, too."""
    log = [*theirs]
    for place, commit in enumerate(ours[: len(log)]):
        if data.draw(st.booleans()):
            log[place] = commit
    found = sides(ours, log)
    if why_not_both(found) is not None:
        touched = [
            {body["path"] for action in side for body in action.values()}
            for side in ([a for c in ours for a in c], [a for v in found.foreign.values() for a in v])
        ]
        assert touched[0] & touched[1]
        return
    behind, before = base(), base()
    foreign = found.foreign.values()
    for one, other in zip((*foreign, *ours), (*ours, *foreign), strict=True):
        behind.take(one)
        before.take(other)
    assert settled(found)[1].files.keys() == behind.files.keys() == before.files.keys()
