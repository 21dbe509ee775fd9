"""The workers of a life, reached by name."""

from __future__ import annotations

from collections.abc import Callable

from lowtide.assignment.messages import WorkerOrder
from lowtide.service.workers.register import Register


class Crew:
    """Sends orders to workers; belongs to the service's event loop.

    Args:
        register: The life's register.
        send: Sends an order to a worker, by name; does nothing if it is not connected.
        expected: The number of workers in the levels after the first.
    """

    def __init__(self, register: Register, send: Callable[[str, WorkerOrder], None], expected: int) -> None:
        self.send = send
        self.expected = expected
        self._register = register

    def later(self) -> list[str]:
        """Return the workers of the levels after the first."""
        return [name for name in self._register.workers if not name.startswith("0/")]

    def send_all(self, order: WorkerOrder) -> None:
        """Send an order to all workers."""
        for worker in self._register.workers:
            self.send(worker, order)
