"""Random valid histories of a database, and what their entries are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from lockstep.timeline.entry import (
    Batch,
    Commit,
    Entry,
    Moved,
    Name,
    Namespace,
    NamespaceDdl,
    TableDdl,
    TableWrite,
    ViewDdl,
    ViewDefinition,
)
from tests.support.entries import entry

DEFAULT = ("default",)


def name(table: str, *namespace: str) -> Name:
    return Name(namespace=namespace or DEFAULT, table=table)


def create(table: str = "t", id: str = "id-t", **changes: Any) -> TableDdl:
    return TableDdl(**{"action": "create", "id": id, "name": name(table), "location": f"tables/{id}", **changes})


def write(low: int, high: int, table: str = "t", id: str = "id-t", **changes: Any) -> TableWrite:
    commits = [Commit(inline=[msgspec.Raw(b"{}")]) for _ in range(high - low)]
    given_ = {"id": id, "name": name(table), "location": f"tables/{id}", "commits": commits}
    return TableWrite(from_version=low, to_version=high, **{**given_, **changes})


def drop(table: str = "t", id: str = "id-t") -> TableDdl:
    return TableDdl(action="drop", id=id, name=name(table))


def rename(old: str, new: str | None, id: str = "id-t") -> TableDdl:
    return TableDdl(action="rename", id=id, name=name(old), new_name=None if new is None else name(new))


def namespace(action: Any, *parts: str, **properties: str) -> NamespaceDdl:
    return NamespaceDdl(action=action, name=parts, properties=properties)


@dataclass
class History:
    """A random valid history, grown step by step beside a plain model of what the head must be."""

    draw: Callable[[Any], Any]
    entries: list[Entry] = field(default_factory=lambda: [entry(0)])
    tables: dict[Name, tuple[str, int]] = field(default_factory=dict)
    namespaces: list[Namespace] = field(default_factory=lambda: [DEFAULT])
    unpublished: dict[str, dict[int, int]] = field(default_factory=dict)
    views: dict[Name, str] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)

    def add(self, **changes: Any) -> None:
        self.entries.append(entry(len(self.entries), **changes))

    def step(self) -> None:
        options = [self.create_table, self.create_namespace, self.create_view, self.batch]
        if self.views:
            options += [self.replace_view, self.drop_view]
        if self.tables:
            options += [self.write, self.write, self.rename, self.drop, self.external, self.move]
        self.draw(st.sampled_from(options))()

    def some(self) -> Name:
        return self.draw(st.sampled_from(sorted(self.tables)))

    def create_table(self) -> None:
        id_, to = f"id-{len(self.entries)}", self.draw(st.integers(0, 2))
        key = Name(namespace=self.draw(st.sampled_from(self.namespaces)), table=id_)
        self.add(tables=[create("", id_, name=key)], writes=[write(-1, to, "", id_, name=key)])
        self.tables[key] = (id_, to)

    def create_namespace(self) -> None:
        new = (f"n{len(self.entries)}",)
        self.add(namespaces=[namespace("create", *new)])
        self.namespaces.append(new)

    def create_view(self) -> None:
        key = Name(namespace=self.draw(st.sampled_from(self.namespaces)), table=f"v{len(self.entries)}")
        self.define("create", key)

    def replace_view(self) -> None:
        self.define("replace", self.draw(st.sampled_from(sorted(self.views))))

    def define(self, action: Any, key: Name) -> None:
        self.views[key] = f"SELECT {len(self.entries)}"
        definition = ViewDefinition(text=self.views[key], schema="{}", configs={"b": "1", "a": "2"})
        self.add(views=[ViewDdl(action=action, name=key, definition=definition)])

    def drop_view(self) -> None:
        key = self.draw(st.sampled_from(sorted(self.views)))
        del self.views[key]
        self.add(views=[ViewDdl(action="drop", name=key)])

    def batch(self) -> None:
        application = self.draw(st.sampled_from(["orders", "returns"]))
        self.batches[application] = self.batches.get(application, -1) + self.draw(st.integers(1, 3))
        self.add(batch=Batch(application=application, number=self.batches[application]))

    def write(self) -> None:
        key = self.some()
        id_, at = self.tables[key]
        self.unpublished.setdefault(id_, {})[len(self.entries)] = at + 1
        self.add(writes=[write(at, at + 1, "", id_, name=key)])
        self.tables[key] = (id_, at + 1)

    def external(self) -> None:
        key = self.some()
        id_, at = self.tables[key]
        self.unpublished.pop(id_, None)  # Everything before a foreign commit that was found is published.
        self.add(kind="external", writes=[write(at, at + 2, "", id_, name=key, commits=[])])
        self.tables[key] = (id_, at + 2)

    def rename(self) -> None:
        key = self.some()
        id_, at = self.tables.pop(key)
        new = Name(namespace=key.namespace, table=f"{id_}-{len(self.entries)}")
        self.add(tables=[TableDdl(action="rename", id=id_, name=key, new_name=new)])
        self.tables[new] = (id_, at)

    def drop(self) -> None:
        key = self.some()
        id_, _ = self.tables.pop(key)
        self.add(tables=[TableDdl(action="drop", id=id_, name=key)])

    def move(self) -> None:
        key = self.some()
        id_, at = self.tables[key]
        if commits := self.unpublished.get(id_):
            for version in commits:
                commits[version] += 1
            self.add(
                kind="external",
                moved=[Moved(id=id_, entry=version, to_version=to) for version, to in commits.items()],
            )
            self.tables[key] = (id_, at + 1)


@st.composite
def histories(draw: Any, steps: int = 12) -> History:
    history = History(draw)
    for _ in range(draw(st.integers(0, steps))):
        history.step()
    return history
