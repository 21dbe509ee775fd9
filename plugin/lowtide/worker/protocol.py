"""What the loop asks of a stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

Frames = Iterable[tuple[int, bytes]]
"""Frames for workers of the next level: `(target partition, bytes)`."""


class Stage(Protocol):
    """What a worker does with its input: `worker/stage.py`. All times in ns since 1970."""

    def rows(self, message: bytes, now_ns: int) -> Frames:
        """Take records of a source partition."""

    def frames(self, messages: Sequence[bytes], now_ns: int) -> Frames:
        """Take frames of the level before."""

    def end(self, epoch: int, now_ns: int) -> Frames:
        """The epoch's input is over."""

    def tick(self, now_ns: int) -> Frames:
        """Do what is due without input."""

    def full(self) -> bool:
        """Whether no more input should be read for now."""

    def gauges(self) -> dict[str, Any]:
        """Figures for the service, as JSON."""
