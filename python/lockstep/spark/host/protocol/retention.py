"""Requests of what deletes files, `VACUUM` and Delta's clean-up of logs, and their answers: what can be read."""

from __future__ import annotations

from typing import TypeAlias

from lockstep.spark.host.protocol.base import Answer, Options, RequestBase


class KeptVersions(RequestBase, frozen=True, kw_only=True, tag="kept_versions"):
    """Ask which versions of a table keep their data files though no newer version has them."""

    uri: str
    """The table's folder, under the overlay's head."""

    catalogs: dict[str, Options]
    """What is set for each Lockstep catalog of the session, by its name: nothing of it may be logged or shown."""


class KeptVersionsAnswer(Answer, frozen=True, kw_only=True):
    """What of the table is kept: the versions of its log, and files."""

    first: int | None
    """This one and all later ones; None if there is no such run."""

    alone: list[int]
    """Others, in order."""

    files: list[str]
    """Files that somebody else needs: other tables, as shallow clones do, open transactions, and readers of what nobody
    needs any more, for their grace period. Paths within the table's folder."""

    since: int
    """What was written at this time or later, in ms since 1970: an open transaction may need it."""


class KeptLog(RequestBase, frozen=True, kw_only=True, tag="kept_log"):
    """Ask which files of a table's log have to stay."""

    uri: str
    """The table's folder, under the overlay's head."""

    catalogs: dict[str, Options]
    """As in `KeptVersions`."""


class KeptLogAnswer(Answer, frozen=True, kw_only=True):
    """What of a log is kept."""

    first: int | None
    """The first version whose files have to stay, with those of all later ones; None if any may go."""


Request: TypeAlias = KeptVersions | KeptLog
