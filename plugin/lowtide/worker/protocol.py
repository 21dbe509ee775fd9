"""The protocols of hosts and stages, as the loop drives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from lowtide.assignment.messages import WorkerNews, WorkerOrder
from lowtide.status.gauges import WorkerGauges

Frames = Iterable[tuple[int, bytes]]
"""Frames for workers of the next level: `(target partition, bytes)`."""
Emitted = Sequence[tuple[str, Frames]]
"""By worker, the frames to send; a worker without any that may have room again is listed too."""
Reported = tuple[str, WorkerNews]
"""A worker and its report to the service."""


class Stage(Protocol):
    """The part of a worker that handles its input: `worker/stage.py`. Times in ns since 1970 unless stated."""

    def rows(self, message: bytes, now_ns: int) -> Frames:
        """Take records of a source partition."""

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        """Take frames of the level before."""

    def end(self, epoch: int, now_ns: int) -> Frames:
        """Take the end of the epoch's input."""

    def pulling(self) -> bool:
        """Return whether to read on from the source."""

    def reached_ms(self) -> int | None:
        """Return the time of the log (ms since 1970) up to which it has read its partition; None if it reads none."""

    def full(self) -> bool:
        """Return whether no more input should be read for now."""

    def follow(self, order: WorkerOrder) -> None:
        """Follow an order of the service."""

    def gauges(self) -> WorkerGauges:
        """Return its counts, without those of its task, which the loop has."""


class Host(Protocol):
    """The shared part of all workers of a process: `worker/host.py`. Times in s of the monotonic clock."""

    def watched(self) -> list[tuple[int, Callable[[], Emitted]]]:
        """Return the descriptors to watch besides the loop's own, and what to call when there is something to read."""

    def handed(self) -> Emitted:
        """Handle the frames that workers have handed to each other."""

    @property
    def restless(self) -> bool:
        """Return whether `rest` has something to do."""

    def rest(self) -> Emitted:
        """Use the time while there is nothing else to do."""

    def tick(self, now_s: float) -> Emitted:
        """Do what is due."""

    def due_s(self, now_s: float) -> float:
        """Return the seconds until something is due."""

    def gauges(self, of_first: WorkerGauges) -> WorkerGauges:
        """Return the gauges of one of its workers, which reports those of the host as well."""

    def news(self, now_s: float) -> list[Reported]:
        """Return what workers report to the service."""

    def send(self) -> None:
        """Send what a turn has gathered."""

    def close(self, timeout_s: float) -> int:
        """Deliver what the sinks were given, and return the number of records left after the time-out."""
