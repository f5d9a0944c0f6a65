"""What one transaction of a client does, and what that does to the database as it must be.

Delta's part is played as in `tests.support.keyed`: a table is a set of files, each with rows of one key. Two kinds of
keys: a `set` gets files, a `list` is rewritten with a value more. Of a table that is restored nothing is told to the
judge of histories, for its lists may get shorter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.actions import Action
from lockstep.delta.log import read_staged
from lockstep.recovery.changes import restore_to, undrop
from lockstep.recovery.restore import Selection
from lockstep.recovery.tags import new_tag
from lockstep.timeline.entry import Table
from lockstep.transactions.transaction import Transaction
from tests.sim.journal import Attempt, Model, Seen
from tests.sim.world import KEYS, RESTORED, World
from tests.support.history import Add, Append, Read
from tests.support.keyed import data_file, keys_of_files
from tests.support.lakes import large, named, remove, stage, stage_new
from tests.support.replay import Replayed, data_of, published
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
            files = frozenset(found.paths())
            self.attempt.seen.append(Seen(self.tx.base.version, table.id, table.version, files))
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

    def create(self, name: str) -> None:
        """CREATE TABLE AS SELECT."""
        value = self.world.new_id("v")
        paths = {key: f"part-{self.world.new_id('f')}.parquet" for key in KEYS}
        data = json.dumps([value]).encode()
        files = [data_file(path, key, [value]) for key, path in paths.items()]
        table = self.tx.names.table_at(stage_new(self.catalog, self.tx, name, *files, data=data))
        assert table is not None
        self.attempt.effects.append(partial(_creates, name=name, id=table.id, files=set(paths.values())))
        for key in KEYS:
            self._judge(table, (Add if key == "set0" else Append)(self._key(table, key), value))

    def drop(self, name: str) -> None:
        table = self.tx.table(named(name), usable=False)
        self.tx.change_names(lambda names: names.drop_table(named(name)))
        self.attempt.effects.append(partial(_drops, name=name, id=table.id))

    def rename(self, name: str, new: str) -> None:
        table = self.tx.table(named(name), usable=False)
        self.tx.change_names(lambda names: names.rename_table(named(name), named(new)))
        self.attempt.effects.append(partial(_renames, name=name, new=new, id=table.id))

    def undrop(self, name: str) -> None:
        table = undrop(self.catalog.lake, self.tx, named(name))
        self.attempt.effects.append(partial(_undrops, name=name, id=table.id))

    def restore(self, name: str, version: int) -> None:
        """RESTORE TABLE to a database version: its name's meaning then, and its files."""
        then = self.catalog.as_of(version)
        restores = restore_to(self.catalog.lake, self.tx, then, Selection(names=frozenset({named(name)})))
        before = dict(then.tables.items()).get(named(name))
        if before is None:
            table = self.tx.base.tables[named(name)]
            self.attempt.effects.append(partial(_drops, name=name, id=table.id))
        elif self.tx.base.table_by_id(before.id) is None:
            self.attempt.effects.append(partial(_undrops, name=name, id=before.id))
        for each in restores:
            table = self.catalog.table(self.tx, each.name)
            now = self.files(table)
            old = Replayed(strict=False).take_all(published(self.storage, table.location, each.version))
            gone = [path for path in now.paths() if path not in old.paths()]
            back = [{"add": body} for (path, _), body in old.files.items() if path not in now.paths()]
            actions: list[Action] = [*map(remove, sorted(gone)), *back]
            if actions:
                stage(self.catalog, self.tx, each.name.table, *actions, operation="RESTORE")
                self._changes(table, gone, [action["add"]["path"] for action in back])

    def view(self, name: str) -> None:
        text = f"SELECT {self.world.new_id('n')}"
        self.tx.change_names(lambda names: names.create_view(named(name), says(text), replace=True))
        self.attempt.effects.append(partial(_views, name=name, text=text))

    def tag(self, name: str) -> None:
        version = self.tx.base.version
        ddl = new_tag(name, version=version, days=None, comment="", now=self.catalog.lake.clock())
        self.tx.change_names(lambda names: names.create_tag(ddl))
        self.attempt.effects.append(partial(_tags, name=name, version=version))

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
        new = data_file(path, key, values)
        if is_large:
            new["add"]["tags"] = large(path)["add"]["tags"]
        data = json.dumps(values).encode()
        name = table.name.table
        stage(self.catalog, self.tx, name, *map(remove, instead_of), new, operation=operation, data=data)
        self._changes(table, instead_of, [path])

    def _changes(self, table: Table, removed: Sequence[str], added: Sequence[str]) -> None:
        self.attempt.effects.append(partial(changes_files, id=table.id, removed=set(removed), added=set(added)))


# --- what statements do to the model ----------------------------------------------------------------------------------


def changes_files(model: Model, *, id: str, removed: set[str], added: set[str]) -> None:
    """Take files of a table away, and add others."""
    files = model.files[id]
    missing = {path for path in removed - files if not path.startswith("plain-")}
    assert not missing, f"{sorted(missing)} were removed from {id}, and are not in it"
    assert not added & files, f"{sorted(added & files)} were added to {id}, and are in it"
    model.files[id] = files - removed | added
    model.gone = model.gone - added | removed


def _creates(model: Model, *, name: str, id: str, files: set[str]) -> None:
    assert name not in model.tables, f"table {name} was created, and there is one"
    model.tables[name] = id
    model.files[id] = files


def _drops(model: Model, *, name: str, id: str) -> None:
    assert model.tables.get(name) == id, f"table {name} ({id}) was dropped; there is {model.tables.get(name)}"
    del model.tables[name]


def _renames(model: Model, *, name: str, new: str, id: str) -> None:
    assert new not in model.tables, f"table {new} is there, and {name} was given that name"
    _drops(model, name=name, id=id)
    model.tables[new] = id


def _undrops(model: Model, *, name: str, id: str) -> None:
    assert name not in model.tables, f"table {name} was brought back, and there is one"
    model.tables[name] = id


def _views(model: Model, *, name: str, text: str) -> None:
    model.views[name] = text


def _tags(model: Model, *, name: str, version: int) -> None:
    assert name not in model.tags, f"tag {name} was made, and there is one"
    model.tags[name] = version
