"""Deaths of workers: reports of the fork servers, matched with connections that close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

REPORT_WAIT_S = 0.3
"""The time for which a lost connection waits for the fork server's report of how its worker died."""


class Deaths:
    """The deaths of one life's workers; belongs to the service's event loop."""

    def __init__(self) -> None:
        self._how: dict[str, str] = {}
        self._looks: list[asyncio.TimerHandle] = []

    def reported(self, workers: Iterable[str], how: str) -> None:
        """Take a fork server's report of how the process of these workers died."""
        self._how.update(dict.fromkeys(workers, how))

    def how(self, worker: str) -> str:
        """Return how a worker died; empty if unknown."""
        return self._how.get(worker, "")

    def look_soon(self, look: Callable[[], None]) -> None:
        """Look in a moment, after the worker's last message and the report of its death."""
        now = asyncio.get_running_loop()
        self._looks = [each for each in self._looks if each.when() > now.time()]
        self._looks.append(now.call_later(REPORT_WAIT_S, look))

    def close(self) -> None:
        """Stop looking: a life that is over has nothing to lose."""
        for each in self._looks:
            each.cancel()
