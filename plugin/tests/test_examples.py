"""Everything public has an example in its docstring, which does what it shows."""

from __future__ import annotations

import doctest
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import lowtide as lt

PAGE = Path(__file__).parents[2] / "tools/site/pages/api/index.md"
"""It shows the file that all examples stand in."""
MODULE = "examples_of_docstrings"


def documented(holder: object, names: list[str], prefix: str) -> Iterator[tuple[str, str]]:
    """Each function, class and method, with its docstring; errors need no example."""
    for name in names:
        each = getattr(holder, name)
        if inspect.isclass(each):
            if issubclass(each, Exception):
                continue
            fields = getattr(each, "__dataclass_fields__", {})
            methods = [
                own for own, kept in vars(each).items() if is_method(kept) and own[0] != "_" and own not in fields
            ]
            yield from documented(each, methods, f"{prefix}{name}.")
        if callable(each) or isinstance(each, property):
            yield prefix + name, each.__doc__ or ""


def is_method(kept: object) -> bool:
    return inspect.isfunction(kept) or isinstance(kept, property | classmethod | staticmethod)


DOCUMENTED = dict([*documented(lt, lt.__all__, ""), *documented(lt.agg, lt.agg.__all__, "agg.")])


def beginning(example: str) -> str:
    """The lines that stand before an example: a source that it does not name would end nowhere."""
    (lines,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)

    def needed(line: str) -> bool:
        name, _, made = line.partition(" = ")
        return not made.startswith("flow.read(") or re.search(rf"\b{name}\b", example) is not None

    return "\n".join(filter(needed, lines.splitlines()))


@pytest.mark.parametrize("name", DOCUMENTED)
def test_each_public_name_has_an_example_that_does_what_it_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = inspect.cleandoc(DOCUMENTED[name])
    assert re.search(r"^Example:\n    >>> ", text, re.MULTILINE), f"{name} has no example in its docstring"
    module = ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    exec(beginning(text), vars(module))
    said: list[str] = []
    test = doctest.DocTestParser().get_doctest(text, vars(module), name, None, 0)
    doctest.DocTestRunner().run(test, out=said.append, clear_globs=False)
    assert not said, "".join(said)


def test_what_is_public_is_found() -> None:
    assert {"Flow.read", "KeyedStream.join", "Windowed.late", "agg.sum", "Key", "subscribe"} <= DOCUMENTED.keys()
    assert "FlowError" not in DOCUMENTED
