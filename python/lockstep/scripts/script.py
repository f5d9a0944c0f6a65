"""A script as it is going to run: its statements, with the values of its variables, and where each came from.

    >>> script = read("load.sql", "INSERT INTO ${table} VALUES (1)", {"table": "lake.bank.t"})
    >>> script.statements[0].text
    'INSERT INTO lake.bank.t VALUES (1)'

Variables are those of spark-sql (`--hivevar`, `-d`), so that a script runs there and here:

    ${name}, ${hivevar:name}                given by name
    ${env:X}, ${system:x}, ${spark:x}, …    Spark's own, who replaces them in every statement that it reads
    ${spark.x.y}, ${name} after SET name =  Spark's own as well: settings of the session

A value is text: it may be a part of a name, or stand inside a string, which a parameter of Spark's (`:name`) may not.
It is put in after the script was cut, so a `;` in it begins no statement; what stands in comments is left alone. Spark
leaves a variable without a value as it is, to become a syntax error or a wrong string; here it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from lockstep.errors import InvalidError
from lockstep.scripts.splitting import Statement, code, controls, split

BYTES_AT_MOST = 16 * 1024 * 1024
"""Of a script; a longer one is data, not statements."""


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a script.

    Attributes:
        number: its place in the script; the first is 1.
        text: what Spark is given.
        source: what the script says, and where.
        replacements: where `source` has variables, from character to character, and how long the value of each is.
    """

    number: int
    text: str
    source: Statement
    replacements: tuple[tuple[int, int, int], ...] = ()

    def place(self, line: int, column: int) -> tuple[int, int]:
        """Return where in the script a place of `text` is: line and column, each from 1, of both."""
        at = sum(len(above) + 1 for above in self.text.split("\n")[: line - 1]) + column - 1
        for start, end, length in self.replacements:
            if at >= start + length:
                at += end - start - length
            elif at >= start:
                at = start
        prefix = self.source.text[:at]
        down = prefix.count("\n")
        across = len(prefix) - (prefix.rfind("\n") + 1)
        return self.source.line + down, across + (1 if down else self.source.column)


@dataclass(frozen=True, slots=True)
class Script:
    """A script that may run: every variable of it has a value.

    Attributes:
        name: what messages call it.
        steps: its statements, in order.
    """

    name: str
    steps: Sequence[Step]


def read(
    name: str, text: str, variables: Mapping[str, str] | None = None, settings: AbstractSet[str] = frozenset()
) -> Script:
    """Return a script with the values of its variables.

    Args:
        name: what messages call it.
        variables: their values, by name.
        settings: names of Spark's settings that the session will have.

    Raises:
        InvalidError: the script is longer than 16 MiB, or has something without an end; a variable has no value, or its
            value has a variable in it.
    """
    if len(text.encode()) > BYTES_AT_MOST:
        raise InvalidError(f"{name} has more than {BYTES_AT_MOST} bytes")
    values = dict(variables or {})
    for key, value in values.items():
        if "${" in value:
            raise InvalidError(f"the value of the variable {key} has a variable in it: {value}")
    keys = set(settings)
    undefined_names, steps = [], []
    for number, statement in enumerate(_split(name, text), 1):
        step = _step(number, statement, values)
        undefined_names += [f"${{{key}}} (line {line})" for key, line in _undefined_names(step, keys)]
        steps.append(step)
        if setting := _SETTING.match(step.text):
            keys.add(setting["key"])
    if undefined_names:
        examples = ", ".join(undefined_names[:_SHOWN_AT_MOST]) + (
            ", …" if len(undefined_names) > _SHOWN_AT_MOST else ""
        )
        raise InvalidError(f"{name}: no value for {examples}: give one with --var name=value")
    return Script(name, tuple(steps))


def as_written(name: str, text: str) -> Script:
    """Return a script whose variables, if it has any, are all left to Spark: a notebook's cell.

    Raises:
        InvalidError: something in it has no end.
    """
    return Script(
        name, tuple(Step(number, statement.text, statement) for number, statement in enumerate(_split(name, text), 1))
    )


def refuse_transactions(script: Script) -> None:
    """Refuse a script that is to be one transaction and says itself where one begins or ends.

    Raises:
        InvalidError: it does; the message names the statement and its line.
    """
    for step in script.steps:
        for control in controls(step.text):
            line = step.place(control.line, 1)[0]
            raise InvalidError(
                f"{script.name}, line {line}: {control.verb} in a script that is to be one transaction as a whole; "
                "take it out, or do not ask for one transaction"
            )


# --- variables --------------------------------------------------------------------------------------------------------

_SHOWN_AT_MOST = 10

_REFERENCE = re.compile(r"\$\{(?:(?P<space>\w+):)?(?P<name>[^\s{}:]+)\}")

_SETTING = re.compile(r"SET\s+(?P<key>[^\s=;]+)\s*=", re.IGNORECASE)


def _split(name: str, text: str) -> list[Statement]:
    try:
        return split(text)
    except InvalidError as error:
        raise InvalidError(f"{name}, {error.message}") from error


def _references(text: str) -> list[re.Match[str]]:
    """Return the variables of a text that stand in no comment."""
    matches = list(_REFERENCE.finditer(text))
    if not matches:
        return []
    spans = code(text)
    return [match for match in matches if any(start <= match.start() < end for start, end in spans)]


def _step(number: int, statement: Statement, values: Mapping[str, str]) -> Step:
    text, replacements = statement.text, []
    for match in reversed(_references(text)):
        if match["space"] in (None, "hivevar") and (value := values.get(match["name"])) is not None:
            text = text[: match.start()] + value + text[match.end() :]
            replacements.append((match.start(), match.end(), len(value)))
    return Step(number, text, statement, tuple(reversed(replacements)))


def _undefined_names(step: Step, settings: AbstractSet[str]) -> list[tuple[str, int]]:
    """Return the variables that neither we nor Spark will have a value for, each with its line."""
    return [
        (match["name"], step.place(step.text.count("\n", 0, match.start()) + 1, 1)[0])
        for match in _references(step.text)
        if match["space"] in (None, "hivevar") and not (match["name"].startswith("spark.") or match["name"] in settings)
    ]
