"""The command line as its tests run it, and the lake that they look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from lockstep.catalog import TransactionalCatalog
from lockstep.cli.main import main
from lockstep.delta.actions import render
from lockstep.timeline.entry import Name
from tests.support.lakes import NEW_TABLE

ORDERS = Name(namespace=("sales",), table="orders")


def added(path: str) -> str:
    stats = json.dumps({"numRecords": 2})
    return json.dumps({"add": {"path": path, "partitionValues": {}, "size": 1, "dataChange": True, "stats": stats}})


def commit_info(operation: str) -> str:
    return json.dumps({"commitInfo": {"operation": operation}})


def lockstep(*args: object, answer: str | None = None) -> Result:
    """Run a command of the command line in this process.

    Args:
        answer: what is typed where it asks.
    """
    return CliRunner().invoke(main, [str(arg) for arg in args], input=answer)


def run(*args: object, code: int = 0) -> str:
    """What a command prints that ends with this status."""
    done = lockstep(*args)
    assert done.exit_code == code, done.output
    return done.output


def read(*args: object) -> Any:
    """What a command prints with --json."""
    done = lockstep(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def make_orders(root: Path) -> str:
    """Make a lake whose database version 2 creates a table, and 3 appends to it; return the table's location."""
    catalog = TransactionalCatalog.open(str(root), create=True, author="ada")
    catalog.run(lambda tx: tx.changing().create_namespace(("sales",), {"owner": "[bold]ada"}), "CREATE NAMESPACE sales")
    creation = catalog.reserve(ORDERS)
    table = render(NEW_TABLE).decode()
    content = f"{commit_info('CREATE TABLE')}\n{table}{added('a.parquet')}\n"
    for file in ("a.parquet", "b.parquet"):
        catalog.lake.storage.put(f"{creation.location}/{file}", b"rows")
    catalog.write(creation.location, 0, content, creation=creation, text="CREATE TABLE orders")
    catalog.write(creation.location, 1, f"{commit_info('WRITE')}\n{added('b.parquet')}\n", text="INSERT INTO orders")
    return creation.location
