"""The first word of every docstring outside tests: a verb or a noun, not a question word."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("bench", "dags", "examples", "infra", "plugin/lowtide", "snapshots", "tools", "tracker")
QUESTION_WORDS = {"How", "What", "Whatever", "When", "Where", "Whether", "Which", "Who", "Whoever", "Whose", "Why"}


def sources(folder: str) -> list[Path]:
    """Python files of a folder, without its tests."""
    return [path for path in sorted((ROOT / folder).rglob("*.py")) if "tests" not in path.relative_to(ROOT).parts]


def questions(path: Path) -> list[str]:
    """Docstrings of a file that begin with a question word, each as "FILE:LINE: first line"."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and text.split()[0].rstrip(",:;") in QUESTION_WORDS:
                line = 1 if isinstance(node, ast.Module) else node.lineno
                found.append(f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}")
    return found


def test_no_docstring_begins_with_a_question_word() -> None:
    files = [path for folder in FOLDERS for path in sources(folder)]
    assert files
    assert [line for path in files for line in questions(path)] == []
