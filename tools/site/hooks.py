"""The repository's documents as pages of the site, unchanged, links included.

A page is a document of the navigation or of `docs/`, or something one of them links to: an image, another document, or
a source file, which is shown as text. Each has its path in the repository, so links work here as on a git host, and a
dead link fails the strict build.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
IMAGES = (".png", ".svg")
LANGUAGES = {"py": "python", "yml": "yaml"}
"""Language by ending, where Pygments uses another name."""
LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")
ELSEWHERE = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="((?:https?:)?//[^"]*)"')
log = get_plugin_logger(__name__)


class Source(File):  # type: ignore[misc]  # mkdocs is not installed where types are checked
    """A file of the repository that is not a document, as a page."""

    def is_documentation_page(self) -> bool:
        """Have it rendered."""
        return True


class Examples(griffe.Extension):  # type: ignore[misc]  # likewise griffe
    """Reads the section `Example:` of a docstring as griffe reads `Examples:`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)


def on_config(config: MkDocsConfig) -> None:
    """Write out the navigation's folders."""
    named = set(paths_in(config.nav))
    config.nav = [each for entry in config.nav for each in written_out(entry, named)]


def written_out(entry: Any, named: set[str]) -> list[Any]:
    """Return an entry of the navigation, with `folder/*` replaced by its documents that are not named elsewhere."""
    if isinstance(entry, dict):
        ((title, below),) = entry.items()
        if isinstance(below, list):
            return [{title: [each for inner in below for each in written_out(inner, named)]}]
    elif entry.endswith("/*"):
        found = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(f"{entry}.md"))
        return [path for path in found if path not in named]
    return [entry]


def paths_in(nav: Any) -> Iterator[str]:
    """Yield the paths of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for below in nav.values() if isinstance(nav, dict) else nav:
            yield from paths_in(below)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents, and the files they link to."""
    own = {file.src_uri for file in files}
    documents = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")]
    waiting = list(dict.fromkeys(path for path in (*paths_in(config.nav), *documents) if path not in own))
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not (ROOT / path).is_file():
            continue  # MkDocs reports the page with the link.
        files.append(page_of(path, config))
        if path.endswith(".md"):
            for link in LINK.findall((ROOT / path).read_text(encoding="utf-8")):
                target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
    return files


def page_of(path: str, config: MkDocsConfig) -> File:
    """Make a page of a file; those of `docs/` are at the top."""
    if path.endswith((".md", *IMAGES)):
        file = File.generated(config, path, abs_src_path=str(ROOT / path))
    else:
        ending = path.rpartition(".")[2]
        code = f"````{LANGUAGES.get(ending, ending)}\n{(ROOT / path).read_text(encoding='utf-8')}````\n"
        content = f"---\ntitle: {path}\nsearch: {{exclude: true}}\n---\n# {path}\n\n{code}"
        file = Source.generated(config, path, content=content, inclusion=InclusionLevel.NOT_IN_NAV)
        file.dest_uri = f"{path}.html"
    file.dest_uri = file.dest_uri.removeprefix("docs/")
    return file


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Give the first page, which stands alone, the whole width; write lists as Python-Markdown reads them."""
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    return "\n".join(with_lists(markdown.split("\n")))


def with_lists(lines: list[str]) -> Iterator[str]:
    """Put a blank line before each list, and indent the content of entries by four: a git host needs neither."""
    width, loose, before, code = 0, False, "", False
    for line in lines:
        code ^= line.startswith("```")
        entry = None if code else re.match(r"(?:\d+\.|-) ", line)
        if entry:
            if before and (loose or not width):
                yield ""
            width = entry.end()
        elif line and not line.startswith(" " * width):
            width = 0
        loose = bool(width) and (loose or not line)
        yield line if entry or not line or not width else " " * (4 - width) + line
        before = line


def on_post_page(output: str, page: Page, **_: Any) -> str:
    """Warn of a page that loads something from another host."""
    for url in ELSEWHERE.findall(output):
        log.warning(f"{page.file.src_uri} loads {url}")
    return output
