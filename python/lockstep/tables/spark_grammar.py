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

from collections.abc import Callable, Mapping
from typing import NamedTuple

from lockstep.tables.spark_tokens import NotReadError, Token, TokenReader, tokens


class Node(NamedTuple):
    """A part of an expression: its kind, what it says itself, and the parts that it is made of."""

    kind: str
    text: str = ""
    parts: tuple[Node, ...] = ()


_COMPARED: Mapping[str, str] = {sign: sign for sign in ("=", "<", "<=", ">", ">=", "<>", "<=>")} | {
    "==": "=",
    "!=": "<>",
}
NO_NAMES = frozenset(
    {"all", "and", "any", "between", "case", "cast", "collate", "current_catalog", "current_database",
     "current_date", "current_path", "current_schema", "current_time", "current_timestamp", "current_user",
     "distinct", "div", "escape", "except", "exists", "false", "from", "ilike", "in", "intersect", "interval",
     "is", "like", "localtime", "localtimestamp", "minus", "not", "now", "null", "or", "regexp", "rlike",
     "select", "session_user", "some", "then", "timestamp", "timestamp_ltz", "timestamp_ntz", "true", "try_cast",
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
        reader = _Reader(tokens(text))
        tree = rule(reader)
        reader.take("end")
    except NotReadError:
        return None
    return tree


class _Reader(TokenReader):
    """Reads a condition or a default; each method is one of the grammar's rules."""

    def default(self) -> Node:
        """Read a literal, CAST of one, or the time at which a statement runs."""
        if self.has("current_timestamp"):
            if self.has("("):
                self.must(")")
            return Node("now")
        if self.has("cast", "("):
            inner = self._operand()
            self.must("as")
            type_ = self._type()
            self.must(")")
            return Node("cast", type_, (inner,))
        return self._operand()

    def _type(self) -> str:
        name = self.take("word").lower()
        if not self.has("("):
            return name
        precision = self.take("number")
        scale = self.take("number") if self.has(",") else "0"
        self.must(")")
        return f"{name}({precision},{scale})"

    def expression(self) -> Node:
        """Read conditions joined by OR."""
        return self._joined("or", lambda: self._joined("and", self._negated))

    def _joined(self, word: str, rule: Callable[[], Node]) -> Node:
        parts = [rule()]
        while self.has(word):
            parts.append(rule())
        return parts[0] if len(parts) == 1 else Node(word, parts=tuple(parts))

    def _negated(self) -> Node:
        if not (self.has("not") or self.has("!")):
            return self._predicate()
        self.deeper()
        inner = self._negated()
        self.depth -= 1
        return Node("not", parts=(inner,))

    def _predicate(self) -> Node:
        operand = self._comparison()
        if self.has("is"):
            is_not = self.has("not")
            self.must("null")
            found = Node("is_null", parts=(operand,))
            return Node("not", parts=(found,)) if is_not else found
        is_not = self.has("not")
        if self.has("between"):
            low = self._comparison()
            self.must("and")
            found = Node("between", parts=(operand, low, self._comparison()))
        elif self.has("in", "("):
            found = Node("in", parts=(operand, *self._list()))
        elif self.has("like"):
            found = Node("like", parts=(operand, self._comparison()))
        elif is_not:
            raise self.not_read()
        else:
            return operand
        return Node("not", parts=(found,)) if is_not else found

    def _list(self) -> list[Node]:
        members = [self.expression()]
        while self.has(","):
            members.append(self.expression())
        self.must(")")
        return members

    def _comparison(self) -> Node:
        depth = self.depth
        left = self._operand()
        while (token := self.next).kind == "sign" and token.text in _COMPARED:
            self.deeper()
            self.at += 1
            left = Node("compare", _COMPARED[token.text], (left, self._operand()))
        self.depth = depth
        return left

    def _operand(self) -> Node:
        token = self.next
        self.at += 1
        match token:
            case Token("sign", "("):
                self.deeper()
                inner = self.expression()
                self.depth -= 1
                self.must(")")
                return inner
            case Token("sign", "-"):
                return Node("number", f"-{self.take('number')}")
            case Token("number"):
                return Node("number", token.text)
            case Token("string" | "quoted"):
                return self._alone(Node(token.kind, token.text[1:-1]))
            case Token("name"):
                return Node("column", token.text[1:-1].replace("``", "`"))
            case Token("word"):
                return self._word(token.text)
        raise self.not_read()

    def _word(self, text: str) -> Node:
        word = text.lower()
        if word in ("true", "false"):
            return Node("boolean", word)
        if word == "null":
            return Node("null")
        if word == "date" and self.next.kind == "string":
            return self._alone(Node("date", self.take("string")[1:-1]))
        if self.has("("):
            self.deeper()
            inner = self.expression()
            self.depth -= 1
            self.must(")")
            return Node("call", word, (inner,))
        if word in NO_NAMES:
            raise self.not_read()
        return self._alone(Node("column", text))

    def _alone(self, node: Node) -> Node:
        """Return a node that no text follows: two texts in a row are one to Spark, and `r'…'` is no column."""
        if self.next.kind in ("string", "quoted"):
            raise self.not_read()
        return node
