"""`docs/rules.md` defines each tag that code, tests and documents cite, and names tests that exist."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rules.md"
TAG = re.compile(r"(?<![\w%/.-])(R6b|[RWH][1-9]\d?)(?![\w.-])")
FOLDERS = ("plugin", "tracker", "snapshots", "dags", "bench", "tests", "docs")


def cited() -> dict[str, Path]:
    """By tag one file that cites it."""
    found: dict[str, Path] = {}
    for file in chain.from_iterable((ROOT / folder).rglob("*.*") for folder in FOLDERS):
        if file.suffix in (".py", ".java", ".md") and file != PAGE:
            found |= dict.fromkeys(TAG.findall(file.read_text(encoding="utf-8")), file)
    return found


def test_each_tag_that_is_cited_is_defined() -> None:
    defined = set(re.findall(r"^\| \*\*(R6b|[RWH]\d+)\*\* ", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert {"R6b", *(f"R{number}" for number in range(1, 20))} <= defined
    assert {tag: file for tag, file in cited().items() if tag not in defined} == {}


def test_each_rule_names_a_test_that_exists() -> None:
    rules = re.findall(r"^\| \*\*(R6b|R\d+)\*\* .* \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rules) == 25
    for tag, test in rules:
        (name, target) = re.fullmatch(r"(?:mutation )?\[`([\w-]+)`\]\((.*)\)", test).groups()  # type: ignore[union-attr]
        text = (PAGE.parent / target).read_text(encoding="utf-8")
        assert Path(target).stem == name or f'"{name}", "{tag}' in text or f'{tag}"' in text, (tag, test)
