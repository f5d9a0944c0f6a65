"""Classes are read from JSON by decoders that are made while modules are imported, not by the first thread to need one.

msgspec works out what a class is when it first decodes one, which runs Python code. Another thread that decodes the
class meanwhile finds half of it, and the process ends by SIGSEGV (seen with msgspec 0.22.0: a driver that read the
checksums of several tables at once).
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec
import pytest

from tests.unit.test_imports import MODULES, tree_of

pytestmark = pytest.mark.long

ASKED = sorted(set(MODULES) - {"lockstep.__main__"})


def classes_in(type_: Any) -> Iterator[type]:
    """Yield the classes that reading a type makes objects of."""

    def walk(found: object) -> Iterator[type]:
        if isinstance(found, msgspec.inspect.StructType):
            if found.cls in seen:
                return
            seen.add(found.cls)
            yield found.cls
        if isinstance(found, msgspec.inspect.Type | msgspec.inspect.Field):
            for name in found.__struct_fields__:
                yield from walk(getattr(found, name))
        elif isinstance(found, tuple):
            for each in found:
                yield from walk(each)

    seen: set[type] = set()
    yield from walk(msgspec.inspect.type_info(type_))


def made_ready() -> set[type]:
    """Return the classes of all decoders that modules keep."""
    kept = [value for name in ASKED for value in vars(importlib.import_module(name)).values()]
    decoders = [getattr(value, "__self__", value) for value in kept]
    types = [decoder.type for decoder in decoders if isinstance(decoder, msgspec.json.Decoder)]
    return {found for type_ in types for found in classes_in(type_)}


def read_at_once(tree: ast.AST, namespace: ModuleType | dict[str, Any]) -> Iterator[type]:
    """Yield the classes that a source reads without a decoder."""
    known = namespace if isinstance(namespace, dict) else vars(namespace)
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).startswith("msgspec."):
            continue
        verb = ast.unparse(call.func).rpartition(".")[2]
        said = [keyword.value for keyword in call.keywords if keyword.arg == "type"]
        if verb == "convert":
            said += call.args[1:2]
        elif verb != "decode":
            continue
        for type_ in said:
            yield from classes_in(eval(ast.unparse(type_), dict(known)))


@pytest.mark.parametrize("module", ASKED)
def test_what_is_read_at_once_was_made_ready(module: str) -> None:
    late = set(read_at_once(tree_of(module), importlib.import_module(module))) - made_ready()
    assert not late, f"{module}: make a msgspec.json.Decoder of {late} where the module is imported"


def test_the_rule_sees_what_it_forbids() -> None:
    class Inner(msgspec.Struct):
        a: int

    names = {"Inner": Inner, "msgspec": msgspec}
    for text in ("msgspec.json.decode(b'', type=list[Inner])", "msgspec.convert({}, Inner)"):
        assert list(read_at_once(ast.parse(text), names)) == [Inner]
    for text in ("msgspec.json.decode(b'', type=dict[str, int])", "msgspec.json.decode(b'')", "msgspec.json.encode(1)"):
        assert not list(read_at_once(ast.parse(text), names))
    assert Inner not in made_ready()
