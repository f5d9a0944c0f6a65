"""What catalogs are set to, which the host is told once: requests say it by an id that the shim gives it.

{"op": "resolve", "options": "6f0a…", …}    {"unsaid": ["6f0a…"]}
{"op": "options", "id": "6f0a…", …}         {"ok": {}}
{"op": "resolve", "options": "6f0a…", …}    {"ok": {…}}

A host that has just been started knows none, and one that has been told of very many forgets those that nobody used
for long: then it asks.
"""

from __future__ import annotations

from lockstep.spark.host.protocol.base import Id, RequestBase, Settings


class TellOptions(RequestBase, frozen=True, kw_only=True, tag="options"):
    """Tell what an id in other requests' `options` or `catalogs` stands for."""

    id: Id
    """The id: never that of other settings, in one driver."""

    settings: Settings
    """All that is set for the catalog, the keys of its store too: nothing of it may be logged or shown."""


Request = TellOptions
