"""The documentation as a site: links lead where they lead in the repository, and a build ends at those that do not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project import site_hooks

pytestmark = pytest.mark.long

REPOSITORY = Path(__file__).parents[2]
SOURCES = ("docs", "project", "python", "sql", "tests", "mkdocs.yml", "LICENSE", *site_hooks.OUTSIDE)


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("page", "link", "place"),
    [
        ("README.md", "docs/isolation.md#the-rules", "isolation.md#the-rules"),
        ("README.md", "docs/images/architecture.svg", "images/architecture.svg"),
        ("README.md", "LICENSE", "source/LICENSE.md"),
        ("docs/design.md", "timeline.md", "timeline.md"),
        ("docs/design.md", "../python/lockstep/retry.py", "source/python/lockstep/retry.py.md"),
        ("docs/hosts.md", "../sql/dbt/README.md", "sql/dbt.md"),
        ("sql/dbt/README.md", "../../docs/hosts.md#settings", "../hosts.md#settings"),
        ("sql/grammar.md", "../docs/hosts.md", "../hosts.md"),
        ("docs/design.md", "https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_links_are_rewritten_for_the_site(page: str, link: str, place: str) -> None:
    assert site_hooks.rewritten(f"see [it]({link}), now", page) == f"see [it]({place}), now"


def test_links_within_a_page_stay() -> None:
    assert site_hooks.rewritten("[up](#errors)", "docs/errors.md") == "[up](#errors)"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the pages of the site, built once, by their folders."""
    site = tmp_path_factory.mktemp("site")
    done = build(REPOSITORY, site)
    assert done.returncode == 0, done.stderr
    found = {path.parent.relative_to(site).as_posix(): path for path in site.rglob("index.html")}
    return {name: path.read_text(encoding="utf-8") for name, path in found.items()}


@pytest.mark.slow
def test_a_reader_of_the_site_fetches_nothing_from_elsewhere(pages: dict[str, str]) -> None:
    assert {".", "sql/dbt", "settings", "source/python/lockstep/retry.py"} <= set(pages)
    for name, text in pages.items():
        assert not re.search(r'src="http|fonts\.googleapis\.com|<link[^>]*stylesheet[^>]*http', text), name


@pytest.mark.slow
def test_pages_show_no_markdown(pages: dict[str, str]) -> None:
    """What GitHub takes for a list or a table, and Python's Markdown does not, is text on the page of the site."""
    for name, text in pages.items():
        if not name.startswith("source/"):
            prose = re.sub(r"<(script|style|pre|code)\b.*?</\1>", "", text, flags=re.DOTALL)
            shown = re.sub(r"<[^>]+>", "", prose)
            assert not re.findall(r"^\s*(?:- \S.*|\|.*\|\s*|.*```.*|.*\]\(.*)$", shown, re.MULTILINE), name


@pytest.mark.slow
def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in SOURCES:
        if (source := REPOSITORY / name).is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.jar", "__pycache__", "target"))
        else:
            shutil.copy(source, folder / name)
    wrong = ["nowhere.md", "isolation.md#nowhere", "#nowhere", "../python/lockstep/nowhere.py"]
    with (folder / "docs" / "guarantees.md").open("a", encoding="utf-8") as page:
        page.writelines(f"\n[a link]({link})\n" for link in wrong)
    done = build(folder, tmp_path / "site")
    assert done.returncode != 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == len(wrong), done.stderr
    assert all("nowhere" in line for line in warnings), done.stderr
