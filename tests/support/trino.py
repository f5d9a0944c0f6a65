"""A Trino of one node, which is started by the tests of `make test-trino`, and what it is asked over HTTP.

`python -m tests.support.trino` brings it here: 821 MB from Maven Central, of which its core and its connector for Delta
are kept unpacked. It needs a newer Java than Spark, which `TRINO_JAVA_HOME` names.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.support.child import REPOSITORY
from tests.support.maven import MissingError, Published, fetched
from tests.support.ports import free_port

SERVER = Published(
    "io.trino",
    "trino-server",
    "476",
    "cfd5accde17e8ebd251eeeb78aed1f490e77bb3a164d95a0f454bf8a7c1cbd3f",
    extension="tar.gz",
)
"""The newest one that Maven Central has."""

FOLDER = REPOSITORY / "target" / f"{SERVER.module}-{SERVER.revision}"
CONNECTOR = "delta-lake"
JAVA_HOME = "TRINO_JAVA_HOME"
OLDEST_JAVA = 24

START_SECONDS = 180
ANSWER_SECONDS = 120

Row = dict[str, Any]


class RefusedError(Exception):
    """What Trino says of a statement that it does not carry out."""


def unpacked() -> Path:
    """Return the folder of its server, which is fetched and unpacked if need be."""
    if not FOLDER.exists():
        FOLDER.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER.parent) as scratch:
            with tarfile.open(fetched(SERVER)) as archive:
                archive.extractall(scratch, filter="data")
            arrived = Path(scratch, FOLDER.name)
            for plugin in (arrived / "plugin").iterdir():
                if plugin.name != CONNECTOR:  # each takes its time whenever the server starts
                    shutil.rmtree(plugin)
            arrived.replace(FOLDER)
    return FOLDER


def java() -> str:
    """Return the Java that Trino is run with.

    Raises:
        MissingError: there is none, or it is too old.
    """
    needed = f"Trino {SERVER.revision} needs Java {OLDEST_JAVA} or newer: set {JAVA_HOME} to the folder of one"
    home = os.environ.get(JAVA_HOME)
    if not home:
        raise MissingError(needed)
    path = shutil.which("java", path=str(Path(home, "bin")))
    if not path:
        raise MissingError(f"{needed}; {home} has no bin/java")
    said = subprocess.run([path, "--version"], check=True, capture_output=True, text=True, env=_environment()).stdout
    if major(said) < OLDEST_JAVA:
        raise MissingError(f"{needed}; the one in {home} is {said.splitlines()[0]}")
    return path


def major(said: str) -> int:
    """Return which Java it is that says this of its version; 0 where that is not to be seen."""
    found = re.match(r"\S+ (\d+)", said)
    return int(found[1]) if found else 0


def _environment() -> dict[str, str]:
    """Return what its Java is told: nothing of what the other Java here is."""
    return {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"}


@dataclass(frozen=True)
class Trino:
    """A server that runs."""

    port: int

    def ask(self, statement: str) -> list[Row]:
        """Run a statement and return its rows, as Arrow's `to_pylist` would have them.

        Raises:
            RefusedError: Trino does not carry it out.
        """
        columns: Sequence[Mapping[str, Any]] = ()
        rows: list[Row] = []
        answer = self._send("/v1/statement", statement.encode())
        while True:
            columns = answer.get("columns") or columns
            for row in answer.get("data") or ():
                cells = zip(columns, row, strict=True)
                rows.append({each["name"]: value_of(each["typeSignature"], cell) for each, cell in cells})
            if error := answer.get("error"):
                raise RefusedError(f"{error['errorName']}: {error['message']}")
            if "nextUri" not in answer:
                return rows
            answer = self._send(answer["nextUri"])

    @property
    def is_ready(self) -> bool:
        """Whether it takes statements."""
        try:
            return not self._send("/v1/info")["starting"] and self.ask("SELECT 1 AS one") == [{"one": 1}]
        except (urllib.error.URLError, ConnectionError, RefusedError):
            return False

    def _send(self, path: str, body: bytes | None = None) -> Any:
        said = {
            "X-Trino-User": "test",
            "X-Trino-Time-Zone": "UTC",
            "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",  # times in full: it says milliseconds otherwise
        }
        url = path if path.startswith("http") else f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(urllib.request.Request(url, body, said), timeout=ANSWER_SECONDS) as answer:
            return json.load(answer)


@contextmanager
def trino(folder: Path, catalogs: Mapping[str, str]) -> Iterator[Trino]:
    """Run one for as long as the block.

    Args:
        folder: where it may write.
        catalogs: by name, what the file of its properties has.
    """
    port, server = free_port(), unpacked()
    properties = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://127.0.0.1:{port}",
        "plugin.dir": str(server / "plugin"),
        "web-ui.enabled": "false",
    }
    (folder / "etc" / "catalog").mkdir(parents=True)
    (folder / "etc" / "config.properties").write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
    for name, text in catalogs.items():
        (folder / "etc" / "catalog" / f"{name}.properties").write_text(text)
    command = [
        *(java(), "-Xmx1g", "-XX:TieredStopAtLevel=1", "--sun-misc-unsafe-memory-access=allow"),
        *("-Djdk.attach.allowAttachSelf=true", "--add-modules=jdk.incubator.vector"),
        *("-Dnode.environment=test", "-Dnode.internal-address=127.0.0.1", f"-Dnode.data-dir={folder / 'data'}"),
        *("-Dconfig=etc/config.properties", "-cp", f"{server / 'lib'}/*", "io.trino.server.TrinoServer"),
    ]
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=_environment()
        )
    try:
        end = time.monotonic() + START_SECONDS
        while not (found := Trino(port)).is_ready:
            said = log.read_text(errors="replace")[-2000:]
            assert process.poll() is None, f"Trino ended with {process.returncode}: {said}"
            assert time.monotonic() < end, f"Trino does not answer: {said}"
            time.sleep(0.2)
        yield found
    finally:
        process.kill()  # it has nothing to keep
        process.wait()


# --- what its values are ----------------------------------------------------------------------------------------------

_SCALARS: dict[str, Callable[[Any], Any]] = {
    "real": float,  # NaN and the infinities are texts
    "double": float,
    "decimal": Decimal,
    "varbinary": base64.b64decode,
    "date": dt.date.fromisoformat,
    "timestamp": dt.datetime.fromisoformat,
    "timestamp with time zone": lambda text: dt.datetime.fromisoformat(text.replace(" UTC", "+00:00")),
}
"""By a type, what a value of JSON means; of the others it means itself."""


def value_of(signature: Mapping[str, Any], value: Any) -> Any:
    """Return what a value of an answer means, by the signature of its type."""
    if value is None:
        return None
    kind, arguments = signature["rawType"], [each["value"] for each in signature["arguments"]]
    if kind == "array":
        return [value_of(arguments[0], each) for each in value]
    if kind == "map":
        return [(value_of(arguments[0], key), value_of(arguments[1], each)) for key, each in value.items()]
    if kind == "row":
        cells = zip(arguments, value, strict=True)
        return {each["fieldName"]["name"]: value_of(each["typeSignature"], cell) for each, cell in cells}
    return _SCALARS.get(kind, lambda same: same)(value)


def main() -> None:
    """Bring it here."""
    try:
        java()
        unpacked()
    except MissingError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
