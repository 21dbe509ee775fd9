"""The protocols of hosts and stages, as the loop drives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from lowtide.assignment.messages import WorkerNews, WorkerOrder
from lowtide.status.gauges import LineGauges, WorkerGauges

Frames = Iterable[tuple[int, bytes]]
"""Frames for workers of the next level: `(target partition, bytes)`."""
Emitted = Sequence[tuple[str, Frames]]
"""By worker what it has to send; one that has nothing, but may have room again, is named too."""
Reported = tuple[str, WorkerNews]
"""A worker, and what it reports to the service."""


class Stage(Protocol):
    """What a worker does with its input: `worker/stage.py`. Times in ns since 1970 unless said."""

    def rows(self, message: bytes, now_ns: int) -> Frames:
        """Take records of a source partition."""

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        """Take frames of the level before."""

    def end(self, epoch: int, now_ns: int) -> Frames:
        """The epoch's input is over."""

    def pulling(self) -> bool:
        """Whether the source is to be read on."""

    def reached_ms(self) -> int | None:
        """Up to which time of the log (ms since 1970) it has read its source partition; None if it reads none."""

    def full(self) -> bool:
        """Whether no more input should be read for now."""

    def told(self, order: WorkerOrder) -> None:
        """Follow an order of the service."""

    def gauges(self) -> WorkerGauges:
        """Return what it has counted, but for what the loop knows of its task."""


class Host(Protocol):
    """What all workers of a process do together: `worker/host.py`. Times in s of the monotonic clock."""

    def watched(self) -> list[tuple[int, Callable[[], Emitted]]]:
        """What is to be watched besides the loop's own sockets, and what to call when there is something to read."""

    def handed(self) -> Emitted:
        """Deal with what workers have handed to each other."""

    @property
    def restless(self) -> bool:
        """Whether `rest` has something to do."""

    def rest(self) -> Emitted:
        """There is nothing else to do just now."""

    def tick(self, now_s: float) -> Emitted:
        """Do what is due."""

    def due_s(self, now_s: float) -> float:
        """In how many seconds something will be due."""

    def line_gauges(self) -> LineGauges | None:
        """Return what its line to the tracker has carried; None if it has none."""

    def news(self, now_s: float) -> list[Reported]:
        """Return what workers report to the service."""

    def send(self) -> None:
        """Let go of what a turn has gathered."""

    def close(self, timeout_s: float) -> int:
        """Deliver what the sinks were given, and return how many records were left after the time-out."""
