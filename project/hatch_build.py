"""Put the shim's jars into a wheel, and build that for the newest Spark first where it can be done.

hatchling calls this for every wheel. An editable install needs no jar (`make jar` puts it into the source tree). Any
other wheel has the jars that there are, of this version and no older than their sources: `make wheel` makes one for
each Spark minor. That for the newest must be among them. When it is not, pyspark becomes a build requirement of this
one build, and the jar is made by the same script as `make jar`; so `pip install .` in a fresh clone needs only Python
and Java, and builds that have the jar do not pay for pyspark.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ShimJarHook(BuildHookInterface[Any]):
    """Look for the jar that belongs into the wheel."""

    def dependencies(self) -> list[str]:
        # hatchling does not say which kind of wheel the requirements are for; pip and build run it as
        # `_in_process.py get_requires_for_build_editable …`. A wrong guess costs a download, nothing else.
        if self._is_current(self._jar()) or any("editable" in argument for argument in sys.argv):
            return []
        return [f"pyspark=={self._newest_spark()}"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        jar = self._jar()
        if not self._is_current(jar):
            self._build(jar)
        # What another version left, or what was built before the sources changed, stays out.
        jars = jar.parent.glob(f"*-{self.metadata.version}.jar")
        build_data["force_include"] = {str(jar): f"lockstep/jars/{jar.name}" for jar in jars if self._is_current(jar)}
        build_data["pure_python"] = True

    def _jar(self) -> Path:
        minor = self._newest_spark().rpartition(".")[0]
        name = f"lockstep-spark_{minor}_2.13-{self.metadata.version}.jar"
        return Path(self.root, "python", "lockstep", "jars", name)

    def _is_current(self, jar: Path) -> bool:
        sources = Path(self.root, "jvm-shim", "src").rglob("*.*")
        return jar.exists() and all(source.stat().st_mtime <= jar.stat().st_mtime for source in sources)

    def _newest_spark(self) -> str:
        bounds = next(found for found in self.metadata.core.dependencies if found.startswith("pyspark"))
        newest = re.search(r"<=(\d+\.\d+\.\d+)", bounds)
        assert newest, bounds
        return newest[1]

    def _build(self, jar: Path) -> None:
        if importlib.util.find_spec("pyspark") is None:
            sys.exit(f"lockstep: {jar.name} is missing or old, and there is no pyspark to build it; run `make jar`")
        sys.path.insert(0, self.root)
        from project import bootstrap

        if bootstrap.sbt("shimJar") != 0 or not jar.exists():
            sys.exit(f"lockstep: building {jar.name} failed (see above); run `make jar` to try it by hand")
