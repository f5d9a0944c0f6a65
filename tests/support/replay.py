"""What a table's log says, as any Delta reader finds it: by the protocol's rules, and by nothing of Lockstep's.

All that tests know of tables without Spark goes through `Replayed`: the sets of files of `lakes`, the values of `keyed`
and the rows of `rows`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lockstep.delta.actions import Action, LogicalFile, bodies, logical_file, parse
from lockstep.delta.log import commit_path
from lockstep.storage import Storage


class BrokenTableError(AssertionError):
    """A table's log or its files are not what the protocol, or a statement, left there."""


@dataclass
class Replayed:
    """A table as its log says it is, after some commits.

    Attributes:
        strict: whether a commit that removes what is not there, or adds what is there, breaks the table. Where the
            histories of broken builds are judged it does not: what clients read then is what tells.
        files: the adds of its logical files, oldest first.
        properties: `configuration` of its last metaData.
        mark: the highest row id given out; -1 for none.
    """

    strict: bool = True
    files: dict[LogicalFile, dict[str, Any]] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    mark: int = -1

    def take(self, actions: Sequence[Action]) -> None:
        """Take one commit in: what it removes, then what it adds.

        Raises:
            BrokenTableError: it does not fit.
        """
        for body in bodies(actions, "remove"):
            if self.files.pop(logical_file(body), None) is None and self.strict:
                raise BrokenTableError(f"a commit removes {logical_file(body)}, and the table has {list(self.files)}")
        for body in bodies(actions, "add"):
            if self.strict and any(path == body["path"] for path, _ in self.files):
                raise BrokenTableError(f"a commit adds {body['path']}, which is there already")
            self.files[logical_file(body)] = body
        for body in bodies(actions, "metaData"):
            self.properties = dict(body["configuration"])
        for body in bodies(actions, "domainMetadata"):
            mark = json.loads(body["configuration"]).get("rowIdHighWaterMark", self.mark)
            if mark < self.mark:
                raise BrokenTableError(f"the mark of row ids falls from {self.mark} to {mark}")
            self.mark = mark

    def take_all(self, commits: Iterable[Sequence[Action]]) -> Self:
        """Take several commits in, and return this."""
        for actions in commits:
            self.take(actions)
        return self

    def copy(self) -> Replayed:
        """Return a table that is as this one is now."""
        return replace(self, files=dict(self.files))

    def paths(self) -> set[str]:
        """Return the paths of its files."""
        return {path for path, _ in self.files}


def published(storage: Storage, location: str, last: int, after: int = -1) -> Iterator[list[Action]]:
    """Yield a table's commits of the versions after `after` up to `last`.

    Raises:
        BrokenTableError: one of them is not there.
    """
    for version in range(after + 1, last + 1):
        data = storage.get(commit_path(location, version))
        if data is None:
            raise BrokenTableError(f"version {version} of {location} is not there")
        yield parse(data)


def data_of(storage: Storage, location: str, path: str) -> Any:
    """Return what is in a data file: JSON, here.

    Raises:
        BrokenTableError: it is gone.
    """
    if (data := storage.get(f"{location}/{path}")) is None:
        raise BrokenTableError(f"data file {path} is gone, and a version of {location} names it")
    return json.loads(data)
