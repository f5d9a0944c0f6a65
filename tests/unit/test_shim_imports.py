"""The shim's packages depend on each other one way, and each file lies where its package says.

What is of another package is named by an import, never by its whole name or through the package above, so the imports
tell all. Among what lies in `lockstep.spark` itself no import is needed; there every name in the code counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "jvm-shim" / "src" / "main"
ROOT = "lockstep.spark"

LAYERS = (
    {"Daemons"},
    {"overlay"},
    {"grammar"},
    {"host"},
    {"scans"},
    {"transactions"},
    {"Bridge"},
    {"statements"},
    {"reads"},
    {"LockstepCatalog", "catalog"},
    {"execution"},
    {"analysis"},
    {"parser"},
    {
        *("ConditionalS3LogStore", "Extensions", "ImpliedSettings"),
        *("LockstepFileContext", "LockstepFileSystem", "LockstepLogStore", "Versions"),
    },
)
"""Each package of `lockstep.spark`, and each file that lies in none, may import its own layer and those before it."""

RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}
FILES = {str(path.relative_to(SOURCES)): path for path in sorted(SOURCES.rglob("lockstep/spark/**/*.scala"))}


def unit_of(path: str) -> str:
    """Return what has a layer: the file's package below `lockstep.spark`, or the file itself."""
    below = Path(path).parts[3:]
    return below[0] if len(below) > 1 else Path(path).stem


def code_of(text: str) -> str:
    """Return a source without its comments and the text of its strings, and with each import in one line."""
    bare = re.sub(r'/\*.*?\*/|//[^\n]*|""".*?"""|"(?:\\.|[^"\\\n])*"', inserted, text, flags=re.DOTALL)
    return re.sub(r"\{[^{}]*\}", lambda names: " ".join(names[0].split()), bare)


def inserted(skipped: re.Match[str]) -> str:
    """Return what stands in a string as code (`s"${…}"`); comments have none."""
    found = skipped[0]
    return " ".join(("", *re.findall(r"\$\{([^{}]*)\}", found), "")) if found.startswith('"') else ""


def top_level(text: str) -> set[str]:
    kinds = r"^(?:(?:final|sealed|abstract|case|private(?:\[\w+\])?) )*(?:class|object|trait) (\w+)"
    return set(re.findall(kinds, text, re.MULTILINE))


IN_ROOT = {
    name: unit_of(path)
    for path, file in FILES.items()
    if unit_of(path) == Path(path).stem
    for name in top_level(file.read_text(encoding="utf-8"))
}
"""What each name in `lockstep.spark` itself is of."""


def imported(text: str) -> Iterator[str]:
    """Yield the packages of ours, and the files of ours in none, that a source imports."""
    for found in re.finditer(rf"^\s*import {re.escape(ROOT)}\.(.+)$", code_of(text), re.MULTILINE):
        first, _, rest = found[1].partition(".")
        names = re.findall(r"\w+", first)
        yield from (name if rest else IN_ROOT[name] for name in names)


def used(path: str, text: str) -> set[str]:
    """Return what a source depends on: what it imports and, of one in `lockstep.spark` itself, what it names there."""
    names = set(re.findall(r"\w+", code_of(text))) if unit_of(path) == Path(path).stem else set()
    return {*imported(text), *(IN_ROOT[name] for name in names & set(IN_ROOT))} - {unit_of(path)}


def misdirected(path: str, text: str) -> list[str]:
    return sorted(unit for unit in used(path, text) if RANK[unit] > RANK[unit_of(path)])


@pytest.mark.parametrize("path", FILES)
def test_every_file_lies_where_its_package_says_and_has_a_layer(path: str) -> None:
    (package,) = re.findall(r"^package (\S+)$", FILES[path].read_text(encoding="utf-8"), re.MULTILINE)
    assert package.split(".") == list(Path(path).parts[1:-1])
    assert unit_of(path) in RANK, f"say in LAYERS where {path} belongs"


@pytest.mark.parametrize("path", FILES)
def test_imports_point_one_way(path: str) -> None:
    wrong = misdirected(path, FILES[path].read_text(encoding="utf-8"))
    assert not wrong, f"{path} uses {', '.join(wrong)}, which is built on it"


@pytest.mark.parametrize("path", FILES)
def test_what_is_of_another_package_is_imported_by_its_name(path: str) -> None:
    code = code_of(FILES[path].read_text(encoding="utf-8"))
    body = re.sub(r"^(package|import) .*$", "", code, flags=re.MULTILINE)
    packages = "|".join(unit for unit in RANK if unit.islower())
    assert not re.findall(rf"\b{re.escape(ROOT)}\b", body)
    assert not re.findall(rf"^\s*import (?:{packages}|_root_)\b.*$", code, re.MULTILINE), "imports name the whole path"
    assert not re.findall(rf"^import {re.escape(ROOT)}\..*\b_\b.*$", code, re.MULTILINE), "imports name what they bring"


def test_what_lies_in_packages_of_spark_knows_none_of_ours() -> None:
    below = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("org/apache/spark/**/*.scala")]
    assert len(below) > 3
    assert not [text for text in below if ROOT in code_of(text)]


def test_every_layer_is_one_that_there_is() -> None:
    assert set(RANK) == set(map(unit_of, FILES))


def test_the_design_describes_the_layers_in_their_order() -> None:
    design = (SOURCES.parents[2] / "docs" / "design.md").read_text(encoding="utf-8")
    table = design.partition("## The shim's packages")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == list(LAYERS)


def test_the_rules_see_what_they_forbid() -> None:
    text = (
        "package lockstep.spark.overlay\n"
        "import lockstep.spark.{\n  Bridge,\n  LockstepCatalog\n}\n"
        "import lockstep.spark.parser.Script\n"
        "// import lockstep.spark.Extensions\n"
        "class Some { def tell = Overlay.parse() }\n"
    )
    assert misdirected("scala/lockstep/spark/overlay/Some.scala", text) == ["Bridge", "LockstepCatalog", "parser"]
    assert misdirected("scala/lockstep/spark/parser/Some.scala", text) == []
    asking = (
        'package lockstep.spark\nobject Bridge { val said = s"Extensions: ${LockstepCatalog.isOne}" } // Versions\n'
    )
    assert misdirected("scala/lockstep/spark/Bridge.scala", asking) == ["LockstepCatalog"]
