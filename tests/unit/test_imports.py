"""Imports point one way, only lockstep.spark touches Spark, and `import lockstep` is light.

The rules are checked on the source text, imports inside functions included: moving an import into a function is a way
to make a module light, and none to go up a layer.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import lockstep

SOURCES = Path(__file__).parents[2] / "python"

LAYERS = (
    {"_version", "arguments", "caches", "errors", "forks", "retry", "settings", "workers"},
    {"scripts"},
    {"storage"},
    {"arbiters"},
    {"timeline"},
    {"display"},
    {"delta"},
    {"transactions"},
    {"conflict"},
    {"lake"},
    {"adoption"},
    {"commit"},
    {"recovery"},
    {"system"},
    {"exports"},
    {"retention"},
    {"blocks"},
    {"catalog"},
    {"tables"},
    {"spark", ""},
    {"cli", "__main__"},
)
"""Each module of `lockstep` (its first name; "" is `lockstep` itself) may import its own layer and those above it."""

RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}
SPARK = {"delta", "py4j", "pyspark"}
HEAVY = {
    "IPython",
    "boto3",
    "click",
    "delta",
    "deltalake",
    "duckdb",
    "obstore",
    "polars",
    "py4j",
    "pyarrow",
    "pyroaring",
    "pyspark",
    "redis",
    "rich",
    "sqlglot",
}


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted((SOURCES / "lockstep").rglob("*.py"))}


def unit_of(module: str) -> str:
    """Return the part of a module's name that has a layer: `lockstep.delta.log` → `delta`."""
    return module.split(".")[1] if "." in module else ""


def imports_in(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """Yield what is imported: a module of ours by its whole name, any other as written."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: relative imports hide where they point"
            module = node.module or ""
            for alias in node.names:
                # `from lockstep import __version__` needs the package alone, which every import of ours runs first.
                whole = f"{module}.{alias.name}".replace("lockstep.__version__", "lockstep._version")
                yield whole if whole in MODULES else module


def at_import_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs when the module is imported: no bodies of functions, nothing under TYPE_CHECKING."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from at_import_time(node)


def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def misdirected(module: str, imported: str) -> bool:
    """Say whether this import points the wrong way."""
    ours = imported == "lockstep" or imported.startswith("lockstep.")
    return ours and RANK[unit_of(imported)] > RANK[unit_of(module)]


def outside(imported: str) -> str:
    return imported.partition(".")[0]


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_layer(module: str) -> None:
    assert unit_of(module) in RANK, f"say in LAYERS where {module} belongs"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_one_way(module: str) -> None:
    wrong = [imported for imported in imports_in(ast.walk(tree_of(module))) if misdirected(module, imported)]
    assert not wrong, f"{module} imports {', '.join(wrong)}, which is built on it"


@pytest.mark.parametrize("module", [module for module in MODULES if unit_of(module) != "spark"])
def test_only_the_spark_package_touches_spark(module: str) -> None:
    imported = set(map(outside, imports_in(ast.walk(tree_of(module)))))
    assert not imported & SPARK


def test_no_module_imports_itself_on_the_way() -> None:
    graph = {module: set(imports_in(at_import_time(tree_of(module)))) & set(MODULES) for module in MODULES}
    graphlib.TopologicalSorter(graph).prepare()


def run_alone(code: str) -> str:
    """Run Python in a process that has imported nothing yet; return what it prints."""
    command, environment = [sys.executable, "-c", code], {"PYTHONPATH": str(SOURCES)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_importing_lockstep_imports_nothing_heavy() -> None:
    found = run_alone("import sys, lockstep; print(*sys.modules)").split()
    assert "lockstep" in found
    assert not HEAVY & set(found)


def test_tables_are_written_and_read_without_anything_of_sparks(tmp_path: Path) -> None:
    work = f"""
import sys, lockstep, pyarrow as pa
lake = lockstep.open({str(tmp_path / "lake")!r}, create=True)
with lake.transaction() as tx:
    tx.create("t", pa.schema([("id", pa.int64())])).append({{"id": [1, 2]}})
    tx["t"].delete("id = 1")
assert lake.at()["t"].to_arrow().num_rows == lake.at().sql("FROM t").num_rows == 1
print(*sys.modules)
"""
    found = run_alone(work).split()
    assert "duckdb" in found
    assert not {module for module in found if module.partition(".")[0] in SPARK}


@pytest.mark.parametrize("name", ["configure", "transaction", "at"])
def test_what_takes_pyspark_says_so_where_there_is_none(name: str) -> None:
    hidden = f"import sys\nsys.modules['pyspark'] = None  # as where there is none\nimport lockstep\nlockstep.{name}"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_alone(hidden)
    assert f"lockstep.{name} takes pyspark" in caught.value.stderr
    assert "pip install 'lockstep-delta[spark]'" in caught.value.stderr


def test_the_rules_see_what_they_forbid() -> None:
    """A check that finds nothing must be able to find something."""
    text = "import lockstep.catalog\ndef f():\n    import pyspark.sql\n    from py4j.java_gateway import JavaGateway"
    found = list(imports_in(ast.walk(ast.parse(text))))
    assert set(map(outside, found)) & SPARK == {"pyspark", "py4j"}
    assert misdirected("lockstep.storage.local", "lockstep.catalog")
    assert misdirected("lockstep.catalog", "lockstep")
    assert not misdirected("lockstep.catalog", "lockstep.transactions.transaction")
    assert not misdirected("lockstep.storage.local", "obstore.store")
    assert list(imports_in(at_import_time(ast.parse(text)))) == ["lockstep.catalog"]


ANSWERS = {
    "put_if_absent",
    "try_put",
    "append",
    "publish",
    "try_publish",
    "commit_statement",
    "rollback",
    "settle_doubt",
}
"""What answers with a value that says what really happened: who drops it guesses."""


def dropped_answers(tree: ast.AST) -> Iterator[str]:
    """Yield calls whose answer goes nowhere, but for `append` of a list and `rollback` of a catalog, which raises."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
            said = ast.unparse(call.func)
            owner, _, name = said.rpartition(".")
            wrong_name = name == "append" and not owner.endswith("timeline")
            if name in ANSWERS and not wrong_name and not (name == "rollback" and owner):
                yield f"line {node.lineno}: {said}"


@pytest.mark.parametrize("module", MODULES)
def test_no_answer_about_what_was_written_is_dropped(module: str) -> None:
    assert not list(dropped_answers(tree_of(module)))


@pytest.mark.parametrize("module", [module for module in MODULES if unit_of(module) != "storage"])
def test_only_storage_believes_what_a_store_says_at_once(module: str) -> None:
    """`try_put` may say that something is there when nothing is; `put_if_absent` is what everybody else uses."""
    assert "try_put" not in {node.attr for node in ast.walk(tree_of(module)) if isinstance(node, ast.Attribute)}


def test_a_dropped_answer_is_seen() -> None:
    text = (
        "storage.put_if_absent(p, d)\nrollback(lake, tx)\nself.timeline.append(e)\nlines.append(e)\nx = rollback(a, b)"
    )
    assert [found.split(": ")[1] for found in dropped_answers(ast.parse(text))] == [
        "storage.put_if_absent",
        "rollback",
        "self.timeline.append",
    ]


def test_no_module_hides_a_public_name() -> None:
    """`lockstep.transaction` is a function: a module of that name would take its place once imported."""
    public = tree_of("lockstep")
    names = {c.value for c in ast.walk(public) if isinstance(c, ast.Constant) and isinstance(c.value, str)}
    modules = {name.split(".")[1] for name in MODULES if name.count(".") == 1}
    named = {name for name in names if name.isidentifier()} & modules
    assert named == {"errors"}, "a public name, and itself that module"
    assert isinstance(lockstep.errors, ModuleType)


def test_dir_shows_the_public_names_and_imports_none() -> None:
    said = run_alone("import sys, lockstep; print(*dir(lockstep)); print(*sys.modules)").splitlines()
    assert said[0].split() == sorted(lockstep.__all__)
    assert "lockstep.catalog" not in said[1].split()
    assert all(getattr(lockstep, name) is not None for name in lockstep.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        lockstep.nosuch  # noqa: B018  # asked for, and not there


def test_errors_are_there_without_another_import() -> None:
    assert run_alone("import lockstep; print(lockstep.errors.ConflictError.__name__)") == "ConflictError\n"


def test_the_package_says_that_it_has_types() -> None:
    assert (SOURCES / "lockstep" / "py.typed").is_file()
