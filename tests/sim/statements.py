"""What one transaction of a client does, and what that does to the database as it must be.

Delta's part is played as in `tests.support.keyed`: a table is a set of files, each with rows of one key. Two kinds of
keys: a `set` gets files, a `list` is rewritten with a value more. In a lake that is looked after there is a third,
`ROWS`, of whose files single rows are deleted by vectors. Of a table that is restored nothing is told to the judge of
histories, for its lists may get shorter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from pyroaring import BitMap64

from lockstep.adoption.adopt import Wanted, adopt, look
from lockstep.adoption.release import release
from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action
from lockstep.delta.combine.deletion_vectors import decode, file_name, serialize
from lockstep.delta.log import read_staged
from lockstep.errors import InvalidError
from lockstep.recovery.changes import restore_to, revert, undrop
from lockstep.recovery.restore import Selection, TableRestore
from lockstep.recovery.tags import new_tag
from lockstep.storage.urls import url_below
from lockstep.timeline.entry import Table
from lockstep.transactions.transaction import Transaction
from tests.sim import effects
from tests.sim.effects import WHOLE
from tests.sim.journal import Attempt, Files, Seen
from tests.sim.world import RESTORED, ROWS, World
from tests.support.history import Add, Append, Read
from tests.support.keyed import data_file, keys_of_files
from tests.support.lakes import large, named, remove, stage, stage_new
from tests.support.replay import BrokenTableError, Replayed, data_of, published
from tests.support.vectors import stored
from tests.support.views import says


class Statements:
    """What one transaction does, as Delta and its host would do it; and the journal of it."""

    def __init__(self, catalog: TransactionalCatalog, tx: Transaction, attempt: Attempt, world: World) -> None:
        self.catalog = catalog
        self.tx = tx
        self.attempt = attempt
        self.world = world
        self.storage = catalog.lake.storage

    def files(self, table: Table) -> Replayed:
        """Return a table as the transaction sees it."""
        staged = (read_staged(self.storage, table.location, self.tx.id, v) for v in self.tx.staged.get(table.id, ()))
        found = Replayed(strict=False).take_all(published(self.storage, table.location, table.version))
        if table.id not in self.tx.staged and self.tx.base.table_by_id(table.id) is not None:
            self.attempt.seen.append(Seen(self.tx.base.version, table.id, table.version, frozenset(found.files)))
        return found.take_all(staged)

    def read(self, name: str, key: str) -> tuple[list[str], tuple[str, ...]]:
        """SELECT the values of a key; return its files and its values."""
        table = self.catalog.table(self.tx, named(name))
        self.tx.read(table, f"(key = '{key}')")
        found = self.files(table)
        keys = keys_of_files(found)
        paths = [path for path in keys if keys[path] == key]
        values = tuple(value for path in paths for value in data_of(self.storage, table.location, path))
        self._judge(table, Read(self._key(table, key), values))
        return paths, values

    def insert(self, name: str, key: str, *, is_large: bool = False) -> None:
        """INSERT a row."""
        table = self.catalog.table(self.tx, named(name))
        value = self.world.new_id("v")
        self._stage(table, key, (value,), [], "WRITE", is_large=is_large)
        self._judge(table, Add(self._key(table, key), value))

    def rewrite(self, name: str, key: str, operation: str = "UPDATE") -> None:
        """UPDATE: one file with a value more in place of the key's files."""
        table = self.catalog.table(self.tx, named(name))
        value = self.world.new_id("v")
        paths, values = self.read(name, key)
        self._stage(table, key, (*values, value), paths, operation)
        self._judge(table, Append(self._key(table, key), value))

    def insert_rows(self, name: str) -> None:
        """INSERT several rows, which can be deleted one by one."""
        table = self.catalog.table(self.tx, named(name))
        self._stage(table, ROWS, [self.world.new_id("v") for _ in range(4)], [], "WRITE")

    def delete_row(self, name: str) -> None:
        """DELETE a row of a file by a vector."""
        table = self.catalog.table(self.tx, named(name))
        live = []
        found = self.files(table)
        keys = keys_of_files(found)
        for body in found.files.values():
            rows = self.rows_out(table.location, body)
            live += [(body, row) for row in range(json.loads(body["stats"])["numRecords"]) if row not in rows]
        live = [(body, row) for body, row in live if keys[body["path"]] == ROWS]
        if not live:
            return
        body, row = self.world.scheduler.random.choice(live)
        rows = self.rows_out(table.location, body) | {row}
        id_ = UUID(int=int(self.world.new_id("").strip("-")))
        descriptor, content = stored(serialize(BitMap64(rows)), len(rows), id_)
        vector = f"{table.location}/{file_name(id_)}"
        self.attempt.wrote.add(vector)
        self.storage.put(vector, content)
        new = {**body, "deletionVector": descriptor, "dataChange": True}
        stage(self.catalog, self.tx, table.name.table, self._removal(body), {"add": new}, operation="DELETE")
        self.attempt.effects.append(partial(effects.deletes_row, id=table.id, path=body["path"], row=row))

    def read_rows(self, name: str) -> None:
        """SELECT all of a table: read each file, and each vector."""
        table = self.catalog.table(self.tx, named(name))
        self.tx.read(table, "true")
        for body in self.files(table).files.values():
            self.rows_out(table.location, body)
            data_of(self.storage, table.location, body["path"])

    def rows_out(self, location: str, body: dict[str, Any]) -> frozenset[int]:
        """Return the rows that a file's deletion vector takes out.

        Raises:
            BrokenTableError: the vector is gone.
        """

        def read(path: str) -> bytes:
            if (data := self.storage.get(path)) is None:
                raise BrokenTableError(f"deletion vector {path} is gone, and a version of {location} names it")
            return data

        return frozenset(decode(body.get("deletionVector"), read, location=location, root=self.storage.url))

    def create(self, name: str) -> None:
        """CREATE TABLE AS SELECT."""
        values = [self.world.new_id("v") for _ in range(4 if self.world.plan.has_upkeep else 1)]
        value = values[0]
        paths = {key: f"part-{self.world.new_id('f')}.parquet" for key in self.world.plan.keys}
        data = json.dumps([value]).encode()
        files = [self._data_file(path, key, values if key == ROWS else [value]) for key, path in paths.items()]
        start = self.world.plan.new_table()
        table = self.tx.names.table_at(stage_new(self.catalog, self.tx, name, *files, start=start, data=data))
        assert table is not None
        new = dict.fromkeys(paths.values(), WHOLE)
        self.attempt.effects.append(partial(effects.creates, name=name, id=table.id, files=new))
        for key in self.world.plan.keys:
            if key != ROWS:
                self._judge(table, (Add if key == "set0" else Append)(self._key(table, key), value))

    def drop(self, name: str) -> None:
        table = self.tx.table(named(name), usable=False)
        self.tx.change_names(lambda names: names.drop_table(named(name)))
        self.attempt.effects.append(partial(effects.drops, name=name, id=table.id))

    def rename(self, name: str, new: str) -> None:
        table = self.tx.table(named(name), usable=False)
        self.tx.change_names(lambda names: names.rename_table(named(name), named(new)))
        self.attempt.effects.append(partial(effects.renames, name=name, new=new, id=table.id))

    def undrop(self, name: str) -> None:
        table = undrop(self.catalog.lake, self.tx, named(name))
        self.attempt.effects.append(partial(effects.undrops, name=name, id=table.id, location=table.location))

    def restore(self, name: str, version: int) -> None:
        """RESTORE TABLE to a database version: its name's meaning then, and its files."""
        then = self.catalog.as_of(version)
        restores = restore_to(self.catalog.lake, self.tx, then, Selection(names=frozenset({named(name)})))
        before = dict(then.tables.items()).get(named(name))
        if before is None:
            table = self.tx.base.tables[named(name)]
            self.attempt.effects.append(partial(effects.drops, name=name, id=table.id))
        elif self.tx.base.table_by_id(before.id) is None:
            undone = partial(effects.undrops, name=name, id=before.id, location=before.location)
            self.attempt.effects.append(undone)
        self._restore_logs(restores)

    def revert(self, version: int) -> None:
        """Take back what one database version changed."""
        names = self._named()
        shown = {name.table: view.definition.text for name, view in self.tx.names.views.items()}
        restores = revert(self.catalog.lake, self.tx, version)
        changes = self.attempt.effects
        after = self._named()
        for id_ in names.keys() - after.keys():
            changes.append(partial(effects.drops, name=names[id_][0], id=id_))
        for id_ in names.keys() & after.keys():
            if names[id_] != after[id_]:
                changes.append(partial(effects.renames, name=names[id_][0], new=after[id_][0], id=id_))
        for id_ in after.keys() - names.keys():
            changes.append(partial(effects.undrops, name=after[id_][0], id=id_, location=after[id_][1]))
        texts = {name.table: view.definition.text for name, view in self.tx.names.views.items()}
        for name in sorted(shown.keys() | texts.keys()):
            if shown.get(name) != texts.get(name):
                changes.append(partial(effects.views, name=name, text=texts.get(name)))
        self.world.journal.unjudged |= {self.tx.names.table(each.name).id for each in restores}
        self._restore_logs(restores)

    def _named(self) -> dict[str, tuple[str, str]]:
        """Return names and locations of tables, by their ids, as the transaction has them."""
        return {table.id: (table.name.table, table.location) for table in self.tx.names.tables.values()}

    def _restore_logs(self, restores: Iterable[TableRestore]) -> None:
        """Take logs back as Delta's RESTORE does."""
        for each in restores:
            table = self.catalog.table(self.tx, each.name)
            now = self.files(table)
            old = Replayed(strict=False).take_all(published(self.storage, table.location, each.version))
            gone = [body for key, body in now.files.items() if key not in old.files]
            back = [body for key, body in old.files.items() if key not in now.files]
            rows = {body["path"]: self.rows_out(table.location, body) for body in back}
            if lost := [path for path in rows if not self.storage.exists(f"{table.location}/{path}")]:
                raise InvalidError(f"RESTORE needs {lost}, which are gone")
            removals = sorted(map(self._removal, gone), key=lambda action: str(action["remove"]["path"]))
            actions: list[Action] = [*removals, *({"add": {**body, "dataChange": True}} for body in back)]
            if actions:
                stage(self.catalog, self.tx, each.name.table, *actions, operation="RESTORE")
                removed = {body["path"] for body in gone}
                done = partial(effects.changes_files, id=table.id, removed=removed, added=rows)
                self.attempt.effects.append(done)

    def release(self, name: str) -> None:
        """Give a table back: its folder is nobody's to delete."""
        [table] = release(self.catalog.lake, self.tx, [named(name)])
        self.world.journal.released.append((name, table.location))
        gone = partial(effects.releases, name=name, id=table.id, location=table.location)
        self.attempt.effects.append(gone)

    def adopt(self, name: str, location: str) -> None:
        """Take a table in that lies where one was given back."""
        lake = self.catalog.lake
        wanted = Wanted(named(name), url_below(lake.storage.url, location))
        [looked] = look(lake, self.tx.names, [wanted])
        found = Replayed(strict=False).take_all(published(self.storage, location, looked.version))
        files: Files = {body["path"]: self.rows_out(location, body) for body in found.files.values()}
        [table] = adopt(lake, self.tx, [looked])
        self.world.journal.unjudged.add(table.id)
        taken = partial(effects.adopts, name=name, id=table.id, location=location, files=files)
        self.attempt.effects.append(taken)

    def view(self, name: str) -> None:
        text = f"SELECT {self.world.new_id('n')}"
        self.tx.change_names(lambda names: names.create_view(named(name), says(text), replace=True))
        self.attempt.effects.append(partial(effects.views, name=name, text=text))

    def tag(self, name: str, version: int | None = None, days: int | None = None) -> None:
        version = self.tx.base.version if version is None else version
        ddl = new_tag(name, version=version, days=days, comment="", now=self.catalog.lake.clock())
        self.tx.change_names(lambda names: names.create_tag(ddl))
        self.attempt.effects.append(partial(effects.tags, name=name, version=version, until=ddl.retain_until))

    def untag(self, name: str) -> None:
        self.tx.change_names(lambda names: names.drop_tag(name))
        self.attempt.effects.append(partial(effects.untags, name=name))

    def try_out(self, work: Callable[[], None]) -> None:
        """Do something behind a savepoint, and take it back."""
        ops, effects, seen = len(self.attempt.ops), len(self.attempt.effects), len(self.attempt.seen)
        self.tx.savepoint("s")
        work()
        self.catalog.rollback_to(self.tx, "s")
        del self.attempt.ops[ops:], self.attempt.effects[effects:], self.attempt.seen[seen:]

    def _key(self, table: Table, key: str) -> str:
        return f"{table.id}/{key}"

    def _judge(self, table: Table, op: Read | Add | Append) -> None:
        # Of what is long past nobody says where in the order it was read.
        if table.name.table != RESTORED and not self.tx.seen.last_version:
            self.attempt.ops.append(op)

    def _stage(
        self,
        table: Table,
        key: str,
        values: Sequence[str],
        instead_of: Sequence[str],
        operation: str,
        *,
        is_large: bool = False,
    ) -> None:
        path = f"part-{self.world.new_id('f')}.parquet"
        self.attempt.wrote.add(f"{table.location}/{path}")
        new = self._data_file(path, key, values)
        if is_large:
            new["add"]["tags"] = large(path)["add"]["tags"]
        data = json.dumps(values).encode()
        name = table.name.table
        stage(self.catalog, self.tx, name, *map(self._removed, instead_of), new, operation=operation, data=data)
        done = partial(effects.changes_files, id=table.id, removed=set(instead_of), added={path: WHOLE})
        self.attempt.effects.append(done)

    def _data_file(self, path: str, key: str, values: Sequence[str]) -> Action:
        action = data_file(path, key, values)
        action["add"]["modificationTime"] = self._now_ms()
        return action

    def _removal(self, body: dict[str, Any]) -> Action:
        """Return the removal of a file as it is, with its vector."""
        had = {key: body[key] for key in ("deletionVector",) if key in body}
        return remove(body["path"], deletionTimestamp=self._now_ms(), **had)

    def _removed(self, path: str) -> Action:
        return self._removal({"path": path})

    def _now_ms(self) -> int:
        return int(self.catalog.lake.clock().timestamp() * 1000)
