"""Put the shim's jars into a wheel, and build that for the newest Spark first where it can be done.

hatchling calls this for every wheel. An editable install needs no jar (`make jar` puts it into the source tree). Any
other wheel has the jars that there are, of this version and no older than their sources: `make wheel` makes one for
each Spark minor, and a warning says which are missing and what makes them (pip shows it with --verbose alone). That for
the newest must be among them. When it is not, pyspark becomes a build requirement of this one build, and the jar is
made by the same script as `make jar`; so `pip install .` in a fresh clone needs only Python and Java, and builds that
have the jar do not pay for pyspark.
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
        return [f"pyspark=={'.'.join(self._bound('<='))}"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        jar = self._jar()
        if not self._is_current(jar):
            self._build(jar)
        # What another version left, or what was built before the sources changed, stays out.
        jars = {minor: self._jar(minor) for minor in self._minors()}
        missing = [minor for minor, found in jars.items() if not self._is_current(found)]
        build_data["force_include"] = {
            str(found): f"lockstep/jars/{found.name}" for minor, found in jars.items() if minor not in missing
        }
        build_data["pure_python"] = True
        if missing:
            self.app.display_warning(
                f"lockstep: this wheel has no jar for Spark {' and '.join(missing)}, and works with Spark "
                f"{' and '.join(minor for minor in jars if minor not in missing)} alone. `make wheel` builds one with "
                f"all of them, {' and '.join(f'`make jar SPARK={minor}`' for minor in missing)} what is missing"
            )

    def _jar(self, minor: str = "") -> Path:
        """Return where the jar for a Spark minor is, or would be; for the newest unless one is given."""
        minor = minor or self._minors()[-1]
        name = f"lockstep-spark_{minor}_2.13-{self.metadata.version}.jar"
        return Path(self.root, "python", "lockstep", "jars", name)

    def _minors(self) -> list[str]:
        """Return the minor versions of Spark that Lockstep works with, oldest first."""
        major, oldest, _ = self._bound(">=")
        _, newest, _ = self._bound("<=")
        return [f"{major}.{minor}" for minor in range(int(oldest), int(newest) + 1)]

    def _bound(self, operator: str) -> tuple[str, str, str]:
        """Return the version of pyspark beside an operator in what the extra `spark` requires, in three parts."""
        bounds = next(
            found for found in self.metadata.core.optional_dependencies["spark"] if found.startswith("pyspark")
        )
        found = re.search(rf"{operator}(\d+)\.(\d+)\.(\d+)", bounds)
        assert found, f"{bounds} has no {operator}"
        return found[1], found[2], found[3]

    def _is_current(self, jar: Path) -> bool:
        sources = Path(self.root, "jvm-shim", "src").rglob("*.*")
        return jar.exists() and all(source.stat().st_mtime <= jar.stat().st_mtime for source in sources)

    def _build(self, jar: Path) -> None:
        if importlib.util.find_spec("pyspark") is None:
            sys.exit(f"lockstep: {jar.name} is missing or old, and there is no pyspark to build it; run `make jar`")
        sys.path.insert(0, self.root)
        from project import bootstrap

        if bootstrap.sbt("shimJar") != 0 or not jar.exists():
            sys.exit(f"lockstep: building {jar.name} failed (see above); run `make jar` to try it by hand")
