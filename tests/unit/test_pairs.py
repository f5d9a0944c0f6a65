"""Every pair of what we did and what a winner did, by the rules, by the grid, and by what the two mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.conflict import serializable
from lockstep.conflict import writes as conflicts
from tests.support.grid import GRID, LETTERS, expected
from tests.support.meaning import serial
from tests.support.operation import WHOLE, Operation
from tests.support.operations import on_rows, operations
from tests.support.pairs import Pair, count, pairs
from tests.support.peers import ALLOWED, delta, ducklake

OURS, THEIRS = operations("m"), operations("w")
EACH = pytest.mark.parametrize("mine", OURS)
"""A test for each row of the grid."""
BEYOND_PAIRS = {"location-taken", "overtaken", "killed", "aborted", "row-tracking", "tag-changed"}
"""Two tables in one folder, three transactions, a winner that names ours, a transaction that moved rows of its own, two
that name versions: no pair of operations has them."""


def row(mine: str) -> list[Pair]:
    return [pair for pair in pairs() if pair.mine == mine]


@EACH
def test_each_pair_has_the_verdict_of_the_grid(mine: str) -> None:
    rules = {winner: expected()[mine, winner] for winner in THEIRS}
    assert {pair.winner: pair.serializable for pair in row(mine)} == rules
    # What was read is judged at SERIALIZABLE alone.
    written = {winner: ALLOWED if rule == "pivot" else rule for winner, rule in rules.items()}
    assert {pair.winner: pair.snapshot for pair in row(mine)} == written


@EACH
def test_without_a_serial_order_one_is_refused(mine: str) -> None:
    """No rule has a part in `serial`: it compares what both mean on one snapshot with one after the other."""
    assert not [pair.winner for pair in row(mine) if not pair.serial and pair.serializable == ALLOWED]


def test_all_that_snapshot_lets_through_is_write_skew() -> None:
    """Each read what the other wrote, and both wrote different files, or a file and a view."""
    skewed = [pair for pair in pairs() if not pair.serial and pair.snapshot == ALLOWED]
    assert {frozenset({pair.mine, pair.winner}) for pair in skewed} == {
        frozenset({"append what was read"}),
        frozenset({"append what was read", "INSERT OVERWRITE"}),
        frozenset({"append what was read", "replaceWhere p = 'x'"}),
        frozenset({"append to a, read b", "append to b, read a"}),
        frozenset({"append to b, read v", "REPLACE VIEW v, read b"}),
    }


def test_the_grid_has_every_rule() -> None:
    rules = {rule.name for rule in conflicts.RULES} | {name for name, _ in serializable.RULES}
    assert set(LETTERS.values()) - {ALLOWED} == rules - BEYOND_PAIRS
    assert {letter for line in GRID.strip().splitlines() for letter in line.rpartition(" ")[2]} == set(LETTERS)


def test_rows_come_first() -> None:
    first = [operation.name for operation in on_rows("m")]
    assert first == list(OURS)[: len(first)]
    assert first[-1] == "OPTIMIZE"
    assert list(OURS)[len(first)] == "ADD COLUMN"


# --- what two operations mean -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "winner", "expected"),
    [
        pytest.param("append", "append", True, id="two appends"),
        pytest.param("UPDATE row 1", "UPDATE row 1", False, id="a lost update"),
        pytest.param("UPDATE row 1", "UPDATE row 2, same file", True, id="two rows"),
        pytest.param("DELETE row 1", "DELETE row 1", False, id="only one of two can have found the row"),
        pytest.param("INSERT OVERWRITE", "append", True, id="the append comes after"),
        pytest.param("INSERT OVERWRITE", "INSERT OVERWRITE", False, id="the rows of both would be there"),
        pytest.param("append to a, read b", "append to b, read a", False, id="write skew"),
        pytest.param("append to b, read a", "append to b, read a", True, id="two readers"),
        pytest.param("append", "ADD CONSTRAINT", False, id="the row breaks the constraint"),
        pytest.param("append, other partition", "ADD CONSTRAINT", True, id="this one does not"),
        pytest.param("append", "CREATE OR REPLACE", False, id="the row has other columns"),
        pytest.param("append", "ADD COLUMN", True, id="the column comes after"),
        pytest.param("append", "DROP", True, id="the drop comes after"),
        pytest.param("DROP", "RENAME", False, id="the name is gone"),
        pytest.param("CREATE n.t", "DROP NAMESPACE n", False, id="a table without a namespace"),
        pytest.param("CREATE VIEW c", "CREATE c", False, id="a name for a table and a view"),
        pytest.param("REPLACE VIEW v", "REPLACE VIEW v", False, id="a view says one thing"),
        pytest.param("REPLACE VIEW v", "DROP VIEW v", True, id="a view made again"),
        pytest.param("DROP VIEW v", "DROP VIEW v", False, id="only one of two can have found the view"),
        pytest.param("append to b, read v", "REPLACE VIEW v", True, id="the view was used before"),
        pytest.param("append to b, read v", "REPLACE VIEW v, read b", False, id="write skew over a view"),
        pytest.param("identity append", "identity append", False, id="the same id twice"),
        pytest.param("stream batch, app", "stream batch, app", False, id="a batch twice"),
        pytest.param("stream batch, app", "stream batch, other", True, id="two streams"),
    ],
)
def test_serial(mine: str, winner: str, expected: bool) -> None:
    assert serial(OURS[mine].run, THEIRS[winner].run) is expected


@EACH
def test_who_committed_first_does_not_matter_to_meaning(mine: str) -> None:
    other_way = {pair.mine: pair.serial for pair in pairs() if pair.winner == mine}
    assert {pair.winner: pair.serial for pair in row(mine)} == other_way


# --- the models of others ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "winner", "strict", "lax"),
    [
        pytest.param("append", "append", ALLOWED, ALLOWED, id="two appends"),
        pytest.param("UPDATE row 1", "append", "ConcurrentAppend", ALLOWED, id="an append to the partition"),
        pytest.param("UPDATE row 1", "append, other partition", ALLOWED, ALLOWED, id="to another one"),
        pytest.param("MERGE row 1", "append, other partition", "ConcurrentAppend", ALLOWED, id="no target predicate"),
        pytest.param("append", "UPDATE row 1", ALLOWED, ALLOWED, id="a blind append reads nothing"),
        pytest.param(
            "UPDATE row 1", "UPDATE row 3, other file", "ConcurrentAppend", "ConcurrentAppend", id="no statistics"
        ),
        pytest.param("UPDATE row 1", "UPDATE row 21, other partition", ALLOWED, ALLOWED, id="two partitions"),
        pytest.param(
            "UPDATE row 1, vector", "UPDATE row 2, vector", "ConcurrentAppend", "ConcurrentAppend", id="rows by vector"
        ),
        pytest.param("OPTIMIZE", "append", ALLOWED, ALLOWED, id="OPTIMIZE at SnapshotIsolation"),
        pytest.param(
            "OPTIMIZE", "DELETE row 1", "ConcurrentDeleteRead", "ConcurrentDeleteRead", id="its files are gone"
        ),
        pytest.param("UPDATE row 1", "OPTIMIZE", "ConcurrentAppend", "ConcurrentAppend", id="behind OPTIMIZE"),
        pytest.param("replaceWhere p = 'x'", "replaceWhere p = 'y'", ALLOWED, ALLOWED, id="two partitions replaced"),
        pytest.param("append", "ADD COLUMN", "MetadataChanged", "MetadataChanged", id="new metadata"),
        pytest.param("ADD COLUMN", "append", ALLOWED, ALLOWED, id="behind an append"),
        pytest.param("ADD CONSTRAINT", "append", "ConcurrentAppend", "ConcurrentAppend", id="rows unchecked"),
        pytest.param("UPDATE row 1", "identity append", ALLOWED, ALLOWED, id="only marks of identity columns"),
        pytest.param("identity append", "identity append", "MetadataChanged", "MetadataChanged", id="marks of both"),
        pytest.param("append", "protocol upgrade", ALLOWED, ALLOWED, id="an upgrade is taken over"),
        pytest.param("protocol upgrade", "protocol upgrade", "ProtocolChanged", "ProtocolChanged", id="two upgrades"),
        pytest.param(
            "stream batch, app", "stream batch, app", "ConcurrentTransaction", "ConcurrentTransaction", id="one stream"
        ),
        pytest.param("set a domain", "set a domain", "ConcurrentTransaction", "ConcurrentTransaction", id="one domain"),
        pytest.param("append with row ids", "append with row ids", ALLOWED, ALLOWED, id="row ids are given anew"),
        pytest.param("append to a, read b", "append to b, read a", ALLOWED, ALLOWED, id="two logs"),
        pytest.param("DROP", "append", None, None, id="no say in DDL"),
    ],
)
def test_delta(mine: str, winner: str, strict: str | None, lax: str | None) -> None:
    """As ConflictCheckerSuite and OptimisticTransactionSuite of Delta have it, where they have the pair."""
    assert delta(OURS[mine], THEIRS[winner]) == strict
    assert delta(OURS[mine], THEIRS[winner], "WriteSerializable") == lax


def test_delta_refuses_a_file_removed_twice_though_nobody_read_it() -> None:
    unread: Operation = replace(OURS["DELETE row 1"], delta=replace(WHOLE, files=frozenset(), reads=False))
    assert delta(unread, THEIRS["DELETE row 1"]) == "ConcurrentDeleteDelete"


@pytest.mark.parametrize(
    ("mine", "winner", "expected"),
    [
        pytest.param("append", "append", ALLOWED, id="two inserts"),
        pytest.param("append", "DELETE row 1", "delete", id="an insert behind a delete"),
        pytest.param("DELETE row 1", "append", "insert", id="a delete behind an insert"),
        pytest.param("DELETE row 1", "DELETE row 1, vector", "file", id="two deletes, one file"),
        pytest.param("UPDATE row 1", "UPDATE row 21, other partition", "insert", id="two updates"),
        pytest.param("OPTIMIZE", "append", ALLOWED, id="compaction behind an insert"),
        pytest.param("OPTIMIZE", "DELETE row 1", "delete", id="compaction behind a delete"),
        pytest.param("append", "ADD COLUMN", "alter", id="an insert behind ALTER"),
        pytest.param("ADD COLUMN", "append", ALLOWED, id="ALTER behind an insert"),
        pytest.param("append", "DROP", "drop", id="an insert behind DROP"),
        pytest.param("DROP", "append", ALLOWED, id="DROP behind an insert"),
        pytest.param("CREATE c", "CREATE c", "create", id="a name twice"),
        pytest.param("CREATE n.t", "DROP NAMESPACE n", "drop namespace", id="into a dropped schema"),
        pytest.param("DROP NAMESPACE n", "CREATE n.t", "drop namespace", id="a schema that was filled"),
        pytest.param("CREATE c", "DROP NAMESPACE n", ALLOWED, id="into another schema"),
        pytest.param("CREATE VIEW c", "CREATE c", "create", id="a view of a table's name"),
        pytest.param("DROP VIEW v", "DROP VIEW v", "drop", id="a view dropped twice"),
        pytest.param("DROP VIEW v", "REPLACE VIEW v", "drop", id="a view replaced is dropped and made"),
        pytest.param("append to b, read v", "REPLACE VIEW v, read b", ALLOWED, id="the use of a view is not kept"),
        pytest.param("append to a, read b", "append to b, read a", ALLOWED, id="reads are not kept"),
        pytest.param("append", "protocol upgrade", None, id="no such thing"),
    ],
)
def test_ducklake(mine: str, winner: str, expected: str | None) -> None:
    """As test/sql/transaction of DuckLake has it, where it has the pair."""
    assert ducklake(OURS[mine], THEIRS[winner]) == expected


# --- the numbers of the documentation ---------------------------------------------------------------------------------


def test_of_row_operations_fewer_are_refused_for_nothing_than_by_others() -> None:
    ours = count("serializable", rows_only=True)
    assert ours.refused < min(
        count(system, rows_only=True).refused for system in ("delta", "write_serializable", "ducklake")
    )
    assert ours.missed == 0 < count("snapshot", rows_only=True).missed


def test_a_count_is_of_the_pairs_that_both_have_a_say_in() -> None:
    alone, asked = count("serializable"), count("serializable", "delta")
    assert alone.serial + alone.not_serial == len(pairs()) == len(OURS) ** 2
    assert asked.serial == count("delta").serial < alone.serial
