"""The commands about transactions that are not committed: `lockstep transactions` and `abort`."""

from __future__ import annotations

import shlex
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from lockstep.cli.arguments import dry_run_option, goes_on, json_option, root_argument, yes_option
from lockstep.cli.printing import print_json, print_table, say

if TYPE_CHECKING:
    from lockstep.commit.records import OpenRecord
    from lockstep.lake.lake import Lake


@click.command()
@root_argument
@click.option("--ended", is_flag=True, help="List those that were rolled back instead, and why, the newest first.")
@json_option
def transactions(root: str, *, ended: bool, as_json: bool) -> None:
    """List the open transactions that have written something, the oldest first, or with --ended what was rolled back.

    Example: lockstep transactions /data/lake
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.commit.records import open_transactions

    lake = TransactionalCatalog.open(root, application="lockstep").lake
    if ended:
        _say_ended(lake, as_json=as_json)
        return
    found, now = open_transactions(lake), lake.clock()
    if as_json:
        print_json([_told(each, now) for each in found])
        return
    rows = [
        [
            *(each.transaction, each.state.value, each.began_at, timedelta(seconds=each.age_seconds(now))),
            *(each.author, each.application, each.process),
            *(each.seen_at if each.is_alive(now) else f"gone since {each.seen_at}", each.base_version),
            *(", ".join(map(str, each.names)), f"{each.bytes_staged:,}", each.message),
        ]
        for each in found
    ]
    who = ["author", "application", "process", "seen at", "sees"]
    print_table(["transaction", "state", "began at", "age", *who, "tables", "bytes", "comment"], rows)


@click.command()
@root_argument
@click.argument("transaction")
@click.option("--reason", default="", help="What its owner is told.")
@dry_run_option
@yes_option
@json_option
def abort(root: str, transaction: str, *, reason: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """End an open TRANSACTION of any process: it can never commit from then on.

    Example: lockstep abort /data/lake 0d3f6c2a9b1e4f7788aa5c10 --reason "the load window is over"
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.commit.records import abort as end
    from lockstep.commit.records import look_at_abort
    from lockstep.transactions.statements import shortened

    catalog = TransactionalCatalog.open(root, application="lockstep")
    record, _ = look_at_abort(catalog.lake, transaction)
    whose = _told(record, catalog.lake.clock())
    if not as_json and (dry_run or not yes):
        wrote = ", ".join(map(str, record.names)) or "no table"
        say(
            f"transaction {transaction} of {record.author or 'somebody'} ({record.process}) would be ended: begun at "
            f"{record.began_at}, has written {wrote}, {record.bytes_staged:,} bytes"
        )
    if not goes_on("aborted", yes=yes, dry_run=dry_run, as_json=as_json):
        if as_json:
            print_json({**whose, "aborted_by": None})
        return
    entry = end(
        catalog.lake,
        transaction,
        author=catalog.author,
        statement=shortened(f"lockstep abort {shlex.quote(transaction)}"),
        reason=shortened(reason),
        backoff=catalog.backoff,
    )
    if as_json:
        print_json({**whose, "aborted_by": entry.version})
    else:
        say(f"transaction {transaction} is ended by database version {entry.version}")


def _say_ended(lake: Lake, *, as_json: bool) -> None:
    """Print what is kept of transactions that were rolled back, as the system table `transactions` has it."""
    from lockstep.commit.ended import ended_transactions
    from lockstep.transactions.state import State

    found = ended_transactions(lake)
    if as_json:
        import msgspec

        state = {"state": State.ROLLED_BACK.value}
        print_json([{**msgspec.structs.asdict(each), **state} for each in found])
        return
    rows = [
        [
            *(each.transaction, each.began_at, each.ended_at, each.reason),
            *(each.author, each.application, each.process, each.base_version),
            *(", ".join(map(str, each.tables)), f"{each.bytes_staged:,}", each.message),
        ]
        for each in found
    ]
    who = ["author", "application", "process", "saw"]
    print_table(["transaction", "began at", "ended at", "why", *who, "tables", "bytes", "comment"], rows)


def _told(record: OpenRecord, now: datetime) -> dict[str, object]:
    """Return what is printed as JSON of an open transaction: its record, how old it is, and if its process is there."""
    import msgspec

    age, alive = record.age_seconds(now), record.is_alive(now)
    return {**msgspec.structs.asdict(record), "tables": record.names, "age_seconds": age, "is_alive": alive}
