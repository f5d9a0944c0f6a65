"""What may be deleted: tables of cases, one for each kind of thing."""

from __future__ import annotations

import re
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from lockstep.delta.checkpoint_files import checkpoint_actions
from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.delta.log import log_files_of
from lockstep.errors import CorruptTimelineError, InvalidError, UnsupportedError
from lockstep.retention.ages import LOGS, LONGEST, REMOVED, Retention, duration_of
from lockstep.retention.files import Doomed, TableFiles, doomed_files, kind_of, unfound
from lockstep.retention.logs import doomed_log, unreadable
from lockstep.retention.needs import NOTHING, Need, needs
from lockstep.retention.queue import Marks, Queue, over, split, still
from lockstep.retention.versions import Readable, Wishes, expired, first_of_last, retained
from lockstep.storage import LATEST, Found, time_of
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Table, TableDdl
from tests.support.entries import entry
from tests.support.histories import create, name, write
from tests.support.lakes import add, metadata, remove
from tests.support.memory import MemoryStorage
from tests.support.vectors import stored

NOW = datetime(2030, 1, 31, tzinfo=UTC)
DAY = timedelta(days=1)
ROOT = "file:///lake"

# --- database versions ------------------------------------------------------------------------------------------------

ALL = Readable(0, 20)
VERSIONS: list[tuple[str, Readable, dict[str, Any], Readable]] = [
    ("what is older than all ask for goes", ALL, {}, Readable(10, 20)),
    ("the age keeps a longer run than the number", ALL, {"newest_then": 4}, Readable(4, 20)),
    ("the number keeps a longer run than the age", ALL, {"first_of_last": 6}, Readable(6, 20)),
    ("the grace of readers keeps a longer run than both", ALL, {"newest_in_grace": 2}, Readable(2, 20)),
    (
        "the newest stays whatever is asked",
        ALL,
        {"newest_then": 20, "newest_in_grace": 20, "first_of_last": 21},
        Readable(20, 20),
    ),
    ("more are asked for than there are", ALL, {"first_of_last": 0}, ALL),
    ("nobody can tell which was the newest then", ALL, {"newest_then": None}, ALL),
    ("nobody can tell who may be reading", ALL, {"newest_in_grace": None}, ALL),
    ("what is not published yet stays", ALL, {"published_through": 7}, Readable(7, 20)),
    ("a tag keeps an older one alone", ALL, {"tags": [3, 12]}, Readable(10, 20, frozenset({3}))),
    ("an export does", ALL, {"exports": [0]}, Readable(10, 20, frozenset({0}))),
    ("an open transaction does", ALL, {"transactions": [9, 10]}, Readable(10, 20, frozenset({9}))),
    ("an export that nobody can read keeps all", ALL, {"exports": None}, ALL),
    ("what has expired stays so", Readable(12, 20, frozenset({3})), {"tags": [3, 5]}, Readable(12, 20, frozenset({3}))),
    ("what was kept alone and is not asked for goes", Readable(12, 20, frozenset({3})), {}, Readable(12, 20)),
]


@pytest.mark.parametrize(
    ("readable", "wishes", "expected"), [case[1:] for case in VERSIONS], ids=[c[0] for c in VERSIONS]
)
def test_which_versions_stay(readable: Readable, wishes: dict[str, Any], expected: Readable) -> None:
    most = {"newest_then": 10, "newest_in_grace": 15, "first_of_last": 18, "published_through": 20}
    after = retained(readable, Wishes(**{**most, **wishes}))
    assert after == expected
    gone = {v for v in range(21) if readable.has(v)} - {v for v in range(21) if after.has(v)}
    assert expired(readable, after) == len(gone)


NEWEST: list[tuple[str, list[str], int, int]] = [
    ("so many", ["transaction"] * 5, 3, 3),
    ("one", ["transaction"] * 5, 1, 5),
    ("as many as there are", ["transaction"] * 5, 5, 1),
    ("more than there are", ["transaction"] * 5, 6, 0),
    ("a plain writer's count", ["transaction", "external", "external"], 2, 2),
    ("expiry does not", ["transaction", "transaction", "expiry", "expiry", "expiry"], 2, 1),
    ("nor does it where it is in between", ["transaction", "expiry", "transaction"], 2, 1),
    ("nor does the end of a transaction", ["transaction", "transaction", "abort"], 1, 2),
    ("nor does one by which upkeep only took the next number", ["transaction", "external", "fence", "fence"], 2, 1),
]


@pytest.mark.parametrize(("kinds", "number", "expected"), [case[1:] for case in NEWEST], ids=[c[0] for c in NEWEST])
def test_which_are_the_newest(kinds: list[Any], number: int, expected: int) -> None:
    written = {"transaction": [], "external": [write(1, 2, "t", "t")]}
    entries = [
        entry(version, kind="external" if kind == "fence" else kind, writes=written.get(kind, []))
        for version, kind in enumerate(kinds, start=1)
    ]
    assert first_of_last(reversed(entries), number, 0) == expected


# --- versions of tables -----------------------------------------------------------------------------------------------


def database(version: int, **tables: int) -> Database:
    found = {name(t): Table(id=t, name=name(t), location=f"at-{t}", version=v, since=0) for t, v in tables.items()}
    return Database(version=version, committed_at=NOW, namespaces={}, tables=found)


def at(table: str, version: int | None = None) -> TableDdl:
    return TableDdl(action="create", id=table, name=name(table), location=f"at-{table}", version=version)


NEEDS: list[tuple[str, list[Entry], list[Database], dict[str, Need]]] = [
    ("a table from the version of the oldest on", [], [], {"a": Need(5)}),
    ("one that is made later from its first", [entry(8, tables=[at("b")])], [], {"a": Need(5), "b": Need(0)}),
    ("one that comes back from where it was", [entry(8, tables=[at("b", 3)])], [], {"a": Need(5), "b": Need(3)}),
    ("one that a tag has as it was then", [], [database(2, a=1), database(4, a=3, c=7)],
     {"a": Need(5, (1, 3)), "c": Need(None, (7,))}),
    ("one that was dropped in the run", [entry(8, tables=[TableDdl(action="drop", id="a", name=name("a"))])], [],
     {"a": Need(5)}),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "alone", "expected"), [case[1:] for case in NEEDS], ids=[c[0] for c in NEEDS])
def test_which_versions_of_tables_are_needed(
    entries: list[Entry], alone: list[Database], expected: dict[str, Need]
) -> None:
    assert needs(database(7, a=5), entries, alone) == {f"at-{table}": need for table, need in expected.items()}


def test_a_table_that_was_only_written_in_the_run_is_needed_whole() -> None:
    """An entry that nobody can explain keeps more, not less."""
    assert needs(database(7), [entry(8, writes=[write(3, 4, "x", "x")])], [])[write(3, 4, "x", "x").location] == Need(0)
    assert create("x", "x").location == write(3, 4, "x", "x").location


SPANS = [
    # need, the versions that have a file, is it needed
    (Need(5), (0, 5), False),
    (Need(5), (0, 6), True),
    (Need(5), (0, None), True),
    (Need(5), (9, 10), True),
    (Need(None, (2, 7)), (0, 2), False),
    (Need(None, (2, 7)), (0, 3), True),
    (Need(None, (2, 7)), (3, 7), False),
    (Need(None, (2, 7)), (3, None), True),
    (Need(None, (2, 7)), (8, None), False),
    (Need(5, (2,)), (3, 5), False),
    (NOTHING, (0, None), False),
]


@pytest.mark.parametrize(("need", "span", "is_needed"), SPANS)
def test_a_file_is_needed_while_one_of_its_versions_is(
    need: Need, span: tuple[int, int | None], is_needed: bool
) -> None:
    assert need.has_any(*span) is is_needed


# --- data files -------------------------------------------------------------------------------------------------------

OLD, REMOVED_AT, RECENT = NOW - 30 * DAY, NOW - 8 * DAY, NOW - 6 * DAY


def vector(number: int) -> tuple[dict[str, Any], str]:
    from uuid import UUID

    descriptor, _ = stored(b"rows", 1, UUID(int=number))
    return descriptor, file_path(descriptor, location="t", root=ROOT)


V1, V1_FILE = vector(1)
V2, V2_FILE = vector(2)
COMMITS: list[list[dict[str, Any]]] = [
    [metadata(), add("a"), add("b"), add("p=x%2520y/c")],
    [remove("a"), add("d")],
    [remove("b"), add("b", deletionVector=V1)],
    [remove("b", deletionVector=V1), add("b", deletionVector=V2), {"cdc": {"path": "_change_data/e"}}],
    [remove("b", deletionVector=V2), remove("d"), add("z")],
    [remove("z"), add("a")],
]
"""Versions 0 to 5; the last brings back a."""

PATHS = {"t/a", "t/b", "t/p=x%20y/c", "t/d", V1_FILE, V2_FILE, "t/_change_data/e", "t/z", "t/litter"}
HEAD = {"t/a", "t/p=x%20y/c"}
FILES = [
    ("all are, since the first version is", Need(0), PATHS - {"t/litter"}),
    ("the newest alone", Need(5), HEAD),
    ("with its vector", Need(None, (2,)), {"t/b", "t/d", V1_FILE, "t/p=x%20y/c"}),
    ("with its other vector, and the changes of that commit", Need(None, (3,)),
     {"t/b", "t/d", V2_FILE, "t/p=x%20y/c", "t/_change_data/e"}),
    ("from one on", Need(4), HEAD | {"t/z"}),
    ("from one on, and an older one", Need(4, (0,)), HEAD | {"t/z", "t/b"}),
    ("none", NOTHING, set()),
]  # fmt: skip


def table_files(need: Need, at: datetime = REMOVED_AT) -> TableFiles:
    table = TableFiles("t", ROOT, need)
    for version, actions in enumerate(COMMITS):
        table.take(version, actions, at)
    table.finish(at)
    return table


def doomed_of(need: Need, **more: Any) -> list[Doomed]:
    listed = [Found(path, 10, OLD) for path in sorted(PATHS)]
    limits = {"removed_before": NOW - 7 * DAY, "litter_before": NOW - 7 * DAY}
    return doomed_files(more.pop("listed", listed), table_files(need, more.pop("at", REMOVED_AT)),
                        more.pop("spared", frozenset()), **{**limits, **more})  # fmt: skip


@pytest.mark.parametrize(("need", "kept"), [case[1:] for case in FILES], ids=[c[0] for c in FILES])
def test_which_files_stay(need: Need, kept: set[str]) -> None:
    doomed = doomed_of(need)
    assert {each.path for each in doomed} == PATHS - kept
    assert {each.path for each in doomed if each.kind == "litter"} == {"t/litter"}


def test_files_stay_for_as_long_as_plain_readers_are_promised() -> None:
    assert {each.kind for each in doomed_of(Need(5), at=RECENT)} == {"litter"}
    said = int((NOW - DAY).timestamp() * 1000)
    table = TableFiles("t", ROOT, Need(1))
    table.take(0, [add("a")], OLD)
    table.take(1, [remove("a", deletionTimestamp=said)], OLD)
    table.finish(OLD)
    assert table.removed == {"t/a": NOW - DAY}, "the later of what it says and of when it was written"


NO_TIMES: list[Any] = [10**17, -(10**18), float("inf"), float("nan"), "2030-01-01", [1]]


@pytest.mark.parametrize("said", NO_TIMES)
def test_what_was_removed_at_no_time_that_there_is_stays(said: Any) -> None:
    """Microseconds for milliseconds, or text, of a plain writer: no reason to end upkeep of the lake."""
    table = TableFiles("t", ROOT, Need(1))
    table.take(0, [add("a")], OLD)
    table.take(1, [remove("a", deletionTimestamp=said)], OLD)
    table.finish(OLD)
    found = doomed_files([Found("t/a", 1, OLD)], table, frozenset(), removed_before=NOW, litter_before=NOW)
    assert (table.removed, found) == ({"t/a": LATEST}, [])


@pytest.mark.parametrize("seconds", [1e12, -1e12, float("inf"), float("nan")])
def test_a_file_of_no_time_that_there_is_is_young(seconds: float) -> None:
    assert time_of(seconds) == LATEST


BEFORE = int((NOW - DAY).timestamp() * 1000)
A_FILE = {"modificationTime": BEFORE}
UNFOUND = [
    ("spelled otherwise", [[add("p=a/f", **A_FILE)]], {"p=A/f"}, "t/p=a/f"),
    ("lost", [[add("a", **A_FILE), add("b", **A_FILE)]], {"b"}, "t/a"),
    ("found", [[add("p=a/f", **A_FILE)]], {"p=a/f"}, None),
    ("found by one of its names", [[add("p=x%2520y/f", **A_FILE)]], {"p=x%20y/f"}, None),
    ("of an older version", [[add("a", **A_FILE)], [remove("a"), add("b", **A_FILE)]], {"b"}, None),
    ("written since the listing", [[add("a", modificationTime=BEFORE + 1)]], set(), None),
    ("of no known age", [[add("a", modificationTime="?")]], set(), "t/a"),
    ("of another folder", [[add("file:///lake/u/a", **A_FILE)]], set(), None),
    ("by its whole URL", [[add("file:///lake/t/a", **A_FILE)]], set(), "t/a"),
    ("of change data", [[{"cdc": {"path": "_change_data/e"}}]], set(), None),
    ("a vector", [[add("a", deletionVector=V1, **A_FILE)]], {"a"}, V1_FILE),
]


@pytest.mark.parametrize(("commits", "there", "expected"), [case[1:] for case in UNFOUND], ids=[c[0] for c in UNFOUND])
def test_which_file_of_the_newest_version_a_listing_has_not(
    commits: list[list[dict[str, Any]]], there: set[str], expected: str | None
) -> None:
    """Then one that looks like litter may be that one."""
    table = TableFiles("t", ROOT, Need(0))
    for version, actions in enumerate(commits):
        table.take(version, actions, OLD)
    table.finish(OLD)
    listed = [Found(f"t/{path}", 1, OLD) for path in there]
    assert unfound(listed, table, NOW - DAY + timedelta(milliseconds=1)) == expected


def test_a_vector_may_have_been_written_since_the_listing_though_its_file_was_not() -> None:
    table = TableFiles("t", ROOT, Need(0))
    table.take(0, [add("a", deletionVector=V1, **A_FILE)], NOW)
    table.finish(NOW)
    assert unfound([Found("t/a", 1, OLD)], table, NOW) is None


def test_litter_stays_while_it_is_young_and_what_others_need_stays() -> None:
    assert "t/litter" not in {each.path for each in doomed_of(Need(5), litter_before=OLD)}
    spared = frozenset({"t/litter", "t/z"})
    assert not spared & {each.path for each in doomed_of(Need(5), spared=spared)}


def test_change_data_that_no_commit_names_any_more_stays_as_long_as_what_was_removed() -> None:
    """Its commit is behind the checkpoint that the log begins with, and no tombstone tells of it."""
    listed = [Found(path, 10, NOW - 20 * DAY) for path in ("t/_change_data/f", "t/_change_data/p=1/f", "t/f")]
    limits = {"litter_before": NOW - 7 * DAY, "listed": listed}
    assert [each.path for each in doomed_of(Need(5), removed_before=NOW - 30 * DAY, **limits)] == ["t/f"]
    assert len(doomed_of(Need(5), removed_before=NOW - 10 * DAY, **limits)) == 3


def test_hadoops_checksums_go_with_their_files() -> None:
    listed = [Found(f"t/{path}", 1, OLD) for path in ("a", ".a.crc", "z", ".z.crc", ".nothing.crc")]
    assert {each.path for each in doomed_of(Need(5), listed=listed)} == {"t/z", "t/.z.crc"}


KINDS = {
    "a": "data",
    "p=1/a": "data",
    "_p=1/a": "data",
    "sub/a": "data",
    "_change_data/a": "data",
    "_change_data/p=1/a": "data",
    "_hidden": "other",
    ".hidden/a": "other",
    "_symlink_format_manifest/manifest": "other",
    "_delta_log/00000000000000000000.json": "other",
    "metadata/v1.metadata.json": "other",
    "metadata/snap-1-1-a.avro": "other",
    "metadata=1/a": "data",
    "sub/metadata/a": "data",
    "metadata": "data",
    "p=1/.a.crc": "checksum",
    "_delta_log/.0.crc": "other",
}


@pytest.mark.parametrize(("path", "kind"), KINDS.items())
def test_what_is_hidden_is_no_data(path: str, kind: str) -> None:
    assert kind_of(path) == kind


def test_a_clone_needs_files_of_another_table() -> None:
    clone = TableFiles("clone", ROOT, Need(0))
    clone.take(0, [add("file:///lake/t/z"), add("file:///elsewhere/x")], OLD)
    clone.finish(OLD)
    assert clone.needed == {"t/z", "file:///elsewhere/x"}, "where a table may lie that was adopted"


UNKNOWN = "adaptiveMetadata-preview"
PROTOCOLS: list[tuple[dict[str, Any], str | None]] = [
    ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [UNKNOWN], "writerFeatures": [UNKNOWN]}, UNKNOWN),
    ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [UNKNOWN], "writerFeatures": []}, UNKNOWN),
    ({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", UNKNOWN]}, UNKNOWN),
    ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["catalogManaged"]},
     "catalogManaged"),
    ({"minReaderVersion": 4, "minWriterVersion": 7}, "protocol (4, 7)"),
    ({"minReaderVersion": 3, "minWriterVersion": 8}, "protocol (3, 8)"),
    ({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"],
      "writerFeatures": ["deletionVectors", "appendOnly"]}, None),
    ({"minReaderVersion": 1, "minWriterVersion": 2}, None),
]  # fmt: skip


@pytest.mark.parametrize("where", ["a commit", "a commit of long ago", "a checkpoint"])
@pytest.mark.parametrize(("protocol", "unknown"), PROTOCOLS)
def test_what_a_table_needs_that_has_something_unknown_nobody_can_tell(
    protocol: dict[str, Any], unknown: str | None, where: str
) -> None:
    """Also if it was given up since: a version that is needed may have it."""
    actions: list[dict[str, Any]] = [{"protocol": protocol}, add("a")]
    if where == "a checkpoint":
        store = MemoryStorage()
        out = BytesIO()
        parquet.write_table(pa.table({"protocol": [protocol, None], "add": [None, {"path": "a"}]}), out)
        store.files = {f"t/_delta_log/{4:020d}.checkpoint.parquet": out.getvalue()}
        actions = checkpoint_actions(store, "t", 4, [f"{4:020d}.checkpoint.parquet"])
    table = TableFiles("t", ROOT, Need(4))
    with pytest.raises(UnsupportedError, match=re.escape(unknown)) if unknown else nullcontext():
        table.take(4, actions, OLD)
        if where == "a commit of long ago":
            table.take(5, [{"protocol": PROTOCOLS[-1][0]}], OLD)


VECTORS: list[tuple[dict[str, Any], set[str] | None]] = [
    ({"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}, set()),
    (V1, {V1_FILE}),
    ({"storageType": "p", "pathOrInlineDv": "file:/lake/s/x%20y"}, {"s/x%20y", "s/x y"}),
    ({"storageType": "p", "pathOrInlineDv": "file:/elsewhere/x"}, {"file:///elsewhere/x"}),
    ({"storageType": "r", "pathOrInlineDv": "x"}, None),
    ({"storageType": "u", "pathOrInlineDv": "no uuid"}, None),
]


@pytest.mark.parametrize(("descriptor", "files"), VECTORS)
def test_a_vector_that_nobody_knows_how_to_find_is_not_passed_over(
    descriptor: dict[str, Any], files: set[str] | None
) -> None:
    table = TableFiles("t", ROOT, Need(0))
    with pytest.raises(CorruptTimelineError) if files is None else nullcontext():
        table.take(0, [add("a", deletionVector=descriptor)], OLD)
        table.finish(OLD)
        assert table.needed == {"t/a", *(files or ())}


# --- logs -------------------------------------------------------------------------------------------------------------


def log_name(version: int, kind: str = "json") -> str:
    return f"{version:020d}.{kind}"


LOG_CASES = [
    # commits, checkpoints, need, the table's newest version, how old each is in days, the versions of what goes
    ("before the newest checkpoint", range(8), [4], Need(5), 7, 40, {0, 1, 2, 3}),
    ("not what an older version needs", range(8), [4, 6], Need(6, (5,)), 7, 40, {0, 1, 2, 3}),
    ("not without a checkpoint", range(8), [], Need(5), 7, 40, set()),
    ("not behind a checkpoint that is too new", range(8), [6], Need(5), 7, 40, set()),
    ("not what is young", range(8), [4], Need(5), 7, 20, set()),
    ("not where a version is lost already", range(3, 8), [4], Need(2), 7, 40, set()),
    ("of a dropped table what no tag needs", range(8), [2, 6], Need(None, (3,)), 7, 40, {0, 1}),
]


def doomed_of_log(listed: list[Found], need: Need, newest: int, **more: Any) -> list[Doomed]:
    log = log_files_of(found.path.rpartition("/")[2] for found in listed)
    limits: dict[str, Any] = {"before": NOW - 30 * DAY, "features": frozenset(), "read_from": 99}
    return doomed_log(listed, log, need, newest, **{**limits, **more})


@pytest.mark.parametrize("case", LOG_CASES, ids=[case[0] for case in LOG_CASES])
def test_which_files_of_a_log_go(case: Any) -> None:
    _, commits, checkpoints, need, newest, age, gone = case
    names = [*map(log_name, commits), *(log_name(version, "checkpoint.parquet") for version in checkpoints)]
    names += [log_name(version, "crc") for version in commits] + ["_last_checkpoint"]
    listed = [Found(f"t/_delta_log/{each}", 1, NOW - age * DAY) for each in names]
    doomed = doomed_of_log(listed, need, newest)
    versions = [int(each.path.rpartition("/")[2][:20]) for each in doomed]
    assert set(versions) == gone
    assert versions == sorted(versions), "the oldest goes first"
    assert doomed_of_log(listed, need, newest, features=frozenset({"checkpointProtection"})) == []
    read_from = min(gone, default=0)
    assert doomed_of_log(listed, need, newest, read_from=read_from) == [], "nobody has read the checkpoint"


def test_a_young_file_keeps_all_that_follows_it() -> None:
    names = [*map(log_name, range(6)), log_name(5, "checkpoint.parquet")]
    listed = [
        Found(f"t/_delta_log/{each}", 1, NOW - (1 if each.startswith(log_name(2)) else 40) * DAY) for each in names
    ]
    doomed = doomed_of_log(listed, Need(5), 5)
    assert [each.path[-6:-5] for each in doomed] == ["0", "1"]


def test_which_version_a_log_does_not_tell_of() -> None:
    log = log_files_of([log_name(4), log_name(5), log_name(3, "checkpoint.parquet")])
    assert unreadable(log, Need(4), 5) is None
    assert unreadable(log, Need(4, (2,)), 5) == 2
    assert unreadable(log, Need(3), 6) == 6


# --- the queue --------------------------------------------------------------------------------------------------------

MARKS = [
    ("is marked now", {}, DAY, False, True),
    ("without a grace period goes at once", {}, timedelta(), True, True),
    ("goes after it", {"f": NOW - DAY}, DAY, True, False),
    ("waits until then", {"f": NOW - DAY + timedelta(seconds=1)}, DAY, False, False),
    ("is marked again if it was removed again", {"f": REMOVED_AT - DAY}, DAY, False, True),
    ("does not count for another", {"g": NOW - 9 * DAY}, DAY, False, True),
]


@pytest.mark.parametrize(
    ("marks", "grace", "is_due", "is_new"), [case[1:] for case in MARKS], ids=[c[0] for c in MARKS]
)
def test_what_is_marked_long_enough_goes(
    marks: dict[str, datetime], grace: timedelta, is_due: bool, is_new: bool
) -> None:
    due, new = split([Doomed("f", "data", 1, REMOVED_AT)], marks, NOW, grace)
    assert (bool(due), bool(new)) == (is_due, is_new)


NEEDED_AGAIN = [(["f", "g"], {"f", "g", "h"}, None), (["f", "g"], {"g"}, ["g"]), (["f"], set(), [])]


@pytest.mark.parametrize(("marked", "doomed", "left"), NEEDED_AGAIN)
def test_a_mark_of_what_is_needed_is_none_any_more(marked: list[str], doomed: set[str], left: list[str] | None) -> None:
    found = still(Marks(format=1, marked_at=NOW, paths=marked), doomed)
    assert found == (None if left is None else Marks(format=1, marked_at=NOW, paths=left))


STALE = [
    ("is over when it is gone", {"f": 1}, {"f"}, set(), DAY, True),
    ("stays while it is looked at", {"f": 400}, set(), {"f"}, DAY, False),
    ("stays for who looks at other things", {"f": 89}, set(), set(), DAY, False),
    ("is over when nobody has looked for long", {"f": 92}, set(), set(), DAY, True),
    ("stays for its grace period, however long", {"f": 120}, set(), set(), 120 * DAY, False),
    ("is over long after that", {"f": 211}, set(), set(), 120 * DAY, True),
]


@pytest.mark.parametrize(
    ("days", "gone", "waiting", "grace", "is_over"), [case[1:] for case in STALE], ids=[case[0] for case in STALE]
)
def test_which_marks_are_of_no_use_any_more(
    days: dict[str, int], gone: set[str], waiting: set[str], grace: timedelta, is_over: bool
) -> None:
    files = {path: Marks(format=1, marked_at=NOW - age * DAY, paths=[path]) for path, age in days.items()}
    found = over(Queue({}, files), waiting, gone, NOW, grace, is_everything=False)
    assert bool(found) == is_over


# --- settings ---------------------------------------------------------------------------------------------------------

DURATIONS = {
    "interval 1 week": 7 * DAY,
    "interval 30 days": 30 * DAY,
    "INTERVAL 1 day 12 hours": 1.5 * DAY,
    "168 hours": 7 * DAY,
    "interval 0 seconds": timedelta(),
    "interval 1000000 days": LONGEST,
    "interval 999999999 weeks 999999999 weeks": LONGEST,
    "interval 1 month": None,
    "forever": None,
    "interval -1 days": None,
    "": None,
}


@pytest.mark.parametrize(("text", "expected"), DURATIONS.items())
def test_durations_as_delta_writes_them(text: str, expected: timedelta | None) -> None:
    assert duration_of({REMOVED: text}, REMOVED) == expected


def test_there_is_a_time_the_longest_retention_ago() -> None:
    assert NOW - LONGEST < NOW - 100_000 * DAY


@pytest.mark.parametrize("setting", ["retention-age", "deletion-grace", "orphan-age"])
@pytest.mark.parametrize("said", ["1000000d", "9999999999d", "9" * 400 + "d"])
def test_who_asks_for_longer_than_there_is_asks_for_ever(setting: str, said: str) -> None:
    retention = Retention.of({setting: said})
    assert LONGEST in (retention.age, retention.grace, retention.orphan_age)


def test_defaults_keep_much() -> None:
    retention = Retention.of({})
    assert retention == Retention(age=30 * DAY, last=100, grace=DAY, orphan_age=7 * DAY)
    assert (duration_of({}, REMOVED), duration_of({}, LOGS)) == (7 * DAY, 30 * DAY)
    for wrong in ({"retention-versions": "0"}, {"retention-age": "ever"}, {"deletion-grace": "-1"}):
        with pytest.raises(InvalidError):
            Retention.of(wrong)


def test_litter_that_is_younger_than_an_hour_is_not_asked_for() -> None:
    assert Retention.of({"orphan-age": "1h"}).orphan_age == timedelta(hours=1)
    with pytest.raises(InvalidError, match="orphan-age is '59min', less than an hour"):
        Retention.of({"orphan-age": "59min"})
