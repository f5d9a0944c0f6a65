"""Who is there beside the lake in random histories of one that is looked after: readers, open transactions, copies."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import bodies, parse
from lockstep.delta.combine.deletion_vectors import file_path
from lockstep.tables.opened import OpenLake
from lockstep.timeline.entry import ExportMode, Name
from lockstep.transactions.transaction import Transaction
from tests.support.retention_model import Tables, rows_of


@dataclass
class Reader:
    """Somebody who reads a version, and since when."""

    began_at: datetime
    tables: Tables


@dataclass
class Open:
    """A transaction that is open for long, and what the model has once it commits."""

    tx: Transaction
    catalog: TransactionalCatalog
    name: Name
    added: str
    is_dead: bool = False


@dataclass
class Cloning:
    """A transaction that is open for long and makes a shallow clone, and the files that it shares."""

    tx: Transaction
    catalog: TransactionalCatalog
    shared: set[str]


@dataclass
class Copied:
    """An export, what it has, and the version that it is of.

    Attributes:
        read_at: how much of the lake was deleted when its rows were last read; below 0 before they were.
    """

    root: Path
    mode: ExportMode
    version: int
    tables: Tables
    read_at: int = -1

    def remove(self) -> None:
        if self.mode == "minimal":
            self.root.unlink()
        else:
            shutil.rmtree(self.root)

    def check(self, *, deleted: int) -> None:
        """See that its logs name what the version had, that all of that is there, and that its rows are read.

        A minimal one has no logs yet.

        Args:
            deleted: how much was deleted in the lake by now: rows are read anew where that is more than the last time.
        """
        if self.mode == "minimal":
            return
        self.check_files()
        if self.tables and self.read_at < deleted:
            self.check_rows()
            self.read_at = deleted

    def check_rows(self) -> None:
        """See that its tables have the rows of the version, as whoever opens it without Spark reads them."""
        lake = OpenLake(TransactionalCatalog.open(str(self.root)), {}).at()
        assert {*lake.tables} == {*self.tables}
        for name, (_, content) in self.tables.items():
            rows = lake[str(name)].to_arrow(["id"])["id"].to_pylist()
            expected = sorted(row for _, row in rows_of(content))
            assert sorted(rows) == expected, f"{name} in the {self.mode} export of version {self.version}"

    def check_files(self) -> None:
        """See that its logs name what the version had, and that all of that is there."""
        for location, content in self.tables.values():
            commit = self.root / location / "_delta_log" / f"{0:020d}.json"
            adds = bodies(parse(commit.read_bytes()), "add")
            # Of the names that an absolute path, or a folder that a promotion made, is before.
            assert {name_of(add["path"]) for add in adds} == {name_of(path) for path, _ in content.files}
            vectors = [add["deletionVector"] for add in adds if "deletionVector" in add]
            paths = [add["path"] for add in adds] + [v["pathOrInlineDv"] for v in vectors if v["storageType"] == "p"]
            paths += [file_path(v, location="", root="file:///") for v in vectors if v["storageType"] == "u"]
            for path in paths:
                # An absolute path takes the folder's place.
                assert (self.root / location / path.removeprefix("file:").lstrip("/")).is_file() or (
                    path.startswith("file:") and Path(path.removeprefix("file:")).is_file()
                ), f"{path} is gone, and the {self.mode} export of version {self.version} needs it"


def name_of(path: str) -> str:
    """Return a data file's own name, which is another one for each file of a history."""
    return path.rpartition("/")[2]
