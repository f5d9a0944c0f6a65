"""Versions, and other whole numbers, as statements have them: texts."""

from __future__ import annotations

from lockstep.errors import InvalidError

_DIGITS = 18
"""What a number has at most: all of them have 64 bits."""


def database_version(text: str) -> int | str:
    """Return a database version's number, or a tag's name.

    Raises:
        InvalidError: it is a number of too many digits.
    """
    return number(text) if text.isdigit() else text


def number(text: str) -> int:
    """Return a version's number.

    Raises:
        InvalidError: it is none, or has too many digits.
    """
    if not is_number(text):
        raise InvalidError(f"{text!r} is not a version: give a number")
    return int(text)


def is_number(text: str) -> bool:
    """Tell whether a text is a whole number for which the shim has room, or a timeline."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS
