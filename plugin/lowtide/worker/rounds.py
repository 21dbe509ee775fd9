"""Frames that go round loops between hosts: back to workers of a loop's head in other processes."""

from __future__ import annotations

import time

from lowtide.assignment.deployment import Deployment
from lowtide.connectors.loop_line import LoopLine
from lowtide.core.effects import Frame
from lowtide.core.frames import Outbox
from lowtide.flow.schema.headers import Headers


class Rounds:
    """One host's end of all loops; it opens its line to Kafka on first use.

    Args:
        deployment: The plan and its settings.
        incarnation: The life's number.
    """

    def __init__(self, deployment: Deployment, incarnation: int) -> None:
        self._deployment = deployment
        self._incarnation = incarnation
        self._ways = deployment.plan.feedbacks()
        self._opened: LoopLine | None = None

    def join(self, level: int, place: int) -> None:
        """Add a worker: read what is sent to it, from where the life began."""
        for way in self._ways:
            if way.level == level:
                topic = self._deployment.loops[way.id]
                self._line().listen((way.id, place), topic.name, topic.ends[place])

    def send(self, outbox: Outbox, frame: Frame) -> None:
        """Send a frame, with the tracker's data in its headers (errors: LowtideError)."""
        encoded = outbox.records(frame.target, frame, time.time_ns())
        headers: Headers = [
            ("lowtide.value", b"%d" % frame.value),
            ("lowtide.tick", b"%d" % frame.ticks[0]),
            ("lowtide.sender", b"%d" % outbox.sender),
        ]
        self._line().send(frame.target, self._deployment.loops[frame.vertex].name, encoded, headers)

    def fileno(self) -> int:
        """Return the descriptor that is readable when `came` has something; -1 if nothing goes round."""
        return -1 if self._opened is None else self._opened.fileno()

    def came(self) -> dict[tuple[int, int], list[bytes]]:
        """Return frames that have come, by the worker's level and place (errors: LowtideError)."""
        found: dict[tuple[int, int], list[bytes]] = {}
        for (vertex, place), frame in [] if self._opened is None else self._opened.receive():
            found.setdefault((self._deployment.plan.vertices[vertex].level, place), []).append(frame)
        return found

    def check(self) -> None:
        """Check the frames that were sent (errors: LowtideError)."""
        if self._opened is not None:
            self._opened.check()

    def close(self) -> None:
        """End the line."""
        if self._opened is not None:
            self._opened.close()

    def _line(self) -> LoopLine:
        if self._opened is None:
            deployment = self._deployment
            self._opened = LoopLine(
                deployment.producer,
                self._incarnation,
                delivery_limit_ms=deployment.delivery_limit_ms,
                max_record_bytes=deployment.limits.max_frame_bytes,
                job_id=deployment.job_id,
            )
        return self._opened
