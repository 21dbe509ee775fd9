"""One worker in its host's loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.process.wire import ConnectionClosed
from lowtide.worker.attachment import Attachment
from lowtide.worker.protocol import Frames, Stage
from lowtide.worker.task import Task

MAX_LEAD_MS = 20
"""The lead, in time of the log, that a source partition may have over another one with input: its results would only
wait for the other's records, or be repaired when those come."""


@dataclass(slots=True, eq=False)
class Resident:
    """A worker, its task, and its permission to read on.

    Attributes:
        name: The worker's name.
        level: Its level.
        stage: Its stage.
        attachment: Decides which tasks it takes.
        task: The attached task, or none.
        touched: True if something has happened to it in this turn.
        choked: True if its sinks or its output have no room.
        open: True if its input is handled: neither it nor a worker after it, here, is choked.
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
        """Send to the task and take from it as much as possible."""
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
        """Note that the task went before it got its end: the records it held are lost."""
        if self.task.attached:
            self.task.detach()
            self.attachment.broke()


def not_ahead(workers: Sequence[Resident]) -> list[Resident]:
    """Return the workers whose input is handled now, of those that have any: always the one furthest behind."""
    reached = {worker.name: worker.stage.reached_ms() for worker in workers}
    times = [at_ms for at_ms in reached.values() if at_ms is not None]
    most_ms = min(times, default=0) + MAX_LEAD_MS
    return [worker for worker in workers if (at_ms := reached[worker.name]) is None or at_ms <= most_ms]
