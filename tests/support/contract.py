"""The contract's files, `sql/**/*.test`, as values: what to run on which connection, and what must come of it.

`tests/README.md` describes the format. Nothing here knows Spark; `tests/spark/test_contract.py` runs what this reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Literal

Kind = Literal["ok", "error", "query", "let"]

CONNECTION = "con1"
"""The connection of a record that names none."""

CORE = "core"
"""The tag of the files that are run with separate executor processes too."""

DEEP, LONG = "deep", "long"
"""The tags of the files that `make test` leaves out: `make test-deep` and `make test-long` run them."""

LEVELS = ("SNAPSHOT", "SERIALIZABLE")
"""What `${level}` stands for: a file that uses it is run once with each."""

ANY = "*"
"""An expected value that stands for every value: ids and times are not known beforehand."""

_HEADER = re.compile(r"^(statement|query|let)\b(.*)$")
_SINCE = re.compile(r"^# Since Spark (\d+\.\d+)\b")
_CONNECTION = re.compile(r"^con\d+$")
_SQLSTATES = re.compile(r"^[0-9A-Z]{5}(\|[0-9A-Z]{5})*$")
_VARIABLE = re.compile(r"\$\{(\w+)\}")


class ContractError(Exception):
    """A contract file is not what it must be."""


@dataclass(frozen=True, slots=True)
class Record:
    """One statement and what must come of it.

    Attributes:
        kind: `ok` succeeds, whatever it returns; `error` fails; `query` returns rows; `let` gives its one value a name.
        line: where in the file it stands, from 1.
        connection: the session it runs in.
        sqlstates: those that the error may have, for `error`.
        expected: a query's rows, or texts that an error's message has in it.
        is_sorted: the rows' order does not matter.
        has_header: the first expected row names columns; these alone are looked at.
        name: the variable that a `let` sets.
    """

    kind: Kind
    sql: str
    line: int
    connection: str = CONNECTION
    sqlstates: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    is_sorted: bool = False
    has_header: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Contract:
    """One file: its records in order, its tags, and the first Spark minor that it holds for, if not for all."""

    records: tuple[Record, ...]
    tags: frozenset[str] = frozenset()
    since: str = ""

    @property
    def levels(self) -> tuple[str, ...]:
        """The isolation levels that it is run with; one empty one if it names its levels itself."""
        return LEVELS if any("${level}" in record.sql for record in self.records) else ("",)


@dataclass(frozen=True, slots=True)
class Case:
    """One run of a file.

    Attributes:
        id: the file's path below the folder, and the level if it is run with each.
        level: what `${level}` stands for, if it is in the file.
        since: the first Spark minor that the file holds for, if not for all.
        left_out: `DEEP` or `LONG`, if `make test` leaves it out.
    """

    id: str
    path: Path
    level: str = ""
    since: str = ""
    left_out: str = ""


def parse(text: str) -> Contract:
    """Read a contract file.

    Raises:
        ContractError: naming the line.
    """
    tags: set[str] = set()
    since = ""
    records = []
    for start, lines in _blocks(text):
        body = list(dropwhile(lambda line: line.startswith("#"), lines))
        comments = lines[: len(lines) - len(body)]
        tags.update(word for line in comments if (word := line.removeprefix("#").strip()) in {CORE, DEEP, LONG})
        since = next((found[1] for line in comments if (found := _SINCE.match(line))), since)
        if body:
            records.append(_record(start + len(comments), body))
    if not records:
        raise ContractError("the file has no records: it would pass whatever happens")
    return Contract(tuple(records), frozenset(tags), since)


def find(folder: Path, *, tag: str = "") -> list[Case]:
    """Return the runs of the contract files below a folder, in order; only of those with the tag if one is given."""
    found = []
    for path in sorted(folder.rglob("*.test")):
        contract = parse(path.read_text(encoding="utf-8"))
        name = path.relative_to(folder).as_posix()
        if not tag or tag in contract.tags:
            left_out = next((each for each in (DEEP, LONG) if each in contract.tags), "")
            found += [
                Case("-".join(filter(None, [name, level])), path, level, contract.since, left_out)
                for level in contract.levels
            ]
    return found


def substitute(text: str, variables: Mapping[str, str]) -> str:
    """Put values in the place of `${name}`.

    Raises:
        ContractError: nothing has that name.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] not in variables:
            raise ContractError(f"${{{match[1]}}} has no value; known are {', '.join(sorted(variables)) or 'none'}")
        return variables[match[1]]

    return _VARIABLE.sub(value, text)


def difference(record: Record, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return what is wrong with a query's result, nothing if it is as expected."""
    expected = [_cells(line) for line in record.expected]
    wanted: Sequence[str] = columns
    if record.has_header and expected:
        wanted, expected = expected[0], expected[1:]
        if missing := [name for name in wanted if name not in columns]:
            return f"no column {', '.join(missing)} among {', '.join(columns)}"
    places = [columns.index(name) for name in wanted] if record.has_header else range(len(columns))
    found = [tuple(cell(row[place]) for place in places) for row in rows]
    if record.is_sorted:
        expected, found = sorted(expected), sorted(found)
    if len(found) == len(expected) and all(map(_matches, expected, found)):
        return ""
    return "\n".join(["expected:", *map(_line, expected), "found:", *map(_line, found)])


def cell(value: object) -> str:
    """Return a value as a contract file writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).strip() or "(empty)"


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield what empty lines separate, each with the number of its first line."""
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield number - len(block), block
            block = []


def _record(line: int, lines: list[str]) -> Record:
    if (header := _HEADER.match(lines[0])) is None:
        raise ContractError(f"line {line}: {lines[0]!r} is none of `statement ok`, `statement error`, `query`, `let`")
    words = header[2].split()
    connection = next((word for word in words if _CONNECTION.match(word)), CONNECTION)
    words = [word for word in words if not _CONNECTION.match(word)]
    body = lines[1:]
    has_results = "----" in body
    at = body.index("----") if has_results else len(body)
    sql, expected = "\n".join(body[:at]), tuple(body[at + 1 :])
    if not sql:
        raise ContractError(f"line {line}: no SQL below {lines[0]!r}")
    match header[1], words:
        case "statement", ["ok"] if not has_results:
            return Record("ok", sql, line, connection)
        case "statement", ["error", states] if _SQLSTATES.match(states):
            return Record("error", sql, line, connection, sqlstates=tuple(states.split("|")), expected=expected)
        case "query", options if has_results and set(options) <= {"rowsort", "header"}:
            is_sorted, has_header = "rowsort" in options, "header" in options
            return Record("query", sql, line, connection, (), expected, is_sorted, has_header)
        case "let", [name] if not has_results:
            return Record("let", sql, line, connection, name=name)
    raise ContractError(
        f"line {line}: {lines[0]!r} is none of `statement ok [con]`, `statement error [con] SQLSTATE`, "
        "`query [con] [rowsort] [header]` with rows after `----`, `let [con] name`"
    )


def _cells(line: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in line.split("|"))


def _line(cells: tuple[str, ...]) -> str:
    return "  " + " | ".join(cells)


def _matches(expected: tuple[str, ...], found: tuple[str, ...]) -> bool:
    return len(expected) == len(found) and all(e in (ANY, f) for e, f in zip(expected, found, strict=True))
