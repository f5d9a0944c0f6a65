"""What the shim and the host say to each other: each request in full, and what is refused because it is none."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lockstep.errors import LockstepError
from lockstep.spark.host import protocol
from lockstep.spark.host.host import Host
from lockstep.spark.host.protocol import OPERATIONS, decode, description_of
from tests.support.client import Client

SECRET = "wJalrXUtnFEMI"
"""A value that no message may show, wherever it stands."""

VIEWED = {"catalog": "lake", "name": ["default", "v"], "version": 3}
OPTIONS = {"root": "/lake", "store.secret_access_key": SECRET}
ID = "0f" * 32
CATALOG: dict[str, Any] = {"catalog": "lake", "options": ID, "case_sensitive": False}
NAME = {**CATALOG, "namespace": ["sales"], "table": "orders"}
PINNED = {**NAME, "pin": 7, "seen": [["sales", "lines"]], "mentioned": [["orders"]]}
NAMESPACE = {**CATALOG, "namespace": ["sales", "north"]}
CATALOGS: dict[str, Any] = {"catalogs": {"lake": ID, "other": OPTIONS}, "settings": {"isolation": "SNAPSHOT"}}
READ = {"table": "t1", "version": 3, "where": "id = 1", "head": True, "cached": False}
COMMIT = {"uri": "lockstep://head.file/lake/t1", "version": 4}
DEFINITION = {
    "text": "SELECT 1",
    "schema": "{}",
    "catalog": "lake",
    "namespace": ["sales"],
    "configs": {"spark.sql.ansi.enabled": "true"},
    "mode": "BINDING",
    "query_columns": ["1"],
    "properties": {"comment": "one"},
}

FUNCTION = {
    "body": "x + 1",
    "is_query": False,
    "parameters": "{}",
    "returns": "{}",
    "is_table": False,
    "is_deterministic": True,
    "comment": "next",
    "collation": None,
    "catalog": "lake",
    "namespace": ["sales"],
    "configs": {"spark.sql.ansi.enabled": "true"},
}

FILTER = {"column": "version", "op": ">", "value": 3, "values": [1]}
SYSTEM = {**CATALOG, "table": "history", "at": 7, "transaction": None, "filters": [FILTER], "cursor": 3}

EXAMPLES: dict[str, dict[str, Any]] = {
    "batch": {"batch": {"application": "orders", "number": 7}},
    "begin": {
        **CATALOGS,
        "current": "lake",
        "case_sensitive": True,
        "isolation": "SERIALIZABLE",
        "read_only": True,
        "comment": "why",
        "as_of_version": 7,
        "as_of_micros": None,
        "as_of_tag": None,
    },
    "begun": {},
    "check_setting": {"name": "lockstep.isolation", "value": "SNAPSHOT"},
    "commit": {"failure": "division by zero", "reads": [READ], "settled": [1, 2], "unused": [3]},
    "rollback": {},
    "ended": {},
    "lost": {"transaction": "t1", "sent": {"catalog": "lake", "options": OPTIONS, "snapshot": 7}},
    "lapse": {"why": "idle"},
    "savepoint": {"name": "s", "failure": None},
    "rollback_to": {"name": "s"},
    "release": {"name": "s"},
    "outside": {"what": "VACUUM", "known": True},
    "resolve": {
        **PINNED,
        "use": "pinned",
        "writes": True,
        "version": "@7",
        "timestamp_micros": 1,
        "system_time_micros": 2,
        "touch": 9,
        "ahead": [{"name": ["sales", "items"], "use": "changed", "writes": True, "touch": 10}],
    },
    "version_then": {**NAME, "version": None, "system_time_micros": 2},
    "row_changes": {
        **PINNED,
        "of": "database",
        "start": {"version": "3", "micros": None, "inclusive": True},
        "end": {"version": "eod", "micros": None, "inclusive": False},
    },
    "by_path": {"paths": ["file:/lake/sales/orders-1"]},
    "snapshot": {
        "reads": [{**READ, "version": None, "where": None}],
        "views": [VIEWED],
        "catalogs": {"lake": {"root": "/lake"}},
    },
    "exists": NAME,
    "tables": NAMESPACE,
    "create": {**NAME, "mode": "create", "provider": "delta", "location": None},
    "create_at": {
        **NAME,
        "provider": "delta",
        "location": "/warehouse/t",
        "schema": '{"type": "struct", "fields": []}',
        "partitions": ["p"],
        "properties": {"k": "v"},
    },
    "write": {
        **COMMIT,
        **CATALOGS,
        "actions": "{}\n",
        "text": "…",
        "reads": [READ],
        "has_read": True,
        "paths": ["file:/a"],
        "views": [VIEWED],
        "creation": "0f3c5d7e9a1b2c4d6e8f0a1b",
    },
    "staging": COMMIT,
    "staged": {**COMMIT, "text": "…", "has_read": False},
    "stage": {**COMMIT, "actions": "{}\n", "text": "…", "has_read": True},
    "claim": COMMIT,
    "drop": NAME,
    "rename": {**NAME, "to": ["sales", "sold"]},
    "namespaces": {**CATALOG, "parent": []},
    "namespace": NAMESPACE,
    "create_namespace": {**NAMESPACE, "properties": {"owner": "me"}},
    "alter_namespace": {**NAMESPACE, "set": {"owner": "you"}, "unset": ["comment"]},
    "drop_namespace": {**NAMESPACE, "cascade": True},
    "view": {**PINNED, "version": "@7", "system_time_micros": 2},
    "views": NAMESPACE,
    "create_view": {**NAME, "replace": "create_or_replace", "view": DEFINITION},
    "drop_view": NAME,
    "rename_view": {**NAME, "to": ["sold"]},
    "function": {**PINNED, "version": "@7"},
    "functions": NAMESPACE,
    "create_function": {**NAME, "mode": "if_not_exists", "function": FUNCTION},
    "drop_function": NAME,
    "procedures": CATALOG,
    "procedure": {**CATALOG, "procedure": "restore"},
    "bind_procedure": {**CATALOG, "procedure": "restore", "positional": 1, "named": ["tables"]},
    "call": {
        **CATALOG,
        "procedure": "restore",
        "arguments": {"tag": "eod", "tables": ["a"]},
        "text": "CALL …",
        "catalogs": {},
        "listed": {
            "implementation": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "name": "shop",
            "tables": [{"name": "orders", "kind": "MANAGED", "provider": "delta", "location": "file:/a"}],
            "definitions": [
                {
                    "name": "next",
                    "is_function": True,
                    "view": DEFINITION,
                    "function": FUNCTION,
                    "problem": "has a query in it",
                    "reads": [{"written": ["orders"], "meaning": ["spark_catalog", "shop", "orders"]}],
                    "calls": [{"written": ["f"], "meaning": ["spark_catalog", "shop", "f"]}],
                }
            ],
        },
    },
    "system_table": {
        **PINNED,
        "use": "pinned",
        "writes": True,
        "version": "@7",
        "timestamp_micros": 1,
        "system_time_micros": 2,
    },
    "system_rows": {
        **SYSTEM,
        "columns": ["version"],
        "limit": 10,
        "descending": True,
        "settings": {"isolation": "SNAPSHOT"},
        "driver": {"spark.sql.extensions": "lockstep.spark.Extensions"},
    },
    "system_files": SYSTEM,
    "options": {"id": ID, "settings": OPTIONS},
    "saw_root": {
        "root": "0badcafe",
        "settings": {"fs.s3a.endpoint": "http://storage.example:9000"},
        "file_system": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "length": 512,
        "digest": "ab" * 32,
        "failures": ["java.io.IOException", "java.lang.Exception"],
        "message": None,
        "kept": ["fs.s3a.access.key"],
        "others": {"fs.s3a.bucket.b.endpoint": "lake"},
        "untold": "session",
        "beside": [
            {"others": {}, "untold": "opened", "failures": ["java.io.IOException"], "message": "java.io.IOException: …"}
        ],
    },
    "spark_started": {},
    "drop_session_schema": {
        **CATALOG,
        "schema": "shop",
        "folder": "file:/warehouse/shop.db",
        "tables": [
            {"name": "orders", "kind": "MANAGED", "provider": "delta", "location": "file:/warehouse/shop.db/orders"}
        ],
    },
    "session_names": {
        **CATALOG,
        "implementation": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "names": [
            {
                "name": ["shop", "orders"],
                "use": "used",
                "is_delta": False,
                "there": {"name": "orders", "kind": "EXTERNAL", "provider": "delta", "location": "file:/shop/orders"},
            }
        ],
    },
    "kept_versions": {"uri": "lockstep://head.file/lake/t", "catalogs": {"lake": {"root": "/lake"}}},
    "kept_log": {"uri": "lockstep://head.file/lake/t", "catalogs": {"lake": {"root": "/lake"}}},
}
"""One request of each operation, with every field that it can have, as the shim writes it."""


def example(op: str) -> dict[str, Any]:
    return {"op": op, "session": "s1", "user": "ada", "within": "tx1", **EXAMPLES[op]}


def refusal_of(request: dict[str, Any]) -> str:
    with pytest.raises(LockstepError) as refused:
        decode(json.dumps(request))
    assert SECRET not in str(refused.value)
    return refused.value.message


def test_there_is_an_example_of_each_operation() -> None:
    assert EXAMPLES.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("op", EXAMPLES)
def test_a_request_comes_as_it_was_sent(op: str) -> None:
    sent = example(op)
    received = decode(json.dumps(sent))
    assert type(received) is OPERATIONS[op]
    assert json.loads(msgspec.json.encode(received)) == sent
    assert sent.keys() == {"op", *(field.encode_name for field in msgspec.structs.fields(received))}


def test_each_operation_is_answered(host: Host) -> None:
    assert {*host._operations} == {*OPERATIONS.values()}


@pytest.mark.parametrize("op", EXAMPLES)
def test_a_field_that_is_not_known_is_refused(op: str) -> None:
    message = refusal_of({**example(op), "isolaton": SECRET})
    assert repr(op) in message
    assert "`isolaton`" in message


@pytest.mark.parametrize(
    ("op", "field"),
    [(op, field.name) for op, kind in OPERATIONS.items() for field in msgspec.structs.fields(kind) if field.required],
)
def test_a_field_that_is_missing_is_refused(op: str, field: str) -> None:
    message = refusal_of({name: value for name, value in example(op).items() if name != field})
    assert repr(op) in message
    assert f"`{field}`" in message


@pytest.mark.parametrize(
    ("op", "wrong", "named"),
    [
        ("begun", {"session": [SECRET]}, "`$.session`"),
        ("exists", {"table": None}, "`$.table`"),
        ("exists", {"namespace": SECRET}, "`$.namespace`"),
        ("exists", {"namespace": [["s"]]}, "`$.namespace[0]`"),
        ("exists", {"case_sensitive": "true"}, "`$.case_sensitive`"),
        ("exists", {"options": {SECRET: 1}}, "`$.options[...]`"),
        ("exists", {"options": {"store.secret_access_key": [SECRET]}}, "`$.options[...]`"),
        ("exists", {"options": 7}, "`$.options`"),
        ("options", {"id": 7}, "`$.id`"),
        ("options", {"settings": {"store.secret_access_key": [SECRET]}}, "`$.settings[...]`"),
        ("resolve", {"use": SECRET}, "`$.use`"),
        ("resolve", {"pin": "7"}, "`$.pin`"),
        ("resolve", {"pin": 7.5}, "`$.pin`"),
        ("resolve", {"seen": [[]]}, "`$.seen[0]`"),
        ("resolve", {"version": 7}, "`$.version`"),
        ("version_then", {"version": "7"}, "`$.version`"),
        ("version_then", {"version": None, "system_time_micros": None}, "`version` and `system_time_micros`"),
        ("version_then", {"version": 7, "system_time_micros": 2}, "`version` and `system_time_micros`"),
        ("create", {"mode": SECRET}, "`$.mode`"),
        ("rename", {"to": []}, "`$.to`"),
        ("write", {"catalogs": {"lake": {"key": 3}}}, "`$.catalogs[...][...]`"),
        ("commit", {"reads": [{**READ, "more": SECRET}]}, "unknown field `more` - at `$.reads[0]`"),
        ("commit", {"reads": [{"table": "t1"}]}, "`version` - at `$.reads[0]`"),
        ("commit", {"settled": None}, "`$.settled`"),
        ("begin", {"isolation": SECRET}, "`$.isolation`"),
        ("begin", {"read_only": 1}, "`$.read_only`"),
        ("batch", {"batch": {"application": "orders"}}, "`number` - at `$.batch`"),
        ("batch", {"batch": {"application": "orders", "number": -1}}, "`$.batch.number`"),
        ("create_view", {"replace": SECRET}, "`$.replace`"),
        ("create_view", {"view": {"text": SECRET}}, "`schema` - at `$.view`"),
        ("create_view", {"view": {**DEFINITION, "more": SECRET}}, "`more` - at `$.view`"),
        ("create_view", {"view": {**DEFINITION, "namespace": SECRET}}, "`$.view.namespace`"),
    ],
)
def test_a_field_of_another_type_is_refused(op: str, wrong: dict[str, Any], named: str) -> None:
    message = refusal_of({**example(op), **wrong})
    assert repr(op) in message
    assert named in message


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"op": "steal", "session": "s1"}, "'steal'"),
        ({"op": "steal" * 1000, "session": "s1"}, "'stealsteal"),
        ({"op": 7, "session": SECRET}, "`$.op`"),
        ({"session": SECRET}, "`op`"),
        ({"session": {"op": SECRET}}, "`op`"),
    ],
)
def test_what_asks_nothing_that_is_known_is_refused(request_: dict[str, Any], named: str) -> None:
    message = refusal_of(request_)
    assert named in message
    assert len(message) < 300


@pytest.mark.parametrize(
    "request_",
    [b"", b"\xff", b"[]", b"7", "\ud83d", '{"op": "begun", "session": "\\ud83d"}', b"[" * 100_000, b'{"op":' * 100_000],
)
def test_what_is_no_json_object_is_refused(request_: bytes | str) -> None:
    with pytest.raises(LockstepError, match=r"a request is no JSON|request \? is malformed: Expected `object`"):
        decode(request_)
    assert description_of(request_) == "the request ? of session ? about catalog ?"


def test_a_request_that_is_none_is_an_answer_and_logged(one: Client, caplog: pytest.LogCaptureFixture) -> None:
    """It can only be an error of Lockstep's own. Which request it was can be told without its values."""
    one.options = {"store.secret_access_key": SECRET, **one.options}
    with caplog.at_level(logging.ERROR):
        state, condition, message = one.refused("drop", namespace=[])
    assert (state, condition) == ("XX000", "LOCKSTEP_INTERNAL")
    assert message == (
        "internal error, nothing was done: the request 'drop' is malformed: Object missing required field `table`. "
        "Please report it"
    )
    assert all(said in caplog.text for said in ("'drop'", f"'{one.session}'", "'lake'", "`table`"))
    assert SECRET not in caplog.text
    assert one.resolve("a")["version"] == 0, "and the session goes on"


def test_each_field_says_what_it_means() -> None:
    folder = Path(protocol.__file__).parent
    fields = 0
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            for said, after in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(said, ast.AnnAssign):
                    fields += 1
                    is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                    assert is_text, f"{path.name}: {node.name}.{ast.unparse(said.target)} says nothing"
    assert fields > len(OPERATIONS)
