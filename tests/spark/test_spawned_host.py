"""A host in a process of its own, as the shim starts it: what cannot be used does not stay."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import lockstep

END_SECONDS = 10


class Tell:
    """Scala's function that a started host is given to."""

    def apply(self, _: Any) -> None:
        raise ValueError("what it must know cannot be told")

    class Java:
        implements = ("scala.Function1",)


def is_there(process: int) -> bool:
    """Whether a process goes on; one that has ended and that nobody asked about does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def start(spark_session: Any, tmp_path: Path) -> Any:
    """Return a function that starts a host which says a line and goes on, and returns its process and the error."""
    context = spark_session._jsparkSession.sparkContext()
    spawned = spark_session._jvm.lockstep.spark.host.SpawnedHost

    def start(said: str) -> tuple[int, str]:
        python, pid = tmp_path / "python", tmp_path / "pid"
        python.write_text(f"#!/bin/sh\necho $$ > '{pid}'\necho '{said}'\nexec cat\n")
        python.chmod(0o755)
        context.conf().set("spark.lockstep.python", str(python))
        with pytest.raises((Py4JJavaError, PySparkException)) as error:
            spawned.start(context, Tell())
        return int(pid.read_text()), str(error.value)

    yield start
    context.conf().remove("spark.lockstep.python")


HELLOS = {
    "no JSON": "LOCKSTEP_NO_HOST.*it said no JSON",
    '{"no": "version"}': "LOCKSTEP_NO_HOST.*it said {",
    '{"version": "0"}': "LOCKSTEP_NO_HOST.*is 0",
    f'{{"version": "{lockstep.__version__}"}}': "what it must know cannot be told",
}
"""What a host says, and why it is of no use."""


@pytest.mark.parametrize("said", HELLOS)
def test_a_host_whose_start_fails_is_ended(start: Callable[[str], tuple[int, str]], said: str) -> None:
    process, error = start(said)
    deadline = time.monotonic() + END_SECONDS
    while is_there(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = is_there(process)
    with suppress(ProcessLookupError):
        os.kill(process, 9)
    assert not left
    assert re.search(HELLOS[said], error), error
