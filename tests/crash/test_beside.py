"""Lockstep and delta-rs hammer the same adopted tables, some are killed: some seconds of `make soak-writers`."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

import lockstep
from lockstep.delta.log import LOG, commit_path
from lockstep.storage.outside import open_reaching
from lockstep.tables.opened import OpenLake
from tests.beside import judging
from tests.beside.journal import MADE, OWN, SHARED, TRACKED, VECTORS
from tests.beside.judging import Said, Verdict, feed_of, judge, lost_files, nothing_expired, read, too_few, wrong_feed
from tests.beside.page import section
from tests.beside.person import DECISIONS, WAYS, Decision, Person, Way, decided, settled
from tests.beside.row_ids import MATERIALIZED, doubled_row_ids, wrong_row_ids
from tests.beside.rows import SCHEMA, column_of, property_of, row, rows_of
from tests.beside.run import make_tables, run
from tests.beside.writer import TABLES
from tests.support.faulty import FaultyStorage
from tests.support.lakes import add, location, open_catalog, remove, stage

pytestmark = pytest.mark.long

ALL = (*SHARED, *TRACKED)


def test_each_acknowledged_write_is_there_once_and_each_transaction_whole(tmp_path: Path) -> None:
    verdict = run(tmp_path, seconds=6, seed=7)
    assert not verdict.wrong
    assert verdict.answers["done"] > 5
    # The judge sees what would be wrong: a write that is lost, one that is there though it was refused, half of one.
    said, disputed = read(tmp_path.glob("*.journal")), decided(tmp_path / "person")
    kept = next(id for id, each in said.items() if _stands_alone(said, id) and not _is_disputed(id, disputed))
    wrong = {
        **said,
        "lost": Said([*TABLES], answer="done"),
        kept: Said(said[kept].tables, answer="refused"),
    }
    found = judge(tmp_path / "lake", tmp_path / "warehouse", (*ALL, OWN), wrong, disputed).wrong
    assert {line.split(" ")[0] for line in found} == {"lost", kept}


def _stands_alone(said: dict[str, Said], id: str) -> bool:
    """Say whether one was done and only added its row, which nobody took back: no other is judged by its answer."""
    one = said[id]
    only_adds = one.answer == "done" and one.adds and one.takes_back is None
    return only_adds and all(each.takes_back != id for each in said.values())


def _is_disputed(id: str, disputed: dict[str, set[str]]) -> bool:
    return any(id in rows for rows in disputed.values())


@pytest.mark.parametrize("decision", [each for each in DECISIONS if each.keep != "both"], ids="-".join)
def test_of_a_table_that_was_set_aside_the_judge_leaves_out_what_the_person_decided(
    tmp_path: Path, decision: Decision
) -> None:
    root, warehouse = tmp_path / "lake", tmp_path / "warehouse"
    make_tables(root, warehouse, TABLES)
    folder = str(warehouse / "a")
    for id in ("x", "y"):
        write_deltalake(folder, row(id), mode="append")
    store = FaultyStorage(open_reaching(str(root)))
    catalog = open_catalog(store)
    tx = catalog.begin()
    [file] = [path for path, id in _files(DeltaTable(folder)) if id == "x"]
    buffer = io.BytesIO()
    parquet.write_table(row("ours", "x"), buffer)
    stage(catalog, tx, "a", remove(file), add("ours.parquet", size=len(buffer.getvalue())), data=buffer.getvalue())

    def first() -> None:
        DeltaTable(folder).update({"id": "'theirs'", "was": "id"}, predicate="id = 'x'")

    store.interrupt("put_if_absent", first, path=commit_path(location(catalog, "a"), 3))
    catalog.commit(tx)
    catalog.lake.upkeep.settle()
    Person(root, warehouse, TABLES, tmp_path / "person", iter([decision])).look()
    disputed, done = decided(tmp_path / "person"), [Said(["a"], answer="done"), Said(["a"], "x", answer="done")]
    assert disputed == {"a": {"ours", "theirs"}}
    said = {"x": done[0], "y": done[0], "ours": done[1], "theirs": done[1]}
    assert judge(root, warehouse, (*TABLES, OWN), said, disputed).wrong == []
    assert {line.split(" ")[0] for line in judge(root, warehouse, (*TABLES, OWN), said).wrong} == {"ours", "theirs"} - {
        decision.keep
    }


def _files(table: DeltaTable) -> list[tuple[str, str]]:
    """Return the files of a table of one row each, with the rows' ids."""
    names = [uri.rpartition("/")[2] for uri in table.file_uris()]
    return [(name, parquet.read_table(f"{table.table_uri}/{name}")["id"][0].as_py()) for name in names]


@pytest.mark.parametrize("decision", DECISIONS, ids="-".join)
def test_of_a_table_with_vectors_what_a_decision_is_about_is_read_with_them(tmp_path: Path, decision: Decision) -> None:
    root, warehouse = tmp_path / "lake", tmp_path / "warehouse"
    make_tables(root, warehouse, TABLES)
    store = FaultyStorage(open_reaching(str(root)))
    catalog = open_catalog(store)
    lake, folder = OpenLake(catalog, {}), str(warehouse / "e")
    with lake.transaction() as tx:
        tx["default.e"].append(pa.concat_tables([row(id) for id in ("x", "y")]))

    def first() -> None:
        DeltaTable(folder).update({"id": "'theirs'", "was": "id"}, predicate="id = 'x'")

    store.interrupt("put_if_absent", first, path=commit_path(location(catalog, "e"), 3))
    with lake.transaction() as tx:
        tx["default.e"].update({"id": "'ours'", "was": "id"}, where="id = 'x'")
    catalog.lake.upkeep.settle()
    journal, next_one = tmp_path / "person", Decision("theirs", "core")
    Person(root, warehouse, TABLES, journal, iter([decision, next_one])).look()
    kept = next_one if decision.keep == "both" else decision  # both have changed one row
    assert settled(journal) == Counter([kept])
    assert decided(journal) == {"e": {"ours", "theirs"}}
    done = [Said(["e"], answer="done"), Said(["e"], "x", answer="done")]
    said = {"x": done[0], "y": done[0], "ours": done[1], "theirs": done[1]}
    assert judge(root, warehouse, (*TABLES, OWN), said, decided(journal)).wrong == []
    assert rows_of(DeltaTable(folder)) == Counter([("y", None), (kept.keep, "x")])


@pytest.mark.parametrize("way", WAYS)
def test_where_a_person_keeps_both_nothing_is_in_doubt(tmp_path: Path, way: Way) -> None:
    root, warehouse, copy = tmp_path / "lake", tmp_path / "warehouse", tmp_path / "copy"
    make_tables(root, warehouse, TABLES)
    shutil.copytree(warehouse / "a", copy)
    lake = lockstep.open(str(root))
    with lake.transaction() as tx:
        tx["default.a"].append(row("ours"))
    lake.catalog.lake.upkeep.settle()  # what is not marked as published yet would go behind theirs without a person
    write_deltalake(str(copy), row("theirs"), mode="append")
    shutil.copytree(copy, warehouse / "a", dirs_exist_ok=True)  # as from a writer that looks at nothing
    journal, decision = tmp_path / "person", Decision("both", way)
    Person(root, warehouse, TABLES, journal, iter([decision])).look()
    assert (settled(journal), decided(journal)) == (Counter([decision]), {})
    said = dict.fromkeys(("ours", "theirs"), Said(["a"], answer="done"))
    assert judge(root, warehouse, (*TABLES, OWN), said).wrong == []


def test_the_judge_counts_what_is_set_of_a_table_and_the_names_of_tables_as_rows(tmp_path: Path) -> None:
    root, warehouse = tmp_path / "lake", tmp_path / "warehouse"
    make_tables(root, warehouse, TABLES)
    lake = lockstep.open(str(root))
    with lake.transaction() as tx:
        for table in TABLES:
            tx[f"default.{table}"].alter.set_table_properties({property_of("p"): "set"})
            tx[f"default.{table}"].alter.add_columns(pa.field(column_of("q"), pa.string()))
        for id in ("m", "n"):
            tx.create(f"default.{MADE}-{id}", SCHEMA)
            tx[f"default.{MADE}-{id}"].append(row(id))
    said = dict.fromkeys("pq", Said([*TABLES], answer="done")) | dict.fromkeys("mn", Said([MADE], answer="done"))
    assert judge(root, warehouse, (*TABLES, OWN), said).wrong == []
    with lake.transaction() as tx:
        tx["default.b"].alter.unset_table_properties([property_of("p")])
        tx.rename(f"default.{MADE}-m", f"default.{MADE}-o")
        tx.drop(f"default.{MADE}-n")
    said["q"] = Said([*TABLES], answer="refused")
    wrong = judge(root, warehouse, (*TABLES, OWN), said).wrong
    assert sorted(line.split(" ")[0] for line in wrong) == ["made-o", "n", "p", "q"]


def test_vectors_that_race_for_one_file_lose_and_bring_back_nothing(tmp_path: Path) -> None:
    root, warehouse = tmp_path / "lake", tmp_path / "warehouse"
    make_tables(root, warehouse, VECTORS)
    lake = lockstep.open(str(root))
    with lake.transaction() as tx:
        for table, ids in (("d", "uvwyz"), ("e", "uvwxyz")):
            tx[f"default.{table}"].append(pa.concat_tables([row(id) for id in ids]))
    racing = {id: lake.transaction() for id in "uvw"}
    for id, each in racing.items():
        tx = each.__enter__()
        for table in VECTORS:
            tx[f"default.{table}"].update({"id": f"'{id}2'", "was": "id"}, where=f"id = '{id}'")
    for each in racing.values():
        each.__exit__(None, None, None)
    DeltaTable(str(warehouse / "e")).delete("id = 'x'")
    said = dict.fromkeys("uvwyz", Said([*VECTORS], answer="done")) | {"x": Said(["e"], answer="done")}
    said |= {f"{id}2": Said([*VECTORS], id, answer="done") for id in "uvw"}
    said["x2"] = Said(["e"], "x", adds=False, answer="done")
    assert judge(root, warehouse, (*VECTORS, OWN), said).wrong == []
    with lake.transaction() as tx:
        for table in VECTORS:
            tx[f"default.{table}"].update({"was": "was"})
    assert judge(root, warehouse, (*VECTORS, OWN), said).wrong == []


def test_the_judge_sees_a_transaction_that_a_log_has_twice(tmp_path: Path) -> None:
    root, warehouse = tmp_path / "lake", tmp_path / "warehouse"
    make_tables(root, warehouse, TABLES)
    with lockstep.open(str(root)).transaction() as tx:
        for table in TABLES:
            tx[f"default.{table}"].append(row("x"))
    said = {"x": Said([*TABLES], answer="done")}
    assert judge(root, warehouse, (*TABLES, OWN), said).wrong == []
    log = warehouse / "a" / LOG
    shutil.copy(log / f"{1:020d}.json", log / f"{2:020d}.json")  # as if it had been published once more
    assert f"a has transaction {tx.id} 2 times" in judge(root, warehouse, (*TABLES, OWN), said).wrong


@pytest.mark.parametrize(("base", "wrong"), [(2, False), (1, True), (0, True)])
def test_the_judge_sees_row_ids_that_were_given_out_twice(tmp_path: Path, base: int, wrong: bool) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    stats = json.dumps({"numRecords": 2})
    adds = [{"add": {"path": path, "baseRowId": id, "stats": stats}} for path, id in (("p", 0), ("q", base))]
    for version, action in enumerate((adds[0], adds[1], adds[0])):  # one that is added again keeps its own
        (log / f"{version:020d}.json").write_text(json.dumps(action) + "\n", encoding="utf-8")
    assert bool(doubled_row_ids(tmp_path)) == wrong


@pytest.mark.parametrize(
    ("rows", "kept", "live", "wrong"),
    [
        (["a", "b"], [0, 1], {"q"}, 0),  # copied with their ids
        (["b", "c"], [1, None], {"q"}, 0),  # one of them is new
        (["a", "b"], [0, None], {"q"}, 1),  # copied, and given a new id
        (["c"], [0], {"p", "q"}, 1),  # the id of another that is there, too
        (["c"], [0], {"q"}, 0),  # of one that it took the place of
    ],
)
def test_the_judge_sees_rows_that_lose_their_ids_or_share_one(
    tmp_path: Path, rows: list[str], kept: list[int | None], live: set[str], wrong: int
) -> None:
    (tmp_path / "_delta_log").mkdir()
    ids = pa.array(kept, pa.int64())
    files = {"p": pa.table({"id": ["a", "b"]}), "q": pa.table([rows, ids], names=["id", MATERIALIZED])}
    for version, (path, table) in enumerate(files.items()):
        parquet.write_table(table, tmp_path / path)
        action = {"add": {"path": path, "baseRowId": 2 * version}}
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(action) + "\n", encoding="utf-8")
    assert len(wrong_row_ids(tmp_path, live)) == wrong


def test_the_judge_sees_a_feed_that_does_not_add_up(tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    write_deltalake(folder, row("x").slice(0, 0), configuration={"delta.enableChangeDataFeed": "true"})
    for id in ("a", "b"):
        write_deltalake(folder, row(id), mode="append")
    DeltaTable(folder).delete("id = 'a'")
    found = feed_of(DeltaTable(folder))
    assert wrong_feed(found, Counter([("b", None)]), "t") == []
    assert len(wrong_feed(found, Counter([("a", None), ("b", None)]), "t")) == 1
    assert len(wrong_feed(found, Counter([("b", "a")]), "t")) == 2
    assert len(wrong_feed(found, Counter(), "t")) == 1


def test_a_round_in_which_a_kind_of_writer_did_next_to_nothing_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledged = Counter({"spark": 3, "python": 19})
    assert not too_few(acknowledged, ["spark", "python", "python"], 119)
    assert too_few(acknowledged, ["spark", "python", "python"], 120) == [
        "python had 19 writes acknowledged in 120 seconds, and must have 20"
    ]
    assert len(too_few(Counter(), ["spark", "plain-spark", "delta-rs"], 120)) == 3
    monkeypatch.setitem(judging.LEAST_A_MINUTE, "lockstep", 1_000_000)
    [wrong] = run(tmp_path, seconds=1, seed=7, killed=0, kinds=["lockstep"]).wrong
    assert wrong.startswith("lockstep had ")
    assert wrong.endswith(" in 1 seconds, and must have 16666")


def test_a_round_in_which_upkeep_let_nothing_expire_has_failed_if_it_was_long_enough() -> None:
    assert nothing_expired(0, 121, 60) == ["no version has expired in 121 seconds"]
    assert not nothing_expired(1, 121, 60)
    assert not nothing_expired(0, 120, 60)
    assert nothing_expired(0, 21, 1)
    assert not nothing_expired(0, 20, 1)  # the grace is longer than the age


def test_the_judge_is_told_of_a_file_that_was_deleted_while_somebody_read_it() -> None:
    why = "SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/x.parquet."
    said = {
        "x": Said(["a"], answer="unknown", kind="plain-spark: merge", why=why),
        "y": Said(["a"], answer="refused", kind="plain-spark: merge", why="[DELTA_CONCURRENT_APPEND]"),
        "z": Said(["a"]),
    }
    assert [line.split(" ")[0] for line in lost_files(said)] == ["x"]


def test_only_what_was_done_to_rows_is_an_acknowledged_write() -> None:
    assert Said(["a"], answer="done", kind="python: append").is_acknowledged
    assert Said(["a"], "x", adds=False, answer="done", kind="python: delete").is_acknowledged
    assert Said([], adds=False, answer="done", kind="upkeep: maintain").is_acknowledged
    assert not Said(["a"], adds=False, answer="done", kind="python: gather").is_acknowledged
    assert not Said([], adds=False, answer="done", kind="spark: maintain").is_acknowledged
    for answer in ("refused", "unknown", None):
        assert not Said(["a"], answer=answer, kind="python: append").is_acknowledged


def test_the_page_says_what_all_rounds_came_to() -> None:
    first = Verdict(
        kinds=Counter({("python: append", "done"): 1200, ("python: append", None): 1}),
        acknowledged=Counter({"python": 1200}),
        kills=Counter({"python": 1}),
        settled=Counter([Decision("both", "command")]),
    )
    second = Verdict(
        kinds=Counter({("python: append", "refused"): 2}),
        acknowledged=Counter({"upkeep": 1}),
        expired=1300,
        kills=Counter({"upkeep": 2}),
    )
    text = " ".join(section([first, second], 60, "make soak-writers").split())
    assert "2 rounds of 60 seconds each" in text
    assert "1,203 operations were begun, and 3 writers were killed: 1 python, 2 upkeep." in text
    assert "so many were acknowledged: 1200 python, 1 upkeep; a round" in text
    assert "fails. 1,300 versions of the lake had expired when the judge came." in text
    assert "set a table aside once, and a person settled it: 1 both by the command." in text
    assert "No collision with a plain writer's commit set a table aside." in section([second], 60, "").replace(
        "\n", " "
    )
    assert "| python: append | 1,200 | 2 | | 1 |" in text
