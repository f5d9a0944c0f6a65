"""What CREATE TABLE … LOCATION says of a table that it takes in, beside what the table is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.adoption.described import Description, difference


def column(name: str, kind: Any, *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [*columns]}


def table(*columns: dict[str, Any], partitions: tuple[str, ...] = (), **configuration: str) -> dict[str, Any]:
    """The metadata of a table."""
    schema = json.dumps(struct(*columns))
    return {"schemaString": schema, "partitionColumns": [*partitions], "configuration": configuration}


ID, P = column("id", "integer"), column("p", "string")
NESTED = struct(column("day", "string"))
ARRAY = {"type": "array", "elementType": "integer", "containsNull": True}


def of(column: dict[str, Any], **metadata: Any) -> str:
    """Return the schema of a table of one column, of which a statement says more."""
    return json.dumps(struct({**column, "metadata": metadata}))


@pytest.mark.parametrize(
    ("described", "there", "expected"),
    [
        (Description(), table(ID, P, partitions=("p",), k="v"), None),
        (Description(json.dumps(struct())), table(ID), None),
        (Description(json.dumps(struct(ID))), table(ID), None),
        (Description(json.dumps(struct(ID))), table(column("id", "integer", comment="of the order")), None),
        (Description(json.dumps(struct(column("n", NESTED)))), table(column("n", NESTED)), None),
        (Description(json.dumps(struct(ID))), table(column("id", "long")), "its columns are id long, not id integer"),
        (Description(json.dumps(struct(ID))), table(column("ID", "integer")), "its columns"),
        (Description(json.dumps(struct(ID))), table(column("id", "integer", nullable=False)), "NOT NULL"),
        (Description(json.dumps(struct(ID))), table(ID, P), "its columns"),
        (Description(json.dumps(struct(ID, P))), table(P, ID), "its columns"),
        (Description(json.dumps(struct(ID, P))), table(ID), "its columns"),
        (
            Description(json.dumps(struct(column("n", ARRAY)))),
            table(column("n", {**ARRAY, "containsNull": False})),
            "its columns",
        ),
        (Description(json.dumps(struct(ID, P))), table(ID, P, partitions=("p",)), "partitioned by ['p'], not by []"),
        (Description(json.dumps(struct(ID, P)), ("p",)), table(ID, P, partitions=("p",)), None),
        (Description(json.dumps(struct(ID, P)), ("p",)), table(ID, P), "partitioned by"),
        (Description("", ("p",)), table(ID, P), "partitioned by"),
        (Description("", ("cluster_by(id)",)), table(ID, P), "partitioned by"),
        (Description(properties={"k": "v"}), table(ID, k="v", other="w"), None),
        (Description(properties={"k": "v"}), table(ID, k="w"), "its property k is 'w', not 'v'"),
        (Description(properties={"k": "v"}), table(ID), "its property k is None, not 'v'"),
        (Description(of(ID, comment="of the order")), table(column("id", "integer", comment="of the order")), None),
        (Description(of(ID, comment="")), table(ID), None),
        (
            Description(of(ID, comment="of the order")),
            table(column("id", "integer", comment="another")),
            "the comment of its column id is 'another', not 'of the order'",
        ),
        (Description(of(ID, comment="of the order")), table(ID), "the comment of its column id is None"),
        (
            Description(of(ID, comment="of the order")),
            table({"name": "id", "type": "integer", "nullable": True}),
            "the comment of its column id is None",
        ),
        (Description(of(ID, CURRENT_DEFAULT="7", EXISTS_DEFAULT="7")), table(ID), "the default of its column id is"),
        (
            Description(of(ID, CURRENT_DEFAULT="7", EXISTS_DEFAULT="7")),
            table(column("id", "integer", CURRENT_DEFAULT="7")),
            None,
        ),
        (
            Description(of(ID, GENERATION_EXPRESSION="p + 1")),
            table({**ID, "metadata": {"delta.generationExpression": "p + 1"}}),
            None,
        ),
        (
            Description(of(column("n", struct(column("day", "string", comment="a day"))))),
            table(column("n", NESTED)),
            "the comment of its column n.day is None, not 'a day'",
        ),
        (
            Description(of(column("n", {**ARRAY, "elementType": struct(column("day", "string", comment="a day"))}))),
            table(column("n", {**ARRAY, "elementType": NESTED})),
            "the comment of its column n.day is None, not 'a day'",
        ),
        (Description(comment="all"), table(ID) | {"description": "all"}, None),
        (Description(comment="all"), table(ID), "its comment is None, not 'all'"),
        (Description(), table(ID) | {"description": "all"}, None),
    ],
)
def test_what_is_said_must_be_so_and_what_is_not_said_may_be_anything(
    described: Description, there: dict[str, Any], expected: str | None
) -> None:
    found = difference(described, there)
    assert (expected in (found or "")) if expected else found is None
