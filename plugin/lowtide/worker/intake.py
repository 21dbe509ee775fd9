"""Opens the frames that a worker receives: bytes in, records out."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.core.effects import Frame
from lowtide.core.frames import FrameKind, Inbox, open_frame
from lowtide.core.operators.order.batch import Batch
from lowtide.flow.plan.plan import Plan
from lowtide.worker.figures import Figures


class Intake:
    """The frames that come to one worker from those of the level before.

    Args:
        plan: The plan.
        name: The worker's name.
        level: Its level.
        place: Its index among the level's workers.
        figures: Counts what comes.
    """

    def __init__(self, plan: Plan, name: str, level: int, place: int, figures: Figures) -> None:
        self._records = {vertex.id: vertex.gives for vertex in plan.exchanges() if vertex.level == level}
        self._inbox = Inbox(name)
        self._ways = {way.id: Inbox(name) for way in plan.feedbacks() if way.level == level}
        """By way back to a loop's head, the numbers of its frames, which do not come through Spark."""
        self._place = place
        self._figures = figures

    def open(self, messages: Sequence[bytes], now_ns: int) -> list[Frame]:
        """Open those messages that have records."""
        frames = []
        for message in messages:
            head = open_frame(message, self._records)
            self._ways.get(head.vertex, self._inbox).take(head)
            if head.kind == FrameKind.MARK:
                continue
            n = len(head.ats)
            self._figures.records_in += n
            self._figures.hops["exchange"].add(now_ns - head.sent_ns, n)
            batch = Batch(head.ats, head.units, head.rows, head.flags, head.ticks)
            frames.append(Frame(head.vertex, self._place, head.value, head.ticks, batch, message))
        return frames

    def end(self, epoch: int) -> None:
        """Check that the epoch's input was complete."""
        self._inbox.end(epoch)

    def taken(self, sender: int, vertex: int) -> int:
        """Return the number of a sender's frames that came for an exchange, marks included."""
        return self._ways.get(vertex, self._inbox).taken(sender)
