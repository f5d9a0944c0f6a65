"""The part of Spark's grammar of expressions that is judged without Spark: trees of texts, or nothing.

The rules are those of Spark's `SqlBaseParser.g4`, as far as they go: all comparisons bind alike, from the left, NOT
binds more tightly than AND, and a predicate (BETWEEN, IN, LIKE, IS NULL) takes whole comparisons on its left. A text
with anything else in it has no tree: no word of it is passed over. It is read here, and not by a parser of many
dialects, for such a one takes what Spark does not take, and says the same in other trees from one version to the next.

    or and      [operands…]            not is_null   [operand]         column      its name
    compare     operator, [two]        in            [operand, …]      quoted      a text in double quotes
    between     [operand, two]         like          [operand, one]    string number date boolean null
    call        function, [operand]    cast          type, [operand]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Node(NamedTuple):
    """A part of an expression: its kind, what it says itself, and the parts that it is made of."""

    kind: str
    text: str = ""
    parts: tuple[Node, ...] = ()


class _Token(NamedTuple):
    kind: str
    text: str


class _NotReadError(Exception):
    """What stands there is not read here."""


MAX_DEPTH = 64
"""Of parentheses, NOT, calls, and comparisons of comparisons, in one another."""

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?![A-Za-z0-9_.]))
      | (?P<string>'[^'\\]*'(?!'))
      | (?P<quoted>"[^"\\]*"(?!"))
      | (?P<name>`(?:[^`]|``)+`(?!`))
      | (?P<sign><=>|<=|>=|<>|!=|==|[=<>(),!]|-(?!-))
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_COMPARED: Mapping[str, str] = {sign: sign for sign in ("=", "<", "<=", ">", ">=", "<>", "<=>")} | {
    "==": "=",
    "!=": "<>",
}
_NO_NAMES = frozenset(
    {"all", "and", "any", "between", "case", "cast", "collate", "current_catalog", "current_database",
     "current_date", "current_schema", "current_time", "current_timestamp", "current_user", "distinct", "div",
     "escape", "except", "exists", "false", "from", "ilike", "in", "interval", "intersect", "is", "like",
     "localtime", "localtimestamp", "minus", "not", "now", "null", "or", "regexp", "rlike", "select",
     "session_user", "some", "then", "timestamp", "timestamp_ltz", "timestamp_ntz", "true", "try_cast",
     "union", "unknown", "user", "when", "where", "with"}
)  # fmt: skip
"""Words that name no columns here, unless they stand in backticks: Spark, or a setting of it, has them mean more."""


def condition_tree(text: str) -> Node | None:
    """Return the tree of a condition; None if anything in it is not read here."""
    return _tree(text, _Reader.expression)


def default_tree(text: str) -> Node | None:
    """Return the tree of a column's default, which may be CAST of a literal; None if it is not read here."""
    return _tree(text, _Reader.default)


def _tree(text: str, rule: Callable[[_Reader], Node]) -> Node | None:
    try:
        reader = _Reader(_tokens(text))
        tree = rule(reader)
        reader.take("end")
    except _NotReadError:
        return None
    return tree


def _tokens(text: str) -> list[_Token]:
    if "\0" in text or "${" in text:  # the latter Spark replaces by what a session has set
        raise _NotReadError
    tokens: list[_Token] = []
    at = 0
    while not tokens or tokens[-1].kind != "end":
        if (match := _TOKEN.match(text, at)) is None or match.lastgroup is None:
            raise _NotReadError
        at = match.end()
        tokens.append(_Token(match.lastgroup, match[match.lastgroup]))
    return tokens


class _Reader:
    """Reads tokens from the first to the last; each method is one of the grammar's rules."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    # --- tokens -------------------------------------------------------------------------------------------------------

    def take(self, kind: str) -> str:
        """Return the next token's text, which must be of a kind."""
        token = self._tokens[self._at]
        if token.kind != kind:
            raise _NotReadError
        self._at += 1
        return token.text

    def _is(self, *texts: str) -> bool:
        """Take the next tokens if they are these words and signs."""
        following = self._tokens[self._at : self._at + len(texts)]
        if not all(
            token.kind in ("word", "sign") and token.text.lower() == text
            for token, text in zip(following, texts, strict=False)
        ):
            return False
        if len(following) < len(texts):
            return False
        self._at += len(texts)
        return True

    def _must(self, *texts: str) -> None:
        if not self._is(*texts):
            raise _NotReadError

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _NotReadError

    # --- rules --------------------------------------------------------------------------------------------------------

    def default(self) -> Node:
        """Read a literal, CAST of one, or the time at which a statement runs."""
        if self._is("current_timestamp"):
            if self._is("("):
                self._must(")")
            return Node("now")
        if self._is("cast", "("):
            inner = self._operand()
            self._must("as")
            type_ = self._type()
            self._must(")")
            return Node("cast", type_, (inner,))
        return self._operand()

    def _type(self) -> str:
        name = self.take("word").lower()
        if not self._is("("):
            return name
        precision = self.take("number")
        scale = self.take("number") if self._is(",") else "0"
        self._must(")")
        return f"{name}({precision},{scale})"

    def expression(self) -> Node:
        """Read conditions joined by OR."""
        return self._joined("or", lambda: self._joined("and", self._negated))

    def _joined(self, word: str, rule: Callable[[], Node]) -> Node:
        parts = [rule()]
        while self._is(word):
            parts.append(rule())
        return parts[0] if len(parts) == 1 else Node(word, parts=tuple(parts))

    def _negated(self) -> Node:
        if not (self._is("not") or self._is("!")):
            return self._predicate()
        self._deeper()
        inner = self._negated()
        self._depth -= 1
        return Node("not", parts=(inner,))

    def _predicate(self) -> Node:
        operand = self._comparison()
        if self._is("is"):
            is_not = self._is("not")
            self._must("null")
            found = Node("is_null", parts=(operand,))
            return Node("not", parts=(found,)) if is_not else found
        is_not = self._is("not")
        if self._is("between"):
            low = self._comparison()
            self._must("and")
            found = Node("between", parts=(operand, low, self._comparison()))
        elif self._is("in", "("):
            found = Node("in", parts=(operand, *self._list()))
        elif self._is("like"):
            found = Node("like", parts=(operand, self._comparison()))
        elif is_not:
            raise _NotReadError
        else:
            return operand
        return Node("not", parts=(found,)) if is_not else found

    def _list(self) -> list[Node]:
        members = [self.expression()]
        while self._is(","):
            members.append(self.expression())
        self._must(")")
        return members

    def _comparison(self) -> Node:
        depth = self._depth
        left = self._operand()
        while (token := self._tokens[self._at]).kind == "sign" and token.text in _COMPARED:
            self._deeper()
            self._at += 1
            left = Node("compare", _COMPARED[token.text], (left, self._operand()))
        self._depth = depth
        return left

    def _operand(self) -> Node:
        token = self._tokens[self._at]
        self._at += 1
        match token:
            case _Token("sign", "("):
                self._deeper()
                inner = self.expression()
                self._depth -= 1
                self._must(")")
                return inner
            case _Token("sign", "-"):
                return Node("number", f"-{self.take('number')}")
            case _Token("number"):
                return Node("number", token.text)
            case _Token("string" | "quoted"):
                return self._alone(Node(token.kind, token.text[1:-1]))
            case _Token("name"):
                return Node("column", token.text[1:-1].replace("``", "`"))
            case _Token("word"):
                return self._word(token.text)
        raise _NotReadError

    def _word(self, text: str) -> Node:
        word = text.lower()
        if word in ("true", "false"):
            return Node("boolean", word)
        if word == "null":
            return Node("null")
        if word == "date" and self._tokens[self._at].kind == "string":
            return self._alone(Node("date", self.take("string")[1:-1]))
        if self._is("("):
            self._deeper()
            inner = self.expression()
            self._depth -= 1
            self._must(")")
            return Node("call", word, (inner,))
        if word in _NO_NAMES:
            raise _NotReadError
        return self._alone(Node("column", text))

    def _alone(self, node: Node) -> Node:
        """Return a node that no text follows: two texts in a row are one to Spark, and `r'…'` is no column."""
        if self._tokens[self._at].kind in ("string", "quoted"):
            raise _NotReadError
        return node
