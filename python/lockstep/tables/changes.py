"""Rows of a table that go: which they are, and what becomes of the files that they are in.

all of a file's rows go     the file is removed
some, and the table has     the file gets another deletion vector
  deletion vectors
some, and it has none       the file is removed, and its other rows are written anew
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.delta.actions import Action
from lockstep.delta.combine.deletion_vectors import (
    RowSet,
    file_path,
    in_a_file,
    serialize,
)
from lockstep.delta.pruning.predicates import FileValues, may_match
from lockstep.delta.snapshot import Snapshot
from lockstep.tables.layout import RESERVED
from lockstep.tables.queries import evaluate
from lockstep.tables.reading import CAME_WITH, FILE, ID, ROW, Files
from lockstep.tables.row_ids import have_ids

INDEX = f"{RESERVED}_index"
"""The column that says which row is meant, of those that were read."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows that are to be written.

    Attributes:
        rows: with the table's columns.
        ids: of rows that keep theirs, with `ID` and `CAME_WITH`, where null says that it is the commit's; None of rows
            that are new.
    """

    rows: pa.Table
    ids: pa.Table | None = None


def together(parts: Sequence[Placed], empty: pa.Table) -> Placed:
    """Return all rows as one, new ones beside those that keep their ids."""
    parts = [each for each in parts if each.rows.num_rows]
    rows = pa.concat_tables([each.rows for each in parts] or [empty])
    if all(each.ids is None for each in parts):
        return Placed(rows)
    ids = [_no_ids(each.rows.num_rows) if each.ids is None else each.ids for each in parts]
    return Placed(rows, pa.concat_tables(ids))


def _no_ids(rows: int) -> pa.Table:
    return pa.table({name: pa.nulls(rows, pa.int64()) for name in (ID, CAME_WITH)})


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows of a table that a statement may be about.

    Attributes:
        files: the table's.
        adds: the files that were read.
        rows: their rows, with `FILE`, `ROW` and `INDEX`.
        ids: row by row, its id and the version that it came with; None where rows do not keep them, or have none.
    """

    files: Files
    adds: Sequence[dict[str, Any]]
    rows: pa.Table
    ids: pa.Table | None = None

    def matching(self, predicate: str) -> pa.ChunkedArray:
        """Return the `INDEX` of each row of which a predicate is true.

        Raises:
            InvalidError: DuckDB refuses it.
        """
        rows = self.rows.drop_columns([FILE, ROW])
        return evaluate({"target": rows}, f"SELECT {INDEX} FROM target WHERE ({predicate}\n)").column(INDEX)

    def take(self, indexes: pa.ChunkedArray) -> pa.Table:
        """Return rows by their `INDEX`, with the table's columns."""
        return self.rows.drop_columns([FILE, ROW, INDEX]).take(indexes)

    def placed(self, rows: pa.Table, indexes: pa.ChunkedArray, *, changed: bool) -> Placed:
        """Return rows that were here, to be written into another file, with the ids that they keep.

        Args:
            indexes: the `INDEX` that each had.
            changed: whether they are not as they were: then they come with this commit.

        Raises:
            UnsupportedError: the table has row tracking, and they have no ids yet.
        """
        if self.ids is None:
            self.files.layout.check_row_ids(self.adds)
            return Placed(rows)
        ids = self.ids.take(indexes)
        if changed:
            at = ids.column_names.index(CAME_WITH)
            ids = ids.set_column(at, ids.schema.field(at), pa.chunked_array([pa.nulls(ids.num_rows, pa.int64())]))
        return Placed(rows, ids)


def candidates(files: Files, snapshot: Snapshot, condition: str | None) -> Candidates:
    """Read the files of a table that may have a row that satisfies a condition of Spark's; all, without one."""
    adds = [
        add
        for add in snapshot.files.values()
        if condition is None
        or may_match(condition, FileValues(partition=add.get("partitionValues") or {}, stats=add.get("stats")))
    ]
    with_ids = bool(files.layout.row_id_columns) and all(have_ids(add) for add in adds)
    rows = files.read(adds, with_ids=with_ids)
    ids = rows.select([ID, CAME_WITH]) if with_ids else None
    rows = rows.drop_columns([ID, CAME_WITH]) if with_ids else rows
    return Candidates(files, adds, rows.append_column(INDEX, pa.arange(0, rows.num_rows)), ids)


Told: TypeAlias = Callable[[], Sequence[tuple[str, pa.Table]]]
"""What a statement did to rows, as readers of changes are told: by kind, the rows. Asked only where the table tells."""


@dataclass(frozen=True, slots=True)
class TakenOut:
    """What becomes of files some of whose rows go.

    Attributes:
        actions: removes, and adds of files with other deletion vectors.
        kept: rows that are to be written anew.
        removed_files: how many files are removed, for good or to be written anew.
        vectors: what is still to be written of the adds' deletion vectors: the content of each file, by its path.
    """

    actions: list[Action]
    kept: Placed
    removed_files: int
    vectors: Mapping[str, bytes]


def take_out(found: Candidates, gone: pa.ChunkedArray, *, now_ms: int) -> TakenOut:
    """Take rows out of the files that they are in.

    Args:
        found: where they are.
        gone: the `INDEX` of each, none of them twice.
        now_ms: when, in ms since 1970.

    Raises:
        UnavailableError: a deletion vector that is there cannot be read.
    """
    lists = found.rows.select([FILE, ROW]).take(gone).group_by(FILE, use_threads=False).aggregate([(ROW, "list")])
    live = dict(zip(*(column.to_pylist() for column in _counts(found.rows)), strict=True))
    actions: list[Action] = []
    marked: list[tuple[dict[str, Any], RowSet]] = []
    anew: list[int] = []
    removed_files = 0
    for number, positions in zip(lists.column(FILE).to_pylist(), lists.column(f"{ROW}_list"), strict=True):
        add, rows = found.adds[number], positions.values
        actions.append({"remove": removed(add, now_ms)})
        if len(rows) < live[number] and found.files.layout.has_vectors:
            marked.append(_marked(found.files, add, rows, live[number]))
            continue
        removed_files += 1
        if len(rows) < live[number]:
            anew.append(number)
    adds, vectors = _with_vectors(found.files, marked)
    return TakenOut([*actions, *adds], _kept(found, anew, gone), removed_files, vectors)


def removed(add: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """Return the `remove` of a file (Protocol, "Add File and Remove File"), with all that says which rows go."""
    kept = (
        *("path", "partitionValues", "size", "deletionVector", "stats", "tags"),
        *("baseRowId", "defaultRowCommitVersion"),
    )
    return {
        **{key: add[key] for key in kept if add.get(key) is not None},
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
    }


def _counts(rows: pa.Table) -> list[pa.ChunkedArray]:
    counts = rows.select([FILE]).group_by(FILE, use_threads=False).aggregate([(FILE, "count")])
    return [counts.column(FILE), counts.column(f"{FILE}_count")]


def _kept(found: Candidates, anew: list[int], gone: pa.ChunkedArray) -> Placed:
    if not anew:
        return Placed(found.take(pa.chunked_array([], type=pa.int64())))
    in_them = pc.is_in(found.rows.column(FILE), value_set=pa.array(anew, pa.int32()))
    goes = pc.is_in(found.rows.column(INDEX), value_set=gone.combine_chunks())
    stay = found.rows.filter(pc.and_(in_them, pc.invert(goes))).column(INDEX)
    return found.placed(found.take(stay), stay, changed=False)


def _marked(files: Files, add: Mapping[str, Any], rows: pa.Array, live: int) -> tuple[dict[str, Any], RowSet]:
    """Return the `add` of a file some of whose rows go, without its vector, and the rows that are gone then."""
    before = files.deleted(add)
    after = before.copy()
    after.update(rows.to_pylist())
    body = {key: value for key, value in add.items() if key != "deletionVector"}
    stats = _loosened(add.get("stats"), records=live + len(before))
    return {**body, "dataChange": True, "stats": stats}, after


def _with_vectors(
    files: Files, marked: Sequence[tuple[dict[str, Any], RowSet]]
) -> tuple[list[Action], dict[str, bytes]]:
    """Return the `add`s of files with their vectors, and the file, by its path, that is to hold these."""
    if not marked:
        return [], {}
    descriptors, content = in_a_file([(serialize(rows), len(rows)) for _, rows in marked], uuid4())
    path = file_path(descriptors[0], location=files.location, root=files.storage.url)
    adds: list[Action] = [
        {"add": {**body, "deletionVector": descriptor}}
        for (body, _), descriptor in zip(marked, descriptors, strict=True)
    ]
    return adds, {path: content}


def _loosened(stats: str | None, *, records: int) -> str:
    """Return a file's statistics for when some of its rows are gone: bounds are still right, and no longer tight."""
    values: dict[str, msgspec.Raw] = {}
    if stats:
        try:
            values = msgspec.json.decode(stats, type=dict[str, msgspec.Raw])
        except msgspec.MsgspecError:
            values = {}  # statistics are advice: a file with broken ones is still a file
    values["numRecords"], values["tightBounds"] = msgspec.Raw(str(records).encode()), msgspec.Raw(b"false")
    return msgspec.json.encode(values).decode()
