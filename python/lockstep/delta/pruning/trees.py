"""What of sqlglot's trees is read: of a node with more to it than that, nobody here knows what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TWO = frozenset({"this", "expression"})
_ONE = frozenset({"this"})

READ: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("eq", "neq", "nullsafeeq", "lt", "lte", "gt", "gte", "and", "or", "dot"), _TWO),
    **dict.fromkeys(("is", "like", "startswith", "endswith", "contains"), _TWO),
    **dict.fromkeys(("not", "paren", "neg", "boolean", "null", "hexstring"), _ONE),
    "in": frozenset({"this", "expressions"}),
    "between": frozenset({"this", "low", "high"}),
    "column": frozenset({"this", "table", "db", "catalog"}),
    "identifier": frozenset({"this", "quoted"}),
    "literal": frozenset({"this", "is_string"}),
    "cast": frozenset({"this", "to"}),
    "trycast": frozenset({"this", "to", "safe"}),
}
"""By sqlglot's name of a node, what is read of it; nodes of other names are not understood at all."""


def is_read(tree: Any) -> bool:
    """Tell whether all that the nodes of a tree say is read here.

    What a version of sqlglot has beside that may turn the meaning round: to one, NOT LIKE is a NOT, to the next a LIKE
    with `negate`.
    """
    return all(
        name in READ[node.key] or not value
        for node in tree.walk()
        if node.key in READ
        for name, value in node.args.items()
    )
