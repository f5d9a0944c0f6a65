"""Row ids and row commit versions that Delta wrote into data files (Protocol, "Row Tracking").

A row that a statement moves to another file keeps its id and the version that it came with: UPDATE, MERGE, OPTIMIZE and
a DELETE that rewrites files put both into columns of the new file. For a row that the transaction itself wrote these
are what Delta gave it when it was staged: an id behind the pin's, and the number of a staged version. Both are right
where the staged versions become the table's, one for one. Anywhere else they are wrong for ever, for a commit's actions
can be renumbered, and what stands in data files cannot: the id is then another row's too.

Here such rows are only recognized. With which row ids a commit lands is decided in `lockstep.delta.combine.rebase`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lockstep.delta.actions import Action, bodies


def is_new(file: dict[str, Any], pin: int) -> bool:
    """Return whether a transaction that began from table version `pin` gave this file its row ids.

    Delta gives a file both ids and commit version when it first adds it, or when row tracking comes to the table, and
    carries both along after that: so a commit version above the pin is one of our staged versions.
    """
    version = file.get("defaultRowCommitVersion")
    return version is not None and version > pin


def copies_own_rows(commits: Iterable[Sequence[Action]], pin: int) -> bool:
    """Return whether one of these commits may have put rows into a new file to which the transaction gave their ids.

    It does so where it removes a file whose ids are the transaction's, and adds one that is not there yet. That new
    file's rows may be others (INSERT OVERWRITE), which the log does not tell.
    """
    for commit in commits:
        removed_paths = {file["path"] for file in bodies(commit, "remove") if is_new(file, pin)}
        if removed_paths and any(
            file["path"] not in removed_paths and is_new(file, pin) for file in bodies(commit, "add")
        ):
            return True
    return False


def by_commit(actions: Iterable[Action]) -> list[list[Action]]:
    """Part the actions of consecutive commits; each of ours begins with its `commitInfo`."""
    commits: list[list[Action]] = []
    for action in actions:
        if "commitInfo" in action or not commits:
            commits.append([])
        commits[-1].append(action)
    return commits
