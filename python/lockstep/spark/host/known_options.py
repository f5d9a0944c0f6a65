"""The settings of catalogs that this host was told, by the ids that requests have in their place."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TypeVar

from cachetools import LRUCache
from msgspec import structs

from lockstep.spark.host.protocol.base import RequestBase, Settings
from lockstep.spark.host.protocol.options import TellOptions

REMEMBERED_OPTIONS = 1000
"""The settings of so many catalogs are remembered, those that were used last: keys that are renewed make new ones."""

R = TypeVar("R", bound=RequestBase)


class SayFirst(Exception):  # noqa: N818 (no error: an answer)
    """Nothing was done: the request is to be sent again once the shim has said what these ids stand for."""

    def __init__(self, ids: list[str]) -> None:
        super().__init__(ids)
        self.ids = ids


class KnownOptions:
    """What ids stand for; safe to call from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settings: LRUCache[str, Settings] = LRUCache(REMEMBERED_OPTIONS)

    def tell(self, told: TellOptions) -> None:
        """Remember what an id stands for."""
        with self._lock:
            self._settings[told.id] = told.settings

    def in_full(self, request: R) -> R:
        """Return a request with settings where it has their ids.

        Raises:
            SayFirst: what some of them stand for is not known.
        """
        one: object = getattr(request, "options", None)
        some: Mapping[str, object] = getattr(request, "catalogs", {})
        ids = {each for each in (one, *some.values()) if isinstance(each, str)}
        if not ids:
            return request
        with self._lock:
            known = {id: self._settings.get(id) for id in ids}
        if unknown := sorted(id for id, settings in known.items() if settings is None):
            raise SayFirst(unknown)
        said: dict[str, object] = {}
        if isinstance(one, str):
            said["options"] = known[one]
        if some:
            said["catalogs"] = {name: known[each] if isinstance(each, str) else each for name, each in some.items()}
        return structs.replace(request, **said)
