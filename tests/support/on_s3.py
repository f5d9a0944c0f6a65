"""Runs tests with Spark whose lakes lie in S3: `python -m tests.support.on_s3 tests/spark/test_contract.py …`.

It starts s3proxy, or the server that `--server versitygw` names, and says by variables of the environment where it is,
to Lockstep and to Spark's s3a alike. With `--faults` all of them reach it through toxiproxy, which loses, cuts and
delays what they say; only what judges with delta-rs, which asks nothing again whose answer broke off, asks the server
itself (`tests.support.placed.delta`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import lockstep
from lockstep.spark import jars
from tests.support import pytest_beside, servers, toxiproxy
from tests.support.sessions import CATALOG, ROOTS

ASKS_FOR_KEYS = os.environ.get("LOCKSTEP_TEST_S3") == "versitygw"
"""Whether lakes lie in a server that looks at who asks."""

JARS = Path(__file__).with_name("s3a_jars.txt")


def settings() -> dict[str, str]:
    """Return the settings of a Spark whose lakes lie below `ROOTS`; keys and address come from the environment."""
    found = lockstep.conf(root=f"{ROOTS}/unused", catalog=CATALOG, create=True)
    return found | {"spark.jars": ",".join([found["spark.jars"], *map(str, s3a_jars())])}


def s3a_jars() -> list[Path]:
    """Return the jars that s3a needs, fetched if need be."""
    lines = [line.split() for line in JARS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    artifacts = [jars.Artifact(*line) for line in lines]
    return jars.cached_files(artifacts, jars.cache_folder(), jars.ivy_jar(jars.spark_jars_folder()))


@contextmanager
def told(toxics: Sequence[toxiproxy.Toxic] = (), name: str = servers.S3_SERVERS[0]) -> Iterator[dict[str, str]]:
    """Run a server for as long as the block; the variables that tell other processes where it is.

    Args:
        toxics: what happens to connections on their way to it.
        name: which server.
    """
    s3a_jars()
    with ExitStack() as stack:
        server = stack.enter_context(servers.started(name))
        keys = dict(server.options)
        direct = endpoint = keys.pop("endpoint")
        if toxics:
            endpoint = stack.enter_context(toxiproxy.passing(endpoint, toxics))
        variables = {f"AWS_{key.upper()}": value for key, value in keys.items()}
        variables |= {"AWS_ENDPOINT_URL": endpoint, "LOCKSTEP_TEST_DIRECT": direct, "LOCKSTEP_TEST_S3": name}
        yield variables | {"LOCKSTEP_TEST_ROOTS": server.root}


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments beside a server, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.on_s3", allow_abbrev=False)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--server", choices=servers.S3_SERVERS, default=servers.S3_SERVERS[0])
    ours, theirs = parser.parse_known_args(arguments)
    return pytest_beside.run(told(toxiproxy.FAULTS if ours.faults else (), ours.server), theirs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
