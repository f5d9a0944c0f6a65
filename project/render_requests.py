"""The table of docs/requests.md, from what a counting store counts (`tests.support.request_counts`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tests.support.request_counts import TABLES, Counted, counts

WORDS = {
    "get": "{} GET",
    "exists": "{} HEAD",
    "put_if_absent": "{} PUT if absent",
    "put": "{} PUT",
    "list": "{} LIST",
    "walk": "{} LIST",
    "delete": "{} DELETE",
    "delete_folder": "{} LIST, {} DELETE of a folder's objects",
}
"""What requests are in S3's words, in the order in which they are told."""


def words(counted: Mapping[str, int]) -> str:
    """Return what was asked in words; none for nothing."""
    found = [text.replace("{}", str(counted[kind])) for kind, text in WORDS.items() if counted.get(kind)]
    return ", ".join(found) or "none"


def table(found: Mapping[int, Mapping[str, Counted]]) -> str:
    """Return a row for each operation and number of tables."""
    lines = ["| operation | tables | before the answer | behind it |", "|---|---|---|---|"]
    for operation in found[TABLES[0]]:
        for tables in TABLES:
            counted = found[tables][operation]
            lines.append(f"| {operation} | {tables} | {words(counted.before)} | {words(counted.behind)} |")
    return "\n".join(lines)


@cache
def parts() -> dict[str, str]:
    """Return what stands between the marks of the page, by the marks' names."""
    return {"requests": table(counts())}
