import doctest
import importlib

import pytest


@pytest.mark.parametrize("module", ["tracker", "graph"])
def test_the_examples_of_docstrings_hold(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"lowtide_tracker.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
