"""Every link of the documents leads somewhere: to a file of the project, and to a heading in it.

The pages of `tools/site` are made of docstrings as the site is built, which checks their links.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def test_every_link_leads_somewhere() -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", ":!tools/site"]
    pages = subprocess.run(listed, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.split()
    assert "README.md" in pages
    assert [(page, link) for page in pages for link in links(ROOT / page) if not leads(ROOT / page, link)] == []


def links(page: Path) -> list[str]:
    """A page's links into the project."""
    return [link for link in LINK.findall(CODE.sub("", page.read_text())) if not link.startswith(("http", "mailto:"))]


def leads(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in map(anchor_of, headings(target)))


def headings(page: Path) -> list[str]:
    return [line.lstrip("#").strip() for line in CODE.sub("", page.read_text()).splitlines() if line.startswith("#")]


def anchor_of(heading: str) -> str:
    """The anchor that a heading gets: its words in small letters with hyphens, without links and marks."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.lower())
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
