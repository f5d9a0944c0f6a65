"""Lockstep and delta-rs hammer the same adopted tables, some are killed: some seconds of `make soak-writers`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.beside.judging import Said, doubled_row_ids, judge, read, wrong_feed
from tests.beside.run import run
from tests.beside.writer import TABLES, row


def test_each_acknowledged_write_is_there_once_and_each_transaction_whole(tmp_path: Path) -> None:
    verdict = run(tmp_path, seconds=4, seed=7)
    assert not verdict.wrong
    assert verdict.answers["done"] > 10
    # The judge sees what would be wrong: a write that is lost, one that is there though it was refused, half of one.
    said = read(tmp_path.glob("*.journal"))
    kept = next(id for id, each in said.items() if _stands_alone(said, id))
    wrong = {
        **said,
        "lost": Said([*TABLES], answer="done"),
        kept: Said(said[kept].tables, answer="refused"),
    }
    found = judge(tmp_path / "lake", tmp_path / "warehouse", TABLES, wrong).wrong
    assert {line.split(" ")[0] for line in found} == {"lost", kept}


def _stands_alone(said: dict[str, Said], id: str) -> bool:
    """Say whether one was done and only added its row, which nobody took back: no other is judged by its answer."""
    one = said[id]
    only_adds = one.answer == "done" and one.adds and one.takes_back is None
    return only_adds and all(each.takes_back != id for each in said.values())


@pytest.mark.parametrize(("base", "wrong"), [(2, False), (1, True), (0, True)])
def test_the_judge_sees_row_ids_that_were_given_out_twice(tmp_path: Path, base: int, wrong: bool) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    stats = json.dumps({"numRecords": 2})
    adds = [{"add": {"path": path, "baseRowId": id, "stats": stats}} for path, id in (("p", 0), ("q", base))]
    for version, add in enumerate((adds[0], adds[1], adds[0])):  # one that is added again keeps its own
        (log / f"{version:020d}.json").write_text(json.dumps(add) + "\n", encoding="utf-8")
    assert bool(doubled_row_ids(tmp_path)) == wrong


def test_the_judge_sees_a_feed_that_does_not_add_up(tmp_path: Path) -> None:
    folder = str(tmp_path / "t")
    write_deltalake(folder, row("x").slice(0, 0), configuration={"delta.enableChangeDataFeed": "true"})
    for id in ("a", "b"):
        write_deltalake(folder, row(id), mode="append")
    DeltaTable(folder).delete("id = 'a'")
    found = DeltaTable(folder)
    assert wrong_feed(found, Counter(["b"]), "t") == []
    assert len(wrong_feed(found, Counter(["a", "b"]), "t")) == 1
    assert len(wrong_feed(found, Counter(), "t")) == 1
