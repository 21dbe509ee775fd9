"""One worker as its host's loop has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.process.wire import ConnectionClosed
from lowtide.worker.attachment import Attachment
from lowtide.worker.protocol import Frames, Stage
from lowtide.worker.task import Task

__all__ = ["MAX_LEAD_MS", "Resident", "not_ahead"]

MAX_LEAD_MS = 20
"""How far a source partition may be read ahead of another one that has input, in time of the log: what comes of it
would only wait for the other's records, or be mended when those come."""


@dataclass(slots=True, eq=False)
class Resident:
    """A worker, its task, and whether it may read on.

    Attributes:
        name: The worker's.
        level: Its level.
        stage: What it does.
        attachment: Which tasks it takes.
        task: The one that is attached, or none.
        touched: Whether something has happened to it in this turn.
        choked: Whether its sinks or its output have no room.
        open: Whether its input is dealt with: neither it nor a worker behind it, here, is choked.
    """

    name: str
    level: int
    stage: Stage
    attachment: Attachment
    task: Task
    touched: bool = True
    choked: bool = False
    open: bool = True

    def hear(self, events: int) -> None:
        """Send to the task and take from it what can be."""
        self.touched = True
        try:
            self.task.hear(events)
        except ConnectionClosed:
            self.lose()

    def emit(self, frames: Frames) -> None:
        """Send frames."""
        self.touched = True
        self.task.emit(frames)

    def flush(self) -> None:
        """Send what the task takes now; one that has been sent the end of its epoch is let go."""
        task = self.task
        try:
            task.flush()
        except ConnectionClosed:
            self.lose()
        if task.ending is not None and not task.unsent_bytes:
            self.attachment.ended(task.ending)
            task.detach()

    def lose(self) -> None:
        """The task went without having been told its end: what it had in hand is lost."""
        if self.task.attached:
            self.task.detach()
            self.attachment.broke()


def not_ahead(workers: Sequence[Resident]) -> list[Resident]:
    """The workers whose input is dealt with now, of those that have any: the one furthest behind always does."""
    reached = {worker.name: worker.stage.reached_ms() for worker in workers}
    times = [at_ms for at_ms in reached.values() if at_ms is not None]
    most_ms = min(times, default=0) + MAX_LEAD_MS
    return [worker for worker in workers if (at_ms := reached[worker.name]) is None or at_ms <= most_ms]
