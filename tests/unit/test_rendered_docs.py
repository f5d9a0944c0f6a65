"""What the documentation says of the code is what the code says."""

from __future__ import annotations

import json
import pkgutil
import re
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import msgspec
import pytest

import lockstep
from lockstep import errors, settings
from lockstep.cli.main import main
from lockstep.spark.host.host import condition_of
from lockstep.timeline.entry import FORMAT, Commit, Entry, Name, NamespaceDdl, TableDdl, TableWrite, TransactionInfo
from project import render_docs
from tests.bench import conflicts, fairness
from tests.bench.page import MARKS, section, sections, with_section
from tests.support.markdown import blocks

pytestmark = pytest.mark.long

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for pattern in ("*.md", "docs/*.md", "sql/*.md", "sql/*/*.md", "tests/*.md")
    for path in REPOSITORY.glob(pattern)
)


def text_of(page: str) -> str:
    return (REPOSITORY / page).read_text(encoding="utf-8")


def sources(folder: str, pattern: str) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / folder).rglob(pattern))


@pytest.mark.parametrize("path", render_docs.rendered(), ids=lambda path: path.name)
def test_rendered_parts_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == render_docs.rendered()[path], "run `python -m project.render_docs`"


def test_the_conditions_that_the_pages_name_are_those_that_there_are() -> None:
    of_shim = set(re.findall(r'"(LOCKSTEP_[A-Z_]+)"', sources("jvm-shim", "*.scala")))
    classes = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LockstepError)
    ]
    of_python = {condition_of(kind) for kind in classes}
    variables = r"(?!JARS|LOCATIONS`|ARBITER`|ARBITER_(?:USERNAME|PASSWORD)`|TEST_)"  # of the environment
    for page in PAGES:
        named = set(re.findall(rf"`(LOCKSTEP_{variables}[A-Z_]+[A-Z])`", text_of(page)))
        assert named <= of_shim | of_python, page
    table = text_of("docs/errors.md").partition("### From SQL alone")[2]
    assert set(re.findall(r"^\| \w+ \| `(LOCKSTEP_[A-Z_]+)` \|", table, re.MULTILINE)) == of_shim - of_python


def test_what_to_do_is_said_of_every_sqlstate() -> None:
    code = sources("python/lockstep", "*.py") + sources("jvm-shim", "*.scala")
    raised = re.findall(r'(?<!default=)"([0-9A-Z]{2}[0-9P]\d{2})"', code)  # a setting's default may look like one
    rows = text_of("docs/errors.md").partition("## What to do")[2].splitlines()
    states = [row.split("|")[1] for row in rows if row.startswith("|")]
    said = set(re.findall(r"\b[0-9A-Z]{5}\b", " ".join(states)))
    assert set(raised) == said


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="<!-- rules -->"):
        render_docs.between("no marks", "rules", "new")
    assert render_docs.between("<!-- a -->\nold\n<!-- /a -->", "a", "new") == "<!-- a -->\nnew\n<!-- /a -->"


@pytest.mark.parametrize(
    ("mark", "heading"), [(conflicts.MARK, "## The conflict check"), (fairness.MARK, "## Fairness")]
)
def test_what_others_measured_survives_a_new_page_of_benchmarks(mark: str, heading: str) -> None:
    page = text_of("docs/benchmarks.md")
    assert heading in section(page, mark)
    assert section(page, mark) in page
    assert section(f"# Another page\n\n{sections(page)}\n", mark) == section(page, mark)
    assert section("# None", mark) == f"<!-- {mark} -->\n<!-- /{mark} -->"


def test_every_section_of_the_benchmarks_survives() -> None:
    page = text_of("docs/benchmarks.md")
    assert set(MARKS) == set(re.findall(r"<!-- /([\w-]+) -->", page))
    assert sections(page)
    with pytest.raises(ValueError, match=r"put comments around this.*### By hand"):
        sections(page.replace("<!-- turns -->", "### By hand\n\n<!-- turns -->"))


def test_a_section_of_the_benchmarks_replaces_itself_alone() -> None:
    page = with_section(with_section("# Page\n", "a", "one"), "b", "two")
    assert page == "# Page\n\n<!-- a -->\none\n<!-- /a -->\n\n<!-- b -->\ntwo\n<!-- /b -->\n"
    assert with_section(page, "a", "new") == page.replace("one", "new")


def an_entry() -> Entry:
    name = Name(namespace=("default",), table="t")
    return Entry(
        format=FORMAT,
        version=1,
        committed_at=NOW,
        kind="transaction",
        transaction=TransactionInfo(id="x", began_at=NOW, base_version=0, isolation="SNAPSHOT", statements=["INSERT"]),
        namespaces=[NamespaceDdl(action="create", name=("a", "b"))],
        tables=[TableDdl(action="create", id="i", name=name, location="t-i")],
        writes=[
            TableWrite(
                id="i",
                name=name,
                location="t-i",
                from_version=-1,
                to_version=0,
                commits=[Commit(inline=[msgspec.Raw(b'{"add":{}}')])],
            )
        ],
    )


def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(render_docs.schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def test_the_schema_takes_what_is_written() -> None:
    validator().validate(json.loads(msgspec.json.encode(an_entry())))


@pytest.mark.parametrize("change", [{"format": FORMAT + 1}, {"surprise": 1}, {"kind": "other"}, {"version": "1"}])
def test_the_schema_refuses_what_the_decoder_refuses(change: dict[str, object]) -> None:
    entry = {**json.loads(msgspec.json.encode(an_entry())), **change}
    assert not validator().is_valid(entry)


def test_the_example_of_an_entry_is_one() -> None:
    examples = [block.text for block in blocks(text_of("docs/timeline.md")) if block.language == "json"]
    assert examples
    for example in examples:
        validator().validate(json.loads(example))
        msgspec.json.decode(example, type=Entry)


def all_errors(kind: type[errors.LockstepError] = errors.LockstepError) -> list[type[errors.LockstepError]]:
    return [found for child in kind.__subclasses__() for found in (child, *all_errors(child))]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_what_to_do_is_said_of_every_error(kind: type[errors.LockstepError]) -> None:
    rows = [line for line in text_of("docs/errors.md").splitlines() if f"| `{kind.__name__}` |" in line]
    assert any(kind.default_sqlstate in row.split("|")[1] for row in rows)


def test_retryable_errors_are_named() -> None:
    retryable = sorted(kind.__name__ for kind in all_errors() if kind.retryable)
    sentence = re.search(r"`error.retryable` is true .*?: (.*?)\. ", text_of("docs/errors.md").replace("\n", " "))
    assert sentence
    assert sorted(re.findall(r"`(\w+)`", sentence[1])) == retryable


def test_every_command_has_its_line() -> None:
    for name in main.commands:
        assert f"| `lockstep {name}" in text_of("docs/command-line.md")


def test_every_public_name_is_in_the_page_of_the_python_api() -> None:
    shown = {name.rpartition(".")[2] for name in re.findall(r"^::: ([\w.]+)$", text_of("docs/api.md"), re.MULTILINE)}
    assert set(lockstep.__all__) - {"__version__", "errors"} <= shown  # errors have a page of their own


@pytest.mark.parametrize("page", PAGES)
def test_make_targets_exist(page: str) -> None:
    rules = re.findall(r"^([a-z][a-z0-9. -]*):", text_of("Makefile"), re.MULTILINE)
    known = {target for rule in rules for target in rule.split()}
    code = "\n".join([b.text for b in blocks(text_of(page))] + re.findall(r"`(make [^`]*)`", text_of(page)))
    assert set(re.findall(r"(?:^|[;&] *)make ([a-z][a-z0-9.-]*)", code, re.MULTILINE)) <= known


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text_of(page)):
        if "://" not in target:
            assert (REPOSITORY / page).parent.joinpath(target).exists(), f"{page} links to {target}"


SPEAKING_OF_CODE = [
    "CONTRIBUTING.md",
    "docs/design.md",
    *(path.relative_to(REPOSITORY).as_posix() for path in sorted((REPOSITORY / "python").rglob("*.py"))),
]
PACKAGES = ("commit", "conflict", "delta", "lake", "spark", "timeline", "transactions")
"""Of `lockstep`; the pages leave that out."""

OF_OTHERS = (
    r"spark\.(sql|table|catalog|conf|hadoop|jars|pyspark|lockstep)\b",  # Spark's settings and its session
    r"delta\.[a-z]+[A-Z]",  # Delta's properties of tables: no module has a capital letter
    r"lake\.bank\.",  # a catalog and a namespace, in examples
    r"lockstep\.(asked|viewed)$",  # the shim's marks of relations and views
)
"""Names that begin like ours and are not."""


def is_there(name: str) -> bool:
    """Tell whether a dotted name is a module of ours, something in one, a class of the shim, or a setting."""
    whole = name if name.startswith("lockstep.") else f"lockstep.{name}"
    if name in {setting.name for setting in settings.SETTINGS}:
        return True
    if list(REPOSITORY.glob(f"jvm-shim/src/main/*/{whole.replace('.', '/')}.scala")):
        return True
    try:
        pkgutil.resolve_name(whole)
    except (ImportError, AttributeError):
        return any(re.match(others, name) for others in OF_OTHERS)
    return True


def has_file(path: str) -> bool:
    """Tell whether a file is in the repository, by its path there or in its package or by its name, or is built."""
    if f'"{path}"' in text_of("build.sbt"):
        return True
    folders = ("", "python/lockstep/", "jvm-shim/", "jvm-shim/src/main/*/lockstep/spark/")
    if any(any(REPOSITORY.glob(folder + path)) for folder in folders):
        return True
    sources = (REPOSITORY / "python", REPOSITORY / "jvm-shim")
    return "/" not in path and any(any(folder.rglob(path)) for folder in sources)


@pytest.mark.parametrize("page", SPEAKING_OF_CODE)
def test_what_is_named_of_the_code_is_there(page: str) -> None:
    names = re.findall(rf"`((?:lockstep|{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+)(?:\([^`]*\))?`", text_of(page))
    # What ends like a file is looked for as one.
    assert not [name for name in names if not name.endswith((".py", ".scala")) and not is_there(name)]
    assert not [path for path in re.findall(r"`([\w/.+-]+\.(?:py|scala))`", text_of(page)) if not has_file(path)]


@pytest.mark.parametrize(
    "name", ["delta.predicates", "lockstep.lake.nosuch", "lockstep.retry.Nosuch", "lockstep.nosuch"]
)
def test_a_name_that_leads_nowhere_is_seen(name: str) -> None:
    assert not is_there(name)


@pytest.mark.parametrize("path", ["nosuch.py", "delta/append.py", "overlay/Nosuch.scala"])
def test_a_file_that_is_not_there_is_seen(path: str) -> None:
    assert not has_file(path)


@pytest.mark.parametrize("page", PAGES)
def test_pages_speak_of_the_project_alone(page: str) -> None:
    """No path of the machine that a page was written on, and no home of its author."""
    assert not re.search(r"(?<![\w/])/(root|home|work|tmp|Users)/", text_of(page))
