"""That a lake keeps what an export of it needs: from before anything of the export is, until its record is dropped.

Several processes may make one export at a time, and none knows of the others. So nobody takes back what keeps files
because a request of his own has failed: the record stays, and whoever asks for the same again goes on.
"""

from __future__ import annotations

from lockstep.errors import ExpiredError
from lockstep.lake.exports import ABANDONED, ExportRecord, begun_path, encode_record, record_path
from lockstep.lake.lake import Lake
from lockstep.storage import Storage


def record_export(storage: Storage, record: ExportRecord) -> None:
    """Tell a lake of an export; fine when it has been told.

    Raises:
        UnavailableError: the store failed.
    """
    storage.put_once(record_path(record.id), encode_record(record))


def confirm(lake: Lake, record: ExportRecord) -> None:
    """See that nothing has gone of what a record keeps: an expiry has seen the record, or was before this.

    Raises:
        ExpiredError: the version has expired.
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    lake.fence()  # an expiry that has not seen the record is before it, or has to look again
    lake.timeline.at(record.database_version)


def settle(lake: Lake, record: ExportRecord) -> None:
    """Have a record keep what its export needs for as long as it is there, from before anything of the export is.

    If this fails the record stays without its mark, and keeps what it names until it is dropped: another process may
    have the target, and write there, or be done.

    Raises:
        ExpiredError: the record has kept nothing for some time, and its version has expired.
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    lake.storage.delete(begun_path(record.id))
    if lake.clock() - record.created_at > ABANDONED / 2:
        confirm(lake, record)


def keep(lake: Lake, record: ExportRecord) -> None:
    """Have a record keep what its export needs, which is whole, from now on and for as long as the record is there.

    It is written without a mark: it says when the export was made, and with a mark an old one keeps nothing. If this
    fails it stays so, and whoever asks for the same again is told whether all was kept.

    Raises:
        ExpiredError: the record was not there, or kept nothing, and its version has expired.
        UnavailableError, CorruptTimelineError: as the store and the timeline say.
    """
    record_export(lake.storage, record)
    lake.storage.delete(begun_path(record.id))
    try:
        confirm(lake, record)
    except ExpiredError as error:
        raise error.again(
            f". What is at {record.target} was made of it, and files that it names may be gone: delete it, drop export "
            f"{record.id}, and export another version"
        ) from error
