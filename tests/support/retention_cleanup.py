"""Clean-up of logs by a plain Delta writer, in random histories: which versions nothing tells of any more.

Such a writer knows neither the lake's versions nor tags. It takes from a table's log what is older than
`delta.logRetentionDuration` and before a checkpoint, so versions of the lake become unreadable that nobody let expire.
What a tag named before must not be among them.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
from hypothesis import strategies as st
from hypothesis.stateful import rule

from lockstep.lake.kept_states import state_path
from lockstep.timeline.entry import Name, Table
from tests.support.retention_model import TABLE, Model

_OF_A_VERSION = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")


class CleanUp(Model):
    """See the module.

    Attributes:
        clean_ups: how many there were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clean_ups = 0

    @rule(name=TABLE, after=st.sampled_from([timedelta(0), timedelta(days=31)]))
    def clean_up_logs(self, name: Name, after: timedelta) -> None:
        """Write a checkpoint of a table with deltalake, and have deltalake take what is old from its log.

        Args:
            after: so much later than the step before; by default logs keep what is younger than 30 days.
        """
        if name not in self.tables:
            return
        self.clock.now += after
        location = self.tables[name][0]
        table = deltalake.DeltaTable(str(self.root / location))
        table.create_checkpoint()
        self.clean_ups += 1
        before = self.log_of(location)
        self.put_times(self.root / location / "_delta_log")
        table.cleanup_metadata()
        for path in before - self.log_of(location):
            self.store.deleted.append(path)
            self.store.times.pop(path, None)

    def put_times(self, log: Path) -> None:
        """Make a log's files as old, by the machine's clock, as they are by that of the history."""
        now = datetime.now(UTC)
        for file in log.iterdir():
            written = self.store.times.setdefault(str(file.relative_to(self.root)), self.clock.now)
            at = (now - (self.clock.now - written)).timestamp()
            with suppress(FileNotFoundError):
                os.utime(file, (at, at))

    def log_of(self, location: str) -> set[str]:
        log = self.root / location / "_delta_log"
        return {str(path.relative_to(self.root)) for path in log.iterdir() if path.is_file()}

    # --- what can be told ---------------------------------------------------------------------------------------------

    def log_tells(self, table: Table) -> bool:
        """Whether a table's log tells of its version: by a checkpoint and the commits since, or by all commits."""
        found = [_OF_A_VERSION.fullmatch(path.rpartition("/")[2]) for path in self.log_of(table.location)]
        commits = {int(match[1]) for match in found if match and match[2] == "json"}
        checkpoints = {int(match[1]) for match in found if match and match[2] != "json"}
        begin = max((each for each in checkpoints if each <= table.version), default=-1)
        return commits >= {*range(begin + 1, table.version + 1)}

    def is_told(self, table: Table) -> bool:
        """Whether a table's log, or what is kept for tags, tells of its version."""
        return self.log_tells(table) or (self.root / state_path(table.id, table.version)).is_file()

    def is_whole(self, version: int) -> bool:
        """Whether something tells of each table of a database version that can be read."""
        return all(map(self.is_told, self.catalog.timeline.at(version).tables.values()))

    def whole(self) -> list[int]:
        """Return the versions that can be read, and that no clean-up from outside made unreadable."""
        return [version for version in self.readable() if not self.clean_ups or self.is_whole(version)]
