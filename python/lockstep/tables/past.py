"""What a transaction without Spark does about database versions: names them, and brings back what was."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from functools import partial

from lockstep.arguments import takes
from lockstep.catalog import TransactionalCatalog
from lockstep.exports.returning import check_whole
from lockstep.exports.tagged import create_tag
from lockstep.lake.lake import Lake
from lockstep.recovery.changes import undrop
from lockstep.recovery.tags import new_tag
from lockstep.tables.names import AName, name_of
from lockstep.tables.restoring import Restored, moment, restore, revert, selection_of
from lockstep.tables.state import States
from lockstep.tables.statement import writes
from lockstep.tables.table import Scope
from lockstep.transactions.transaction import Transaction


class Past(ABC):
    """The statements of a transaction that are about database versions. `LakeTransaction` has them."""

    _catalog: TransactionalCatalog
    _states: States

    @property
    @abstractmethod
    def core(self) -> Transaction:
        """The transaction's own record of what it did."""

    @property
    def lake(self) -> Lake:
        """The lake that it is in."""
        return self._catalog.lake

    @property
    def _scope(self) -> Scope:
        return Scope(self._catalog, self.core, self._states)

    @writes
    @takes(when=int | datetime | str, namespaces=Iterable | None, tables=Iterable | None)
    def restore(
        self,
        when: int | datetime | str,
        *,
        namespaces: Iterable[str | tuple[str, ...]] | None = None,
        tables: Iterable[AName] | None = None,
    ) -> Restored:
        """Take tables, views and namespaces back to what they were in an older database version, as RESTORE DATABASE.

        Args:
            when: a version's number, a time, or a tag's name.
            namespaces: only these namespaces, with all that is in them.
            tables: only these tables. If neither is given, everything.

        Raises:
            UndefinedError: no such tag (42704), or no such name, now or then. ExpiredError: an expired version.
            UnsupportedError: a table that only Spark can restore, by name. ReadOnlyError: a table only for appends.
            MissingFilesError: files that are needed are missing; it names them.
            LockstepError: see `lockstep.tables.restoring.restore`.
        """
        return restore(self._scope, moment(when, "restore"), selection_of(namespaces, tables))

    @writes
    @takes(version=int)
    def revert(self, version: int) -> Restored:
        """Undo what one database version changed, unless a later one changed the same tables, views or namespaces.

        Raises:
            InvalidError: a later version, or this transaction, changed the same; or there is no such version.
            LockstepError: as for `restore`.
        """
        return revert(self._scope, version)

    @writes
    @takes(id=str | None)
    def undrop(self, name: AName, *, id: str | None = None) -> None:
        """Bring back the table of a name that was dropped last, as it was then, as UNDROP TABLE.

        Args:
            id: of another dropped table, which `OpenLake.dropped` lists; it comes back under this name.

        Raises:
            UndefinedError (42P01, 3F000): no such table was dropped; no such namespace.
            DuplicateError (42P07): the name is taken.
            InvalidError: the transaction itself dropped it, which `rollback_to` takes back.
            MissingFilesError: files of it are gone; the error names them.
        """
        undrop(self.lake, self.core, name_of(name), id=id, look=partial(check_whole, self.lake))

    @writes
    @takes(name=str, when=int | datetime | str | None, days=int | None, comment=str, check=bool | None)
    def tag(
        self,
        name: str,
        when: int | datetime | str | None = None,
        *,
        days: int | None = None,
        comment: str = "",
        check: bool | None = None,
    ) -> int | None:
        """Give a database version a name, which keeps all that it needs from expiry and vacuum, as CREATE TAG.

        Args:
            name: it is not a number, and case does not count.
            when: the database version: its number, a time, or another tag; by default the one that this transaction
                makes.
            days: for how long it is kept, 1 to 36,500; for ever by default.
            comment: what for.
            check: whether the files that the version needs are looked for; by default those that can be.

        Returns:
            The database version that it names; None for the one that this transaction makes.

        Raises:
            DuplicateError (42710): there is such a tag. InvalidError: it can be no name (42602, 42622), or no such
                version. ExpiredError: an expired version. UndefinedError (42704): `when` is no tag.
            MissingFilesError: files are gone that the version needs; the error names them.
            LockstepError: see `lockstep.exports.tagged.create_tag`.
        """
        catalog, tx = self._catalog, self.core
        said = None if when is None else moment(when, "when")
        version = None if said is None else catalog.as_of(said, at_most=tx.base.version, names=tx.names).version
        ddl = new_tag(name, version=version, days=days, comment=comment, now=catalog.lake.clock())
        create_tag(catalog.lake, tx, ddl, check=check)
        return version

    @writes
    @takes(name=str)
    def untag(self, name: str) -> None:
        """Take a tag from its database version, which is kept no more for it, as DROP TAG.

        Raises:
            UndefinedError (42704): there is no such tag.
        """
        self.core.changing().drop_tag(name)
