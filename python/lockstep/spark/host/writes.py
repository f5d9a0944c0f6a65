"""The requests of the shim's log store: what Delta commits on its own, and what it stages in a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lockstep.commit.elsewhere import hold
from lockstep.commit.outcomes import Taken
from lockstep.delta.log import staged_path
from lockstep.errors import (
    ActiveTransactionError,
    InvalidError,
    NoTransactionError,
    TransactionStateError,
    UnavailableError,
)
from lockstep.settings import SESSION_ISOLATION
from lockstep.spark.host.definitions import UsesOfDefinitions, check_not_ended
from lockstep.spark.host.lakehouses import isolation_of
from lockstep.spark.host.paths import refuse_paths
from lockstep.spark.host.protocol import tables as protocol
from lockstep.spark.host.protocol.base import Answer, RequestBase
from lockstep.spark.host.requests import Operation, operation
from lockstep.spark.host.session_settings import check_known
from lockstep.spark.host.tables import scans_of
from lockstep.spark.host.uris import OverlayView, transaction_in
from lockstep.timeline.entry import Name
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session


class WriteRequests(UsesOfDefinitions):
    """Answers about commits of tables, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (
                operation(protocol.Write, self._write),
                operation(protocol.Stage, self._stage),
                operation(protocol.Staging, self._staging),
                operation(protocol.Staged, self._staged),
                operation(protocol.Claim, self._claim),
            )
        )

    def _write(self, session: Session, request: protocol.Write) -> protocol.WriteAnswer:
        """Commit one version of one table: an autocommitted statement, which must not run inside a transaction."""
        house = self._host.lakehouses.writer(request.uri, request.catalogs, request.creation)
        location = house.uris.parse(request.uri).location
        if session.transaction is not None:
            raise ActiveTransactionError(
                f"a statement wrote table folder {house.uris.real(location)} outside the open transaction "
                f"({session.transaction.id}), which could not be rolled back. It probably uses a DataFrame or "
                "DeltaTable that was made before BEGIN: make it again inside the transaction"
            )
        check_known(request.settings)
        isolation = isolation_of(SESSION_ISOLATION, request.settings) or house.catalog.isolation
        if isolation == "SERIALIZABLE":
            tables = house.catalog.lake.refresh().tables.values() if request.paths else ()
            refuse_paths(request.paths, house.catalog.lake.storage.url, tables)
        # Before the creation is taken: another lake may have to be looked at first, and then the request comes again.
        views = self._views_of(house, request)
        creations = self._host.lakehouses.creations
        creation = creations.take(house, location, request.creation) if request.version == 0 else None
        outcome = house.catalog.write(
            location,
            request.version,
            request.actions,
            creation=creation,
            scans=scans_of(request.reads),
            views=views,
            older=request.has_read,
            isolation=isolation,
            text=request.text or "",
            author=request.user,
        )
        if isinstance(outcome, Taken):
            return protocol.WriteAnswer(outcome="taken")
        return protocol.WriteAnswer(outcome="committed")

    def _views_of(self, house: Lakehouse, request: protocol.Write) -> dict[Name, int]:
        """Return the views of this lake that the statement used, each with the oldest version that it was used of."""
        versions: dict[Name, int] = {}
        for view in self._definitions_of(house, request.views, request.catalogs):
            name = Name(namespace=view.name[:-1], table=view.name[-1])
            check_not_ended(view)
            versions[name] = min(view.version, versions.get(name, view.version))
        return versions

    def _stage(self, _: Session, request: protocol.Stage) -> protocol.StageAnswer:
        """Write the file of a transaction's commit, and note it, unless its version is taken."""
        house, view, owner, tx = self._staged_by(request.uri)
        with owner.lock:
            if self._is_taken(house, view, tx, request.version):
                return protocol.StageAnswer(outcome="taken")
            hold(house.catalog.lake, tx, view.location, request.actions)
            stage(house, tx, view.location, request)
        return protocol.StageAnswer(outcome="staged", claims=house.catalog.settles_early)

    def _staging(self, _: Session, request: protocol.Staging) -> protocol.StagingAnswer:
        """Answer whether Delta may stage this commit of a transaction: nothing is written that nobody would undo."""
        house, view, owner, tx = self._staged_by(request.uri)
        with owner.lock:
            is_taken = self._is_taken(house, view, tx, request.version)
            if not is_taken:
                hold(house.catalog.lake, tx, view.location)
            return protocol.StagingAnswer(outcome="taken" if is_taken else "free")

    def _is_taken(self, house: Lakehouse, view: OverlayView, tx: Transaction, version: int) -> bool:
        """Tell whether a transaction has a version of a table already; refuse what is of before a ROLLBACK TO."""
        if view.epoch != tx.epoch:
            raise TransactionStateError(
                f"transaction {tx.id} went back to a savepoint while a statement that writes table folder "
                f"{house.uris.real(view.location)} ran; nothing of the statement was written, run it again",
                sqlstate="25000",
            )
        return house.catalog.is_taken(tx, view.location, version)

    def _staged(self, _: Session, request: protocol.Staged) -> protocol.StagedAnswer:
        """Note that Delta staged a commit of a transaction, which is too long to be kept in memory."""
        house, view, owner, tx = self._staged_by(request.uri)
        with owner.lock:
            _note_read(tx, view.location, request)
            text = request.text or f"a large write into {view.location}"
            house.catalog.stage(tx, view.location, request.version, text=text)
        return protocol.StagedAnswer(claims=house.catalog.settles_early)

    def _claim(self, _: Session, request: protocol.Claim) -> Answer:
        """Settle what a staged commit conflicts with; no session's lock is held while it waits, see `Host`."""
        try:
            house, view, owner, tx = self._staged_by(request.uri)
        except NoTransactionError as error:
            raise NoTransactionError(
                "the transaction of this statement has ended while the statement ran in another thread: the answer to "
                "its COMMIT or ROLLBACK says what became of the statement, too"
            ) from error
        house.catalog.claim(tx, view.location, request.version, lock=owner.lock)
        return Answer()

    def _staged_by(self, uri: str) -> tuple[Lakehouse, OverlayView, Session, Transaction]:
        """Return the catalog of BEGIN: another of the same root may have other keys, or another `resolution`."""
        if (id := transaction_in(uri)) is None:
            raise InvalidError(f"{uri} is not a transaction's: use the table by its name, as lake.namespace.table")
        owner, house, tx = self._host.transaction_of(id)
        return house, house.uris.parse(uri), owner, tx


def stage(house: Lakehouse, tx: Transaction, location: str, request: protocol.Stage) -> None:
    """Write the file of a transaction's commit, and note it.

    Raises:
        UnavailableError: the store failed, or there is a file that nobody noted, as of a write whose answer was lost.
            Unless nothing was written for certain, only a rollback is left: who reads the transaction's folder would
            see a commit that COMMIT does not have.
        LockstepError: it must not be staged, and is not written.
    """
    _note_read(tx, location, request)
    path = staged_path(location, tx.id, request.version)
    # What `TransactionalCatalog.stage` refuses is not written. A crash that takes the file takes the transaction, too.
    if request.version == tx.next_version(location):
        try:
            is_new = house.catalog.lake.storage.put_advice(path, request.actions.encode())
        except UnavailableError as error:
            if not error.definite:
                tx.failure = error.message
            raise
        if not is_new:
            tx.failure = f"{path} is there already, and nobody noted it: its write failed, and was done all the same"
            raise UnavailableError(f"{tx.failure}. ROLLBACK, and run the transaction again")
    house.catalog.stage(tx, location, request.version, request.actions, text=request.text or "")


def _note_read(tx: Transaction, location: str, request: protocol.Stage | protocol.Staged) -> None:
    """Note that a transaction has read what it writes, perhaps as it had been before."""
    if request.has_read and (table := tx.names.table_at(location)) is not None:
        tx.read_older(table.id)
