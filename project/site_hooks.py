"""What MkDocs is told beside mkdocs.yml: pages link to each other, and to sources, as they do in the repository.

Pages that lie outside of docs/ become pages of the site (`OUTSIDE`), and so does each source or folder to which a page
links, under source/. Links are rewritten to lead there, so that MkDocs itself finds those that lead nowhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[1]

OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-bugs.md",
    "sql/dbt/README.md": "sql/dbt.md",
    "sql/demo/README.md": "sql/demo.md",
    "sql/grammar.md": "sql/grammar.md",
    "tests/README.md": "tests.md",
}
"""Where pages that lie outside of docs/ are in the site."""

LANGUAGES = {".py": "python", ".scala": "scala", ".test": "sql", ".yml": "yaml"}

_LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?P<after>\))")


def place_of(path: str) -> str:
    """Return where a file of the repository is in the site."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def path_of(place: str) -> str:
    """Return which file of the repository a page of the site is."""
    outside = {site: path for path, site in OUTSIDE.items()}
    return outside.get(place, f"docs/{place}")


def targets(text: str, path: str) -> Iterator[str]:
    """Yield the files and folders of the repository that a page links to, whether they are there or not."""
    for link in _LINK.finditer(text):
        if "://" not in link["target"]:
            yield posixpath.normpath(posixpath.join(posixpath.dirname(path), link["target"]))


def rewritten(text: str, path: str) -> str:
    """Return a page with its links as the site has them."""

    def site_link(link: re.Match[str]) -> str:
        if "://" in link["target"]:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link["target"]))
        place = posixpath.relpath(place_of(target), posixpath.dirname(place_of(path)) or ".")
        return f"{link['before']}{place}{link['anchor'] or ''}{link['after']}"

    return _LINK.sub(site_link, text)


def source_page(path: str) -> str:
    """Return a page that shows a source, or what is in a folder."""
    found = REPOSITORY / path
    if found.is_dir():
        names = sorted(each.name for each in found.iterdir() if not each.name.startswith((".", "__")))
        return f"# {path}/\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
    fence = "`" * 6  # longer than any in a source
    return f"# {path}\n\n{fence}{LANGUAGES.get(found.suffix, 'text')}\n{found.read_text(encoding='utf-8')}\n{fence}\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside of docs/, and those that show sources."""
    for path, place in OUTSIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(REPOSITORY / path)))
    wanted = {
        target
        for file in files.documentation_pages()
        for target in targets(file.content_string, path_of(file.src_uri))
        if place_of(target).startswith("source/") and (REPOSITORY / target).exists()
    }
    for target in sorted(wanted):
        files.append(File.generated(config, place_of(target), content=source_page(target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite the links of a page that is in the repository."""
    if page.file.src_uri.startswith("source/"):
        return markdown
    return rewritten(markdown, path_of(page.file.src_uri))
