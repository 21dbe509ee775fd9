"""What takes the place of `time.sleep` in the thread of a test alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def sleep_is(monkeypatch: pytest.MonkeyPatch, does: Callable[[float], None]) -> None:
    """Call `does` instead of `time.sleep` in this thread; others, which an earlier test may have left, sleep on."""
    here, before = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        (does if threading.get_ident() == here else before)(seconds)

    monkeypatch.setattr(time, "sleep", sleep)


def not_at_all(_: float) -> None:
    """Do not sleep."""
