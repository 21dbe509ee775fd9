"""Tests change no clock that other threads of their process use: one of those takes what was meant for the test."""

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
TESTS = [path for folder in (HERE / "tests", *HERE.glob("*/tests")) for path in folder.rglob("*.py")]
OF_ALL_THREADS = {"time.sleep", "time.time", "time.monotonic", "time.perf_counter"}
ALLOWED = {HERE / "plugin/tests/support/own_sleep.py"}


def changed(source: str) -> set[str]:
    """Find what a test sets anew, by the name that it has in its module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            match node.args:
                case [ast.Name(module), ast.Constant(str() as name), _]:
                    found.add(f"{module}.{name}")
                case [ast.Constant(str() as name), _]:
                    found.add(name)
    return found


def test_no_test_changes_a_clock_that_all_threads_read() -> None:
    assert len(TESTS) > 300
    wrong = [path for path in TESTS if changed(path.read_text()) & OF_ALL_THREADS and path not in ALLOWED]
    assert not wrong, "sleep_is() of own_sleep.py changes it in one thread"


@pytest.mark.parametrize("line", ['monkeypatch.setattr(time, "sleep", look)', 'patch.setattr("time.sleep", look)'])
def test_a_clock_that_is_changed_is_found(line: str) -> None:
    assert changed(line) == {"time.sleep"}
