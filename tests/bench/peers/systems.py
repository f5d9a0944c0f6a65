"""The systems that `make bench-peers` compares: how a lake of each is made, and how its writers are started.

Each is a context manager that is given a folder and the names of tables, and gives the command of a writer. A system
that cannot be had raises `MissingError`, and the page says why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias

from lockstep.storage import open_storage
from tests.bench.peers.nessie import Nessie
from tests.bench.peers.nessie_server import nessie_server
from tests.support.child import REPOSITORY, Child
from tests.support.lakes import create, open_catalog
from tests.support.maven import MissingError

PEERS = REPOSITORY / ".venv-peers" / "bin" / "python"
FSYNC = "fsync-data"
OURS = "Lockstep's core"


Start: TypeAlias = Callable[[str], Child]
"""Starts a writer of this name."""

Made: TypeAlias = Callable[[Path, Sequence[str]], AbstractContextManager[Start]]


@dataclass(frozen=True)
class System:
    """What is compared.

    Attributes:
        name: for the page.
        durable: what has reached the disk when a commit is answered.
        made: makes a new lake with these tables.
        processes: of the writers; fewer than writers if they are threads.
    """

    name: str
    durable: str
    made: Made
    processes: int = 8


@contextmanager
def lockstep(options: Sequence[str], folder: Path, tables: Sequence[str]) -> Iterator[Start]:
    """Make a lake whose writers have these options: `fsync-data`, or none."""
    create(open_catalog(open_storage(str(folder / "lake"), create=True)), *tables)
    yield lambda name: Child("tests.bench.peers.lockstep", str(folder / "lake"), name, *options)


@contextmanager
def ducklake(catalog: Callable[[Path], str], rows: int, folder: Path, tables: Sequence[str]) -> Iterator[Start]:
    """Make a lake with this catalog, and with single rows in it (10) or in files (0)."""
    if not PEERS.is_file():
        raise MissingError("no .venv-peers: run it by `make bench-peers`")
    where = catalog(folder)

    def start(name: str) -> Child:
        return Child("tests.bench.peers.ducklake", where, f"{folder}/data", str(rows), name, python=str(PEERS))

    with closing(start("set up")) as child:
        for table in tables:
            child.ask(table)
    yield start


def sqlite(folder: Path) -> str:
    return f"sqlite:{folder}/catalog.sqlite"


class Servers:
    """PostgreSQL and Nessie, each started when it is first needed; a context manager that ends them."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="lockstep-peers-"))
        self._postgres: Path | None = None
        self._nessie: int | None = None
        self._databases = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # --- PostgreSQL -------------------------------------------------------------------------------------------------

    def postgres(self, _: Path) -> str:
        """Return a new database of a server that Debian's package brought."""
        if self._postgres is None:
            self._postgres = self._started_postgres()
        self._databases += 1
        name = f"lake{self._databases}"
        self._as_postgres("createdb", "--host", str(self._postgres), name)
        user = "postgres" if os.geteuid() == 0 else os.environ.get("USER", "")
        return f"postgres:dbname={name} host={self._postgres} user={user}"

    def _started_postgres(self) -> Path:
        folder = self._folder / "postgres"
        folder.mkdir()
        if os.geteuid() == 0:  # which PostgreSQL refuses to run as
            self._folder.chmod(0o755)
            try:
                shutil.chown(folder, "postgres")
            except LookupError:
                raise MissingError(
                    "no user postgres, whom Debian's package makes: apt-get install postgresql"
                ) from None
        self._as_postgres("initdb", "--auth", "trust", "--pgdata", str(folder / "data"))
        log, options = str(folder / "log"), f"-k {folder} -c listen_addresses="
        self._as_postgres(
            "pg_ctl", "start", "--wait", "--pgdata", str(folder / "data"), "--log", log, "--options", options
        )
        self._running.callback(
            self._as_postgres, "pg_ctl", "stop", "--mode", "immediate", "--pgdata", str(folder / "data")
        )
        return folder

    def _as_postgres(self, program: str, *arguments: str) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
        path = shutil.which(program) or (str(found[-1]) if found else None)
        if path is None:
            raise MissingError(f"no {program}: apt-get install postgresql")
        command = [*(["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []), path, *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, cwd="/")

    # --- Nessie -----------------------------------------------------------------------------------------------------

    @contextmanager
    def nessie(self, _: Path, tables: Sequence[str]) -> Iterator[Start]:
        """Make tables on the branch of one server, under names that nobody has had."""
        if self._nessie is None:
            self._nessie = self._running.enter_context(nessie_server(self._folder))
        port = str(self._nessie)
        for table in tables:
            Nessie(port).append([table])
        yield partial(Child, "tests.bench.peers.nessie", port)


def systems(servers: Servers) -> list[System]:
    """Return what is compared, in the order of the page."""
    sqlite_said = "the catalog (SQLite, synchronous=FULL)"
    postgres_said = "the catalog (PostgreSQL, fsync=on)"
    return [
        System(OURS, "the entry and the tables' logs, not the files", partial(lockstep, [])),
        System("… with `fsync-data`", "all of it: the entry, the tables' logs, the files", partial(lockstep, [FSYNC])),
        System("DuckLake on SQLite, rows in the catalog", sqlite_said, partial(ducklake, sqlite, 10)),
        System("… 8 threads of one process", sqlite_said, partial(ducklake, sqlite, 10), processes=1),
        System("DuckLake on SQLite, rows in files", f"{sqlite_said}, not the files", partial(ducklake, sqlite, 0)),
        System("DuckLake on PostgreSQL, rows in the catalog", postgres_said, partial(ducklake, servers.postgres, 10)),
        System(
            "DuckLake on PostgreSQL, rows in files",
            f"{postgres_said}, not the files",
            partial(ducklake, servers.postgres, 0),
        ),
        System("Nessie alone, without Iceberg's files", "nothing (RocksDB, no sync of its log)", servers.nessie),
    ]
