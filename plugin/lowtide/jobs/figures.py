"""What a running job says of itself, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lowtide.errors import LifeEnded
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.state import JobState
from lowtide.service.client import ServiceClient

LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts since the start of the life.

    Attributes:
        records_in: Records read from the sources.
        records_out: Records delivered to the flow's sinks, dead letters apart.
        dead_letters: Records given to the dead-letter sink.
        workers: Workers that are there.
        executors: Spark executors that have a fork server.
    """

    records_in: int
    records_out: int
    dead_letters: int
    workers: int
    executors: int

    @classmethod
    def of(cls, status: dict[str, Any]) -> Figures:
        """Return the figures in a service's answer."""
        totals = status["totals"]
        present = sum(bool(worker["pid"]) for worker in status["workers"])
        return cls(totals["records_in"], totals["records_out"], totals["dead_letters"], present, totals["executors"])

    def __str__(self) -> str:
        text = f"{self.records_in:,} records in, {self.records_out:,} out, {self.workers} workers"
        return f"{text}, {self.dead_letters:,} dead letters" if self.dead_letters else text


def ask_figures(folder: JobFolder, state: JobState, limit_s: float = LIMIT_S) -> Figures | None:
    """Return the figures of a running job; None if its service does not answer within `limit_s`."""
    secret = folder.secret()
    if secret is None or not state.address:
        return None
    try:
        with ServiceClient(state.address, secret, limit_s) as service:
            return Figures.of(service.status())
    except LifeEnded:
        return None
