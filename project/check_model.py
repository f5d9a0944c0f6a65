"""Check docs/model/lockstep.als with Alloy: `python -m project.check_model` (`make model`).

Alloy is fetched and checked as sbt is, by `lockstep.spark.jars`. Each command of the model says what to expect of it: a
promise has no counterexample, a model that is broken on purpose has one. Alloy fails where that is not so; that it has
run every command, and did not end early, is looked at here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lockstep.errors import LockstepError
from lockstep.spark import jars

MODEL = Path(__file__).parents[1] / "docs" / "model" / "lockstep.als"
ALLOY_VERSION = "6.2.0"
ALLOY_SHA256 = "6037cbeee0e8423c1c468447ed10f5fcf2f2743a2ffc39cb1c81f2905c0fdb9d"
COMMAND = re.compile(r"^(?:check|run) (?P<name>\w+) \{.*?expect (?P<expected>[01])$", re.MULTILINE | re.DOTALL)


def expected(model: str) -> dict[str, bool]:
    """Return by name of each command whether something must be found: a counterexample, or an example of a `run`."""
    return {match["name"]: match["expected"] == "1" for match in COMMAND.finditer(model)}


def wrong(model: str, receipt: Mapping[str, Any]) -> list[str]:
    """Return what is not as the model expects, a line each.

    Args:
        model: the model's text.
        receipt: what Alloy wrote of its run: by command's name, what it is, with a `solution` if one was found.
    """
    commands: Mapping[str, Any] = receipt.get("commands", {})
    lines = []
    for name, is_found in expected(model).items():
        if name not in commands:
            lines.append(f"{name}: was not run")
        elif bool(commands[name].get("solution")) != is_found:
            lines.append(f"{name}: {'nothing was found' if is_found else 'there is a counterexample'}")
    return lines


def main() -> int:
    """Run Alloy and return the exit status."""
    try:
        alloy = jars.Artifact("org.alloytools", "org.alloytools.alloy.dist", ALLOY_VERSION, ALLOY_SHA256)
        [jar] = jars.cached_files([alloy], jars.cache_folder(), jars.ivy_jar(jars.spark_jars_folder()))
        java = jars.java()
    except LockstepError as error:
        print(f"lockstep: {error.message}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="lockstep-model-") as folder:
        command = [java, "-Xmx2g", "-jar", str(jar), "exec", "--force", "--type", "none", "--solver", "glucose"]
        done = subprocess.run([*command, "--output", folder, str(MODEL)], stdin=subprocess.DEVNULL, check=False)
        path = Path(folder, "receipt.json")
        receipt = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    lines = wrong(MODEL.read_text(encoding="utf-8"), receipt)
    print(*(f"model: {line}" for line in lines), sep="\n", end="\n" if lines else "")
    return 1 if lines or done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
