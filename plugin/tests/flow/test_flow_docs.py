"""The examples of docs/flows.md, run as the one file that they are."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

DOCUMENT = Path(__file__).parents[3] / "docs" / "flows.md"


def test_every_example_of_the_documentation_does_what_it_says() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(examples) > 6
    module = ModuleType("documented_flows")
    sys.modules[module.__name__] = module  # Annotations are looked up where a function was made.
    try:
        for example in examples:
            exec(compile(example, str(DOCUMENT), "exec"), vars(module))
    finally:
        del sys.modules[module.__name__]
