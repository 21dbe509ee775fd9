"""The API reference has an entry for each public name."""

from __future__ import annotations

import re
from pathlib import Path

import lowtide
import lowtide.testing

PAGES = Path(__file__).parents[2] / "tools" / "site" / "pages" / "api"


def test_the_reference_has_each_public_name_once() -> None:
    public = {f"lowtide.{name}" for name in lowtide.__all__ if name != "__version__"}
    public |= {f"lowtide.agg.{name}" for name in lowtide.agg.__all__ if name not in lowtide.__all__}
    public |= {f"lowtide.testing.{name}" for name in lowtide.testing.__all__}
    pages = [page.read_text(encoding="utf-8") for page in PAGES.glob("*.md")]
    assert sorted(name for page in pages for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)) == sorted(public)
