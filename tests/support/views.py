"""Views without Spark: definitions, and a shorthand for what a transaction does to views and tables."""

from __future__ import annotations

from lockstep.timeline.entry import ViewDefinition
from lockstep.transactions.transaction import Transaction
from tests.support.lakes import named

FULL = ViewDefinition(
    text="SELECT id AS n FROM a",
    schema='{"type":"struct","fields":[]}',
    catalog="lake",
    namespace=["default"],
    configs={"spark.sql.ansi.enabled": "true"},
    mode="BINDING",
    query_columns=["id"],
    properties={"comment": "numbers"},
)


def says(text: str) -> ViewDefinition:
    return ViewDefinition(text=text, schema="{}")


def do(tx: Transaction, text: str) -> None:
    """Run DDL in a shorthand.

    `+x=1` makes view x, `x=1` makes or replaces it, `-x` drops it, `x>y` renames it; `-t!` drops table t, `+x!` makes
    table x, `/s` makes a namespace, `!s` drops it with all that is in it.
    """
    for word in text.split():
        if word.endswith("!"):
            if word[0] == "-":
                tx.changing().drop_table(named(word[1:-1]))
            else:
                tx.stage(tx.reserve(named(word[1:-1]), f"new-{len(tx.creations.folders())}").location, 0)
        elif word[0] == "-":
            tx.changing().drop_view(named(word[1:]))
        elif word[0] == "/":
            tx.changing().create_namespace((word[1:],), {})
        elif word[0] == "!":
            tx.changing().drop_namespace((word[1:],), cascade=True)
        elif ">" in word:
            tx.changing().rename_view(*map(named, word.split(">")))
        else:
            name, text = word.split("=")
            tx.changing().create_view(named(name.removeprefix("+")), says(text), replace=word[0] != "+")
