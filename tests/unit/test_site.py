"""The documentation as a site: links lead where they lead in the repository, and a build ends at those that do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project import site_hooks

REPOSITORY = Path(__file__).parents[2]
SOURCES = ("docs", "project", "python", "sql", "tests", "mkdocs.yml", *site_hooks.OUTSIDE)


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


@pytest.mark.slow
def test_the_site_builds_and_fetches_nothing(tmp_path: Path) -> None:
    done = build(REPOSITORY, tmp_path)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "fonts.googleapis.com" not in text
        assert 'src="http' not in text


@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "isolation.md#nowhere", "../python/lockstep/nowhere.py"])
def test_a_link_that_leads_nowhere_ends_the_build(link: str, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in SOURCES:
        if (source := REPOSITORY / name).is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.jar", "__pycache__", "target"))
        else:
            shutil.copy(source, folder / name)
    with (folder / "docs" / "guarantees.md").open("a", encoding="utf-8") as page:
        page.write(f"\n[a link]({link})\n")
    done = build(folder, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere" in done.stderr
