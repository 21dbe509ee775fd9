"""Waits for what somebody else does."""

from __future__ import annotations

import time
from collections.abc import Callable

HANGS_S = 400.0
"""Seconds after which something hangs, as in `hanging`, which processes of a job do not find."""


def wait_until(true: Callable[[], object], within_s: float, what: str) -> None:
    """Ask until it is true; a failure says what it was."""
    deadline = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(0.1)
