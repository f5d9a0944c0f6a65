"""The list of settings is whole: what sources read is in it, and what is in it is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep import settings
from lockstep.conflict.lock_policy import FIRST_COMMITTER_WINS, Resolution
from lockstep.errors import InvalidError
from lockstep.retry import RACE, race_backoff
from lockstep.settings import SETTINGS, Setting
from lockstep.spark.configuration import conf
from tests.unit.test_rendered_docs import PAGES, text_of

REPOSITORY = Path(__file__).parents[2]
PYTHON = {
    path: path.read_text(encoding="utf-8")
    for path in (REPOSITORY / "python").rglob("*.py")
    if path.name not in ("settings.py", "defaults.py")  # the last reads variables of Spark's and of Java's
}
SCALA = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "jvm-shim").rglob("*.scala"))
NAMES = {setting.name for setting in SETTINGS}
OF_CATALOG = {setting.name for setting in settings.at("catalog")}
CONSTANTS = {name: value for name, value in vars(settings).items() if isinstance(value, Setting)}

NO_SETTINGS = {
    "analyzed",
    "apart",
    "procedure_times",
    "table",
    "touch",
    "asked",
    "statement",
    "text",
    "transaction",
    "viewed",
    "as_of",
    "procedure_table",
    "procedure_catalog",
    "timed",
}
"""What Scala keeps under `lockstep.<name>` for itself: marks of relations and views, local properties of threads."""

PAST_THE_LIST = (
    r"os\.environ(?!\.get\([A-Za-z_0-9]+\.name\))",
    r"getenv",
    r"\boptions(\.get\(|\[)",
    r"conf\.get\(\s*f?\"",
    r"\"(spark|fs)\.[a-z.]*lockstep\.(?![A-Z])[\w.]+\"",
)
"""How Python would read a setting whose name does not come from the list."""


def read_by_python(constant: str) -> bool:
    read = (
        rf"\b{constant}\.(value_in|name|of|key|default)\b|\b(_?seconds|_whole_number|flag|isolation_of)\({constant}, "
    )
    return any(re.search(read, text) for text in PYTHON.values())


def of_session_in_scala() -> set[str]:
    """Return what the shim itself reads of a session; all that a session sets it hands on, for Python to read."""
    assert 's"lockstep.$' not in SCALA, "a name is put together"
    return set(re.findall(r'"lockstep\.([a-z_]+)"', SCALA)) - NO_SETTINGS


def of_driver_and_environment_in_scala() -> set[str]:
    assert "System.getenv" not in SCALA
    variables = re.findall(r'sys\.env(?:\.get)?\(\s*"(\w+)"', SCALA)
    assert len(variables) == SCALA.count("sys.env"), "a variable is read in another way"
    return {*variables, *re.findall(r'"(spark\.lockstep\.[\w.]+)"', SCALA)}


def test_there_are_all_settings_and_none_twice() -> None:
    assert set(CONSTANTS.values()) == set(SETTINGS)
    assert len(SETTINGS) == len({(setting.place, setting.name) for setting in SETTINGS})


@pytest.mark.parametrize("constant", CONSTANTS)
def test_each_setting_is_read(constant: str) -> None:
    setting = CONSTANTS[constant]
    in_scala = of_session_in_scala() if setting.place == "session" else of_driver_and_environment_in_scala()
    read = read_by_python(constant) or setting.key in in_scala
    assert read or f'"{setting.name.removesuffix("<catalog>")}"' in SCALA


def test_scala_reads_no_setting_that_is_not_listed() -> None:
    assert of_session_in_scala() <= {setting.key for setting in settings.at("session")}
    assert of_driver_and_environment_in_scala() <= NAMES


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.relative_to(REPOSITORY / "python").as_posix())
def test_python_reads_settings_by_the_list_alone(path: Path) -> None:
    for pattern in PAST_THE_LIST:
        assert not re.search(pattern, PYTHON[path]), f"{pattern}: take the name from lockstep.settings"


@pytest.mark.parametrize(
    "text",
    [
        'os.environ["LOCKSTEP_NEW"]',
        'os.environ.get("LOCKSTEP_NEW")',
        'os.getenv("LOCKSTEP_NEW")',
        'options.get("new-option")',
        'options["new-option"]',
        'spark.conf.get("lockstep.new")',
        '"spark.lockstep.new"',
    ],
)
def test_a_read_past_the_list_is_seen(text: str) -> None:
    assert any(re.search(pattern, text) for pattern in PAST_THE_LIST)


@pytest.mark.parametrize("name", ["spark_catalog", "Spark_Catalog", "a b", ""])
def test_a_lake_has_no_catalog_that_is_none_or_sparks_own(name: str) -> None:
    with pytest.raises(InvalidError, match="cannot be"):
        conf(root="/lake", catalog=name, jars=False)


def test_what_conf_sets_is_listed() -> None:
    made = conf(root="/lake", catalog="lake", options={"region": "x"}, jars=False)
    known = {settings.STORE.of("lake").replace("*", "region"), "spark.sql.catalog.lake"}
    known |= NAMES | {setting.of("lake") for setting in settings.at("catalog")}
    assert set(made) <= known
    for setting in settings.at("driver"):
        if setting.default is not None:
            assert made[setting.name] == setting.default


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_setting_says_what_happens_without_it(setting: Setting) -> None:
    assert setting.default is None or not setting.otherwise
    assert (setting.kind == "choice") == bool(setting.choices)
    assert setting.default is None or not setting.choices or setting.default in setting.choices


def test_the_defaults_are_those_of_the_code() -> None:
    assert Resolution.of({}) == FIRST_COMMITTER_WINS
    assert race_backoff({}) == RACE
    in_scala = re.findall(r"getOption\(name\)\.fold\((\w+)\)", SCALA)  # Scala cannot ask the list
    assert in_scala == [settings.DRIVER_STATE_FILES.default]


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_no_other_setting(page: str) -> None:
    text = text_of(page)
    of_session = set(re.findall(r"(?:\bSET\s|hiveconf:)\s*(lockstep\.\w+)|`(lockstep\.\w+) = ", text))
    assert {name for names in of_session for name in names if name} <= NAMES
    assert set(re.findall(r"spark\.sql\.catalog\.(?:lake|<name>|<catalog>)\.([a-z-]+)", text)) <= OF_CATALOG | {
        "store",
        "locations",
    }
