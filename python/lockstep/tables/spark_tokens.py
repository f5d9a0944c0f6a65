"""Tokens of Spark's SQL, as far as texts are read without Spark, and a reader that goes through them.

What is no token here is none: texts with escapes, numbers with letters, signs of other grammars. Of comments
those are read that end for Spark where they end for everybody.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Token(NamedTuple):
    """A word, a sign, a literal or a comment.

    Attributes:
        kind: "word", "number", "long", "string", "quoted" (a text in double quotes), "name" (in backticks), "sign",
            "comment" or "end".
        text: as it stands there.
        at: where it begins.
    """

    kind: str
    text: str
    at: int = 0


class NotReadError(Exception):
    """What stands there is not read here.

    Attributes:
        at: where it stands.
    """

    def __init__(self, at: int) -> None:
        """Say where."""
        super().__init__(at)
        self.at = at


MAX_DEPTH = 64
"""Of parentheses, NOT, calls, and comparisons of comparisons, in one another."""

_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<comment>--[^\r\n\\]*(?=\r?\n|\Z)|/\*(?![+!])(?:(?!\*/|/\*)[^\\])*\*/)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<long>[0-9]+[lL](?![A-Za-z0-9_.]))
      | (?P<number>(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?![A-Za-z0-9_.]))
      | (?P<string>'[^'\\]*'(?!'))
      | (?P<quoted>"[^"\\]*"(?!"))
      | (?P<name>`(?:[^`]|``)+`(?!`))
      | (?P<sign><=>|<=|>=|<>|!=|==|\|\||[=<>(),!.*/+]|-(?!-))
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text, the last of which is its end.

    Raises:
        NotReadError: it has something else in it.
    """
    if (at := text.find("\0")) >= 0 or (at := text.find("${")) >= 0:  # which Spark replaces by what a session has set
        raise NotReadError(at)
    found: list[Token] = []
    at = 0
    while not found or found[-1].kind != "end":
        if (match := _TOKEN.match(text, at)) is None or match.lastgroup is None:
            raise NotReadError(at)
        at = match.end()
        found.append(Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
    return found


class TokenReader:
    """Reads tokens from the first to the last; each method of a class that has rules is one of them."""

    def __init__(self, tokens: list[Token]) -> None:
        """Begin with the first of some tokens, none of which is a comment."""
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    @property
    def next(self) -> Token:
        """The token that is read next."""
        return self.tokens[self.at]

    def take(self, kind: str) -> str:
        """Return the next token's text, which must be of a kind."""
        token = self.next
        if token.kind != kind:
            raise self.not_read()
        self.at += 1
        return token.text

    def has(self, *texts: str) -> bool:
        """Take the next tokens if they are these words and signs."""
        following = self.tokens[self.at : self.at + len(texts)]
        if len(following) < len(texts) or not all(
            token.kind in ("word", "sign") and token.text.lower() == text
            for token, text in zip(following, texts, strict=True)
        ):
            return False
        self.at += len(texts)
        return True

    def must(self, *texts: str) -> None:
        """Take the next tokens, which must be these words and signs."""
        if not self.has(*texts):
            raise self.not_read()

    def deeper(self) -> None:
        """Count one more part that is within another."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.not_read()

    def not_read(self) -> NotReadError:
        """Return the error that the next token is not read; the last one, if that has been read already."""
        return NotReadError(self.tokens[min(self.at, len(self.tokens) - 1)].at)
