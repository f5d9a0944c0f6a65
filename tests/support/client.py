"""The shim's side of the bridge, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import parse, render
from lockstep.errors import InvalidError
from lockstep.spark.host.host import Host
from lockstep.spark.host.lakehouses import Lakehouse, Lakehouses
from lockstep.spark.host.protocol import OPERATIONS
from lockstep.spark.host.protocol.roots import SawRoot
from lockstep.spark.host.same_root import LookFirst
from tests.support.lakes import lay

T = TypeVar("T")


def content(*actions: dict[str, Any]) -> str:
    return render([{"commitInfo": {"operation": "WRITE"}}, *actions]).decode()


def usual(op: str, catalog: str, options: dict[str, str]) -> dict[str, Any]:
    """Return what the shim always says in such a request, as it says it of most statements."""
    said: dict[str, Any] = {
        "catalog": catalog,
        "options": options,
        "catalogs": {catalog: options},
        "current": None,
        "settings": {},
        "case_sensitive": True,
        "text": None,
        "provider": None,
        "location": None,
        "creation": None,
        "reads": [],
        "has_read": False,
        "paths": [],
        "views": [],
        "settled": [],
        "unused": [],
        "failure": None,
        "sent": None,
        "known": True,
        "why": "deserted",
    }
    if (kind := OPERATIONS.get(op)) is None:
        return said
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    return {name: value for name, value in said.items() if name in required}


def saw(houses: Lakehouses, root: str) -> dict[str, Any]:
    """Return what a shim tells of a lake's root that sees what the host sees."""
    pending = houses.same_roots._pending[root]
    expected = pending.expected
    return {
        "root": root,
        "settings": {},
        "file_system": "org.apache.hadoop.fs.LocalFileSystem",
        "length": expected.length,
        "digest": expected.digest,
        "failures": [],
        "message": None,
        "kept": [],
        "others": {},
        "untold": None,
        "beside": [{"others": {}, "untold": None, "failures": [], "message": None} for _ in pending.beside],
    }


def looked(houses: Lakehouses, find: Callable[[], T]) -> T:
    """Return what is found in lakes whose roots Spark sees, too."""
    while True:
        try:
            return find()
        except LookFirst as first:
            houses.same_roots.saw(SawRoot(session="looking", **saw(houses, first.look.root)))


class Client:
    """Asks as the shim does, in one session."""

    def __init__(self, host: Host, root: Path, session: str = "s1", catalog: str = "lake") -> None:
        self.host, self.session, self.catalog = host, session, catalog
        self.options = {"root": str(root), "create": "true"}

    def ask(self, op: str, **args: Any) -> dict[str, Any]:
        if op == "write":
            self._lay(args["uri"], args["actions"])
        request = {"op": op, "session": self.session, **usual(op, self.catalog, self.options), **args}
        answer: dict[str, Any] = json.loads(self.host.call(json.dumps(request)))
        while "look" in answer:
            told = {"op": "saw_root", "session": self.session, **saw(self.host.lakehouses, answer["look"]["root"])}
            assert json.loads(self.host.call(json.dumps(told))) == {"ok": {}}
            answer = json.loads(self.host.call(json.dumps(request)))
        return answer

    def ok(self, op: str, **args: Any) -> dict[str, Any]:
        answer = self.ask(op, **args)
        assert "error" not in answer, answer
        found: dict[str, Any] = answer["ok"]
        return found

    def refused(self, op: str, **args: Any) -> tuple[str, str, str]:
        error = self.ask(op, **args)["error"]
        return error["sqlstate"], error["condition"], error["message"]

    def _lay(self, uri: str, content: str) -> None:
        """Write the files that a statement on its own adds, as Spark does before it commits."""
        with suppress(InvalidError):  # what the host refuses as well
            houses = self.host.lakehouses
            house = looked(houses, lambda: houses.writer(uri, {self.catalog: self.options}))
            lay(house.catalog.lake.storage, house.uris.parse(uri).location, parse(content))

    def begin(self, **args: Any) -> str:
        id: str = self.ok("begin", **{"current": self.catalog, **args})["transaction_id"]
        return id

    def resolve(self, table: str, use: str = "pinned", **args: Any) -> dict[str, Any]:
        args.setdefault("mentioned", [[table]])
        return self.ok("resolve", namespace=[], table=table, use=use, **args)

    def stage(self, uri: str, version: int, *actions: dict[str, Any], text: str | None = None) -> None:
        """Do what Delta does under a transaction's URI: write the data files, and stage the commit."""
        house = self.house()
        lay(house.catalog.lake.storage, house.uris.parse(uri).location, actions)
        staged = self.ok("stage", uri=uri, version=version, actions=content(*actions), text=text)
        assert staged["outcome"] == "staged"
        if staged["claims"]:
            self.ok("claim", uri=uri, version=version)

    def lake(self) -> TransactionalCatalog:
        return self.house().catalog

    def house(self) -> Lakehouse:
        return looked(self.host.lakehouses, lambda: self.host.lakehouses.get(self.catalog, self.options))
