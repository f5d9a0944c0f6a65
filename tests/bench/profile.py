"""`python -m tests.bench.profile`: where Python's time of a COMMIT and of a statement goes; in docs/benchmarks.md.

Its section stands between two comments, which `tests.bench` keeps when it writes the page anew.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
from collections.abc import Callable
from pathlib import Path

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import render
from lockstep.delta.log import staged_path
from lockstep.spark.host.host import Host
from tests.bench.page import DOCUMENT, conditions, with_section
from tests.support.client import Client
from tests.support.lakes import add, create, lay, named

MARK = "profile"
WARM_UP = 10
SHOWN = 14
"""Functions of each table, those with the most time of their own."""


def commits(folder: Path, tables: int) -> Callable[[cProfile.Profile], None]:
    """Return what makes a transaction that appends a file to each of so many tables, and profiles its COMMIT."""
    catalog = TransactionalCatalog.open(str(folder / f"lake{tables}"), create=True)
    names = [f"t{n}" for n in range(tables)]
    create(catalog, *names)
    number = iter(range(1_000_000))

    def run(profile: cProfile.Profile) -> None:
        tx, file = catalog.begin(), f"f{next(number)}"
        for name in names:
            table = catalog.table(tx, named(name))
            actions = [{"commitInfo": {"operation": "WRITE", "isBlindAppend": True}}, add(file)]
            lay(catalog.lake.storage, table.location, actions)
            data = render(actions)
            catalog.lake.storage.put(staged_path(table.location, tx.id, table.version + 1), data)
            catalog.stage(tx, table.location, table.version + 1, data.decode())
        catalog.lake.upkeep.settle()
        profile.enable()
        catalog.commit(tx)
        profile.disable()

    return run


def statements(folder: Path) -> Callable[[cProfile.Profile], None]:
    """Return what asks the host for an INSERT in a transaction, and profiles the host's answers."""
    client = Client(Host("profile"), folder / "asked")
    create(client.lake(), "a")

    def run(profile: cProfile.Profile) -> None:
        client.begin()
        answer = client.host.call

        def profiled(request: str | bytes) -> str:
            profile.enable()
            try:
                return answer(request)
            finally:
                profile.disable()

        client.host.call = profiled  # type: ignore[method-assign]
        try:
            found = client.resolve("a", "append", writes=True)
            client.ok("staging", uri=found["uri"], version=1)
            client.stage(found["uri"], 1, add("x"))
        finally:
            client.host.call = answer  # type: ignore[method-assign]
        client.ok("rollback")

    return run


def table(title: str, run: Callable[[cProfile.Profile], None], times: int) -> str:
    """Return a table of the functions that took the most time of their own."""
    for _ in range(WARM_UP):
        run(cProfile.Profile())
    profile = cProfile.Profile()
    for _ in range(times):
        run(profile)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # it has been there since Python 1
    whole = sum(own for _, _, own, _, _ in stats.values())
    most = sorted(stats.items(), key=lambda item: -item[1][2])[:SHOWN]
    rows = [
        f"| {_shown(*place)} | {calls / times:.1f} | {own * 1e6 / times:.0f} | {cumulative * 1e6 / times:.0f} | "
        f"{own / whole:.0%} |"
        for place, (_, calls, own, cumulative, _) in most
    ]
    head = f"| {title}: {whole * 1e6 / times:.0f} µs in all | calls | its own µs | with what it calls | share |"
    return "\n".join([head, "|---|---|---|---|---|", *rows])


def _shown(file: str, line: int, function: str) -> str:
    where = file.partition("/lockstep/")[2] if "/python/lockstep/" in file else ""
    name = function.strip("<>").replace("built-in method ", "").replace("method ", "").replace("'", "")
    return f"`{name}`" + (f" in `{where}`" if where else "")


def section(tables: list[str], times: int) -> str:
    """Return the section's text."""
    return "\n".join([
        "## Where the time of a COMMIT and of a statement goes",
        "",
        f"By Python's profiler, which itself makes a call dearer (`make bench-profile`; means of {times}), on a local",
        "disk, in the thread that asks: `fsync` is the disk's time, of a COMMIT that is flushed. What comes behind the",
        "answer is not in it. A statement is an `INSERT` in a transaction: what the host does of it, without Spark.",
        f"{conditions()}.",
        "",
        "\n\n".join(tables),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile", description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md as it is")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-profile-", ignore_cleanup_errors=True) as folder:
        text = section(
            [
                table("COMMIT of one table", commits(Path(folder), 1), args.times),
                table("COMMIT of ten tables", commits(Path(folder), 10), args.times),
                table("an `INSERT`", statements(Path(folder)), args.times),
            ],
            args.times,
        )
    print(text)
    if not args.no_write:
        DOCUMENT.write_text(with_section(DOCUMENT.read_text(encoding="utf-8"), MARK, text), encoding="utf-8")


if __name__ == "__main__":
    main()
