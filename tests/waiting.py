"""Waits for what somebody else does."""

from __future__ import annotations

import time
from collections.abc import Callable

HANGS_S = 400.0
"""Seconds after which something hangs, as in `hanging`, which processes of a job do not find."""
LEAST_S, MOST_S = 0.1, 1.0
DEARER = 3.0
"""A pause takes so many times what the question took, within those bounds."""


def wait_until(true: Callable[[], object], within_s: float, what: str) -> None:
    """Ask until it is true; a failure says what it was."""
    deadline = time.monotonic() + within_s
    asked = Asked()
    while not true():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        asked.pause()


class Asked:
    """Pauses between questions: the longer one takes, the rarer it is asked, as the answer's makers need the CPU."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def pause(self) -> None:
        """Wait after a question."""
        time.sleep(min(MOST_S, max(LEAST_S, DEARER * (time.monotonic() - self._since))))
        self._since = time.monotonic()
