"""One life with all that shows it, started and ended together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lowtide.assignment.setting import LifeSetting
from lowtide.events import EventLog
from lowtide.service.life import Life
from lowtide.service.showing import Showing
from lowtide.service.workers.register import Register

__all__ = ["Running"]


class Running:
    """A life, its events and its control API.

    Args:
        setting: What the driver program said.
        secret: The job's.
        host: Where the tracker listens.
        register: The life's workers.
        on_end: Called with the cause when the life cannot go on.
        tell_worker: Sends a message to a worker, by name.

    Raises:
        ConfError: the control API's certificate cannot be used.
    """

    def __init__(
        self,
        setting: LifeSetting,
        *,
        secret: bytes,
        host: str,
        register: Register,
        on_end: Callable[[str], None],
        tell_worker: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self.register = register
        self.events = EventLog(setting.job, setting.incarnation)
        self.life = Life(
            setting,
            secret=secret,
            host=host,
            register=register,
            events=self.events,
            on_end=on_end,
            tell_worker=tell_worker,
        )
        self._showing = Showing(self.life, self.events, register)

    async def start(self) -> dict[str, str]:
        """Start all of it.

        Returns:
            Of the control API: `control`, where it listens (`host:port`), and `certificate`, what it shows (PEM).

        Raises:
            LowtideError, SnapshotsError, OSError: what could not be started; nothing is left running.
        """
        try:
            await self.life.start()
            await self._showing.start()
        except BaseException:
            await self.close()
            raise
        self.events.event("life_begun", fronts=len(self.life.fronts.known))
        return {"control": self._showing.address, "certificate": self._showing.certificate}

    async def close(self) -> None:
        """End all of it."""
        await self._showing.close()
        await self.life.close()

    def look(self, workers: Sequence[Mapping[str, Any]]) -> None:
        """Look after the life, and make its view anew; to be called each second."""
        if self.register.runs:
            self.life.look(workers)
        self._showing.look(workers)

    async def current(self, incarnation: int, worker: str) -> str:
        """Return why a life is not the job's newest; empty if it is (W10)."""
        if incarnation != self.register.incarnation or self.register.cause:
            return self.register.cause or f"incarnation {incarnation} is over"
        return await self.life.current(worker)
