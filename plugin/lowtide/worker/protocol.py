"""What the loop asks of a stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

Frames = Iterable[tuple[int, bytes]]
"""Frames for workers of the next level: `(target partition, bytes)`."""


class Stage(Protocol):
    """What a worker does with its input: `worker/stage.py`. Times in ns since 1970 unless said."""

    def rows(self, message: bytes, now_ns: int) -> Frames:
        """Take records of a source partition."""

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        """Take frames of the level before."""

    def rest(self, now_ns: int) -> Frames:
        """There is nothing else to do just now."""

    def end(self, epoch: int, now_ns: int) -> Frames:
        """The epoch's input is over."""

    def pulling(self) -> bool:
        """Whether the source is to be read on."""

    def full(self) -> bool:
        """Whether no more input should be read for now."""

    def descriptors(self) -> tuple[int, ...]:
        """What is to be watched besides the loop's own sockets."""

    def hear(self) -> Frames:
        """There is something to read on one of the descriptors."""

    def told(self, message: dict[str, Any]) -> None:
        """The service says something."""

    def asks(self, now_s: float) -> list[dict[str, Any]]:
        """What the service is to be told."""

    def tick(self, now_s: float) -> Frames:
        """Do what is due; in s of the monotonic clock."""

    def due_s(self, now_s: float) -> float:
        """In how many seconds something will be due."""

    def gauges(self) -> dict[str, Any]:
        """Figures for the service, as JSON."""
