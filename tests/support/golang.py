"""Servers that are built with Go, from the sources that its module proxy has: once, into target/stores/go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "target" / "stores" / "go"


def built(module: str, version: str, needs: str) -> Path:
    """Return a command of a module, built if need be.

    Args:
        module: the command's package, whose last part is the command's name.
        version: the module's, such as v1.2.3.
        needs: the oldest Go that builds it.
    """
    name = module.rpartition("/")[2]
    binary = FOLDER / version / name
    if not binary.exists():
        try:
            environment = {**os.environ, "GOBIN": str(binary.parent)}
            command = ["go", "install", f"{module}@{version}"]
            subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            sys.exit(f"{name} is built with Go, and there is no go: install Go {needs} or newer")
    return binary
