"""Where a test's lake lies: in the test's folder, or in a store if tests are run on one; and what is in it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from deltalake import DeltaTable

from lockstep.catalog import TransactionalCatalog
from lockstep.storage import open_storage
from tests.support import on_azure
from tests.support.sessions import CATALOG, DIRECT, ROOTS


def root_in(folder: Path) -> str:
    """Return the root for the lake of a test that has this folder; there is none yet."""
    return f"{ROOTS}/{folder.parent.name}-{folder.name}" if ROOTS else str(folder / CATALOG)


def matching(root: str, pattern: str) -> list[str]:
    """Return the paths of a lake's files that end as a pattern says, sorted: `_delta_log/*.json`."""
    found = (each.path for each in open_storage(root).walk(""))
    return sorted(path for path in found if PurePosixPath(path).match(pattern))


def delta(url: str) -> DeltaTable:
    """Open a table as any Delta reader does; in a store without TLS, and past what breaks the way there, too."""
    endpoint = "azure_storage_endpoint" if on_azure.IS_WANTED else "aws_endpoint_url"
    return DeltaTable(url, storage_options={"allow_http": "true", endpoint: DIRECT} if DIRECT else None)


def delta_tables(root: str) -> dict[str, DeltaTable]:
    """Open a lake, which publishes what is ratified, and return its tables as any Delta reader has them."""
    tables = TransactionalCatalog.open(root).database().tables.values()
    return {table.name.table: delta(f"{root}/{table.location}") for table in tables}
