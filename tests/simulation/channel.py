"""Frames under way from one worker to another: in order, and numbered so that a loss or a swap shows (R10)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from lowtide.core.effects import Frame


@dataclass(slots=True)
class Channel:
    """Frames of one sender to one target, numbered (R10)."""

    queue: deque[tuple[int, Frame]] = field(default_factory=deque)
    sent: int = 0
    expected: int = 0

    def send(self, frame: Frame) -> None:
        """One more is on its way."""
        self.queue.append((self.sent, frame))
        self.sent += 1

    @property
    def broken(self) -> bool:
        """Whether one is missing, or not where it belongs; the receiver learns of it with the next frame, if any."""
        numbers = [number for number, _ in self.queue]
        return numbers != list(range(self.expected, self.sent))
