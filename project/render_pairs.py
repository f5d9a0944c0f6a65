"""The tables of docs/isolation.md and docs/comparison.md that follow from `tests.support.pairs`."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.grid import LETTERS, expected
from tests.support.operations import on_rows, operations
from tests.support.pairs import Pair, count, pairs
from tests.support.peers import ALLOWED

SYSTEMS = {
    "serializable": "Lockstep, `SERIALIZABLE`",
    "snapshot": "Lockstep, `SNAPSHOT`",
    "delta": "Delta, `Serializable`",
    "write_serializable": "Delta, `WriteSerializable`",
    "ducklake": "DuckLake",
}
DELTA = {
    "M": "MetadataChanged",
    "P": "ProtocolChanged",
    "T": "ConcurrentTransaction",
    "A": "ConcurrentAppend",
    "R": "ConcurrentDeleteRead",
    "D": "ConcurrentDeleteDelete",
}
DUCKLAKE = {
    "A": "alter",
    "C": "create",
    "D": "delete",
    "F": "file",
    "I": "insert",
    "M": "merge",
    "N": "drop namespace",
    "X": "drop",
}


def matrix() -> str:
    """Return Lockstep's verdicts, operations that behave alike in one row and one column."""
    letters = {rule: letter for letter, rule in LETTERS.items()}
    return _matrix(lambda pair: letters[pair.serializable], _groups())


def delta_matrix() -> str:
    """Return the verdicts of Delta's `Serializable`, for the operations that it judges."""
    letters = {name: letter for letter, name in DELTA.items()}
    judged = [[name] for name, operation in operations("m").items() if operation.delta is not None]
    return _matrix(lambda pair: letters.get(pair.delta or "", "."), judged)


def ducklake_matrix() -> str:
    """Return DuckLake's verdicts, for the operations that it has."""
    letters = {name: letter for letter, name in DUCKLAKE.items()}
    judged = [[name] for name, operation in operations("m").items() if operation.duck is not None]
    return _matrix(lambda pair: letters.get(pair.ducklake or "", "."), judged)


def legend(letters: dict[str, str]) -> str:
    """Return what the letters of a matrix stand for."""
    return ", ".join(f"{letter} `{name}`" for letter, name in letters.items() if name != ALLOWED)


def _groups() -> list[list[str]]:
    """Return the operations, those that no pair tells apart together."""
    grid, names = expected(), list(operations("m"))
    serial = {(pair.mine, pair.winner): pair.serial for pair in pairs()}
    found: dict[object, list[str]] = {}
    for name in names:
        lines = [(grid[name, other], serial[name, other], grid[other, name]) for other in names]
        found.setdefault(tuple(lines), []).append(name)
    return list(found.values())


def _matrix(letter: Callable[[Pair], str], groups: list[list[str]]) -> str:
    """Return a matrix of letters: bold without a serial order, small where there is one."""
    judged = {(pair.mine, pair.winner): pair for pair in pairs()}

    def cell(mine: str, winner: str) -> str:
        pair = judged[mine, winner]
        found = letter(pair)
        if found == ".":
            return "·" if pair.serial else "**!**"
        return found if pair.serial else f"**{found}**"

    lines = [
        f"| | ours | {' | '.join(str(n) for n in range(1, len(groups) + 1))} |",
        "|---|---" + "|---" * len(groups) + "|",
    ]
    lines += [
        f"| {n} | {'; '.join(group)} | {' | '.join(cell(group[0], other[0]) for other in groups)} |"
        for n, group in enumerate(groups, 1)
    ]
    return "\n".join(lines)


def counts() -> str:
    """Return how many pairs each system refuses for nothing, and lets through wrongly."""
    lines = [
        "| | rows: refused for nothing | let through wrongly | all: refused for nothing | let through wrongly |",
        "|---|---|---|---|---|",
    ]
    for system, name in SYSTEMS.items():
        rows, every = count(system, rows_only=True), count(system)
        cells = [f"{found.refused} of {found.serial} | {found.missed} of {found.not_serial}" for found in (rows, every)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def same_pairs() -> str:
    """Return Lockstep's count beside another's, over the pairs that the other has a say in."""
    lines = [
        "| over the pairs of | refused for nothing by it | by Lockstep, `SERIALIZABLE` | pairs with a serial order |",
        "|---|---|---|---|",
    ]
    for system in ("delta", "write_serializable", "ducklake"):
        theirs, ours = count(system), count("serializable", system)
        lines.append(f"| {SYSTEMS[system]} | {theirs.refused} | {ours.refused} | {ours.serial} |")
    return "\n".join(lines)


def by_row() -> str:
    """Return a line for each operation of ours: by how many winners each system refuses it for nothing."""
    lines = [f"| ours | | {' | '.join(SYSTEMS.values())} |", "|---|---" + "|---" * len(SYSTEMS) + "|"]
    for name, operation in operations("m").items():
        found = [count(system, mine=name) for system in SYSTEMS]
        cells = [f"{c.refused} of {c.serial}" if c.serial + c.not_serial else "—" for c in found]
        example = operation.example.replace("|", "\\|")
        lines.append(f"| {name} | `{example}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def parts() -> dict[str, str]:
    """Return what stands between the marks of the two pages, by the marks' names."""
    rows = len(on_rows("m"))
    return {
        "pairs": f"{matrix()}\n\nRules: {legend(LETTERS)}.",
        "counts": counts(),
        "same-pairs": same_pairs(),
        "by-row": by_row(),
        "delta-pairs": f"{delta_matrix()}\n\nExceptions: {legend(DELTA)}.",
        "ducklake-pairs": f"{ducklake_matrix()}\n\nThe winner's change: {legend(DUCKLAKE)}.",
        "row-operations": f"The first {rows} operations below write rows or files; {len(operations('m'))} are all.",
    }
