"""Answers to what deletes files: which versions of a table can be read, so that their data and their log stay.

`VACUUM` asks once, before it looks at a table's files; Delta's clean-up of logs asks for each file that it deletes.
What they are told is what `lockstep.retention` decides for all that deletes.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING

from cachetools import LRUCache

from lockstep.delta.log import log_files
from lockstep.errors import InvalidError
from lockstep.lake.kept_states import is_whole, kept_versions
from lockstep.retention.beside import beside, need_within
from lockstep.retention.kept import with_kept
from lockstep.retention.logs import unreadable
from lockstep.retention.needs import Need
from lockstep.retention.planning import need_at, shared_files
from lockstep.retention.survey import LACKS, kept_files
from lockstep.retention.untold import until_told
from lockstep.spark.host.protocol import retention as protocol
from lockstep.spark.host.protocol.base import RequestBase
from lockstep.spark.host.requests import Operation, Requests, operation
from lockstep.spark.host.times import micros_of

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.lakehouses import Lakehouse
    from lockstep.spark.host.sessions import Session

REMEMBERED_LOGS = 1000
"""Of so many tables it is remembered how far back their logs are needed: a clean-up asks for each of their files."""

FILES_GONE = "58P01"


class RetentionRequests(Requests):
    """Answers about what has to stay, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._needed: LRUCache[tuple[str, str, Need], int] = LRUCache(REMEMBERED_LOGS)
        self._lock = Lock()
        self.operations: Mapping[type[RequestBase], Operation] = dict(
            (operation(protocol.KeptVersions, self._versions), operation(protocol.KeptLog, self._log))
        )

    def _versions(self, _: Session, request: protocol.KeptVersions) -> protocol.KeptVersionsAnswer:
        house, location = self._found(request)
        lake, grace = house.catalog.lake, house.retention().grace
        own = self._host.keeper.open_in(house)
        stays = beside(lake, location, grace, own)
        need = self._need(house, location, fenced=True)
        table = house.catalog.timeline.head.table_at(location)
        log, need = log_files(lake.storage, location), with_kept(lake, location, need)
        if table is not None and (lost := unreadable(log, need, table.version)) is not None:
            why = LACKS.format(f"the log of table {table.name}", lost, log.missing_for(lost))
            advice = until_told(lake, location, log, house.name)
            raise InvalidError(
                f"nothing was deleted: {why}, so which files that version needs cannot be told. {advice}",
                sqlstate=FILES_GONE,
            )
        need = need_within(lake, location, need, lake.clock() - grace, log)
        shared = {*shared_files(lake, location, own)}
        # Delta reads the others by the log, which does not tell of these any more.
        # Nor of those that have just expired, which somebody may be reading: what is kept of them goes after a grace.
        ids = {id_ for id_, _ in need.kept} | ({table.id} if table is not None else set())
        there = {(id_, version) for id_ in ids for version in kept_versions(lake.storage, id_)}
        untold = {each for each in need.kept | there if log.missing_for(each[1]) is not None}
        for id_, version in untold:
            within = f"{location}/"
            paths = kept_files(lake.storage, location, id_, version)
            shared |= {path.removeprefix(within) for path in paths if path.startswith(within)}
        gone = {version for _, version in untold}
        return protocol.KeptVersionsAnswer(
            first=need.first,
            alone=[version for version in need.alone if version not in gone],
            files=sorted(shared | stays.files),
            since=micros_of(stays.since) // 1000,
        )

    def _log(self, _: Session, request: protocol.KeptLog) -> protocol.KeptLogAnswer:
        house, location = self._found(request)
        need = self._need(house, location)
        if not need.versions:
            return protocol.KeptLogAnswer(first=None)
        table = house.catalog.timeline.head.table_at(location)
        key = (request.uri, "" if table is None else table.id, need)  # another table in that folder has another log
        with self._lock:
            first = self._needed.get(key)
        if first is None:
            # A checkpoint that is made meanwhile can only make less needed; none before the first that is needed goes.
            log = log_files(house.catalog.lake.storage, location)
            lake = house.catalog.lake
            need = with_kept(lake, location, need)
            told = {version for id_, version in need.kept if not is_whole(lake.storage, id_, version)}
            versions = [*need.of_log, *told]
            first = min(map(log.needed_from, versions or [0 if table is None else table.version]))
            with self._lock:
                self._needed[key] = first
        return protocol.KeptLogAnswer(first=first)

    def _found(self, request: protocol.KeptVersions | protocol.KeptLog) -> tuple[Lakehouse, str]:
        """Return the catalog and the folder of the table that is asked about."""
        house = self._host.lakehouses.writer(request.uri, request.catalogs)
        return house, house.uris.parse(request.uri).location

    def _need(self, house: Lakehouse, location: str, *, fenced: bool = False) -> Need:
        """Return which versions of a table can be read, by the newest database version.

        Args:
            fenced: whether what an arbiter has decided and nobody has copied into the store counts, too, for who wants
                the next version copies it, however late. It writes an entry to find out.
        """
        if fenced and house.catalog.timeline.arbiter_name is not None:
            house.catalog.lake.fence()
        house.catalog.lake.refresh()
        return need_at(house.catalog.lake, location)
