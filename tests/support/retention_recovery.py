"""The rules of `tests.support.retention_machine` that bring back what was: tags, undrop, restores and reverts.

The lake does it as Python has it done (`lockstep.tables.restoring`), commits of logs included. The model says of
each whether it must be refused, and if not, what the tables are then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from lockstep.delta.log import commit_path
from lockstep.errors import InvalidError
from lockstep.recovery.changes import undrop
from lockstep.recovery.restore import Selection, TableRestore
from lockstep.tables.restoring import restore, revert
from lockstep.tables.state import States
from lockstep.tables.table import Scope
from lockstep.timeline.entry import Name, TagDdl
from lockstep.transactions.transaction import Transaction
from tests.support.retained import Content
from tests.support.retention_cleanup import CleanUp
from tests.support.retention_model import TABLE, Tables, by_location


class Recovery(CleanUp):
    """See the module."""

    # --- the model ----------------------------------------------------------------------------------------------------

    def can_come_back(self, location: str) -> bool:
        """Whether UNDROP can bring a table back: the version that dropped it and the one before can be read."""
        [*_, dropped] = [version for version, _, each in self.drops if each == location]
        now = self.kept()
        return dropped >= now.first and now.has(dropped - 1)

    def taken_back(self, locations: Collection[str], then: Tables) -> Tables | None:
        """Return what the tables are once some are as they were; None where two would have one name."""
        now, old = by_location(self.tables), by_location(then)
        found = {each: table for each, table in now.items() if each not in locations}
        found |= {each: table for each, table in old.items() if each in locations}
        tables = {name: (location, content) for location, (name, content) in found.items()}
        return tables if len(tables) == len(found) else None

    def reverted(self, version: int) -> Tables | None:
        """Return what the tables are once a version is taken back; None where that must be refused."""
        now = self.kept()
        mine = self.touched.get(version, set())
        if not mine or version < now.first or not now.has(version - 1):
            return None
        went_on = {each for each in mine & self.later(version) if not self.is_undone(each, version)}
        if not all(self.only_appended(location, version, now.newest) for location in went_on):
            return None
        if (tables := self.taken_back(mine - went_on, self.versions[version - 1])) is None:
            return None
        before, made, here = (by_location(each) for each in (*self.around(version), self.tables))
        for location in went_on:
            name, content = here[location]
            old, new = before[location][1].files, made[location][1].files
            tables[name] = location, Content((content.files - (new - old)) | (old - new))
        return tables

    def is_undone(self, location: str, version: int) -> bool:
        """Whether a table is by now as a version left it, so that nothing which came in between matters."""
        return by_location(self.versions[version]).get(location) == by_location(self.tables).get(location)

    def later(self, version: int) -> set[str]:
        """Return the tables that versions behind one changed."""
        return set().union(*(self.touched.get(each, set()) for each in range(version + 1, self.kept().newest + 1)))

    def around(self, version: int) -> tuple[Tables, Tables]:
        return self.versions[version - 1], self.versions[version]

    def only_appended(self, location: str, version: int, newest: int) -> bool:
        """Whether all that came behind a version that only wrote a table added files, as the table's log still says."""
        for each in range(version, newest + 1):
            if location not in self.touched.get(each, set()):
                continue
            before, after = map(by_location, self.around(each))
            if location not in before or location not in after or before[location][0] != after[location][0]:
                return False
            if each == version:
                continue
            if location in self.logs[each] or not before[location][1].files <= after[location][1].files:
                return False
            tables = {table.location: table for table in self.catalog.timeline.at(each).tables.values()}
            if not (self.root / commit_path(location, tables[location].version)).is_file():
                return False
        return True

    # --- one table ----------------------------------------------------------------------------------------------------

    @rule(name=TABLE)
    def drop(self, name: Name) -> None:
        if name in self.tables:
            tables = {each: table for each, table in self.tables.items() if each != name}
            self.commit(lambda tx: tx.changing().drop_table(name), tables)

    @precondition(lambda self: self.drops)
    @rule(data=st.data())
    def undrop(self, data: st.DataObject) -> None:
        """Bring back the table of a name that was dropped last."""
        there = by_location(self.tables)
        last = {location: (version, name) for version, name, location in self.drops if location not in there}
        if not (free := sorted({name for _, name in last.values()} - self.tables.keys())):
            return
        name = data.draw(st.sampled_from(free))
        _, location = max((version, location) for location, (version, each) in last.items() if each == name)
        expected = {**self.tables, name: (location, self.last[location])} if self.can_come_back(location) else None

        def do(scope: Scope) -> list[TableRestore]:
            undrop(self.catalog.lake, scope.tx, name)
            return []

        self.bring_back(do, expected)

    # --- the whole ----------------------------------------------------------------------------------------------------

    @rule(data=st.data(), name=st.none() | TABLE)
    def restore(self, data: st.DataObject, name: Name | None) -> None:
        """Take the database back to a version that can be read, or what has a name now or had it then.

        What was dropped comes back however long ago that was, for the version that has it keeps it.
        """
        version = data.draw(st.sampled_from(self.whole()))
        then, now = self.versions[version], self.tables
        meant = {location for each in (then, now) for of, (location, _) in each.items() if name in (None, of)}
        if meant:
            selection = Selection(everything=True) if name is None else Selection(names=frozenset({name}))
            self.bring_back(lambda scope: restore(scope, version, selection).tables, self.taken_back(meant, then))

    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        """Take one version back; refused where a later one did more to the same table than to append, if that shows."""
        versions = [*range(self.kept().newest, 0, -1)]
        whole = {each + 1 for each in self.whole()}
        whole = {each for each in whole if each in {*self.whole()}}  # of both sides of it something tells
        allowed = [each for each in versions if each in whole and self.reverted(each) is not None]
        versions = [each for each in versions if each in whole or self.reverted(each) is None]
        went_on = [each for each in allowed if self.later(each) & self.touched[each]]
        # Few versions can be reverted, and few of those have appends behind: they are drawn more often than others.
        version = data.draw(st.one_of([st.sampled_from(each) for each in (went_on, allowed, versions) if each]))
        self.bring_back(lambda scope: revert(scope, version).tables, self.reverted(version))

    def bring_back(self, do: Callable[[Scope], list[TableRestore]], expected: Tables | None) -> None:
        """Do it in a transaction, which may be killed; if nothing is expected it must be refused."""
        found: list[TableRestore] = []

        def change(tx: Transaction) -> None:
            found.extend(do(Scope(self.catalog, tx, States(self.store))))
            assert expected is not None, "this must be refused"

        def tables() -> Tables:
            assert expected is not None
            return expected

        try:
            self.commit(change, tables, lambda: [tables()[each.name][0] for each in found])
        except InvalidError:
            if expected is not None:
                raise

    # --- tags ---------------------------------------------------------------------------------------------------------

    @rule(data=st.data(), days=st.sampled_from([None, 20, 400]))
    def tag(self, data: st.DataObject, days: int | None) -> None:
        version, name = data.draw(st.sampled_from(self.whole())), f"tag{self.new_number()}"
        until = None if days is None else self.clock.now + timedelta(days=days)
        ddl = TagDdl(action="create", name=name, version=version, retain_until=until)
        if self.commit(lambda tx: tx.changing().create_tag(ddl), self.tables):
            self.tags[name] = version, until

    @precondition(lambda self: self.tags)
    @rule(data=st.data())
    def untag(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tags)))
        if self.commit(lambda tx: tx.changing().drop_tag(name), self.tables):
            del self.tags[name]
