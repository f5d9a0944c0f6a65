"""The judge of `tests.judge`: histories written by hand, right and wrong, and what its programs are made of."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lockstep.timeline.entry import Commit, Name, TableRead, TableWrite, TransactionInfo
from tests.judge import known
from tests.judge.history import Done, History, tell
from tests.judge.judging import judge
from tests.judge.model import Bag, Model, Query, Update, holds, sorted_rows
from tests.judge.program import Begin, End, Prepare, Program, Read, Write, generate
from tests.judge.tables import COLUMNS, IDS, LAYOUTS, SHOWN, literal, random_row
from tests.support.entries import T0, entry

START = 3
"""The database version that histories begin behind."""


def row(id: int, k: int | None, writer: str = "start") -> tuple[Any, ...]:
    return (id, k, "a", "x  ", "2026-01-01", "2026-01-01 00:00:00", 0.5, 1, 0, "p", writer, 0)


def told_row(id: int, k: int, seq: int) -> tuple[Any, ...]:
    """What `add` inserts, as queries show it."""
    return (id, k, "a", "p", "other", seq)


def start() -> dict[str, Bag]:
    rows = Counter([row(1, 1), row(2, 2)])
    return {table.name: Counter(rows) for table in LAYOUTS[0]} | {"ids": Counter([(1,)])}


class Story:
    """A history in the making: a program's lines, the answers to its steps, and the entries that it left."""

    def __init__(self, lines: str) -> None:
        self.program = known.told(lines)
        self.done: list[Done] = []
        self.entries: list[Any] = []
        self._version = START
        self._began: dict[int, tuple[str, int]] = {}

    def play(self, *answers: Sequence[Sequence[Any]] | str, reads: dict[str, list[str] | None] | None = None) -> Story:
        """Give each step its answer: rows, a SQLSTATE, or "version" for one that made a database version.

        All entries say that they read what `reads` says, any row of `a` if nothing does.
        """
        for step, answer in zip(self.program.steps, answers, strict=True):
            before, rows = self._version, [] if isinstance(answer, str) else [list(r) for r in answer]
            id, base = self._began.get(step.session, ("alone", before))
            if isinstance(step.means, Begin):
                id, base = self._began[step.session] = f"s{step.session}@{len(self.done)}", before
                rows = rows or [[before, id]]
            if answer in ("version", "external"):
                self._version += 1
                self._enter(id, base, external=answer == "external", reads=reads)
                rows = [[self._version, id]] if isinstance(step.means, End) else rows
            if isinstance(step.means, End):
                self._began.pop(step.session, None)
            failed = isinstance(answer, str) and answer not in ("version", "external", "ok")
            said = {"sqlstate": answer, "message": ""} if failed else {"rows": rows}
            self.done.append(Done(step, said, before, self._version))
        return self

    def _enter(self, id: str, base: int, *, external: bool, reads: dict[str, list[str] | None] | None) -> None:
        commits = [Commit(staged="x")]
        name = Name(namespace=("default",), table="a")
        write = TableWrite(id="id-a", name=name, location="a", from_version=0, to_version=1, commits=commits)
        read = {"a": None, "ids": None} if reads is None else reads
        self.entries.append(
            entry(
                self._version,
                namespaces=[],
                kind="external" if external else "transaction",
                transaction=TransactionInfo(id=id, began_at=T0, base_version=base, isolation="SERIALIZABLE"),
                writes=[write],
                reads=[TableRead(id=f"id-{t}", name=name, version=0, predicates=p) for t, p in read.items()],
            )
        )

    def anomalies(self, **changed: Bag) -> list[str]:
        """Judge it; the tables hold in the end what they held at first, and what is `changed`."""
        history = History(
            program=self.program,
            done=self.done,
            start=start(),
            version=START,
            entries=self.entries,
            contents={**start(), **changed},
            ids={table.name: f"id-{table.name}" for table in LAYOUTS[0]},
            physical={table.name: {**{c: c for c in COLUMNS}, "st.f": "f"} for table in LAYOUTS[0]},
        )
        assert tell(history)
        return [anomaly.kind for anomaly in judge(history)]


def added(*rows: tuple[Any, ...]) -> Bag:
    return start()["a"] + Counter(rows)


def inserted(k: int, seq: int) -> tuple[Any, ...]:
    """What `add` inserts, as the table holds it."""
    return (1, k, "a", "x  ", "2026-01-01", "2026-01-01 00:00:00", 1.5, 1, 1, "p", "other", seq)


# --- what was seen ----------------------------------------------------------------------------------------------------


def test_a_transaction_that_sees_its_snapshot_and_its_own_writes_is_right() -> None:
    story = Story(
        """
        0 BEGIN
        1 add a k=3
        0 SELECT id, k FROM {a} t WHERE t.k = 3
        0 INSERT INTO {ids} VALUES (7)
        0 SELECT k FROM {ids}
        0 COMMIT
        """
    ).play("ok", "version", [], "ok", [[1], [7]], "version")
    assert story.anomalies(a=added(inserted(3, 1)), ids=Counter([(1,), (7,)])) == []


def test_a_row_committed_after_begin_is_not_seen() -> None:
    story = Story(
        """
        0 BEGIN
        1 add a k=3
        0 SELECT id, k FROM {a} t WHERE t.k = 3
        0 ROLLBACK
        """
    ).play("ok", "version", [[1, 3]], "ok")
    assert story.anomalies(a=added(inserted(3, 1))) == ["wrong-read"]


def test_begin_takes_the_newest_version() -> None:
    story = Story("0 BEGIN\n0 ROLLBACK").play([[START - 1, "x"]], "ok")
    assert story.anomalies() == ["old-snapshot"]


def test_a_query_alone_sees_what_plain_writers_did_before_it() -> None:
    lines = "plain a\n0 SELECT id, k FROM {a} t WHERE t.k = 2"
    plain = (*inserted(2, 1)[:-2], "plain", 1)
    assert Story(lines).play("ok", [[2, 2]]).anomalies(a=added(plain)) == ["wrong-read"]
    assert Story(lines).play("ok", [[1, 2], [2, 2]]).anomalies(a=added(plain)) == []
    assert Story(lines).play("ok", "external").anomalies(a=added(plain)) == ["wrong-read"]


FRAME = """
    0 f = QUERY SELECT * FROM {a} t WHERE t.k IN ({TABLE} {ids})
    1 BEGIN
    1 INSERT INTO {ids} VALUES (2)
    1 DELETE FROM {a} WHERE k = 1
    1 COMMIT
    0 SHOW f
"""
FIRST, SECOND = [1, 1, "a", "p", "start", 0], [2, 2, "a", "p", "start", 0]


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [([FIRST], []), ([SECOND], []), ([FIRST, SECOND], ["wrong-read"]), ([], ["wrong-read"])],
    ids=["as it was", "as it is", "torn", "nothing"],
)
def test_a_frame_shows_one_version_since_it_was_made(shown: list[list[Any]], wrong: list[str]) -> None:
    story = Story(FRAME).play("ok", "ok", "ok", "ok", "version", shown)
    assert story.anomalies(a=Counter([row(2, 2)]), ids=Counter([(1,), (2,)])) == wrong


def test_a_frame_from_before_begin_may_be_refused_inside_and_nothing_else_may() -> None:
    story = Story("0 f = TABLE a\n0 BEGIN\n0 SHOW f\n0 SELECT k FROM {ids}\n0 ROLLBACK")
    assert story.play("ok", "ok", "25001", "25001", "ok").anomalies() == ["error"]


def test_with_a_limit_any_so_many_of_the_rows_are_right() -> None:
    assert holds(((1,),), ((1,), (2,)), 1)
    assert holds(((2,),), ((1,), (2,)), 1)
    assert not holds((), ((1,), (2,)), 1), "too few"
    assert not holds(((3,),), ((1,), (2,)), 1), "another"


# --- what became of it ------------------------------------------------------------------------------------------------


def test_what_was_rolled_back_or_refused_leaves_no_version() -> None:
    for end, answer in (("ROLLBACK", "version"), ("COMMIT", "40001")):
        story = Story(f"0 BEGIN\n0 add a k=3\n0 {end}").play("ok", "ok", "version")
        if answer != "version":
            story.done[-1] = replace(story.done[-1], answer={"sqlstate": answer, "message": ""})
        assert story.anomalies(a=added(inserted(3, 1))) == ["resurrected"], end


def test_two_that_remove_the_same_row_do_not_both_commit() -> None:
    lines = "0 BEGIN\n1 BEGIN\n0 DELETE FROM {a} WHERE k = 1\n1 DELETE FROM {a} WHERE k = 1\n0 COMMIT\n1 COMMIT"
    story = Story(lines).play("ok", "ok", "ok", "ok", "version", "version")
    assert story.anomalies(a=Counter([row(2, 2)])) == ["lost-update"]


def test_the_tables_hold_what_was_committed() -> None:
    story = Story("0 add a k=3").play("version")
    assert story.anomalies() == ["wrong-contents"]


SKEW = """
    0 BEGIN
    1 BEGIN
    0 SELECT id FROM {a} t WHERE t.k = 3
    1 SELECT id FROM {a} t WHERE t.k = 4
    0 add a k=4
    1 add a k=3
    0 COMMIT
    1 COMMIT
"""


def test_write_skew_has_no_serial_order() -> None:
    story = Story(SKEW).play("ok", "ok", [], [], "ok", "ok", "version", "version")
    result = added(inserted(4, 1), inserted(3, 2))
    assert story.anomalies(a=result) == ["no-serial-order"]
    story.program = replace(story.program, isolation="SNAPSHOT")
    assert story.anomalies(a=result) == [], "it is allowed at SNAPSHOT"


def test_one_antidependency_has_a_serial_order() -> None:
    story = Story(SKEW.replace("k = 4", "k = 5")).play("ok", "ok", [], [], "ok", "ok", "version", "version")
    assert story.anomalies(a=added(inserted(4, 1), inserted(3, 2))) == []


# --- what is recorded -------------------------------------------------------------------------------------------------

READER = "0 BEGIN\n0 SELECT id FROM {a} t WHERE t.k = 2\n0 INSERT INTO {ids} VALUES (7)\n0 COMMIT"


@pytest.mark.parametrize(
    ("recorded", "wrong"),
    [
        ({"a": None}, []),
        ({"a": ["(k = 2)"]}, []),
        ({"a": ["(k > 1)"]}, []),
        ({"a": ["(k = 1)"]}, ["unrecorded-read"]),
        ({"a": ["((k = 2) AND (id = 2))"]}, ["unrecorded-read"]),
        ({}, ["unrecorded-read"]),
    ],
)
def test_what_a_result_depends_on_must_be_recorded(recorded: dict[str, list[str] | None], wrong: list[str]) -> None:
    story = Story(READER).play("ok", [[2]], "ok", "version", reads=recorded)
    assert story.anomalies(ids=Counter([(1,), (7,)])) == wrong


def test_what_a_query_finds_by_way_of_another_table_is_read_there_too() -> None:
    lines = READER.replace("t.k = 2", "t.k IN ({TABLE} {ids})")
    story = Story(lines).play("ok", [[1]], "ok", "version", reads={"a": None})
    assert story.anomalies(ids=Counter([(1,), (7,)])) == ["unrecorded-read"]


# --- programs ---------------------------------------------------------------------------------------------------------


def test_a_seed_is_a_program() -> None:
    assert generate(7) == generate(7)
    assert generate(7) != generate(8)


def test_programs_have_every_kind_of_step_and_the_model_understands_all() -> None:
    seen: Counter[str] = Counter()
    for seed in range(120):
        program = generate(seed)
        model = Model(program.tables, {t.name: start()[t.name] for t in program.tables})
        for step in program.steps:
            seen[step.do["do"]] += 1
            operation: Query | Update | None = None
            match step.means:
                case Read(lite, limit):
                    operation = Query(lite, limit, (0,))
                case Write(table, lite_steps):
                    operation = Update(table, lite_steps)
            if operation is not None:
                try:
                    model.run([operation])
                except sqlite3.Error as error:
                    pytest.fail(f"seed {seed}: {operation}: {error}")
        model.close()
    kinds = {"sql", "table", "query", "collect", "cache", "view", "cache table", "plain", "cold"}
    assert set(seen) == kinds, seen


def test_the_programs_of_old_faults_are_understood() -> None:
    for name in known.TEXTS:
        program: Program = known.program(name)
        assert any(isinstance(step.means, Read | Write) for step in program.steps)
        assert not any(isinstance(step.means, Prepare) and step.do["do"] == "collect" for step in program.steps)


def test_a_run_leaves_the_state_as_it_was() -> None:
    model = Model(LAYOUTS[0], start())
    model.load(start())
    run = model.run([Update("a", ("DELETE FROM a WHERE k = 1",)), Query("SELECT count(*) FROM a", None, (0, 1))])
    assert run.answers[1] == {0: ((2,),), 1: ((1,),)}
    assert run.effect.gone == {"a": Counter([row(1, 1)])}
    assert model.rows("a") == start()["a"]
    assert model.run([Query("SELECT count(*) FROM a", None, (0,))], ("without", "a", row(1, 1))).answers[0][0] == (
        (1,),
    )
    model.close()


def test_values_are_written_for_both() -> None:
    assert literal("ts", "2026-01-01 20:00:00", "America/Los_Angeles").spark == "TIMESTAMP '2026-01-01 12:00:00'"
    assert literal("s", "it's").lite == "'it''s'"
    assert literal("s", "it's").spark == "'it\\'s'"
    assert set(SHOWN) < set(COLUMNS)
    assert IDS.columns == ("k",)
    assert len(random_row(random.Random(0), "w", 0)) == len(COLUMNS)
    assert sorted_rows([(2, None), (None, "a")]) == ((None, "a"), (2, None))
