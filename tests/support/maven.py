"""Servers that Maven Central has: Spark's Ivy fetches each once, into the cache of jars."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lockstep.spark import jars


class MissingError(Exception):
    """A file, or a server, that cannot be had here, and why."""


@dataclass(frozen=True)
class Published(jars.Artifact):
    """A published file that need not be a jar, and the only content that is accepted for it."""

    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """The name it has in the cache."""
        return f"{super().file_name.removesuffix('.jar')}.{self.extension}"


def fetched(file: Published) -> Path:
    """Return where it is, fetched if it is not there or not whole.

    Raises:
        MissingError: it could not be fetched, or came with another content.
    """
    folder = jars.cache_folder()
    path = folder / file.file_name
    if _is_whole(path, file):
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        Path(scratch, "ivy.xml").write_text(_ivy_module(file), encoding="utf-8")
        ivy = jars.ivy_jar(jars.spark_jars_folder())
        command = [jars.java(), f"-Divy.default.ivy.user.dir={scratch}", "-jar", str(ivy), "-error", "-ivy", "ivy.xml"]
        options = ["-cache", f"{scratch}/cache", "-confs", "default", "-retrieve", "out/[artifact].[ext]"]
        quiet = subprocess.DEVNULL
        subprocess.run([*command, *options], cwd=scratch, stdin=quiet, stdout=quiet, check=False)
        arrived = Path(scratch, "out", f"{file.module}.{file.extension}")
        if not _is_whole(arrived, file):
            raise MissingError(f"{file} could not be fetched; without network, put {file.file_name} into {folder}")
        arrived.replace(path)
    return path


def _ivy_module(file: Published) -> str:
    """Return an Ivy file that asks for this file alone, without what its module depends on."""
    classified = f' m:classifier="{file.classifier}"' if file.classifier else ""
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="lockstep" module="fetch"/><configurations><conf name="default"/></configurations>'
        f'<dependencies><dependency org="{file.organisation}" name="{file.module}" rev="{file.revision}"'
        f' conf="default->master"><artifact name="{file.module}" type="{file.extension}" ext="{file.extension}"'
        f"{classified}/></dependency></dependencies></ivy-module>"
    )


def _is_whole(path: Path, file: Published) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
