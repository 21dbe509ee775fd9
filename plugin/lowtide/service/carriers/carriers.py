"""The carriers of one life, and what they have made visible (R21)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from lowtide.assignment.setting import LifeSetting
from lowtide.events import EventLog
from lowtide.service.carriers.process import CarrierProcess
from lowtide.status.moment import StagedMoment


class Carriers:
    """Runs a process for each staged sink; belongs to one event loop.

    Args:
        setting: The life's setting.
        events: Receives what happens to them.
        moved: Called when more has become visible.
    """

    def __init__(
        self,
        setting: LifeSetting,
        *,
        events: EventLog,
        moved: Callable[[], None],
    ) -> None:
        self._slack_ms = setting.shape.slack_ms
        self._limit_bytes = setting.max_staged_bytes
        self._events = events
        self._all = [CarrierProcess(each, setting.kafka, events, moved) for each in setting.staged]
        self._behind = ""
        """The sink because of which no source is read."""
        self._since = ""

    def start(self) -> None:
        """Start them, in the background: their logs may hold records of lives before."""
        for each in self._all:
            each.start()

    async def drain(self, limit_s: float) -> list[str]:
        """Make visible what was delivered, as far as it can be; return the sinks for which that took too long."""
        done = await asyncio.gather(*(each.drain(limit_s) for each in self._all))
        return [each.sink for each, whole in zip(self._all, done, strict=True) if not whole]

    async def close(self) -> None:
        """End them."""
        await asyncio.gather(*(each.close() for each in self._all))

    def visible(self, delivered: int | None) -> int | None:
        """Return the tick below which all that was delivered is visible; None while unknown.

        Args:
            delivered: The tick below which all is durable; None while unknown.
        """
        found = delivered
        for each in self._all:
            visible = each.visible(self._slack_ms)
            if found is None or visible is None:
                return None
            found = min(found, visible)
        return found

    def behind(self) -> bool:
        """Return whether a store is so far behind that no source is to be read (R24); call it each second.

        What its carrier has read does not count, visible or not: it may wait for log time, which the sources bring.
        """
        far = [each.sink for each in self._all if each.backlog.unread_bytes > self._limit_bytes]
        if bool(far) != bool(self._behind):
            sink, self._behind = (far or [self._behind])[0], "".join(far[:1])
            self._since = f"since {datetime.now(UTC):%H:%M:%S} UTC"
            self._events.event("sources_rest" if far else "sources_read", sink=sink)
        return bool(far)

    @property
    def troubles(self) -> list[str]:
        """Return which of them do not carry, and why; and because of which no source is read."""
        found = [each.trouble for each in self._all if each.trouble]
        if self._behind:
            found.append(
                f"{self._since}: no source is read, as more than {self._limit_bytes} bytes (job.max_staged_bytes) wait "
                f"for the store of sink {self._behind}"
            )
        return found

    def moment(self) -> dict[str, StagedMoment]:
        """Return by sink what there is to show of its carrier."""
        return {
            each.sink: StagedMoment(
                visible_ms=each.visible_ms,
                records=each.backlog.records,
                bytes=each.backlog.bytes,
                restarts=each.restarts,
                pid=each.pid,
                counts=each.counts,
                trouble=each.trouble,
                way_out=each.way_out,
            )
            for each in self._all
        }
