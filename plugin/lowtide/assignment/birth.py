"""The birth certificate of a worker: its name, number and life."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lowtide.assignment.messages import MakeWorker


@dataclass(frozen=True, slots=True)
class Birth:
    """A worker that the fork server starts: its names, its life and its service.

    Attributes:
        name: ``level/partition``, at level 0 ``0/topic-partition``.
        level: The level whose partition it runs.
        number: Its number in the life's register; it is in the frames it sends.
        incarnation: The life it belongs to.
        host: The number of its host's first worker: the tracker knows the host by it.
        executor: The executor it runs on.
        service: The address of the job's service.
        secret: The job's secret.
        relay: The address of its executor's relay, if it asks for one; empty where there can be none.
    """

    name: str
    level: int
    number: int
    incarnation: int
    host: int
    executor: str
    service: str
    secret: bytes
    relay: str = ""

    def of(self, order: MakeWorker) -> Birth:
        """That of another worker of the same host, as the fork server was ordered to make it."""
        return replace(self, name=order.worker, level=order.level, number=order.number)
