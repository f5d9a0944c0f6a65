"""Nessie as one writer, over its REST API: `python -m tests.bench.peers.nessie PORT NAME`.

What Iceberg's client does to commit: it reads the branch's hash and the tables' contents, and commits what follows
them; if a table has changed meanwhile it does so again. No metadata file is written, which Iceberg would do once a
table and commit, and again after each conflict: Nessie alone is measured, and looks better than Iceberg with it would.
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Sequence
from itertools import count
from typing import Any

from tests.bench.peers.writing import serve
from tests.support.child import Parent

TREES = "/api/v2/trees"
COMMIT = TREES + "/main@{}/history/commit"


class Nessie:
    """A connection to a server."""

    def __init__(self, port: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", int(port))
        self._numbers = count(1)

    def call(self, path: str, body: object, method: str = "POST") -> tuple[int, Any]:
        """Make a request, and return the status and the answer."""
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def append(self, tables: Sequence[str]) -> bool:
        """Commit a next version of tables; False if one of them has changed since it was read."""
        keys = [{"elements": [table]} for table in tables]
        read = self._done(f"{TREES}/main/contents", {"requestedKeys": keys})
        ids = {each["key"]["elements"][0]: each["content"]["id"] for each in read["contents"]}
        operations = [
            {"type": "PUT", "key": {"elements": [table]}, "content": self._content(table, ids.get(table))}
            for table in tables
        ]
        body = {"commitMeta": {"message": "append"}, "operations": operations}
        status, said = self.call(COMMIT.format(read["effectiveReference"]["hash"]), body)
        if status not in {200, 409}:
            raise RuntimeError(said)
        return status == 200

    def branch(self, name: str) -> None:
        """Make a branch of main as it is now.

        Raises:
            RuntimeError: as the server says.
        """
        main = self._done(f"{TREES}/main", None, "GET")["reference"]
        self._done(f"{TREES}?name={name}&type=BRANCH", main)

    def merge(self, name: str) -> None:
        """Bring all that was committed to a branch to main, in one step; the branch is gone then.

        Raises:
            RuntimeError: as the server says, as where main has changed one of the same tables.
        """
        said = self._done(
            f"{TREES}/{self._now('main')}/history/merge",
            {"fromRefName": name, "fromHash": self._now(name).partition("@")[2]},
        )
        if not said["wasApplied"]:
            raise RuntimeError(said)
        self.drop(name)

    def drop(self, name: str) -> None:
        """Remove a branch, and what was committed to it alone.

        Raises:
            RuntimeError: as the server says.
        """
        self._done(f"{TREES}/{self._now(name)}", None, "DELETE")

    def _now(self, name: str) -> str:
        """Return a branch as it is now, as requests name it."""
        return f"{name}@{self._done(f'{TREES}/{name}', None, 'GET')['reference']['hash']}"

    def _done(self, path: str, body: object, method: str = "POST") -> Any:
        status, said = self.call(path, body, method)
        if status != 200:
            raise RuntimeError(said)
        return said

    def _content(self, table: str, id_: str | None) -> dict[str, object]:
        number = next(self._numbers)
        content = {
            "type": "ICEBERG_TABLE",
            "metadataLocation": f"file:///warehouse/{table}/{number}.json",
            "snapshotId": number,
            "schemaId": 0,
            "specId": 0,
            "sortOrderId": 0,
        }
        return content if id_ is None else {**content, "id": id_}


def main(port: str, _: str) -> None:
    serve(Parent(), lambda: Nessie(port).append)


if __name__ == "__main__":
    main(*sys.argv[1:])
