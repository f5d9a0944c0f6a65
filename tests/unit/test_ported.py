"""Cases from the transaction tests of SlateDB, Badger and RocksDB, as they come out here.

A key is the `id` of a row, `put` is an UPDATE of it (an INSERT if there is none), and the first keys are rows of one
data file whose deletion vectors tell them apart. Their writes without a transaction are those of `db`: each step of it
is a transaction of its own. The outcome is Lockstep's; `differs` says why where it is not theirs.

    slatedb/src/db_transaction.rs (slatedb/slatedb)
    txn_test.go (dgraph-io/badger)
    utilities/transactions/optimistic_transaction_test.cc, transaction_test.cc (facebook/rocksdb)

Left out, because it has no meaning here: iterators that go backwards or hold all versions, and prefixes of keys;
managed timestamps (Badger's TestManagedDB); snapshots that are set again or not at all within a transaction
(MultipleSnapshotTest); writes that are not tracked (UntrackedWrites) and reads that are taken back (UndoGetForUpdate);
range deletion that is refused (DeleteRangeSupportTest); lock buckets, time-outs, deadlocks and two-phase commit of
RocksDB's pessimistic transactions; asynchronous commits. Their stress tests are what `tests/support/campaign.py` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ConflictError, UndefinedError
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Isolation
from lockstep.transactions.state import State
from tests.support.lakes import named, open_catalog
from tests.support.replay import Replayed, published
from tests.support.rows import Condition, Reader, Row
from tests.support.statements import VECTORS, Statements
from tests.support.unsynced import UnsyncedStorage

SI: Isolation = "SNAPSHOT"
SSI: Isolation = "SERIALIZABLE"


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        source: the test that it is inspired by.
        level: the transactions' isolation.
        start: what is there at first, `key:value` each. The keys of a second table are `u.key`.
        steps: separated by `;`, see `Script.step`.
        end: what is there in the end, for somebody who has just come.
        differs: why theirs comes out otherwise, if it does.
    """

    source: str
    level: Isolation
    start: str
    steps: str
    end: str
    differs: str = ""


class Script:
    """Runs a case: each transaction in a process of its own, begun by its first step."""

    def __init__(self, root: Path, level: Isolation, start: str) -> None:
        self.storage = UnsyncedStorage(root)
        self.level = level
        self.open: dict[str, tuple[TransactionalCatalog, Statements]] = {}
        self.serials = 0
        for table in ("t", "u"):
            rows = [self._row(key, value) for name, key, value in _pairs(start.split()) if name == table]
            self._begun("start").create(table, rows, **{VECTORS: "true"})
        self.step("start commit")
        self.first = self.now().version

    def now(self) -> Database:
        """Return the newest database version, for somebody who has just come."""
        return open_catalog(self.storage).database()

    def contents(self, database: Database, *, tables: str = "tu") -> list[str]:
        """Return what is in a database version, as a script writes it."""
        reader, found = Reader(self.storage), []
        for table in (database.tables[named(name)] for name in tables if named(name) in database.tables):
            replayed = Replayed().take_all(published(self.storage, table.location, table.version))
            found += _shown(table.name.table, reader.contents(table.location, replayed).elements())
        return found

    def step(self, text: str) -> None:
        """Run a step.

        who begin | put key value | insert key value | del key | optimize | drop table
        who get key = value … | scan [<key | >=key] = key:value …
        who savepoint name | back name | release name | unknown name
        who commit | refused | rollback
        db …                           a transaction of its own
        at version scan = key:value …  so many database versions after the start
        """
        match text.split():
            case ["at", version, "scan", "=", *expected]:
                then = open_catalog(self.storage).as_of(self.first + int(version))
                assert self.contents(then) == expected, text
            case ["db", *words]:
                self._statement("db", *words)
                self._end("db", "commit")
            case _:
                self._statement(*text.split())

    def _statement(self, who: str, *words: str) -> None:
        run = self._begun(who)
        match words:
            case ["begin"]:
                pass
            case ["put", key, value]:
                table, id = _key(key)
                if not run.update(table, Condition("=", id), lambda row: self._row(row.id, int(value))):
                    run.insert(table, [self._row(id, int(value))])
            case ["insert", key, value]:
                table, id = _key(key)
                run.insert(table, [self._row(id, int(value))])
            case ["del", key]:
                table, id = _key(key)
                run.delete(table, Condition("=", id))
            case ["optimize"]:
                run.optimize("t")
            case ["drop", table]:
                run.tx.changing().drop_table(named(table))
            case ["get", key, "=", *expected]:
                table, id = _key(key)
                assert [str(row.value) for row in run.select(table, Condition("=", id))] == expected, words
            case ["scan", "=", *expected]:
                assert _shown("t", run.select("t")) == expected, words
            case ["scan", range, "=", *expected]:
                assert _shown("t", run.select("t", _where(range))) == expected, words
            case _:
                self._end(who, *words)

    def _end(self, who: str, what: str, name: str = "") -> None:
        catalog, run = self.open[who]
        match what:
            case "savepoint":
                run.tx.savepoint(name)
            case "back":
                catalog.rollback_to(run.tx, name)
            case "release":
                run.tx.release(name)
            case "unknown":
                with pytest.raises(UndefinedError):
                    catalog.rollback_to(run.tx, name)
            case "commit":
                catalog.commit(self.open.pop(who)[1].tx)
                assert run.tx.state is State.COMPLETED
            case "refused":
                with pytest.raises(ConflictError):
                    catalog.commit(self.open.pop(who)[1].tx)
                assert run.tx.state is State.ROLLED_BACK
            case "rollback":
                catalog.rollback(self.open.pop(who)[1].tx)
            case _:
                raise ValueError(f"no such step: {what}")

    def _begun(self, who: str) -> Statements:
        if who not in self.open:
            catalog = open_catalog(self.storage, isolation=self.level)
            self.open[who] = catalog, Statements(catalog, catalog.begin())
        return self.open[who][1]

    def _row(self, id: int, value: int) -> Row:
        self.serials += 1
        return Row(id, value, self.serials)


def _key(text: str) -> tuple[str, int]:
    table, _, id = text.rpartition(".")
    return table or "t", int(id)


def _pairs(texts: Iterable[str]) -> list[tuple[str, int, int]]:
    return [(*_key(key), int(value)) for key, _, value in (text.partition(":") for text in texts)]


def _where(range: str) -> Condition:
    return Condition(">=", int(range[2:])) if range.startswith(">=") else Condition("<", int(range[1:]))


def _shown(table: str, rows: Iterable[Row]) -> list[str]:
    prefix = "" if table == "t" else f"{table}."
    return [f"{prefix}{row.id}:{row.value}" for row in sorted(rows)]


READER_FIRST = "one dependency is no circle: the reader comes first in the serial order; theirs refuses any"
READ_ONLY = "a transaction that only read has a snapshot, and nothing to lose; GetForUpdate is a write to them"

CASES = {
    # --- SlateDB
    "a snapshot is that of BEGIN": Case(
        "test_txn_basic_visibility", SI, "1:1", "T1 begin; db put 2 2; T1 get 1 = 1; T1 get 2 =; T1 commit", "1:1 2:2"
    ),
    "own writes are seen": Case(
        "test_txn_write_visibility_in_txn", SSI, "1:1", "T1 put 1 2; T1 get 1 = 2; db get 1 = 1; T1 commit", "1:2"
    ),
    "own deletes are seen": Case("ssi_delete_visibility_in_txn", SSI, "1:1", "T1 del 1; T1 get 1 =; T1 commit", ""),
    "rolled back is not there": Case(
        "ssi_rollback_visibility", SSI, "1:1", "T1 put 1 2; T1 rollback; db get 1 = 1", "1:1"
    ),
    "the first committer wins": Case(
        "test_txn_si_commit_conflict", SI, "1:1", "T1 put 1 2; T2 put 1 3; T1 commit; T2 refused", "1:2"
    ),
    "a single write is a committer too": Case(
        "test_txn_si_commit_conflict_with_db_writes", SI, "1:1", "T1 put 1 2; db put 1 3; T1 refused", "1:3"
    ),
    "a single write wins at SERIALIZABLE too": Case(
        "ssi_write_write_conflict", SSI, "1:1", "T1 put 1 2; db put 1 3; T1 refused", "1:3"
    ),
    "read what another wrote, wrote what nobody read": Case(
        "test_txn_ssi_commit_conflict",
        SSI,
        "1:1 2:21",
        "T1 put 1 2; T1 put 2 22; T2 get 2 = 21; T2 put 3 3; T1 commit; T2 commit",
        "1:2 2:22 3:3",
        READER_FIRST,
    ),
    "and read by the other it is refused": Case(
        "test_txn_ssi_commit_conflict",
        SSI,
        "1:1 2:21",
        "T1 get 3 =; T1 put 2 22; T2 get 2 = 21; T2 put 3 3; T1 commit; T2 refused",
        "1:1 2:22",
    ),
    "a range that another changed": Case(
        "test_txn_ssi_commit_conflit_with_ranges",
        SSI,
        "1:1 2:2 3:3",
        "T2 scan >=2 = 2:2 3:3; T1 get 0 =; T1 put 2 22; T1 commit; T2 put 0 4; T2 refused",
        "1:1 2:22 3:3",
    ),
    "a phantom in a range": Case(
        "test_txn_ssi_commit_conflit_with_ranges",
        SSI,
        "1:1 2:2",
        "T2 scan >=2 = 2:2; T1 get 0 =; T1 insert 3 3; T1 commit; T2 insert 0 4; T2 refused",
        "1:1 2:2 3:3",
    ),
    "what is read again has not changed": Case(
        "ssi_concurrent_read_snapshot",
        SSI,
        "1:1",
        "T1 begin; db put 1 2; T1 get 1 = 1; T1 get 1 = 1; T1 commit",
        "1:2",
    ),
    "read, overwritten by another, wrote elsewhere": Case(
        "ssi_read_write_conflict",
        SSI,
        "1:1",
        "T1 get 1 = 1; db put 1 2; T1 put 2 3; T1 commit",
        "1:2 2:3",
        READER_FIRST,
    ),
    "overwritten by another, read the old, wrote elsewhere": Case(
        "ssi_write_read_conflict",
        SSI,
        "1:1",
        "T1 begin; db put 1 2; T1 get 1 = 1; T1 put 3 3; T1 commit",
        "1:2 3:3",
        READER_FIRST,
    ),
    "at SNAPSHOT reads do not count": Case(
        "si_range_write_no_conflict",
        SI,
        "1:1 2:2",
        "T1 scan = 1:1 2:2; T2 scan = 1:1 2:2; T2 put 2 3; T2 commit; T1 put 1 100; T1 commit",
        "1:100 2:3",
    ),
    "a scan, a row of it changed, a write outside": Case(
        "ssi_range_write_conflict",
        SSI,
        "1:1 3:3 5:5",
        "T1 scan <6 = 1:1 3:3 5:5; db put 3 33; T1 put 100 100; T1 commit",
        "1:1 3:33 5:5 100:100",
        READER_FIRST,
    ),
    # --- Badger
    "many writes, one commit": Case(
        "TestTxnSimple", SSI, "", "T1 put 0 0; T1 put 1 1; T1 put 8 8; T1 get 8 = 8; T1 commit", "0:0 1:1 8:8"
    ),
    "what is committed is read next": Case(
        "TestTxnReadAfterWrite", SSI, "", "db put 1 1; db get 1 = 1; db put 2 2; db get 2 = 2", "1:1 2:2"
    ),
    "each version stays readable": Case(
        "TestTxnVersions",
        SSI,
        "",
        "db put 1 1; db put 1 2; db put 1 3; at 1 scan = 1:1; at 2 scan = 1:2; T1 get 1 = 3; T1 commit",
        "1:3",
    ),
    "deleted keys in older versions": Case(
        "TestTxnIterationEdgeCase",
        SSI,
        "3:1",
        "db put 1 2; db put 3 2; db put 2 3; db put 1 3; db del 2; "
        "at 0 scan = 3:1; at 2 scan = 1:2 3:2; at 4 scan = 1:3 2:3 3:2; at 5 scan = 1:3 3:2",
        "1:3 3:2",
    ),
    "write skew": Case(
        "TestTxnWriteSkew",
        SSI,
        "1:100 2:100",
        "T1 get 1 = 100; T1 get 2 = 100; T1 put 1 0; T1 get 1 = 0; T1 get 2 = 100; "
        "T2 get 1 = 100; T2 get 2 = 100; T2 put 2 0; T2 get 1 = 100; T2 get 2 = 0; T1 commit; T2 refused",
        "1:0 2:100",
    ),
    "write skew at SNAPSHOT": Case(
        "TestTxnWriteSkew",
        SI,
        "1:100 2:100",
        "T1 get 1 = 100; T1 get 2 = 100; T1 put 1 0; T2 get 1 = 100; T2 get 2 = 100; T2 put 2 0; T1 commit; T2 commit",
        "1:0 2:0",
        "it has no weaker level",
    ),
    "one of many sets what none found": Case(
        "TestConflict/TxnGet",
        SSI,
        "",
        "T1 get 1 =; T2 get 1 =; T3 get 1 =; T1 insert 1 1; T2 insert 1 2; T3 insert 1 3; "
        "T2 commit; T1 refused; T3 refused",
        "1:2",
    ),
    "one of many sets what no scan found": Case(
        "TestConflict/ItrSeek",
        SSI,
        "",
        "T1 scan >=1 =; T2 scan >=1 =; T3 scan >=1 =; T1 insert 1 1; T2 insert 1 2; T3 insert 1 3; "
        "T3 commit; T2 refused; T1 refused",
        "1:3",
    ),
    # --- RocksDB, optimistic
    "read, written, read, committed": Case(
        "SuccessTest", SSI, "1:1 2:1", "T1 get 1 = 1; T1 put 1 2; T1 get 1 = 2; T1 commit; db get 1 = 2", "1:2 2:1"
    ),
    "nothing of a refused transaction is there": Case(
        "WriteConflictTest", SI, "1:1 2:1", "T1 put 1 2; T1 put 2 2; db put 1 3; T1 refused; db get 2 = 1", "1:3 2:1"
    ),
    "written after the other, but begun before it": Case(
        "WriteConflictTest2", SI, "1:1 2:1", "T1 begin; db put 1 3; T1 put 1 2; T1 refused", "1:3 2:1"
    ),
    "changed here, deleted there": Case(
        "WriteConflict4", SI, "1:1", "T1 get 1 = 1; T1 put 1 2; db del 1; db get 1 =; T1 refused", ""
    ),
    "read only": Case("ReadConflictTest", SSI, "1:1 2:1", "T1 get 1 = 1; db put 1 3; T1 commit", "1:3 2:1", READ_ONLY),
    "in an empty database": Case("TxnOnlyTest", SSI, "", "T1 put 1 1; T1 commit", "1:1"),
    "files moved underneath, and once more": Case(
        "FlushTest2",
        SI,
        "1:1",
        "T1 put 1 2; db put 9 9; db optimize; T1 refused; T2 get 1 = 1; T2 put 1 2; T2 commit",
        "1:2 9:9",
    ),
    "files moved before BEGIN": Case(
        "FlushTest", SI, "1:1", "db put 9 9; db optimize; T1 put 1 2; db put 8 8; T1 commit", "1:2 8:8 9:9"
    ),
    "only the one that met is refused": Case(
        "CheckKeySkipOldMemtable",
        SSI,
        "1:1 2:1",
        "T1 get 1 = 1; T1 put 1 2; T2 get 2 = 1; T2 put 2 2; db put 1 3; db put 3 1; T3 begin; "
        "T1 refused; T2 commit; T3 put 3 2; T3 commit",
        "1:3 2:2 3:2",
    ),
    "changed between BEGIN and the first statement": Case(
        "NoSnapshotTest",
        SI,
        "1:1",
        "T1 begin; db put 1 2; T1 get 1 = 1; T1 put 1 3; T1 refused",
        "1:2",
        "without a snapshot they read the newest; here BEGIN takes one",
    ),
    "the same keys of another table": Case(
        "ColumnFamiliesTest",
        SSI,
        "1:1 u.1:1",
        "T1 begin; db put u.1 2; T1 put 1 3; T1 get u.2 =; T1 put u.2 4; T1 commit",
        "1:3 u.1:2 u.2:4",
    ),
    "one of several tables conflicts": Case(
        "ColumnFamiliesTest", SI, "1:1 u.1:1", "T2 put 1 3; T2 put u.1 3; db put u.1 2; T2 refused", "1:1 u.1:2"
    ),
    "a table dropped before COMMIT": Case(
        "ColumnFamiliesTest", SI, "1:1 u.1:1", "T1 put 1 3; T1 del u.1; db drop u; T1 refused", "1:1"
    ),
    "nothing done": Case(
        "EmptyTest", SSI, "1:1", "T1 begin; T1 commit; T2 begin; T2 rollback; T3 get 1 = 1; T3 commit", "1:1"
    ),
    "read before, and overwritten": Case(
        "EmptyTest", SSI, "1:1", "T1 get 1 = 1; db put 1 2; T1 commit", "1:2", READ_ONLY
    ),
    "looked for several and found none": Case(
        "PredicateManyPreceders",
        SSI,
        "",
        "T1 begin; T2 begin; T1 scan >=1 =; T2 insert 2 1; T2 commit; T1 scan >=1 =; T1 commit",
        "2:1",
        READ_ONLY,
    ),
    "deleted what was not there yet": Case(
        "PredicateManyPreceders",
        SSI,
        "",
        "T1 begin; T2 begin; T1 put 4 1; T2 del 4; T1 commit; T2 get 4 =; T2 commit",
        "4:1",
        "a DELETE that finds no row changes nothing",
    ),
    "a lost update, both before": Case("LostUpdate", SI, "1:0", "T1 put 1 1; T2 put 1 2; T1 commit; T2 refused", "1:1"),
    "a lost update, one after": Case(
        "LostUpdate", SI, "1:0", "T1 begin; T2 begin; T1 put 1 5; T1 commit; T2 put 1 6; T2 refused", "1:5"
    ),
    "no lost update in turn": Case("LostUpdate", SI, "1:0", "T1 put 1 7; T1 commit; T2 put 1 8; T2 commit", "1:8"),
    "both put a key that is new": Case(
        "LostUpdate",
        SI,
        "",
        "T1 put 1 1; T2 put 1 2; T1 commit; T2 commit",
        "1:1 1:2",
        "rows have no keys: at SNAPSHOT these are two INSERTs",
    ),
    "both put a key that is new, at SERIALIZABLE": Case(
        "LostUpdate", SSI, "", "T1 put 1 1; T2 put 1 2; T1 commit; T2 refused", "1:1"
    ),
    "a scan has own writes, and no others' later ones": Case(
        "IteratorTest",
        SSI,
        "1:1 3:3 4:4 6:6",
        "T1 put 2 2; T1 del 4; T1 put 5 5; db put 22 0; db put 3 0; T1 scan = 1:1 2:2 3:3 5:5 6:6; T1 refused",
        "1:1 3:0 4:4 6:6 22:0",
    ),
    "no savepoint, one, and none again": Case(
        "SavepointTest",
        SSI,
        "",
        "T1 unknown s; T1 savepoint s; T1 back s; T1 release s; T1 unknown s; T1 put 2 2; T1 commit",
        "2:2",
        "here a savepoint stays when one goes back to it",
    ),
    "what was done since is undone": Case(
        "SavepointTest",
        SSI,
        "2:2",
        "T1 put 1 1; T1 put 2 22; T1 put 3 3; T1 savepoint s; T1 del 2; T1 put 3 33; T1 put 4 4; T1 back s; "
        "T1 scan = 1:1 2:22 3:3; T1 put 5 5; T1 rollback",
        "2:2",
    ),
    "savepoints in one another": Case(
        "SavepointTest",
        SSI,
        "2:2",
        "T1 put 1 1; T1 put 6 6; T1 savepoint s; T1 savepoint t; T1 put 7 7; T1 del 6; T1 del 2; T1 scan = 1:1 7:7; "
        "T1 back t; T1 scan = 1:1 2:2 6:6; T1 back s; T1 unknown t; T1 commit",
        "1:1 2:2 6:6",
    ),
    # --- RocksDB, pessimistic
    "what a savepoint undid meets nobody": Case(
        "SavepointTest2",
        SI,
        "1:1 2:2",
        "T1 put 1 10; T1 savepoint s; T1 put 2 20; T1 back s; T2 put 2 22; T2 commit; T1 commit",
        "1:10 2:22",
    ),
    "what a savepoint kept still meets": Case(
        "SavepointTest2",
        SI,
        "1:1 2:2",
        "T1 put 1 10; T1 savepoint s; T1 put 2 20; T1 back s; T2 put 1 11; T2 commit; T1 refused",
        "1:11 2:2",
    ),
    "what was rolled back is in nobody's way": Case(
        "Rollback", SSI, "1:0", "T1 put 1 1; T2 begin; T1 rollback; T2 put 1 3; T2 commit", "1:3"
    ),
}


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.source}: {name}") for name, case in CASES.items()])
def test_it_comes_out_as_it_says(tmp_path: Path, case: Case) -> None:
    script = Script(tmp_path, case.level, case.start)
    for step in case.steps.split(";"):
        script.step(step)
    assert script.open == {}, "the case says how each of its transactions ends"
    assert script.contents(script.now()) == case.end.split()
