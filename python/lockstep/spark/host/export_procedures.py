"""The procedures that copy a lake: `CALL lake.system.export`, `clone`, `promote`, and so on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from lockstep.catalog import TransactionalCatalog
from lockstep.errors import ActiveTransactionError, InvalidError
from lockstep.exports.export import Asked, Exported, Exporter, OpenTarget
from lockstep.exports.importing import import_minimal
from lockstep.exports.promote import Promoter, record_of
from lockstep.lake.exports import drop_export, find_export, read_exports
from lockstep.settings import ROOT, store_options
from lockstep.spark.host.calls import answer_of, version_said
from lockstep.spark.host.procedure import Procedure
from lockstep.spark.host.protocol import procedures as protocol
from lockstep.spark.host.protocol.transactions import DueCheckpoint
from lockstep.spark.host.times import micros_of
from lockstep.spark.host.uris import Uris
from lockstep.storage import Storage, has_options, is_local, open_storage, url_of
from lockstep.storage.outside import options_at, settings_beside
from lockstep.storage.urls import comparable
from lockstep.timeline.entry import ExportMode
from lockstep.transactions.statements import shortened

if TYPE_CHECKING:
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.procedures import ProcedureRequests
    from lockstep.spark.host.sessions import Session


def _export(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    house = _outside(requests, session, request)
    return _run(house, request, _mode(request, "full"))


def _clone(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    house = _outside(requests, session, request)
    return _run(house, request, "partial")


def _promote(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    house = _outside(requests, session, request)
    record = record_of(house.catalog.lake.storage)
    author = house.catalog.author if request.user is None else request.user
    own = requests.houses.of_root(record.source, request.catalogs)
    origin = _origin(house.catalog.lake.storage, record.source, request.options) if own is None else own.catalog
    promoter = Promoter(
        clone=house.catalog.lake,
        origin=origin.lake,
        open_store=_opener(house, request.options),
        author=author,
        application=house.catalog.application,
        statement=shortened(request.text),
        case_sensitive=request.case_sensitive,
        backoff=house.catalog.backoff,
    )
    done = promoter.run(dry_run=bool(request.arguments.get("dry_run")))
    row: list[protocol.Value] = [done.origin, done.clone_version, done.base_version, done.database_version, done.tables]
    uris = Uris(origin.lake.storage.url)
    due = [DueCheckpoint(uri=uris.head(each.location), version=each.version) for each in promoter.checkpoints]
    return structs.replace(answer_of([[*row, done.files, done.size, done.is_done]]), checkpoints=due)


def _origin(clone: Storage, source: str, settings: Mapping[str, str]) -> TransactionalCatalog:
    """Open the lake that a clone was made of, which has no catalog of its own here: as the clone's is.

    Raises:
        InvalidError (42501): the clone's catalog has locations alone, and the lake is in none.
        LockstepError: see `TransactionalCatalog.open`.
    """
    options, locations = settings_beside(clone, source, store_options(settings), "the lake that it was made of, ")
    return TransactionalCatalog.open(source, options=options, locations=locations)


def _import(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    house = _outside(requests, session, request)
    file = str(request.arguments["from"])
    _check_absolute("from", file, "of the file")
    place = _place(request)
    asked = _asked(house, request, place, _mode(request, "partial"), None)
    return _done(import_minimal(_exporter(house, request, place), file, asked))


def _exports(requests: ProcedureRequests, _: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    records = read_exports(requests.house(request).catalog.lake.storage)
    return answer_of(
        [
            [each.id, each.mode, each.database_version, micros_of(each.created_at), each.author, each.target]
            for each in records
        ]
    )


def _drop(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> protocol.CallAnswer:
    house = _outside(requests, session, request)
    forget = find_export if request.arguments.get("dry_run") else drop_export
    record = forget(house.catalog.lake.storage, str(request.arguments["export"]))
    return answer_of([[record.id, record.target]])


def _outside(requests: ProcedureRequests, session: Session, request: protocol.CallProcedure) -> Lakehouse:
    """Return the catalog of a call that is not in a transaction."""
    house = requests.house(request)
    if session.inside(house) is not None:
        raise ActiveTransactionError(
            f"{request.procedure} is done at once, and no ROLLBACK takes it back: COMMIT or ROLLBACK first"
        )
    return house


def _run(house: Lakehouse, request: protocol.CallProcedure, mode: ExportMode) -> protocol.CallAnswer:
    place = _place(request)
    if mode == "minimal" and place.catalog is not None:
        raise InvalidError(
            f"to is {place.catalog!r}, a catalog of this session, and a minimal export is a file: say its path or URL"
        )
    version = version_said(request.arguments, "version", "tag")
    if isinstance(version, str):
        version = house.catalog.as_of(version).version
    asked = _asked(house, request, place, mode, version if isinstance(version, int) else None)
    return _done(_exporter(house, request, place).run(asked))


def _mode(request: protocol.CallProcedure, default: ExportMode) -> ExportMode:
    text = request.arguments.get("mode")
    try:
        return default if text is None else msgspec.convert(str(text).lower(), ExportMode)
    except msgspec.ValidationError as error:
        raise InvalidError(f"mode is {text!r}: expected full, partial or minimal") from error


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an export goes.

    Attributes:
        url: the path or URL.
        settings: what is set for the catalog whose store is opened so: that of the place, or the one that is called.
        catalog: the catalog whose root that is, if that was said.
    """

    url: str
    settings: Mapping[str, str]
    catalog: str | None = None


def _place(request: protocol.CallProcedure) -> _Place:
    """Return where an export goes: to the root of a catalog of the session, or to a path or a URL.

    Raises:
        InvalidError: it is neither, or that catalog has no root.
    """
    said = str(request.arguments["to"])
    if (settings := request.catalogs.get(said)) is None:
        others = ", ".join(sorted(request.catalogs.keys() - {request.catalog})) or "none but that which is called"
        _check_absolute("to", said, f"or the name of a Lockstep catalog of this session ({others})")
        return _Place(said, request.options)
    if not (root := ROOT.value_in(settings)):
        raise InvalidError(f"to is catalog {said}, which has no root: set {ROOT.of(said)} to a path or URL")
    return _Place(root, settings, said)


def _check_absolute(parameter: str, said: str, what: str) -> None:
    """Raise InvalidError where a path says something else in another folder than that which the driver runs in."""
    if not (is_local(said) and not said.startswith(("/", "file:"))):
        return
    raise InvalidError(
        f"{parameter} is {said!r}, a path below whatever folder the driver runs in; nothing was read or written. Say "
        f"an absolute path or a URL, {what}"
    )


def _asked(
    house: Lakehouse, request: protocol.CallProcedure, place: _Place, mode: ExportMode, version: int | None
) -> Asked:
    return Asked(
        to=place.url,
        mode=mode,
        version=version,
        author=house.catalog.author if request.user is None else request.user,
        statement=shortened(request.text),
        dry_run=bool(request.arguments.get("dry_run")),
    )


def _exporter(house: Lakehouse, request: protocol.CallProcedure, place: _Place) -> Exporter:
    return Exporter(house.catalog.lake, _opener(house, request.options, place), for_spark=True)


def _opener(house: Lakehouse, settings: Mapping[str, str], place: _Place | None = None) -> OpenTarget:
    """Return what opens other stores: with what is set for a place that is a catalog's, else as the catalog says."""
    storage, ours, theirs, root = house.catalog.lake.storage, store_options(settings), dict[str, str](), ""
    if place is not None and place.catalog is not None:
        theirs, root = store_options(place.settings), url_of(place.url).rstrip("/")

    def opened(url: str, create: bool) -> Storage:
        where = url_of(url).rstrip("/")
        is_theirs = root and f"{where}/".startswith(f"{root}/")
        options = theirs if is_theirs else options_at(storage, comparable(where), ours)
        return open_storage(url, create=create, options=options if has_options(url) else None)

    return opened


def _done(done: Exported) -> protocol.CallAnswer:
    row: list[protocol.Value] = [done.id, done.mode, done.target, done.database_version, done.tables, done.files]
    return answer_of([[*row, done.size, done.is_done]])


_WHAT = {"tag": "string", "version": "bigint"}
_EXPORTED = {
    "export": "string",
    "mode": "string",
    "target": "string",
    "database_version": "bigint",
    "tables": "bigint",
    "files": "bigint",
    "bytes": "bigint",
    "done": "boolean",
}

EXPORT_PROCEDURES: Mapping[str, Procedure] = {
    "export": Procedure(
        says="Makes a lake of its own, or a file, of a database version: mode full, partial or minimal.",
        parameters={"to": "string", **_WHAT, "mode": "string", "dry_run": "boolean"},
        required=1,
        columns=_EXPORTED,
        answers=_export,
    ),
    "clone": Procedure(
        says="Makes a lake whose tables have the data of this one, and go on by themselves: a partial export.",
        parameters={"to": "string", **_WHAT, "dry_run": "boolean"},
        required=1,
        columns=_EXPORTED,
        answers=_clone,
    ),
    "promote": Procedure(
        says="Publishes what was changed in this clone to the lake that it was made of, as one transaction there.",
        parameters={"dry_run": "boolean"},
        columns={
            "origin": "string",
            "clone_version": "bigint",
            "base_version": "bigint",
            "database_version": "bigint",
            "tables": "bigint",
            "files": "bigint",
            "bytes": "bigint",
            "done": "boolean",
        },
        answers=_promote,
    ),
    "import": Procedure(
        says="Makes a lake of a minimal export of this lake, partial or full.",
        parameters={"from": "string", "to": "string", "mode": "string", "dry_run": "boolean"},
        required=2,
        columns=_EXPORTED,
        answers=_import,
    ),
    "exports": Procedure(
        says="Lists the exports that need files of this lake.",
        parameters={},
        columns={
            "export": "string",
            "mode": "string",
            "database_version": "bigint",
            "created_at": "timestamp",
            "author": "string",
            "target": "string",
        },
        answers=_exports,
    ),
    "drop_export": Procedure(
        says="Forgets an export: files that it needs are kept no more for it.",
        parameters={"export": "string", "dry_run": "boolean"},
        required=1,
        columns={"export": "string", "target": "string"},
        answers=_drop,
    ),
}
"""Those of this module, by name."""
