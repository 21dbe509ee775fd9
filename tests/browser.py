"""A headless Chromium, for the tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
WIDTHS = (390, 768, 1440)
HEIGHT = 900
NO_BROWSER = "there is no Chromium here, install it with `make chromium`"


@contextmanager
def chromium() -> Iterator[Any]:
    """Start the browser; where there is none, the tests that want it are left out, and the end of the run says so."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip(NO_BROWSER)
    with sync_api.sync_playwright() as playwright:
        # It may run as root, where Chromium's sandbox does not work.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def looks(tab: Any) -> Iterator[tuple[int, str]]:
    """See a tab at three widths, light and dark; yields width and theme."""
    for theme in ("light", "dark"):
        tab.emulate_media(color_scheme=theme)
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": HEIGHT})
            tab.wait_for_function("() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
            yield width, theme


def shoot(tab: Any, name: str, *, whole: bool = False) -> None:
    """Keep a picture of what is seen, if `LOWTIDE_SHOTS` names a folder."""
    folder = os.environ.get("LOWTIDE_SHOTS")
    if folder:
        tab.wait_for_timeout(500)
        tab.screenshot(path=Path(folder) / f"{name}.png", full_page=whole)
