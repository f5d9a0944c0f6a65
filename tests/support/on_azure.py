"""Runs tests with Spark whose lakes lie in Azurite: `python -m tests.support.on_azure tests/spark/test_contract.py …`.

Azurite speaks Azure's protocol of blobs and no other: so does Spark's `abfs`, of an account without a hierarchical
namespace. Where the server is, and the key of its account, stands in variables of the environment, for
Lockstep's own requests. Spark is told the address by what Lockstep makes of the variable, and the key by an option.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lockstep
from lockstep.spark import jars
from tests.support import pytest_beside, servers
from tests.support.sessions import CATALOG, ROOTS

IS_WANTED = ROOTS.startswith("abfs")
"""Whether lakes lie in Azurite."""

OPTIONS = {"account_key": servers.ACCOUNT_KEY}
"""What a catalog is told of the store, besides the environment."""

WITHOUT_TLS = {
    "spark.hadoop.fs.azure.always.use.https": "false",
    "spark.hadoop.fs.abfss.impl": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.abfss.impl": "org.apache.hadoop.fs.azurebfs.Abfs",
}
"""What Spark must be told by hand: Hadoop has it of all accounts. Its classes for `abfss` speak TLS whatever is set."""

JARS = Path(__file__).with_name("abfs_jars.txt")


def settings() -> dict[str, str]:
    """Return the settings of a Spark whose lakes lie below `ROOTS`."""
    found = lockstep.conf(root=f"{ROOTS}/unused", catalog=CATALOG, create=True, options=OPTIONS)
    return found | WITHOUT_TLS | {"spark.jars": ",".join([found["spark.jars"], *map(str, abfs_jars())])}


def abfs_jars() -> list[Path]:
    """Return the jars that abfs needs, fetched if need be."""
    lines = [line.split() for line in JARS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    artifacts = [jars.Artifact(*line) for line in lines]
    return jars.cached_files(artifacts, jars.cache_folder(), jars.ivy_jar(jars.spark_jars_folder()))


@contextmanager
def told() -> Iterator[dict[str, str]]:
    """Run a server for as long as the block; the variables that tell other processes where it is."""
    abfs_jars()
    servers.fetch_azurite()
    with servers.azurite() as server:
        endpoint = server.options["endpoint"]
        yield {
            "AZURE_STORAGE_ENDPOINT": endpoint,
            "AZURE_STORAGE_ACCOUNT_KEY": server.options["account_key"],
            "LOCKSTEP_TEST_DIRECT": endpoint,
            "LOCKSTEP_TEST_ROOTS": server.root,
        }


if __name__ == "__main__":
    sys.exit(pytest_beside.run(told(), sys.argv[1:]))
