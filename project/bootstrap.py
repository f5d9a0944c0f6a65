"""Run sbt with nothing but Python and Java: `python project/bootstrap.py <sbt command> …`.

The launcher is fetched and checked as Delta's jars are, by `lockstep.spark.jars`; it brings the sbt that
`project/build.properties` names. Spark's jars are those of the installed pyspark, so that what the shim is compiled
against is what it will run on. The commands in use are in the Makefile.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SBT_LAUNCH_SHA256 = "1750c8fb61c2d2f82da40b2cd9014f4d8a1bd49a361402ea5b1cec061ed66578"


def sbt(*commands: str) -> int:
    """Run sbt commands in this source tree and return sbt's exit status."""
    os.environ.pop("SPARK_HOME", None)  # the shim is for the pinned Spark, not for one that is installed elsewhere
    jars = _jars_module()
    try:
        command = [*_java_command(jars), *commands]
    except jars.UnavailableError as error:
        print(f"lockstep: {error.message}", file=sys.stderr)
        return 1
    # Closed standard input: sbt's answer to an error is otherwise a question.
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode


def _java_command(jars: Any) -> list[str]:
    """Return the command that starts sbt, after fetching what is missing."""
    java = jars.java()
    spark = jars.spark_jars_folder()
    launcher = jars.Artifact("org.scala-sbt", "sbt-launch", _sbt_version(), SBT_LAUNCH_SHA256)
    (launcher_jar,) = jars.cached_files([launcher], jars.cache_folder(), jars.ivy_jar(spark))
    delta = os.pathsep.join(map(str, jars.delta_jars()))
    return [
        *(java, "-Xmx2g", "-Xss4m"),
        # A server would outlive the command, and there is nobody to watch the progress display.
        *("-Dsbt.supershell=false", "-Dsbt.server.autostart=false"),
        *(f"-Dlockstep.pyspark.jars={spark}", f"-Dlockstep.delta.jars={delta}"),
        *("-jar", str(launcher_jar)),
    ]


def _sbt_version() -> str:
    properties = (ROOT / "project" / "build.properties").read_text(encoding="utf-8")
    return properties.strip().removeprefix("sbt.version=")


def _jars_module() -> Any:
    """Import lockstep.spark.jars of this source tree alone: a build has pyspark, but none of our other requirements."""
    for name in ("lockstep", "lockstep.spark"):
        package = types.ModuleType(name)
        package.__path__ = [str(ROOT.joinpath("python", *name.split(".")))]
        sys.modules[name] = package
    return importlib.import_module("lockstep.spark.jars")


if __name__ == "__main__":
    sys.exit(sbt(*sys.argv[1:]))
