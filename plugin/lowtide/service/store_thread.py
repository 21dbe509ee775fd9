"""A job's place in ZooKeeper, used from the event loop: one call at a time, in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from lowtide.events import EventLog
from lowtide_snapshots.errors import ZooKeeperUnavailable
from lowtide_snapshots.job.store import JobStore


class StoreThread:
    """Calls a job's place in ZooKeeper; a slow call holds up only the other calls of this thread.

    Args:
        store: The place; not yet open.
        events: Receives when ZooKeeper is away and back; None if something else reports that.

    Attributes:
        store: The place.
        away: The time since which ZooKeeper has not answered, and why; empty while it does.
    """

    def __init__(self, store: JobStore, events: EventLog | None = None) -> None:
        self.store = store
        self.away = ""
        self._events = events
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Connect (errors: ZooKeeperUnavailable)."""
        await asyncio.to_thread(self.store.open)

    async def close(self) -> None:
        """End the session."""
        await asyncio.to_thread(self.store.close)

    async def ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call something that uses the place; its errors are those of the call."""
        async with self._turn:
            try:
                answer = await asyncio.to_thread(call, *arguments)
            except ZooKeeperUnavailable as error:
                if not self.away:
                    self._log("zookeeper_lost", why=str(error))
                    self.away = f"since {datetime.now(UTC):%H:%M:%S} UTC: {error.what}"
                raise
            if self.away:
                self._log("zookeeper_back")
            self.away = ""
            return answer

    def _log(self, event: Any, **fields: Any) -> None:
        if self._events is not None:
            self._events.event(event, **fields)
