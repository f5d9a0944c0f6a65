"""A tag is made if the data files are there that it is to keep: they are looked for before anything is written.

All of them: a clean-up that knows no database versions takes those that only older versions have, and a loss any.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from lockstep.commit.drafts import staged_commit
from lockstep.delta.real_paths import real_paths
from lockstep.delta.snapshot import Snapshot
from lockstep.errors import LockstepError, MissingFilesError, UnsupportedError
from lockstep.exports.copying import Stores, check_there
from lockstep.exports.export import AT_ONCE
from lockstep.exports.files import Place, named_in, places_of
from lockstep.lake.kept import check_readable
from lockstep.lake.kept_states import snapshot_of
from lockstep.lake.lake import Lake
from lockstep.storage.outside import opener_of, reaches
from lockstep.timeline.entry import NEW, Table, TagDdl
from lockstep.transactions.names import Names
from lockstep.transactions.transaction import Transaction
from lockstep.workers import Workers

_WITHOUT = "check => false (lockstep tag --no-check) makes a tag without looking for files"

_log = logging.getLogger(__name__)


def create_tag(lake: Lake, tx: Transaction, ddl: TagDdl, *, check: bool | None = None) -> None:
    """Make a tag in a transaction, if all data files and deletion vectors of the version that it names are there.

    The tables are looked at `AT_ONCE` at a time, each folder by one listing: the files of no more tables are in memory.
    What lies where this process may not look is not looked for.

    Args:
        check: whether files are looked for. None looks for those of all tables whose logs can be read here: without
            pyarrow no log can that begins with a checkpoint, and this process' log says of which tables; True refuses.

    Raises:
        MissingFilesError: files are gone, and it names them; or a log does not tell any more of an older version.
            Whatever is raised, nothing was written, and the transaction is as it was.
        LockstepError: there can be no such tag, see `Names.create_tag`; a table is set aside; a log cannot be read, or
            files cannot be looked for.
    """

    def create(names: Names) -> None:
        names.create_tag(ddl)
        if ddl.version is not None:
            check_readable(lake, ddl.version)
        if check is not False:
            _check_files(lake, tx, ddl, is_strict=check is True)

    tx.change_names(create)


def _check_files(lake: Lake, tx: Transaction, ddl: TagDdl, *, is_strict: bool) -> None:
    if ddl.version is None:
        tables, staged_by = [*tx.names.tables.values()], tx
        for table in tables:
            tx.base.refuse_to_tag(table)
    else:
        tables, staged_by = [*lake.timeline.at(ddl.version).tables.values()], None
    workers, stores = Workers(AT_ONCE, "lockstep-tag"), Stores(lake.storage, opener_of(lake.storage))
    help_ = (
        "Nothing was changed. Bring the files back from a copy, restore or drop their table, or tag a database version "
        f"that does not need them; {_WITHOUT}"
    )
    read = partial(_places, lake, staged_by, is_strict=is_strict)
    for first in range(0, len(tables), AT_ONCE):
        try:
            places = set[Place]().union(*workers.map(read, tables[first : first + AT_ONCE]))
            check_there(stores, places, workers, needed=(f"tag {ddl.name}", help_))
        except MissingFilesError:
            raise
        except LockstepError as error:
            raise error.again(f" (tag {ddl.name} needs the files to be looked for; {_WITHOUT})") from error


def _places(lake: Lake, staged_by: Transaction | None, table: Table, *, is_strict: bool) -> Collection[Place]:
    """Return where the files are of a table at its version, or as a transaction sees it; those within reach."""
    storage = lake.storage
    try:
        snapshot = Snapshot() if table.version == NEW else snapshot_of(storage, table)
    except UnsupportedError as error:
        if is_strict:
            raise
        _log.warning("the data files of table %s were not looked for, for a tag: %s", table.name, error)
        return ()
    if staged_by is not None:
        for version in staged_by.staged.get(table.id, ()):
            snapshot.take(real_paths(staged_commit(lake, staged_by, (table, version))))
    places = {place for file in snapshot.files.values() for place in places_of(file, table.location, storage.url)}
    return {place for place in places if reaches(storage, named_in(place, storage.url))}
