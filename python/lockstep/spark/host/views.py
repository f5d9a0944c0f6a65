"""The requests of the shim's catalog about views: what a name says, and what becomes of it.

view          {namespace, table, pin?, seen?, mentioned?, text?}
              → {"missing": true} or {"missing": false, "view": {…}}, with the fields of `ViewDefinition`; outside a
              transaction with "pin", the database version that the statement reads
views         {namespace} → {"names": […], "namespace": […]}
create_view   {namespace, table, "replace": "create" | "replace" | "create_or_replace", "view": {…}} → {}
drop_view     {namespace, table} → {"dropped": true | false}
rename_view   {namespace, table, "to": […]} → {}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from lockstep.errors import InvalidError
from lockstep.spark.host.requests import Requests, listed, stored
from lockstep.timeline.entry import Name, View, ViewDefinition
from lockstep.transactions.transaction import Transaction

if TYPE_CHECKING:
    from lockstep.spark.host.host import Host
    from lockstep.spark.host.sessions import Answer, Request, Session

_VERBS = {"create": "CREATE VIEW", "replace": "ALTER VIEW", "create_or_replace": "CREATE OR REPLACE VIEW"}


class ViewRequests(Requests):
    """Answers about views, for one host."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.operations: dict[str, Callable[[Session, Request], Answer]] = {
            "view": self._view,
            "views": self._list_views,
            "create_view": self._create_view,
            "drop_view": self._drop_view,
            "rename_view": self._rename_view,
        }

    def _view(self, session: Session, asked: Request) -> Answer:
        """Answer what a name says as a view, in the version that the statement, or the transaction, reads."""
        house = self._house(asked)
        if asked.get("text"):
            session.text = asked["text"]
        if (tx := session.inside(house)) is not None:
            name = self._name(session, house, asked)
            tx.read_view(name)
            return _shown(tx.views.get(name))
        database = self._pinned(house, asked)
        return _shown(database.views.get(stored(asked, database))) | {"pin": database.version}

    def _list_views(self, session: Session, asked: Request) -> Answer:
        seen = self._seen(session, self._house(asked))
        return listed(asked, seen, seen.views)

    def _create_view(self, session: Session, asked: Request) -> Answer:
        name, mode = self._name(session, self._house(asked), asked), asked["replace"]
        if mode not in _VERBS:
            raise InvalidError(f"view {name}: replace is {mode!r}, expected one of {', '.join(_VERBS)}")
        definition = _definition(name, asked["view"])

        def create(tx: Transaction) -> None:
            if mode == "replace":
                tx.names.view(name)
            tx.changing().create_view(name, definition, replace=mode != "create")

        self._change(session, asked, create, f"{_VERBS[mode]} {name}")
        return {}

    def _drop_view(self, session: Session, asked: Request) -> Answer:
        house = self._house(asked)
        name = self._name(session, house, asked)
        if name not in self._seen(session, house).views:
            return {"dropped": False}
        self._change(session, asked, lambda tx: tx.changing().drop_view(name), f"DROP VIEW {name}")
        return {"dropped": True}

    def _rename_view(self, session: Session, asked: Request) -> Answer:
        house = self._house(asked)
        name = self._name(session, house, asked)
        new = self._new_name(session, house, asked, name)
        self._change(
            session, asked, lambda tx: tx.changing().rename_view(name, new), f"ALTER VIEW {name} RENAME TO {new}"
        )
        return {}


def _shown(view: View | None) -> Answer:
    if view is None:
        return {"missing": True}
    return {"missing": False, "view": msgspec.structs.asdict(view.definition)}


def _definition(name: Name, given: Any) -> ViewDefinition:
    try:
        return msgspec.convert(given, ViewDefinition)
    except msgspec.ValidationError as error:
        raise InvalidError(f"the definition of view {name} is not one: {error}") from error
