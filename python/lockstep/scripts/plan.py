"""What each statement of a script reads and writes, and which must wait for which: from its text alone, without Spark.

    >>> [(s.stage, s.after) for s in plan(read("x.sql", "INSERT INTO a TABLE c; DELETE FROM b; SELECT * FROM a").steps)]
    [(1, ()), (1, ()), (2, (1,))]

Two statements need their order when one changes what the other uses. What is used, by kind:

    reads       rows, as they are then
    mentions    not the rows there are now: an old version, or what a view names when it is made
    writes      rows
    defines     creates, alters or drops it

Only `defines` matters to who mentions; `writes` matters to who reads or writes. A name may be written with more or with
fewer parts, and what is current when the script begins is not known: names that may be the same count as the same, as
`t` and `main.bank.t`.

What is not understood counts as touching everything, so it waits for all before it and all after it wait for it: what
sqlglot cannot parse, names that are computed, system tables, statements about the session or its transaction. An old
version is taken to be older than the script. Views and functions that were there before the script are taken to read
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from lockstep.errors import InvalidError
from lockstep.scripts.script import Step
from lockstep.scripts.splitting import code, is_block

if TYPE_CHECKING:
    from sqlglot import Parser, exp

STATEMENTS_AT_MOST = 2_000
"""Of a script; each is compared with those since the last that touches everything, which takes seconds in all."""


@dataclass(frozen=True, slots=True, order=True)
class Relation:
    """A table, a view or a namespace, by as many parts of its name as the script tells."""

    parts: tuple[str, ...]
    is_namespace: bool = False

    def __str__(self) -> str:
        return ".".join(self.parts)

    def may_be(self, other: Relation) -> bool:
        """Tell whether both may be the same, or one be in the other."""
        if not (self.is_namespace or other.is_namespace) and self.parts[-1].casefold() != other.parts[-1].casefold():
            return False  # most pairs, soon told
        mine, theirs = ([part.casefold() for part in each.parts] for each in (self, other))
        if self.is_namespace and other.is_namespace:
            return _is_in(mine, theirs) or _is_in(theirs, mine)
        if self.is_namespace:
            return _is_in(theirs[:-1], mine)
        return _is_in(mine[:-1], theirs) if other.is_namespace else _same_end(mine, theirs)


def _is_of_system(relation: Relation) -> bool:
    return len(relation.parts) > 1 and relation.parts[-2].casefold() == _SYSTEM


def _same_end(one: Sequence[str], other: Sequence[str]) -> bool:
    shorter = min(len(one), len(other))
    return one[len(one) - shorter :] == other[len(other) - shorter :]


def _is_in(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Tell whether a namespace may be in another one, or be it; one without any part may be in all."""
    return not inner or any(_same_end(inner[:length], outer) for length in range(1, len(inner) + 1))


@dataclass(frozen=True, slots=True)
class Uses:
    """What a statement uses, by kind; `everything` says why it counts as using all there is, and is empty if not."""

    reads: frozenset[Relation] = frozenset()
    mentions: frozenset[Relation] = frozenset()
    writes: frozenset[Relation] = frozenset()
    defines: frozenset[Relation] = frozenset()
    everything: str = ""

    def must_precede(self, later: Uses) -> bool:
        """Tell whether a later statement has to wait for this one."""
        if self.everything or later.everything:
            return True
        return (
            _meet(self.defines, later._all())
            or _meet(self._all(), later.defines)
            or _meet(self.writes, later.reads | later.writes)
            or _meet(self.reads, later.writes)
        )

    def _all(self) -> frozenset[Relation]:
        return self.reads | self.mentions | self.writes | self.defines


def _meet(some: Iterable[Relation], others: Iterable[Relation]) -> bool:
    return any(one.may_be(other) for one in some for other in others)


@dataclass(frozen=True, slots=True)
class Planned:
    """One statement in the plan.

    Attributes:
        step: the statement.
        uses: what it uses.
        after: numbers of the statements that it must wait for, without those that they wait for themselves.
        stage: 1 for a statement that waits for none, else one more than the greatest of those it waits for: statements
            of one stage do not wait for one another.
    """

    step: Step
    uses: Uses
    after: tuple[int, ...]
    stage: int


def plan(steps: Sequence[Step]) -> list[Planned]:
    """Return the plan of a script, in the order of its statements.

    Raises:
        InvalidError: it has more than 2,000 statements.
    """
    if len(steps) > STATEMENTS_AT_MOST:
        raise InvalidError(f"a plan takes at most {STATEMENTS_AT_MOST} statements, and these are {len(steps)}")
    reader = _Reader()
    statements: list[Planned] = []
    ancestors: list[frozenset[int]] = []
    barrier = 0  # the last that touches everything, which is behind all before it
    for index, step in enumerate(steps):
        uses = reader.read(step)
        predecessors = [at for at in range(barrier, index) if statements[at].uses.must_precede(uses)]
        indirect = frozenset[int]().union(*(ancestors[at] for at in predecessors))
        after = [at for at in predecessors if at not in indirect]
        stage = 1 + max((statements[at].stage for at in after), default=0)
        statements.append(Planned(step, uses, tuple(statements[at].step.number for at in after), stage))
        ancestors.append(indirect.union(predecessors))
        if uses.everything:
            barrier = index
    return statements


# --- one statement ----------------------------------------------------------------------------------------------------

_TRANSACTION = {"BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"}

_SYNONYMS = {"SYSTEM_VERSION": "VERSION", "SYSTEM_TIME": "TIMESTAMP"}
"""What Lockstep and Spark read before AS OF, and what sqlglot does."""

_ROW_SOURCES = {
    "range",
    "explode_outer",
    "posexplode_outer",
    "inline_outer",
    "stack",
    "variant_explode",
    "sql_keywords",
}
"""Functions of Spark's that may stand after FROM and read no table: those that sqlglot has no class of its own for."""

_NAMESPACES = {"NAMESPACE", "SCHEMA", "DATABASE"}

_SYSTEM = "system"
"""The namespace of a lake's tables about itself, see `lockstep.system.namespace`."""


class _NotUnderstoodError(Exception):
    """Why a statement counts as touching everything."""


@dataclass
class _Reader:
    """Reads statements in their order, and knows what those before have done to names."""

    current: tuple[str, ...] = ()
    """The catalog and namespace that USE chose; empty while not known."""

    views: dict[Relation, frozenset[Relation]] = field(default_factory=dict)
    """What the views that the script made read."""

    functions: set[str] = field(default_factory=set)
    """The last parts of the names of functions that the script made."""

    def read(self, step: Step) -> Uses:
        try:
            if is_block(step.text):
                raise _NotUnderstoodError("it is a block of statements")
            if _first_word(step.text) in _TRANSACTION:
                return Uses(everything="it begins or ends a transaction, or a part of one")
            uses = self._uses(_parsed(step.text))
            if any(map(_is_of_system, uses.reads | uses.mentions)):
                return Uses(everything="it reads a system table, which tells of all that there is")
            return uses
        except _NotUnderstoodError as why:
            self.current = ()  # it may have chosen another
            return Uses(everything=str(why))

    def _uses(self, tree: exp.Expr) -> Uses:
        from sqlglot import exp

        self._refuse_functions(tree)
        match tree:
            case exp.Insert() | exp.Update() | exp.Delete() | exp.Merge():
                target = self._relation(_table(tree.this))
                uses = self._read_by(tree, but=_table(tree.this))
                reads = uses.reads if isinstance(tree, exp.Insert) else uses.reads | {target}
                return Uses(reads, uses.mentions, frozenset({target}))
            case exp.MultitableInserts():
                return self._uses_of_inserts(tree)
            case exp.TruncateTable():
                return Uses(writes=frozenset(map(self._relation, tree.find_all(exp.Table))))
            case exp.Create() | exp.Alter() | exp.Comment():
                return self._uses_of_ddl(tree, tree.this)
            case exp.Drop():
                return self._uses_of_ddl(tree, tree.find(exp.Table))
            case exp.Describe() | exp.Query() | exp.Values():
                return self._read_by(tree)
            case exp.Use():
                self.current = _chosen(tree)
        return Uses(everything="it is about the session, or the plan does not know it")

    def _uses_of_inserts(self, tree: exp.Expr) -> Uses:
        from sqlglot import exp

        targets = [_table(insert.this) for insert in tree.find_all(exp.Insert)]
        uses = self._read_by(tree, but=targets)
        return Uses(uses.reads, uses.mentions, frozenset(map(self._relation, targets)))

    def _uses_of_ddl(self, tree: exp.Expr, name: exp.Expr | None) -> Uses:
        from sqlglot import exp

        kind = str(tree.args.get("kind")).upper()
        if kind in _NAMESPACES:
            return Uses(defines=frozenset({Relation(_parts(_table(name)), is_namespace=True)}))
        if kind not in ("TABLE", "VIEW"):
            if isinstance(tree, exp.Create) and kind == "FUNCTION":
                self.functions.add(next(tree.find_all(exp.Table)).name.casefold())
            raise _NotUnderstoodError(f"the plan does not know what uses a {kind.lower()}")
        target = Relation((_table(name).name,)) if tree.find(exp.TemporaryProperty) else self._relation(_table(name))
        if (rename := tree.find(exp.AlterRename)) is not None:
            new = self._new_name(target, rename)
            if through := [reads for view, reads in self.views.items() if view.may_be(target)]:
                self.views[new] = frozenset[Relation]().union(*through)
            return Uses(defines=frozenset({target, new}))
        uses = self._read_by(tree, but=_table(name))
        if kind == "VIEW":
            if tree.find(exp.Query):
                self.views[target] = uses.reads
            return Uses(mentions=uses.reads | uses.mentions, defines=frozenset({target}))
        return Uses(uses.reads, uses.mentions, defines=frozenset({target}))

    def _new_name(self, old: Relation, rename: exp.Expr) -> Relation:
        """Return the new name; one of a single part stays in the old one's namespace (Spark's RenameTableExec)."""
        parts = _parts(_table(rename.this))
        return Relation((*old.parts[:-1], *parts) if len(parts) == 1 else parts)

    def _read_by(self, tree: exp.Expr, but: exp.Table | Sequence[exp.Table] = ()) -> Uses:
        """Return what a tree reads and mentions, of all its tables but these."""
        from sqlglot import exp

        left_out = {id(but)} if isinstance(but, exp.Table) else {id(table) for table in but}
        reads, mentions = set(), set()
        for table in tree.find_all(exp.Table):
            if id(table) in left_out or _is_common_expression(table) or table.find_ancestor(exp.Hint):
                continue
            if isinstance(table.this, exp.Func):
                reads |= set(map(self._qualified, _read_by_function(table.this)))
            elif _is_old(table):
                mentions.add(self._relation(table))
            else:
                reads.add(self._relation(table))
        return Uses(frozenset(self._with_those_of_views(reads)), frozenset(mentions))

    def _with_those_of_views(self, reads: set[Relation]) -> set[Relation]:
        relations, new = set(reads), set(reads)
        while new:
            through = {r for view, inner in self.views.items() if _meet((view,), new) for r in inner}
            new = through - relations
            relations |= new
        return relations

    def _refuse_functions(self, tree: exp.Expr) -> None:
        from sqlglot import exp

        for called in tree.find_all(exp.Anonymous):
            if called.name.casefold() in self.functions:
                raise _NotUnderstoodError(f"it calls {called.name}, a function that this script makes")

    def _relation(self, table: exp.Table) -> Relation:
        return self._qualified(_parts(table))

    def _qualified(self, parts: tuple[str, ...]) -> Relation:
        return Relation((*self.current, *parts) if len(parts) == 1 else parts)


# --- sqlglot's trees --------------------------------------------------------------------------------------------------


def _parsed(text: str) -> exp.Expr:
    """Return the tree of a statement.

    Raises:
        _NotUnderstoodError: there is none, or a name in it is not known before it runs.
    """
    from sqlglot import exp
    from sqlglot.dialects import Spark

    text = _in_words_of_sqlglot(text)
    try:
        trees = _parser()(dialect="spark").parse(Spark().tokenize(text), text)
    except Exception:  # noqa: BLE001  # whatever a parser of others stumbles over, the answer is known
        trees = []
    if len(trees) != 1 or trees[0] is None or isinstance(trees[0], exp.Command) or _is_misread(trees[0]):
        raise _NotUnderstoodError("sqlglot cannot parse it")
    return trees[0]


@cache
def _parser() -> type[Parser]:
    from sqlglot.dialects import Spark

    class Quiet(Spark.Parser):  # type: ignore[misc]  # an alias inside a class, which mypy does not follow
        def _warn_unsupported(self) -> None:
            """Say nothing: the plan does."""

    return Quiet


def _is_misread(tree: exp.Expr) -> bool:
    """Tell whether a tree takes TABLE or STREAM for a name: `(TABLE t)` for a table of that name, called t here."""
    from sqlglot import exp

    return any(table.name.upper() in ("TABLE", "STREAM") and table.alias for table in tree.find_all(exp.Table)) or any(
        isinstance(inner.this, exp.Alias) for inner in tree.find_all(exp.CTE)
    )


def _in_words_of_sqlglot(text: str) -> str:
    spans = code(text)
    words = [text[start:end].upper() for start, end in spans]
    for index, (start, end) in enumerate(spans):
        match words[index : index + 3]:
            case [("SYSTEM_VERSION" | "SYSTEM_TIME") as word, "AS", "OF"]:
                text = text[:start] + _SYNONYMS[word].ljust(end - start) + text[end:]
            case ["IDENTIFIER", "(", *_]:
                raise _NotUnderstoodError("a name in it is computed by IDENTIFIER")
            case ["$", "{", *_]:
                raise _NotUnderstoodError("it has a variable that Spark replaces")
        if "${" in words[index]:
            raise _NotUnderstoodError("it has a variable that Spark replaces")
    return text


def _table(node: exp.Expr | None) -> exp.Table:
    """Return the table that a statement names as its target."""
    from sqlglot import exp

    table = node.this if isinstance(node, exp.Schema) else node
    if not isinstance(table, exp.Table) or isinstance(table.this, exp.Func):
        raise _NotUnderstoodError("the plan does not find what it changes")
    return table


def _parts(table: exp.Table) -> tuple[str, ...]:
    return tuple(part.name for part in table.parts)


def _is_common_expression(table: exp.Table) -> bool:
    """Tell whether a name is that of a WITH around it; inside WITH, of one before it, or of itself if recursive."""
    from sqlglot import exp

    name = _parts(table)
    if len(name) > 1:
        return False
    node: exp.Expr = table
    while (parent := node.parent) is not None:
        expressions: list[exp.Expr] = []
        if isinstance(parent, exp.With):
            expressions = parent.expressions[: (node.index or 0) + bool(parent.recursive)]
        elif not isinstance(node, exp.With):
            expressions = [
                cte for inner in parent.args.values() if isinstance(inner, exp.With) for cte in inner.expressions
            ]
        if name[0].casefold() in (cte.alias.casefold() for cte in expressions):
            return True
        node = parent
    return False


def _is_old(table: exp.Table) -> bool:
    """Tell whether a table is read at a version or a time that the text says."""
    from sqlglot import exp

    version = table.args.get("version")
    expression = version.expression if version is not None else None
    return isinstance(expression.this if isinstance(expression, exp.Cast) else expression, exp.Literal)


def _read_by_function(function: exp.Func) -> Iterator[tuple[str, ...]]:
    """Yield the names of the tables that a function after FROM reads.

    Raises:
        _NotUnderstoodError: nobody knows.
    """
    from sqlglot import exp

    name = function.name.casefold() if isinstance(function, exp.Anonymous) else ""
    if name == "table_changes":
        of = function.expressions[0] if function.expressions else None
        if not (isinstance(of, exp.Literal) and of.is_string):
            raise _NotUnderstoodError("the plan does not find whose changes it reads")
        yield _parts(exp.to_table(of.name, dialect="spark"))
    elif name and name not in _ROW_SOURCES:
        raise _NotUnderstoodError(f"nobody knows what {function.name} reads")


def _chosen(use: exp.Expr) -> tuple[str, ...]:
    """Return what USE makes current, empty if the text does not tell: `USE a` names a catalog or a namespace."""
    parts = _parts(use.this)
    if use.this.alias:  # sqlglot takes the word NAMESPACE for a name
        return (use.this.alias,)
    kind = use.args.get("kind")
    if kind is not None:
        return parts if kind.name.upper() in _NAMESPACES else ()
    return parts if len(parts) > 1 else ()


def _first_word(text: str) -> str:
    return text[slice(*code(text)[0])].upper()
