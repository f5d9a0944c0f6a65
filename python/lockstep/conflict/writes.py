"""Which two transactions cannot both commit because of what both changed: the rules, in one table.

`mine` wants to commit; `winner` is one that committed since the snapshot of `mine`. If no rule finds a conflict, with
each of the winners, ours can land behind them: what it changed, none of them changed too. The first committer wins.
What was read besides is judged at SERIALIZABLE, by `lockstep.conflict.serializable`.

Rules are about names and ids, not about versions: a file, a table or a namespace that both changed. They are judged on
collapsed commits with real paths, so a file is called the same by both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeAlias

from lockstep.delta.combine.evolution import collide
from lockstep.delta.footprint import Footprint
from lockstep.delta.pruning.row_sets import Rows
from lockstep.timeline.database import tag_key
from lockstep.timeline.entry import Batch, Isolation, Name, Namespace, NamespaceDdl, TableDdl, TagDdl, ViewDdl, folded
from lockstep.timeline.functions import said
from lockstep.timeline.places import folders_above


@dataclass(frozen=True, slots=True)
class Changes:
    """What a transaction changed and read.

    Attributes:
        transaction: its id.
        namespaces, tables, views: its DDL, net of what it undid itself.
        writes: by table id, what its commits touched.
        reads: by table id, which rows it read, also through UPDATE, DELETE and MERGE; a blind append reads none, but
            the columns (`NO_ROW`).
        view_reads: views whose definitions it used.
        names: by table id, what its tables are called, for messages.
        isolation: its level.
        base: the database version that it read, where known.
        batch: the micro-batch that it records as done.
        aborts: ids of transactions that it ended.
        asked: of one that ended others because a person asked for it: who, and why.
        tags: the tags that it made and dropped.
        database_version: the timeline entry of a winner; None while not committed.
        precedes: of a winner, the first version that it did not see though it read what that changed.
        case_sensitive: whether names that differ in case alone are two.
    """

    transaction: str
    namespaces: tuple[NamespaceDdl, ...] = ()
    tables: tuple[TableDdl, ...] = ()
    views: tuple[ViewDdl, ...] = ()
    writes: Mapping[str, Footprint] = field(default_factory=dict)
    reads: Mapping[str, Rows] = field(default_factory=dict)
    view_reads: frozenset[Name] = frozenset()
    names: Mapping[str, Name] = field(default_factory=dict)
    isolation: Isolation = "SERIALIZABLE"
    base: int | None = None
    batch: Batch | None = None
    aborts: frozenset[str] = frozenset()
    asked: str | None = None
    tags: tuple[TagDdl, ...] = ()
    database_version: int | None = None
    precedes: int | None = None
    case_sensitive: bool = True

    def key(self, name: Name) -> Name:
        """Return a name as this transaction tells it from others."""
        return name if self.case_sensitive else folded(name)

    def changes_something(self) -> bool:
        """Whether it has any effect."""
        return bool(self.writes or self.tables or self.views or self.namespaces or self.batch or self.tags)

    def moved_tables(self) -> dict[str, TableDdl]:
        """The tables that it dropped or renamed, by id."""
        return {ddl.id: ddl for ddl in self.tables if ddl.action in ("drop", "rename")}

    def names_given(self) -> dict[Name, str]:
        """The names that it gave away, each with what it gave it to: a table, created or renamed, or a new view."""
        tables = [ddl.new_name if ddl.action == "rename" else ddl.name for ddl in self.tables if ddl.action != "drop"]
        views = [ddl.name for ddl in self.views if ddl.action == "create"]
        return dict.fromkeys(filter(None, tables), "table") | dict.fromkeys(views, "view")

    def views_by(self, *actions: str) -> dict[Name, ViewDdl]:
        """The views that it created, replaced or dropped, as asked, by name."""
        return {ddl.name: ddl for ddl in self.views if ddl.action in actions}

    def namespaces_by(self, *actions: str) -> list[Namespace]:
        """The namespaces that it created, altered or dropped, as asked, in order."""
        return [ddl.name for ddl in self.namespaces if ddl.action in actions]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a transaction cannot commit behind a winner: a value, until the public edge raises it as a ConflictError.

    Attributes:
        rule: the name of the rule in `RULES`.
        message: what happened, to what, by whom, and what to do.
        about: the name of the table, view, namespace, tag or application that both are about.
        winner: the other's transaction; nothing, if that is no transaction's doing.
        winner_version: the database version that the other is committed as, where it is.
        happened: what of the message is not about what to do, where the two stand side by side in the timeline.
    """

    rule: str
    message: str
    about: str = ""
    winner: str = ""
    winner_version: int | None = None
    happened: str = ""

    @classmethod
    def of(cls, rule: str, winner: Changes, hit: Hit) -> Conflict:
        """Return the conflict that a rule found with a winner."""
        at = "" if winner.database_version is None else f" (database version {winner.database_version})"
        by = f"transaction {winner.transaction}{at}"
        happened = f"{by} {hit.what}."
        message = f"{happened} Nothing of this transaction was committed; {hit.advice}."
        return cls(rule, message, hit.about, winner.transaction, winner.database_version, happened)


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule found: what both did to the object, as a clause whose subject is the winner, and its name."""

    what: str
    advice: str = "run it again"
    about: str = ""


KILLED = "killed"
"""The rule by which an older transaction ends one."""

ABORTED = "aborted"
"""The rule by which a person ends a transaction."""

Find: TypeAlias = Callable[[Changes, Changes], Hit | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its name, what it says, and the function that applies it. All hold at both isolation levels."""

    name: str
    says: str
    find: Find


def first_conflict(mine: Changes, winner: Changes, *, same_rows: Find | None = None) -> Conflict | None:
    """Return the first conflict by the order of `RULES`, None if `mine` can land behind `winner`.

    The two must be different transactions: one found in the timeline under our own id is ours, committed.

    Args:
        same_rows: applies the rule `row` by what is in the deletion vectors (`lockstep.commit.row_merge`). Who gives it
            must merge the vectors of ours before it lands. Without it any two changes of one file's vector conflict.
    """
    for rule in RULES if _may_share_names(mine, winner) else TABLE_RULES:
        find = same_rows if rule.name == ROW and same_rows is not None else rule.find
        if (hit := find(mine, winner)) is not None:
            return Conflict.of(rule.name, winner, hit)
    return None


def _may_share_names(mine: Changes, winner: Changes) -> bool:
    """Tell whether a rule that is not about what is in a table can find anything between the two."""
    return bool(winner.aborts or winner.tables or winner.views or winner.tags or winner.namespaces or mine.tables)


def _killed(mine: Changes, winner: Changes) -> Hit | None:
    if mine.transaction not in winner.aborts or winner.asked is not None:
        return None
    return Hit("ended this one: an older transaction needed what it had changed")


def _aborted(mine: Changes, winner: Changes) -> Hit | None:
    if mine.transaction not in winner.aborts or winner.asked is None:
        return None
    return Hit(f"ended this one, for {winner.asked}", "ask why before you run it again")


# --- tables as a whole ------------------------------------------------------------------------------------------------


def _table_gone(mine: Changes, winner: Changes) -> Hit | None:
    ours = mine.moved_tables()
    for id, ddl in winner.moved_tables().items():
        if id in mine.writes:
            return Hit(f"{did(ddl)}, which this transaction wrote", about=str(ddl.name))
        if id in ours:
            return Hit(f"{did(ddl)}, which this transaction {_PAST[ours[id].action]}", about=str(ddl.name))
    return None


def _table_written(mine: Changes, winner: Changes) -> Hit | None:
    for id, ddl in mine.moved_tables().items():
        if id in winner.writes:
            return Hit(f"wrote table {ddl.name}, which this transaction {_PAST[ddl.action]}", about=str(ddl.name))
    return None


def _name_taken(mine: Changes, winner: Changes) -> Hit | None:
    theirs = {mine.key(name): f"gave a {kind} the name {name}" for name, kind in winner.names_given().items()}
    for name in mine.names_given():
        if (what := theirs.get(mine.key(name))) is not None:
            return Hit(f"{what}, as this transaction does", about=str(name))
    return None


def _view_changed(mine: Changes, winner: Changes) -> Hit | None:
    ours, theirs = mine.views_by("replace", "drop"), winner.views_by("replace", "drop")
    for name in ours:
        if name in theirs:
            what = f"{did_view(theirs[name])}, which this transaction {_PAST[ours[name].action]}"
            return Hit(what, about=str(name))
    return None


def _location_taken(mine: Changes, winner: Changes) -> Hit | None:
    theirs = {ddl.location: ddl for ddl in winner.tables if ddl.action == "create" and ddl.location}
    above = {folder: ddl for location, ddl in theirs.items() for folder in folders_above(location)}
    for ddl in mine.tables if theirs else ():
        if ddl.action != "create":
            continue
        if (other := theirs.get(ddl.location)) is not None:
            what = f"created table {other.name} at {ddl.location}, as this transaction {ddl.name}"
            return Hit(what, about=str(other.name))
        inside = (theirs[folder] for folder in folders_above(ddl.location) if folder in theirs)
        if (other := above.get(ddl.location) or next(inside, None)) is not None:
            what = f"created table {other.name} at {other.location}, and this transaction {ddl.name} at {ddl.location}"
            return Hit(f"{what}: one of the two folders is inside of the other", about=str(other.name))
    return None


_PAST = {"create": "created", "rename": "renamed", "replace": "replaced", "drop": "dropped", "alter": "altered"}


def did(ddl: TableDdl) -> str:
    """Say what a change of the list of tables did, as a clause without a subject."""
    target = f" to {ddl.new_name}" if ddl.action == "rename" else ""
    return f"{_PAST[ddl.action]} table {ddl.name}{target}"


def did_view(ddl: ViewDdl) -> str:
    """Say what a change of the list of views did, which may be a function's, as a clause without a subject."""
    return f"{_PAST[ddl.action]} {said(ddl.name)}"


def _tag_changed(mine: Changes, winner: Changes) -> Hit | None:
    theirs = {tag_key(ddl.name): ddl for ddl in winner.tags}
    for ddl in mine.tags:
        if (other := theirs.get(tag_key(ddl.name))) is not None:
            what = f"{_PAST[other.action]} tag {other.name}, which this transaction {_PAST[ddl.action]}"
            return Hit(what, about=other.name)
    return None


# --- namespaces -------------------------------------------------------------------------------------------------------


def _namespace_gone(mine: Changes, winner: Changes) -> Hit | None:
    for namespace, inside in _filled_namespaces(winner.namespaces_by("drop"), mine):
        what = f"dropped namespace {'.'.join(namespace)}, in which this transaction made {inside}"
        return Hit(what, about=".".join(namespace))
    return None


def _namespace_filled(mine: Changes, winner: Changes) -> Hit | None:
    for namespace, inside in _filled_namespaces(mine.namespaces_by("drop"), winner):
        name = ".".join(namespace)
        return Hit(f"made {inside} in namespace {name}, which this transaction dropped", about=name)
    return None


def _filled_namespaces(namespaces: list[Namespace], other: Changes) -> Iterator[tuple[Namespace, str]]:
    """Find the dropped namespaces in which the other transaction made a table, a view or a namespace."""
    creations = [(name.namespace, f"{kind} {name}") for name, kind in other.names_given().items()]
    creations += [(name[:-1], f"namespace {'.'.join(name)}") for name in other.namespaces_by("create")]
    for namespace in namespaces:
        for parent, what in creations:
            if parent[: len(namespace)] == namespace:
                yield namespace, what


def _namespace_changed(mine: Changes, winner: Changes) -> Hit | None:
    def key(name: Namespace) -> Name:
        return mine.key(Name(namespace=name, table=""))

    theirs = {key(ddl.name): ddl for ddl in winner.namespaces}
    for ddl in mine.namespaces:
        if (other := theirs.get(key(ddl.name))) is not None:
            name = ".".join(other.name)
            what = f"{_PAST[other.action]} namespace {name}, which this transaction {_PAST[ddl.action]}"
            return Hit(what, about=name)
    return None


# --- what is in a table -----------------------------------------------------------------------------------------------


def _in_both(find: Callable[[Footprint, Footprint, str], str | None]) -> Find:
    """Make a rule of a function that compares what we and the winner did to the same table, given what it is called."""

    def rule(mine: Changes, winner: Changes) -> Hit | None:
        for id, ours in mine.writes.items():
            name = name_of(id, mine, winner)
            if id in winner.writes and (what := find(ours, winner.writes[id], str(name or id))) is not None:
                return Hit(what, about=str(name or id))
        return None

    return rule


def name_of(id: str, mine: Changes, winner: Changes) -> Name | None:
    """Return what a table is called by the one or the other."""
    return mine.names.get(id) or winner.names.get(id)


def _metadata(ours: Footprint, theirs: Footprint, table: str) -> str | None:
    if not collide(ours.metadata, theirs.metadata):
        return None
    if theirs.metadata:
        return f"changed the schema or properties of table {table}, which this transaction wrote"
    return f"wrote table {table}, whose schema or properties this transaction changed"


def _protocol(ours: Footprint, theirs: Footprint, table: str) -> str | None:
    if not collide(ours.protocol, theirs.protocol):
        return None
    if theirs.protocol:
        return f"changed the protocol of table {table}, which this transaction wrote"
    return f"wrote table {table}, whose protocol this transaction changed"


def _file(ours: Footprint, theirs: Footprint, table: str) -> str | None:
    # Nearly always the two have nothing in common, and to see that is cheaper than to join the winner's two sets first.
    if ours.paths.isdisjoint(theirs.removed_paths) and ours.paths.isdisjoint(theirs.added_paths):
        return None
    return _both_changed((ours.paths & theirs.paths) - (ours.vectors.keys() & theirs.vectors.keys()), table)


def _row(ours: Footprint, theirs: Footprint, table: str) -> str | None:
    return _both_changed(ours.vectors.keys() & theirs.vectors.keys(), table)


def _both_changed(paths: AbstractSet[str], table: str) -> str | None:
    if not paths:
        return None
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"changed file {min(paths)}{more} of table {table}, as this transaction does"


def _application(mine: Changes, winner: Changes) -> Hit | None:
    """Compare what both record in the timeline, then what both record in a table's log, as plain Delta does."""
    if mine.batch is not None and winner.batch is not None and mine.batch.application == winner.batch.application:
        what = f"recorded {winner.batch}, of which this transaction records batch {mine.batch.number}"
        return Hit(what, about=mine.batch.application)
    return _in_both(_app)(mine, winner)


def _app(ours: Footprint, theirs: Footprint, table: str) -> str | None:
    if not (both := ours.apps & theirs.apps):
        return None
    return f"recorded progress of the streaming application {min(both)} on table {table}, as this transaction does"


def _domain(ours: Footprint, theirs: Footprint, table: str) -> str | None:
    if not (both := ours.domains & theirs.domains):
        return None
    return f"set the metadata domain {min(both)} of table {table}, as this transaction does"


def _row_tracking(ours: Footprint, theirs: Footprint, table: str) -> str | None:  # noqa: ARG001 - any commit of theirs
    if not ours.fixed:
        return None
    return (
        f"wrote table {table}, in which this transaction updated or moved rows that it had written under row tracking"
    )


ROW = "row"
"""The rule for files that both only gave other deletion vectors; the one that can be judged more closely."""

RULES: tuple[Rule, ...] = (
    Rule(KILLED, "the winner is an `abort` entry that names our transaction", _killed),
    Rule(ABORTED, "the same, and a person asked for it", _aborted),
    Rule("table-gone", "the winner dropped or renamed a table that we wrote, renamed or dropped", _table_gone),
    Rule("table-written", "the winner wrote a table that we dropped or renamed", _table_written),
    Rule("name-taken", "both gave a table or a view the same name, created or renamed", _name_taken),
    Rule("view-changed", "both replaced or dropped the same view, or one did this and the other that", _view_changed),
    Rule("tag-changed", "both created or dropped the same tag", _tag_changed),
    Rule("location-taken", "both created a table in the same folder, or one inside of the other's", _location_taken),
    Rule("namespace-gone", "the winner dropped a namespace in which we made something", _namespace_gone),
    Rule("namespace-filled", "the winner made something in a namespace that we dropped", _namespace_filled),
    Rule("namespace-changed", "both created, altered or dropped the same namespace", _namespace_changed),
    Rule(
        "metadata",
        "both changed a table's schema or properties, or one so that it matters to the other",
        _in_both(_metadata),
    ),
    Rule("protocol", "both changed a table's protocol, or one so that it matters to the other", _in_both(_protocol)),
    Rule("file", "both removed, or wrote again, the same data file", _in_both(_file)),
    Rule(ROW, "both took the same row out of a data file, by its deletion vector", _in_both(_row)),
    Rule("application", "both recorded progress of the same streaming application", _application),
    Rule("domain", "both set the same metadata domain of a table", _in_both(_domain)),
    Rule(
        "row-tracking",
        "the winner wrote a table with row tracking, in which we updated or moved rows that we had written ourselves",
        _in_both(_row_tracking),
    ),
)
"""All rules, in the order in which they are tried: the one that explains most comes first."""

TABLE_RULES = RULES[[rule.name for rule in RULES].index("metadata") :]
"""Those that are about what is in a table."""
