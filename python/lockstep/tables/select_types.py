"""Which columns a query of Spark's SQL gives, and of which types: only where that is certain.

Taken is one SELECT, also with DISTINCT, of tables that are joined, with WHERE and GROUP BY. What it gives are columns,
and expressions of them that have a name (AS): literals, arithmetic, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE,
IS NULL, CASE, coalesce, CAST between some types, upper, lower and length, and the aggregates count, sum, avg, min and
max. Types, and whether there can be nulls, are those that Spark finds with its defaults (`spark.sql.ansi.enabled`).
All else is not judged: functions whose results are others in other sessions, subqueries, windows, fields of structs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from lockstep.tables.spark_types import (
    DECIMAL,
    INTEGERS,
    MAX_DIGITS,
    UnjudgedError,
    Value,
    are_told_apart,
    cast_type,
    digits_of,
    have_common_type,
    is_day,
    is_narrowed,
    kind_of,
    may_make_null,
    number_type,
)

if TYPE_CHECKING:
    from sqlglot import exp

_WHOLE, _FRACTION = re.compile(r"[0-9]{1,18}"), re.compile(r"([0-9]{0,18})\.([0-9]{1,18})")


class Source(NamedTuple):
    """A table or a view in FROM.

    Attributes:
        alias: what its columns are said to be of.
        columns: by name, what they are.
    """

    alias: str
    columns: Mapping[str, Value]


def columns_of(select: exp.Select, read: Callable[[exp.Table], Mapping[str, Value]]) -> list[tuple[str, Value]]:
    """Return the columns that a query gives.

    Args:
        read: returns the columns of a table that the query names.

    Raises:
        UnjudgedError: what it gives is not certain.
        LockstepError: as `read` says.
    """
    from sqlglot import exp

    _only(select, "expressions", "distinct", "from_", "joins", "where", "group")
    if (distinct := select.args.get("distinct")) is not None:
        _only(distinct)
    if (start := select.args.get("from_")) is None:
        raise UnjudgedError("has no FROM")
    _only(start, "this")
    sources: list[Source] = [_source(start.this, read)]
    for join in select.args.get("joins") or ():
        sources = _joined(sources, join, read)
    scope = _Scope(sources)
    if (where := select.args.get("where")) is not None:
        scope.check_condition(where.this)
    keys: list[str] | None = None
    if (group := select.args.get("group")) is not None:
        _only(group, "expressions")
        keys = [scope.key(each) for each in group.expressions]
    if keys is None and any(each.find(exp.AggFunc) for each in select.expressions):
        keys = []
    found = [named for each in select.expressions for named in scope.projected(each, keys)]
    _check_columns(found, is_distinct=distinct is not None)
    return found


def _check_columns(found: list[tuple[str, Value]], *, is_distinct: bool) -> None:
    seen: set[str] = set()
    for name, value in found:
        if is_distinct and not are_told_apart(value):
            raise UnjudgedError(f"has DISTINCT, and gives {name}, of the type {value.type!s:.100}")
        if name.lower() in seen:
            raise UnjudgedError(f"gives two columns called {name}")
        if value.type == "void":
            raise UnjudgedError(f"gives {name}, which is null and of no type: say CAST(NULL AS …)")
        seen.add(name.lower())


def _source(table: exp.Expr, read: Callable[[exp.Table], Mapping[str, Value]]) -> Source:
    from sqlglot import exp

    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise UnjudgedError("reads something else than a table or a view by its name")
    _only(table, "this", "db", "catalog", "alias")
    if (alias := table.args.get("alias")) is not None:
        _only(alias, "this")
    return Source(_identifier(alias.this if alias is not None else table.this), read(table))


def _joined(sources: list[Source], join: exp.Join, read: Callable[[exp.Table], Mapping[str, Value]]) -> list[Source]:
    _only(join, "this", "side", "kind", "on")
    side, kind, condition = join.side.upper(), join.kind.upper(), join.args.get("on")
    if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in ("", "INNER", "OUTER", "CROSS"):
        raise UnjudgedError(f"has a {side} {kind} JOIN")
    if (condition is None) == (bool(side) or kind in ("", "INNER")):
        raise UnjudgedError("has a JOIN without ON, or CROSS JOIN with it")
    new = _source(join.this, read)
    if new.alias.lower() in (each.alias.lower() for each in sources):
        raise UnjudgedError(f"reads two tables as {new.alias}")
    if condition is not None:
        _Scope([*sources, new]).check_condition(condition)
    if side in ("RIGHT", "FULL"):
        sources = [_with_nulls(each) for each in sources]
    return [*sources, _with_nulls(new) if side in ("LEFT", "FULL") else new]


def _with_nulls(source: Source) -> Source:
    columns = {name: value._replace(nullable=True) for name, value in source.columns.items()}
    return source._replace(columns=columns)


def _only(node: exp.Expr, *known: str) -> None:
    """Raise unless all that is said of a part of a query is known here."""
    said = {key for key, value in node.args.items() if value not in (None, False, [], "") and key != "big_int"}
    if unknown := said - set(known):
        raise UnjudgedError(f"has {min(unknown)} in {node.sql('spark'):.100}")


_NOT_BARE = frozenset(
    {
        *("anti", "cross", "except", "full", "inner", "intersect", "join", "lateral", "left", "minus", "natural"),
        *("on", "right", "semi", "union", "using"),
    }
)
"""Words that Spark does not take for the name of a table in a query, without backticks."""

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _identifier(node: exp.Expr | str) -> str:
    from sqlglot import exp

    if not isinstance(node, exp.Identifier):
        raise UnjudgedError(f"has {node!s:.100} where a name is expected")
    name = str(node.this)
    if not node.args.get("quoted") and (name.lower() in _NOT_BARE or not _BARE.fullmatch(name)):
        raise UnjudgedError(f"has the name {name:.100}, which is to stand in backticks")
    return name


class _Scope:
    """The columns that expressions may name, and what expressions over them are."""

    def __init__(self, sources: list[Source]) -> None:
        from sqlglot import exp

        self._sources = sources
        self._by_kind: Mapping[type[exp.Expr], Callable[[Any], Value]] = {
            exp.Column: self._column,
            exp.Literal: self._literal,
            exp.Boolean: lambda _: Value("boolean", False),
            exp.Null: lambda _: Value("void", True),
            exp.Paren: lambda node: self.value(node.this),
            exp.Neg: self._negative,
            **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), self._arithmetic),
            exp.Div: self._quotient,
            **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), self._comparison),
            **dict.fromkeys((exp.And, exp.Or), self._connected),
            exp.Not: self._not,
            exp.Is: self._is_null,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Like: self._like,
            exp.Coalesce: self._coalesce,
            exp.Case: self._case,
            **dict.fromkeys((exp.Cast, exp.TryCast), self._cast),
            **dict.fromkeys((exp.Upper, exp.Lower), self._text),
            exp.Length: self._length,
            exp.Count: self._count,
            exp.Sum: self._sum,
            exp.Avg: self._average,
            **dict.fromkeys((exp.Min, exp.Max), self._extreme),
        }

    # --- clauses ------------------------------------------------------------------------------------------------------

    def check_condition(self, node: exp.Expr) -> None:
        """Raise unless an expression is a condition of single rows."""
        from sqlglot import exp

        if node.find(exp.AggFunc) or self.value(node).type != "boolean":
            raise UnjudgedError(f"has {node.sql('spark'):.100} where a condition of rows is expected")

    def key(self, node: exp.Expr) -> str:
        """Return what a query is grouped by, which is a column."""
        from sqlglot import exp

        if not isinstance(node, exp.Column):
            raise UnjudgedError(f"is grouped by {node.sql('spark'):.100}, which is no column")
        if not are_told_apart(value := self._column(node)):
            raise UnjudgedError(f"is grouped by {node.sql('spark'):.100}, of the type {value.type!s:.100}")
        return self._place(node)

    def projected(self, node: exp.Expr, keys: list[str] | None) -> list[tuple[str, Value]]:
        """Return the columns that an item of a SELECT's list gives."""
        from sqlglot import exp

        whole = isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        if whole or isinstance(node, exp.Star):
            _only(node.this if whole else node)
            if keys is not None:
                raise UnjudgedError("has * beside groups")
            of = _identifier(node.args["table"]).lower() if whole else None
            found = [each for each in self._sources if of is None or each.alias.lower() == of]
            if not found:
                raise UnjudgedError(f"has {of}.*, which is no table of it")
            return [(name, value._replace(literal=None)) for each in found for name, value in each.columns.items()]
        if isinstance(node, exp.Alias):
            _only(node, "this", "alias")
            name, value = _identifier(node.args["alias"]), node.this
        elif isinstance(node, exp.Column):
            name, value = self._spelled(node), node
        else:
            raise UnjudgedError(f"gives {node.sql('spark'):.100} without a name: add AS, and one")
        if keys is not None:
            self._check_grouped(value, keys)
        return [(name, self.value(value)._replace(literal=None))]

    def _check_grouped(self, node: exp.Expr, keys: list[str]) -> None:
        """Raise unless an expression has one value for each group."""
        from sqlglot import exp

        if isinstance(node, exp.AggFunc):
            if any(inner is not node for inner in node.find_all(exp.AggFunc)):
                raise UnjudgedError(f"has an aggregate in {node.sql('spark'):.100}")
            return
        if isinstance(node, exp.Column) and self._place(node) not in keys:
            raise UnjudgedError(f"gives {node.sql('spark'):.100}, by which it is not grouped")
        for child in node.iter_expressions():
            if not isinstance(node, exp.Column):
                self._check_grouped(child, keys)

    # --- columns ------------------------------------------------------------------------------------------------------

    def _find(self, node: exp.Column) -> tuple[Source, str]:
        _only(node, "this", "table")
        name = _identifier(node.this)
        of = _identifier(node.args["table"]).lower() if node.args.get("table") is not None else None
        found = [
            (source, column)
            for source in self._sources
            if of is None or source.alias.lower() == of
            for column in source.columns
            if column.lower() == name.lower()
        ]
        if len(found) != 1:
            raise UnjudgedError(f"names {node.sql('spark'):.100}, which is {len(found)} columns of its tables")
        return found[0]

    def _place(self, node: exp.Column) -> str:
        source, column = self._find(node)
        return f"{source.alias.lower()}.{column}"

    def _spelled(self, node: exp.Column) -> str:
        self._find(node)
        return _identifier(node.this)

    def _column(self, node: exp.Column) -> Value:
        source, column = self._find(node)
        return source.columns[column]

    # --- expressions --------------------------------------------------------------------------------------------------

    def value(self, node: exp.Expr) -> Value:
        """Return what an expression is."""
        kind = self._by_kind.get(type(node))
        if kind is None:
            raise UnjudgedError(f"has {node.sql('spark'):.100}, whose type is not certain here")
        return kind(node)

    def _operand(self, node: exp.Expr) -> Value:
        """Return what is compared or counted with, which is no condition: Spark's grammar groups those otherwise."""
        from sqlglot import exp

        if isinstance(node, exp.And | exp.Or | exp.Not | exp.Is | exp.In | exp.Between | exp.Like | exp.Predicate):
            raise UnjudgedError(f"has {node.sql('spark'):.100} in another expression, which is to stand in parentheses")
        return self.value(node)

    def _literal(self, node: exp.Literal) -> Value:
        text = str(node.this)
        if node.is_string:
            return Value("string", False)
        if _WHOLE.fullmatch(text):
            return Value("integer" if int(text) < 2**31 else "long", False, literal=text)
        if match := _FRACTION.fullmatch(text):
            scale = len(match[2])
            return Value(f"decimal({max(len(match[1].lstrip('0')) + scale, 1)},{scale})", False)
        raise UnjudgedError(f"has the number {text:.100}")

    def _negative(self, node: exp.Neg) -> Value:
        from sqlglot import exp

        value = self._operand(node.this)
        if isinstance(node.this, exp.Literal) and value.literal is not None:  # to Spark the sign is a part of it
            return value._replace(type="integer" if int(value.literal) <= 2**31 else "long")
        return Value(number_type(value, node), value.nullable)

    def _arithmetic(self, node: exp.Binary) -> Value:
        from sqlglot import exp

        _only(node, "this", "expression")
        left, right = self._operand(node.left), self._operand(node.right)
        nullable = left.nullable or right.nullable
        kinds = {number_type(left, node), number_type(right, node)}
        if any(DECIMAL.fullmatch(kind) for kind in kinds):
            if kinds & {"float", "double"}:
                return Value("double", nullable)
            (p, s), (q, r) = digits_of(left, node), digits_of(right, node)
            scale = s + r if isinstance(node, exp.Mul) else max(s, r)
            digits = p + q + 1 if isinstance(node, exp.Mul) else max(p - s, q - r) + scale + 1
            if digits > MAX_DIGITS:
                raise UnjudgedError(f"has {node.sql('spark'):.100}, which has more digits than a decimal")
            return Value(f"decimal({digits},{scale})", nullable or is_narrowed(left, right))
        if kinds <= set(INTEGERS):
            return Value(max(kinds, key=INTEGERS.index), nullable)
        return Value("float" if kinds == {"float"} else "double", nullable)

    def _quotient(self, node: exp.Div) -> Value:
        _only(node, "this", "expression", "safe")
        left, right = self._operand(node.left), self._operand(node.right)
        if any(DECIMAL.fullmatch(number_type(value, node)) for value in (left, right)):
            raise UnjudgedError(f"has {node.sql('spark'):.100}, a quotient of decimals")
        return Value("double", True)

    def _comparison(self, node: exp.Binary) -> Value:
        _only(node, "this", "expression")
        return self._in_pairs(node, node.left, node.right)

    def _in_pairs(self, node: exp.Expr, one: exp.Expr, *others: exp.Expr) -> Value:
        """Return what it is to compare an operand with others, one by one."""
        operand, *values = [self._operand(each) for each in (one, *others)]
        found = self._compared(node, operand, *values)
        narrowed = [each for each, value in zip(others, values, strict=True) if is_narrowed(operand, value)]
        if any(_is_number(one) and _is_number(each) for each in narrowed):
            raise UnjudgedError(f"compares numbers that are written down in {node.sql('spark'):.100}")
        return found._replace(nullable=found.nullable or bool(narrowed))

    @staticmethod
    def _compared(node: exp.Expr, *values: Value) -> Value:
        if len(kinds := {kind_of(value, node) for value in values}) != 1:
            raise UnjudgedError(f"compares unlike kinds in {node.sql('spark'):.100}")
        if kinds == {"number"} and not have_common_type(values):
            raise UnjudgedError(f"compares numbers of more digits than a decimal has in {node.sql('spark'):.100}")
        return Value("boolean", any(value.nullable for value in values))

    def _connected(self, node: exp.Connector) -> Value:
        _only(node, "this", "expression")
        values = [self._condition(node.left), self._condition(node.right)]
        return Value("boolean", any(value.nullable for value in values))

    def _condition(self, node: exp.Expr) -> Value:
        value = self.value(node)
        if value.type != "boolean":
            raise UnjudgedError(f"has {node.sql('spark'):.100} where a condition is expected")
        return value._replace(metadata={})

    def _not(self, node: exp.Not) -> Value:
        return self._condition(node.this)

    def _is_null(self, node: exp.Is) -> Value:
        from sqlglot import exp

        _only(node, "this", "expression")
        if not isinstance(node.expression, exp.Null):
            raise UnjudgedError(f"has {node.sql('spark'):.100}")
        self._operand(node.this)
        return Value("boolean", False)

    def _in(self, node: exp.In) -> Value:
        _only(node, "this", "expressions")
        return self._compared(node, *(self._operand(each) for each in (node.this, *node.expressions)))

    def _between(self, node: exp.Between) -> Value:
        _only(node, "this", "low", "high")
        return self._in_pairs(node, node.this, node.args["low"], node.args["high"])

    def _like(self, node: exp.Like) -> Value:
        _only(node, "this", "expression", "negate")
        left, right = self._operand(node.this), self._operand(node.expression)
        if (left.type, right.type) != ("string", "string"):
            raise UnjudgedError(f"has {node.sql('spark'):.100}, which is not of texts")
        return Value("boolean", left.nullable or right.nullable)

    def _coalesce(self, node: exp.Coalesce) -> Value:
        _only(node, "this", "expressions")
        return self._alike(node, [self.value(each) for each in (node.this, *node.expressions)], all)

    def _case(self, node: exp.Case) -> Value:
        _only(node, "ifs", "default")
        values = []
        for each in node.args["ifs"]:
            _only(each, "this", "true")
            self._condition(each.this)
            values.append(self.value(each.args["true"]))
        default = node.args.get("default")
        last = [Value(values[0].type, True)] if default is None else [self.value(default)]
        return self._alike(node, [*values, *last], any)

    @staticmethod
    def _alike(node: exp.Expr, values: list[Value], is_null: Callable[[Iterable[bool]], bool]) -> Value:
        types = {str(value.type) for value in values if value.type != "void"}
        if len(types) != 1 or not all(isinstance(value.type, str) for value in values):
            raise UnjudgedError(f"has {node.sql('spark'):.100}, whose values are of several types, or made of others")
        return Value(types.pop(), is_null(value.nullable for value in values))

    def _cast(self, node: exp.Cast) -> Value:
        from sqlglot import exp

        _only(node, "this", "to")
        value, wanted = self.value(node.this), node.to
        if isinstance(node.this, exp.Literal) and node.this.is_string:
            if wanted.this.value != "DATE" or not is_day(str(node.this.this)):
                raise UnjudgedError(f"has {node.sql('spark'):.100}: of texts, only days as dates are judged")
            return Value("date", isinstance(node, exp.TryCast))  # which CAST is called here, and DATE '…' is not
        to = cast_type(value, wanted, node)
        return Value(to, value.nullable or may_make_null(str(value.type), to))

    def _text(self, node: exp.Func) -> Value:
        _only(node, "this")
        return Value("string", self._a_text(node).nullable)

    def _length(self, node: exp.Func) -> Value:
        _only(node, "this")
        return Value("integer", self._a_text(node).nullable)

    def _a_text(self, node: exp.Func) -> Value:
        value = self.value(node.this)
        if value.type != "string":
            raise UnjudgedError(f"has {node.sql('spark'):.100}, which is not of a text")
        return value

    # --- aggregates ---------------------------------------------------------------------------------------------------

    def _count(self, node: exp.Count) -> Value:
        from sqlglot import exp

        _only(node, "this")
        if isinstance(node.this, exp.Distinct):
            _only(node.this, "expressions")
            if len(node.this.expressions) != 1:
                raise UnjudgedError(f"has {node.sql('spark'):.100}, of several columns")
            if not are_told_apart(value := self.value(node.this.expressions[0])):
                raise UnjudgedError(f"has {node.sql('spark'):.100}, of the type {value.type!s:.100}")
        elif not isinstance(node.this, exp.Star):
            self.value(node.this)
        return Value("long", False)

    def _sum(self, node: exp.Sum) -> Value:
        _only(node, "this")
        type_ = number_type(self.value(node.this), node)
        if match := DECIMAL.fullmatch(type_):
            return Value(f"decimal({min(int(match[1]) + 10, MAX_DIGITS)},{match[2]})", True)
        return Value("long" if type_ in INTEGERS else "double", True)

    def _average(self, node: exp.Avg) -> Value:
        _only(node, "this")
        type_ = number_type(self.value(node.this), node)
        if match := DECIMAL.fullmatch(type_):
            if int(match[1]) + 4 > MAX_DIGITS:
                raise UnjudgedError(f"has {node.sql('spark'):.100}, of so many digits")
            return Value(f"decimal({int(match[1]) + 4},{int(match[2]) + 4})", True)
        return Value("double", True)

    def _extreme(self, node: exp.Func) -> Value:
        _only(node, "this")
        value = self.value(node.this)
        kind_of(value, node)
        return Value(value.type, True)


def _is_number(node: exp.Expr) -> bool:
    """Tell whether an expression is a number that is written down."""
    from sqlglot import exp

    inner = node.unnest()
    return isinstance(inner.this if isinstance(inner, exp.Neg) else inner, exp.Literal)
