"""The page's files: those that it names are there, and nothing else of the folder is given away."""

from __future__ import annotations

import re

import pytest

from lowtide_snapshots.page.files import FOLDER, page_file, page_headers


def text(name: str = "") -> str:
    file = page_file(name)
    assert file is not None
    return file.body.decode()


def test_every_file_that_the_page_and_its_scripts_name_is_there() -> None:
    named = set(re.findall(r'(?:src|href)="static/([^"]+)"', text()))
    assert {"page.css", "page.js", "icon.svg"} <= named
    left = list(named)
    while left:
        for other in re.findall(r'from "\./([^"]+)"', text(left.pop())):
            if other not in named:
                named.add(other)
                left.append(other)
    assert named == {path.name for path in FOLDER.iterdir()} - {"page.html"}


def test_nothing_is_loaded_from_elsewhere() -> None:
    addresses = {found for path in FOLDER.iterdir() for found in re.findall(r"https?://[^\s\"'`]+", path.read_text())}
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of SVG, from which nothing is loaded"
    assert page_headers()["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; ")


def test_the_policy_lets_all_of_the_page_work() -> None:
    """No markup has a style or a handler of its own, which the policy would leave out without a word."""
    for path in FOLDER.glob("*.html"):
        assert not re.search(r"\son\w+=|\sstyle=|<style|<script>", path.read_text())
    for path in FOLDER.glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", path.read_text())


@pytest.mark.parametrize("name", ["page.html", "../files.py", "..%2ffiles.py", "files.py", "none.js", "page.js/", "/"])
def test_nothing_else_is_a_file_of_the_page(name: str) -> None:
    assert page_file(name) is None


@pytest.mark.parametrize(
    ("name", "kind"), [("", "text/html"), ("page.js", "text/javascript"), ("icon.svg", "image/svg+xml")]
)
def test_a_file_has_its_type(name: str, kind: str) -> None:
    file = page_file(name)
    assert file is not None
    assert file.content_type == f"{kind}; charset=utf-8"
