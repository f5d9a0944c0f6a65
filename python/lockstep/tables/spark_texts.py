"""Texts that Spark's grammar has, and that the parser of many dialects (sqlglot) takes as Spark does.

That parser takes more than Spark: CAST(x AS TEXT), x ISNULL, a comma too many. And some of what both take means
something else to each, such as 'it''s'. So what it makes of a text counts only where all of the text is read here too,
by the rules of Spark's `SqlBaseParser.g4`, as far as they go:

    select      SELECT [DISTINCT] item, … FROM source, … [join …] [WHERE condition] [GROUP BY column, …]
    item        * | name.* | condition [[AS] name]
    source      name[.name …] [[AS] name]
    join        [INNER | CROSS | LEFT | RIGHT | FULL [OUTER]] JOIN source [ON condition]
    condition   OR, AND, NOT of predicates: a sum, compared with another, IS [NOT] NULL, [NOT] BETWEEN, IN or LIKE
    sum         + - || of products, these * and / of what has a sign or none
    part        literals, columns, CASE WHEN, CAST, some functions, conditions in parentheses

A predicate has no predicate beside it without parentheses, for the two parsers group those in other ways. Keywords and
the names of functions are read in either case, a name bare or in backticks, with AS or without, and comments anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.tables.spark_grammar import NO_NAMES
from lockstep.tables.spark_tokens import NotReadError, Token, TokenReader, tokens
from lockstep.tables.spark_types import UnjudgedError

_MANY = 1000
_ONE, _TWO = (1, 1), (2, 2)
_CASTS = ("date", "double", "float", "int", "string")

_OF_QUERIES: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("upper", "ucase", "lower", "lcase"), _ONE),
    **dict.fromkeys(("length", "len", "char_length", "character_length"), _ONE),
    **dict.fromkeys(("count", "sum", "avg", "min", "max"), _ONE),
    **dict.fromkeys(("nvl", "ifnull"), _TWO),
    **dict.fromkeys(_CASTS, _ONE),
    "coalesce": (1, _MANY),
}
"""By function, how many arguments it has: those whose results are judged for views."""

_OF_COLUMNS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("year", "month", "day", "length", "len"), _ONE),
    **dict.fromkeys(("substring", "substr"), (2, 3)),
    **dict.fromkeys(_CASTS, _ONE),
    "concat": (2, _MANY),
}
"""Those that generated columns are computed with."""

_TYPES = frozenset(
    {"bigint", "byte", "date", "dec", "decimal", "double", "float", "int", "integer", "long", "numeric", "real"}
    | {"short", "smallint", "string", "tinyint"}
)
_COMPARED = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")
_NO_NAMES = NO_NAMES - {"timestamp", "timestamp_ltz", "timestamp_ntz"}
_CLAUSES = frozenset(
    {"as", "anti", "by", "cluster", "cross", "distribute", "else", "end", "fetch", "for", "full", "group", "having"}
    | {"inner", "join", "lateral", "left", "limit", "natural", "offset", "on", "order", "outer", "pivot", "qualify"}
    | {"right", "semi", "sort", "tablesample", "unpivot", "using", "version", "window"}
)
"""Words after a table or an expression that are no names of it, but go on with the query."""

_NOT_BARE = _NO_NAMES | _CLAUSES
"""Words that are names in backticks alone."""


def check_expression(text: str) -> None:
    """Raise unless a generated column's expression is read here.

    Raises:
        UnjudgedError: it is not.
    """
    # A text in double quotes is a name to some sessions, and a generated column is computed in all of them.
    _read(text, _Reader.condition, functions=_OF_COLUMNS, literals=frozenset({"number", "long", "string"}))


def checked_select(text: str) -> str:
    """Return a query without the comments around it, which is how Spark keeps that of a view.

    Raises:
        UnjudgedError: not all of it is read here.
    """
    literals = frozenset({"number", "string", "quoted"})
    read = _read(text, _Reader.select, functions=_OF_QUERIES, literals=literals)
    first, last = read[0], read[-2]
    return text[first.at : last.at + len(last.text)]


def _read(
    text: str,
    rule: Callable[[_Reader], None],
    *,
    functions: Mapping[str, tuple[int, int]],
    literals: frozenset[str],
) -> list[Token]:
    """Return the tokens of a text, without comments, which is all what a rule reads."""
    try:
        found = [token for token in tokens(text) if token.kind != "comment"]
        reader = _Reader(found, functions, literals)
        rule(reader)
        reader.take("end")
    except NotReadError as error:
        rest = text[error.at :].split()
        said = f"{rest[0]:.50} at character {text.index(rest[0], error.at) + 1}" if rest else "an end"
        raise UnjudgedError(f"has {said}, where it is not certain what Spark reads") from None
    return found


class _Reader(TokenReader):
    """Reads a query or an expression; each method is one of the grammar's rules."""

    def __init__(self, tokens: list[Token], functions: Mapping[str, tuple[int, int]], literals: frozenset[str]) -> None:
        super().__init__(tokens)
        self._functions = functions
        self._literals = literals

    # --- queries ------------------------------------------------------------------------------------------------------

    def select(self) -> None:
        """Read one SELECT."""
        self.must("select")
        self.has("distinct")
        self._each(self._item)
        self.must("from")
        self._sources()
        if self.has("where"):
            self.condition()
        if self.has("group", "by"):
            self._each(self._column)

    def _each(self, rule: Callable[[], None]) -> None:
        rule()
        while self.has(","):
            rule()

    def _sources(self) -> None:
        self._source()
        while (is_listed := self.has(",")) or self._join_begins():
            if not is_listed:
                self.must("join")
            self._source()
            if not is_listed and self.has("on"):
                self.condition()

    def _join_begins(self) -> bool:
        if any(self.has(side) for side in ("left", "right", "full")):
            self.has("outer")
            return True
        return self.has("inner") or self.has("cross") or self._stands("join")

    def _stands(self, word: str) -> bool:
        return self.next.kind == "word" and self.next.text.lower() == word

    def _item(self) -> None:
        if self.has("*"):
            return
        following = self.tokens[self.at + 1 : self.at + 3]
        if [token.text for token in following] == [".", "*"]:
            self._name()
            self.must(".", "*")
            return
        self.condition()
        self._alias()

    def _source(self) -> None:
        self._name()
        while self.has("."):
            self._name()
        self._alias()

    def _alias(self) -> None:
        if self.has("as") or self._has_name():
            self._name()

    def _name(self) -> None:
        if not self._has_name():
            raise self.not_read()
        self.at += 1

    def _has_name(self) -> bool:
        kind, text, _ = self.next
        return (kind == "word" and text.lower() not in _NOT_BARE) or (kind == "name" and "\\" not in text)

    # --- expressions --------------------------------------------------------------------------------------------------

    def condition(self) -> None:
        """Read conditions joined by OR and AND, or any other expression."""
        self._negated()
        while self.has("and") or self.has("or"):
            self._negated()

    def _negated(self) -> None:
        while self.has("not"):
            pass
        self._sum()
        if self.next.kind == "sign" and self.next.text in _COMPARED:
            self.at += 1
            self._sum()
        elif self.has("is"):
            self.has("not")
            self.must("null")
        else:
            self._predicate(must_be=self.has("not"))

    def _predicate(self, *, must_be: bool) -> None:
        if self.has("between"):
            self._sum()
            self.must("and")
            self._sum()
        elif self.has("in", "("):
            self._each(self._sum)
            self.must(")")
        elif self.has("like"):
            self._sum()
        elif must_be:
            raise self.not_read()

    def _sum(self) -> None:
        self._product()
        while self.has("+") or self.has("-") or self.has("||"):
            self._product()

    def _product(self) -> None:
        self._signed()
        while self.has("*") or self.has("/"):
            self._signed()

    def _signed(self) -> None:
        while self.has("-"):
            pass
        self._part()

    def _part(self) -> None:
        token = self.next
        if token.kind in self._literals:
            self.at += 1
        elif self.has("("):
            self._within(self.condition)
        elif self.has("case"):
            self._case()
        elif self.has("cast", "("):
            self._within(self._cast)
        elif self.has("true") or self.has("false") or self.has("null"):
            pass
        elif token.kind == "word" and self.tokens[self.at + 1].text == "(":
            self._call()
        elif self._stands("date") and self.tokens[self.at + 1].kind == "string":
            self.at += 2
        else:
            self._column()
        if self.next.kind in ("string", "quoted"):  # two texts in a row are one to Spark
            raise self.not_read()

    def _within(self, rule: Callable[[], None]) -> None:
        self.deeper()
        rule()
        self.depth -= 1
        self.must(")")

    def _column(self) -> None:
        self._name()
        while self.has("."):
            self._name()

    def _case(self) -> None:
        self.deeper()
        self.must("when")
        self._when()
        while self.has("when"):
            self._when()
        if self.has("else"):
            self.condition()
        self.must("end")
        self.depth -= 1

    def _when(self) -> None:
        self.condition()
        self.must("then")
        self.condition()

    def _cast(self) -> None:
        self.condition()
        self.must("as")
        if self.take("word").lower() not in _TYPES:
            self.at -= 1
            raise self.not_read()
        if self.has("("):
            self.take("number")
            if self.has(","):
                self.take("number")
            self.must(")")

    def _call(self) -> None:
        name = self.next.text.lower()
        if name not in self._functions:
            raise self.not_read()
        self.at += 2
        least, most = self._functions[name]
        if name == "count":
            if self.has("*", ")"):
                return
            self.has("distinct")
        if name == "date" and self.next.kind in ("string", "quoted"):  # which gives null to Spark, as DATE '…' does not
            raise self.not_read()
        count = 0
        self.deeper()
        while not count or self.has(","):
            self.condition()
            count += 1
        self.depth -= 1
        if name in ("substring", "substr") and count == 1 and self.has("from"):
            self.condition()
            count += 1
            if self.has("for"):
                self.condition()
                count += 1
        if not least <= count <= most:
            raise self.not_read()
        self.must(")")
