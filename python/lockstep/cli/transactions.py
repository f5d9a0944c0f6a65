"""The commands about open transactions: `lockstep transactions` and `abort`."""

from __future__ import annotations

import shlex

import click

from lockstep.cli.arguments import json_option, root_argument
from lockstep.cli.printing import print_json, print_table


@click.command()
@root_argument
@json_option
def transactions(root: str, as_json: bool) -> None:
    """List the open transactions that have written something, the oldest first.

    Example: lockstep transactions /data/lake
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.commit.records import open_transactions

    lake = TransactionalCatalog.open(root, application="lockstep").lake
    found, now = open_transactions(lake), lake.clock()
    if as_json:
        print_json(found)
        return
    rows = [
        [
            *(each.transaction, each.began_at, each.author, each.application, each.process),
            *(each.seen_at if each.is_alive(now) else f"gone since {each.seen_at}", each.base_version),
            *(", ".join(map(str, each.tables)), each.message),
        ]
        for each in found
    ]
    columns = ["transaction", "began at", "author", "application", "process", "seen at", "sees", "tables", "comment"]
    print_table(columns, rows)


@click.command()
@root_argument
@click.argument("transaction")
@click.option("--reason", default="", help="What its owner is told.")
@json_option
def abort(root: str, transaction: str, *, reason: str, as_json: bool) -> None:
    """End an open TRANSACTION of any process: it can never commit from then on.

    Example: lockstep abort /data/lake 0d3f6c2a9b1e4f7788aa5c10 --reason "the load window is over"
    """
    from lockstep.catalog import TransactionalCatalog
    from lockstep.commit.records import abort as end
    from lockstep.transactions.statements import shortened

    catalog = TransactionalCatalog.open(root, application="lockstep")
    entry = end(
        catalog.lake,
        transaction,
        author=catalog.author,
        statement=shortened(f"lockstep abort {shlex.quote(transaction)}"),
        reason=shortened(reason),
        backoff=catalog.backoff,
    )
    if as_json:
        print_json({"transaction": transaction, "aborted_by": entry.version})
    else:
        click.echo(f"transaction {transaction} is ended by database version {entry.version}")
