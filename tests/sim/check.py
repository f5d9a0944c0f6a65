"""What must be so after every schedule, whatever went wrong in it.

told        who was told that it is committed is in the timeline, once, as the version that it was told; who was told
            that it is not, never is
names       the tables, views and tags of every database version are those that the committed transactions, one after
            the other in the timeline's order, leave, whether or not it has expired since
files       so are the files of every version of every table that can be read, by its published log, with the rows that
            deletion vectors take out of them; and each file and vector is there
seen        what a transaction read of a database version is what that version says in the end
agreed      every process, and whoever opens the lake anew, says the same of every database version that can be read
histories   what was read has an order, as the isolation level promises
verify      Lockstep's own comparison of logs and timeline finds nothing

What more must be so where a lake is looked after is in `tests.sim.check_upkeep`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from lockstep.catalog import TransactionalCatalog
from lockstep.delta.log import commit_path
from lockstep.errors import ForeignCommitError, LockstepError
from lockstep.lake.verify import verify
from lockstep.timeline.database import Database
from lockstep.timeline.entry import Entry, Table
from tests.sim.archive import databases_of, entries_of, landed
from tests.sim.check_upkeep import expired_too_early, released, unreadable_tags
from tests.sim.effects import WHOLE
from tests.sim.journal import Attempt, Journal, Model
from tests.sim.logs import Logs
from tests.sim.store import Disk
from tests.sim.world import World
from tests.support.history import FORBIDS, Status, Transaction, check

SET_UP = "set-up"
"""The process that made the first tables."""


def findings(
    world: World, disk: Disk, fresh: TransactionalCatalog, others: Sequence[TransactionalCatalog]
) -> Iterator[str]:
    """Yield what is wrong, given a catalog that was just opened, and those that there are."""
    journal = world.journal
    yield from journal.contradictions
    yield from (f"told: {path} was written again, with something else" for path in disk.rewritten)
    for name in fresh.timeline.head.tables:
        with suppress(ForeignCommitError):
            fresh.database([name])
    head = fresh.database()
    entries = entries_of(disk)
    if head.version != entries[-1].version:
        yield f"agreed: the newest version is {entries[-1].version}, and who opens the lake finds {head.version}"
        return
    yield from _told(journal, entries)
    versions = databases_of(entries)
    readable = {v: fresh.timeline.at(v) for v in range(head.version) if not head.expired.has(v)} | {head.version: head}
    logs = Logs(disk)
    model = Model()
    yield from _folded(journal, model, list(zip(entries, versions, strict=True)), readable, logs)
    yield from _seen(journal, readable, logs)
    yield from _agreed(readable, others)
    yield from _histories(world)
    yield from _verified(fresh, head.set_aside)
    yield from expired_too_early(world, entries, versions, landed(disk))
    yield from unreadable_tags(world, head)
    yield from released(model, logs)


def _told(journal: Journal, entries: Sequence[Entry]) -> Iterator[str]:
    landed = {entry.transaction.id: entry.version for entry in entries}
    times = Counter(entry.transaction.id for entry in entries)
    ended = {victim for entry in entries for victim in entry.aborts}
    yield from (f"told: {id_} is in the timeline {count} times" for id_, count in times.items() if count > 1)
    for entry in entries:
        if entry.kind == "transaction" and entry.transaction.id not in journal.attempts:
            yield f"told: nobody wrote entry {entry.version}, of {entry.transaction.id}"
    for attempt in journal.attempts.values():
        version = landed.get(attempt.id)
        if not attempt.is_plain and not _is_true(attempt, version, is_ended=attempt.id in ended):
            yield f"told: {attempt.id} was told {attempt.told}, and is version {version}; ended: {attempt.id in ended}"


def _is_true(attempt: Attempt, version: int | None, *, is_ended: bool) -> bool:
    """Tell whether what a client was told of its transaction is so, given the version that it is."""
    match attempt.status:
        case "ok":  # what changed nothing need not be there
            is_there = not attempt.effects if version is None else version == attempt.version
            return is_there and not (is_ended and version is not None)
        case "fail" | "open":
            return version is None
        case "info":
            return attempt.is_forgotten  # everybody else has been asked by now


def _folded(
    journal: Journal,
    model: Model,
    versions: Sequence[tuple[Entry, Database]],
    readable: Mapping[int, Database],
    logs: Logs,
) -> Iterator[str]:
    """Have the model become what the entries make of it, and yield where that is not what is there."""
    head = readable[max(readable)]
    aside = head.set_aside
    for entry, then in versions:
        attempt = journal.attempts.get(entry.transaction.id)
        if attempt is not None and entry.kind == "transaction":
            try:
                for effect in attempt.effects:
                    effect(model)
            except (AssertionError, KeyError) as error:
                yield f"folded: {attempt.id} cannot have been committed as version {entry.version}: {error}"
                return
        yield from _names(model, then)
        if (database := readable.get(entry.version)) is None:
            continue
        yield from _names(model, database)
        for table in database.tables.values():
            is_aside = table.id in aside or table.id in database.set_aside or _was_aside(journal, table, head, logs)
            if not is_aside and (wrong := _files(journal, model, table, logs)):
                yield f"files: {table.name} in database version {database.version}: {wrong}"


def _was_aside(journal: Journal, table: Table, head: Database, logs: Logs) -> bool:
    """Whether a table was dropped while it was set aside: a plain writer's commit is in its log instead of ours."""
    if head.table_by_id(table.id) is not None:
        return False
    plain = [each for each in journal.plain if each.location == table.location and each.version <= table.version]
    there = {each.version for each in plain if logs.disk.get(commit_path(each.location, each.version)) == each.data}
    return any(each.is_constraint and each.version in there for each in plain)


def _names(model: Model, database: Database) -> Iterator[str]:
    found = {
        "tables": {name.table: table.id for name, table in database.tables.items()},
        "views": {name.table: view.definition.text for name, view in database.views.items()},
        "tags": {tag.name: (tag.version, tag.retain_until) for tag in database.tags.values()},
    }
    for kind, names in found.items():
        if names != getattr(model, kind):
            yield f"names: {kind} of database version {database.version}: {names}, not {getattr(model, kind)}"


def _files(journal: Journal, model: Model, table: Table, logs: Logs) -> str | None:
    """Return what is wrong with a version of a table."""
    try:
        files = logs.rows(table.location, table.version)
    except AssertionError as error:
        return str(error)
    plain = {
        commit.path: WHOLE
        for commit in journal.plain
        if commit.location == table.location
        and commit.version <= table.version
        and commit.path not in model.gone
        and logs.disk.get(commit_path(commit.location, commit.version)) == commit.data
    }
    expected = plain | model.files[table.id]
    if files.keys() != expected.keys():
        many, few = sorted(files.keys() - expected.keys()), sorted(expected.keys() - files.keys())
        return f"it has {many} too many, and {few} too few"
    if wrong := [path for path, rows in files.items() if rows != expected[path]]:
        return "; ".join(f"the rows {set(files[path])} of {path} are out, not {set(expected[path])}" for path in wrong)
    lost = [path for path in sorted(files) if logs.disk.get(f"{table.location}/{path}") is None]
    return f"{lost} are gone" if lost else None


def _seen(journal: Journal, readable: Mapping[int, Database], logs: Logs) -> Iterator[str]:
    for attempt in journal.attempts.values():
        for seen in attempt.seen:
            database = readable.get(seen.database_version)
            if database is None or seen.table in database.set_aside:
                continue
            table = database.table_by_id(seen.table)
            if table is None or table.version != seen.table_version:
                now = None if table is None else table.version
                yield f"seen: {attempt.id} read {seen.table} at version {seen.table_version}, and it is {now}: {seen}"
            elif frozenset(logs.files(table.location, table.version)) != seen.files:
                yield f"seen: {attempt.id} read other files of {seen.table} than there are: {seen}"


def _agreed(readable: Mapping[int, Database], others: Iterable[TransactionalCatalog]) -> Iterator[str]:
    for number, catalog in enumerate(others):
        head = catalog.database().version
        if head != max(readable):
            yield f"agreed: process {number} knows {head} versions of {max(readable)}"
        for version, database in readable.items():
            other = catalog.timeline.at(version)
            if _values(other) != _values(database):
                yield f"agreed: process {number} says of version {version}: {_values(other)}, not {_values(database)}"


def _values(database: Database) -> tuple[object, ...]:
    return (
        database.version,
        dict(database.tables.items()),
        dict(database.views.items()),
        dict(database.namespaces.items()),
        dict(database.tags.items()),
    )


def _histories(world: World) -> Iterator[str]:
    forbidden = FORBIDS["strong-snapshot-isolation"]
    if world.plan.isolation == "SERIALIZABLE":
        forbidden |= {"G2-item"}
    judged = [_judged(attempt, world.journal.unjudged) for attempt in world.journal.attempts.values() if attempt.ops]
    for anomaly in check(judged):
        if anomaly.name in forbidden:
            yield f"histories: {anomaly}"


def _judged(attempt: Attempt, unjudged: Collection[str]) -> Transaction:
    status: Status = "info" if attempt.is_plain or attempt.is_forgotten else "ok" if attempt.status == "ok" else "fail"
    ended = attempt.ended if status == "ok" else None
    ops = tuple(op for op in attempt.ops if op.key.partition("/")[0] not in unjudged)
    return Transaction(attempt.id, ops, status, attempt.process, attempt.began, ended)


def _verified(catalog: TransactionalCatalog, aside: Mapping[str, object]) -> Iterator[str]:
    catalog.lake.upkeep.settle()
    try:
        report = verify(catalog.lake.storage, catalog.timeline)
    except LockstepError as error:
        yield f"verify: {error!r}"
        return
    if not aside:
        yield from (f"verify: {difference}" for difference in report.differences)
    yield from (f"verify: {wrong}" for wrong in report.wrong_checkpoints)
