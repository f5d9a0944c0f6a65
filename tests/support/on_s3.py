"""Runs tests with Spark whose lakes lie in S3: `python -m tests.support.on_s3 tests/spark/test_contract.py …`.

It starts s3proxy, and says by variables of the environment where it is, to Lockstep and to Spark's s3a alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import lockstep
from lockstep.spark import jars
from tests.support import servers
from tests.support.sessions import CATALOG, ROOTS

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


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments beside a server, and return its exit status."""
    s3a_jars()
    with servers.s3proxy() as server:
        environment = {f"AWS_{key.upper()}": value for key, value in server.options.items()}
        environment["AWS_ENDPOINT_URL"] = environment.pop("AWS_ENDPOINT")
        environment["LOCKSTEP_TEST_ROOTS"] = server.root
        command = [sys.executable, "-m", "pytest", *arguments]
        return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
