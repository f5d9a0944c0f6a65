"""A SQL script as its statements: where one ends and the next begins, and nothing more.

    >>> [statement.text for statement in split("BEGIN; INSERT INTO t VALUES (';'); COMMIT")]
    ['BEGIN', "INSERT INTO t VALUES (';')", 'COMMIT']

Spark's own parser takes one statement at a time, so somebody has to cut scripts. Tokens decide, never characters: a `;`
inside a string, a comment or backquotes is none. Two statements begin alike and end differently:

    BEGIN [TRANSACTION | WORK] option* ;            ends at the `;`: what follows are statements of a transaction
    BEGIN [ATOMIC] statement; … END [;]             a block, ends at the `;` after its own END

Words are not reserved in Spark (`SELECT end FROM t`), so inside a block a keyword counts only where one can stand.
Whether a statement makes sense is Spark's to say: an unfinished block goes to it whole, up to the script's end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from lockstep.errors import InvalidError

if TYPE_CHECKING:
    from sqlglot import Token, Tokenizer


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a script.

    Attributes:
        text: as written, from its first token to its last, without the `;`.
        line: of its first token; the first line of a script is 1.
        column: of its first token; the first of a line is 1.
    """

    text: str
    line: int
    column: int = 1


def split(text: str) -> list[Statement]:
    """Cut a script into its statements; empty ones, and comments between them, are left out.

    Raises:
        InvalidError: a string, an identifier in backquotes or a comment has no end; the message says where it begins.
    """
    words = _words(text)
    statements = []
    at = 0
    while at < len(words):
        end = _end(words, at)
        if end > at:
            start = words[at].start
            column = start - text.rfind("\n", 0, start)
            statements.append(Statement(text[start : words[end - 1].end], _line(text, start), column))
        at = end + 1
    return statements


@dataclass(frozen=True, slots=True)
class Control:
    """A place where a statement begins or ends a transaction: BEGIN, BEGIN ATOMIC, COMMIT or ROLLBACK.

    Attributes:
        verb: that word.
        line: within the statement's text, whose first line is 1.
    """

    verb: str
    line: int


def controls(text: str) -> list[Control]:
    """Return where one statement begins or ends transactions: itself, or those of the block that it is.

    What a block runs with EXECUTE IMMEDIATE is not seen. Savepoints are none: they end nothing.

    Raises:
        InvalidError: as `split`.
    """
    words = _words(text)
    firsts = [0]
    if words and _is_block(words, 0):
        block = _Block(words, 0)
        block.end()
        firsts = block.firsts
    verbs = [(_verb(words, first), first) for first in firsts if first < len(words)]
    return [Control(verb, _line(text, words[first].start)) for verb, first in verbs if verb]


def is_block(text: str) -> bool:
    """Tell whether a statement is a block, BEGIN … END, and not the beginning of a transaction.

    Raises:
        InvalidError: as `split`.
    """
    words = _words(text)
    return bool(words) and _is_block(words, 0)


def code(text: str) -> list[tuple[int, int]]:
    """Return where the tokens of a text lie, each from its first character to behind its last; the rest is comments.

    Raises:
        InvalidError: as `split`.
    """
    return [(word.start, word.end) for word in _words(text)]


# --- tokens -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Word:
    """A token: `upper` is its text in capitals if it is a bare word or a sign, else empty; `end` is exclusive."""

    upper: str
    start: int
    end: int
    is_string: bool = False


_OPENED_AT = re.compile(r" from \d+:(\d+)$")

_VARIABLE = re.compile(r"(?<!\$)\$\{")
"""Where one begins: to sqlglot `${a}_$` would open a string, whose tags Spark makes of letters alone."""


_COMMENT = re.compile(r"--(?:\\\n|[^\r\n])*")
"""As in Spark's lexer, where it goes on behind a line that ends in a backslash. To sqlglot it does not."""


def _words(text: str) -> list[_Word]:
    seen = text
    while True:
        tokens = _tokens(seen, text)
        if "\\\n" not in seen:  # most have none
            return [_word(text, token) for token in tokens]
        ends = [0, *(token.end + 1 for token in tokens)]
        starts = [*(token.start for token in tokens), len(seen)]
        continued = next(filter(None, (_continued(seen, *gap) for gap in zip(ends, starts, strict=True))), None)
        if continued is None:
            return [_word(text, token) for token in tokens]
        start, end = continued
        seen = seen[:start] + re.sub("[^\n]", " ", seen[start:end]) + seen[end:]


def _continued(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the first comment between two tokens that goes on behind its line, from the backslash on."""
    depth = 0
    while start < end:
        two = text[start : start + 2]
        if not depth and two == "--":
            comment = _COMMENT.match(text, start)
            assert comment is not None, "it begins so"
            line = text.find("\n", start, comment.end())
            if line >= 0:
                return line - 1, comment.end()
            start = comment.end()
        elif two == "/*" or (depth and two == "*/"):
            depth += 1 if two == "/*" else -1
            start += 2
        else:
            start += 1
    return None


def _tokens(seen: str, text: str) -> list[Token]:
    """Return the tokens of a text, as far as they are to be seen.

    Raises:
        InvalidError: as `split`.
    """
    from sqlglot.errors import TokenError

    tokenizer = _lexer()(dialect="spark")
    try:
        return list(tokenizer.tokenize(_VARIABLE.sub("?{", seen)))
    except TokenError as error:
        if place := _OPENED_AT.search(str(error.__cause__)):
            start = int(place[1])
        else:  # it names no place for a comment without an end: the first after the last whole token
            start = text.find("/*", tokenizer.tokens[-1].end + 1 if tokenizer.tokens else 0)
        begin = text[start : start + 20].partition("\n")[0]
        raise InvalidError(f"line {_line(text, start)}: this has no end, or is none of Spark's: {begin}") from error


def _word(text: str, token: Token) -> _Word:
    start, end = token.start, token.end + 1
    quoted = text[start] in "'\"`$" or text[start : start + 2] in ("r'", 'r"', "R'", 'R"')
    return _Word("" if quoted else text[start:end].upper(), start, end, is_string=quoted and text[start] != "`")


@cache
def _lexer() -> type[Tokenizer]:
    from sqlglot import TokenType
    from sqlglot.dialects import Spark

    class Lexer(Spark.Tokenizer):  # type: ignore[misc]  # an alias inside a class, which mypy does not follow
        """Spark's tokens, of all statements: sqlglot leaves those it cannot parse (SHOW, CALL, …) in one piece."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        HEREDOC_STRINGS: ClassVar[list[str]] = ["$"]  # $$ … $$ and $tag$ … $tag$, as in the lexer of Spark 4.2
        HEREDOC_TAG_IS_IDENTIFIER = True
        HEREDOC_STRING_ALTERNATIVE = TokenType.PARAMETER

    return Lexer


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# --- where a statement ends -------------------------------------------------------------------------------------------

_OPENING = {"BEGIN", "IF", "CASE", "LOOP", "WHILE", "FOR", "REPEAT"}
_OPENING_BODIES = {"BEGIN", "LOOP", "REPEAT"}
_BODIES_AFTER = {"THEN": {"IF", "CASE"}, "ELSE": {"IF", "CASE"}, "DO": {"WHILE", "FOR"}}
"""Words after which a statement begins, and in what."""

_EXPRESSION = "CASE as an expression"


def _end(words: Sequence[_Word], at: int) -> int:
    """Return where the statement that begins at `at` ends: the index of its `;`, or the number of words."""
    if _is_block(words, at):
        return _Block(words, at).end()
    return next((index for index in range(at, len(words)) if words[index].upper == ";"), len(words))


def _is_block(words: Sequence[_Word], at: int) -> bool:
    """Tell a block from BEGIN TRANSACTION, as the shim's parser does: what can be a block is one."""
    first, *following = [_upper(words, index) for index in range(at, at + 3)]
    if following[0] == ":":  # Spark takes no label here, and should be the one to say so
        return _upper(words, at + 2) == "BEGIN"
    match first, *following:
        case "BEGIN", ";" | "TRANSACTION" | "WORK", _:
            return False
        case ("BEGIN", "ISOLATION", "LEVEL") | ("BEGIN", "READ", "ONLY" | "WRITE") | ("BEGIN", "AS", "OF"):
            return False
        case "BEGIN", "COMMENT", _:  # COMMENT ON TABLE … is a statement
            return not (at + 2 < len(words) and words[at + 2].is_string)
    return first == "BEGIN"


def _verb(words: Sequence[_Word], first: int) -> str:
    """Return how the statement that begins here begins or ends a transaction; empty if it does not."""
    verb, second, third = (_upper(words, index) for index in range(first, first + 3))
    match verb:
        case "BEGIN" if second == "ATOMIC":
            return "BEGIN ATOMIC"
        case "BEGIN" if not _is_block(words, first):
            return "BEGIN"
        case "START" if second == "TRANSACTION":
            return "START TRANSACTION"
        case "COMMIT" | "ROLLBACK" if ";" in (second, third if second in ("TRANSACTION", "WORK") else ""):
            return verb
    return ""


def _upper(words: Sequence[_Word], index: int) -> str:
    """Return a word in capitals; a script ends as if a `;` stood there."""
    return words[index].upper if index < len(words) else ";"


class _Block:
    """A walk through BEGIN … END that keeps what is open."""

    def __init__(self, words: Sequence[_Word], at: int) -> None:
        self._words = words
        self._at = at
        self._open: list[str] = []
        self._first = at
        """Where the statement around `_at` begins."""
        self.firsts = [at]
        """Where each statement begins that the walk has come to, blocks and their parts among them."""

    def end(self) -> int:
        while self._at < len(self._words):
            word = _upper(self._words, self._at)
            if word == ";":
                while self._open and self._open[-1] == _EXPRESSION:  # a column called `case`
                    self._open.pop()
                if not self._open:
                    return self._at
                self._begin_statement()
            elif self._at == self._first and _upper(self._words, self._at + 1) == ":":
                self._at += 1
                self._begin_statement()
            elif self._is_keyword():
                self._take(word)
            self._at += 1
        return len(self._words)

    def _begin_statement(self) -> None:
        self._first = self._at + 1
        self.firsts.append(self._first)

    def _is_keyword(self) -> bool:
        """Not so in `t.end`."""
        return self._at == self._first or _upper(self._words, self._at - 1) != "."

    def _take(self, word: str) -> None:
        top = self._open[-1] if self._open else ""
        if self._opens(word):
            self._open.append(word)
            if word in _OPENING_BODIES:
                self._at += _upper(self._words, self._at + 1) == "ATOMIC"
                self._begin_statement()
        elif word == "END" and self._closes(top):
            self._open.pop()
            # END IF and its like; the second word opens nothing.
            self._at += top != _EXPRESSION and _upper(self._words, self._at + 1) == top
        elif word == "CASE" and top:
            self._open.append(_EXPRESSION)
        elif top in _BODIES_AFTER.get(word, ()):
            self._begin_statement()

    def _opens(self, word: str) -> bool:
        if self._at == self._first:
            return word in _OPENING and (word != "BEGIN" or _is_block(self._words, self._at))
        # DECLARE {EXIT | CONTINUE} HANDLER FOR … BEGIN … END
        return (
            word == "BEGIN"
            and _upper(self._words, self._first) == "DECLARE"
            and _upper(self._words, self._first + 2) == "HANDLER"
        )

    def _closes(self, top: str) -> bool:
        if self._at == self._first:
            return bool(top)
        # UNTIL … END REPEAT is the one END of a body that no `;` stands before.
        return top == _EXPRESSION or (top == "REPEAT" and _upper(self._words, self._at + 1) == "REPEAT")
