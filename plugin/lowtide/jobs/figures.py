"""A running job in figures, for the console."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.assignment import messages
from lowtide.assignment.client import ServiceClient
from lowtide.errors import LifeEnded
from lowtide.jobs.folder import JobFolder
from lowtide.jobs.state import JobState
from lowtide.status.control_client import ControlClient
from lowtide.status.job_view import JobView, Percentiles
from lowtide.wording import count_of
from lowtide_snapshots.errors import ControlUnreachable, TokenRefused

LIMIT_S = 2.0
REMARKABLE_LAG_MS = 1000
"""From this lag on, show who holds min time: below it, that is just the record in flight."""


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
    def of(cls, state: messages.JobState) -> Figures:
        """Return the figures in a service's answer."""
        totals = state.totals
        present = sum(bool(worker.pid) for worker in state.workers)
        return cls(totals["records_in"], totals["records_out"], totals["dead_letters"], present, totals["executors"])

    @classmethod
    def of_view(cls, view: JobView) -> Figures:
        """Return the figures of a job's view."""
        executors = {worker.executor for worker in view.workers}
        present = sum(bool(worker.pid) for worker in view.workers)
        totals = view.totals
        return cls(totals.records_in, totals.delivered, totals.dead_letters, present, len(executors))

    def __str__(self) -> str:
        text = f"{self.records_in:,} records in, {self.records_out:,} out, {count_of(self.workers, 'worker')}"
        return f"{text}, {count_of(self.dead_letters, 'dead letter')}" if self.dead_letters else text


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


def ask_view(folder: JobFolder, state: JobState, limit_s: float = LIMIT_S) -> JobView | None:
    """Return the view of a running job; None if its control API does not answer in time, or does not know us."""
    token, control = folder.token(), state.control_address()
    if token is None or control is None:
        return None
    try:
        return ControlClient(control, token, limit_s).status()
    except (ControlUnreachable, TokenRefused):
        return None


def headline(view: JobView) -> str:
    """Return the figures for one glance: rates, lag and its cause, latency, anything unusual."""
    rates, totals = view.rates, view.totals
    parts = [f"{count(rates.records_in)}/s in", f"{count(rates.delivered)}/s out", f"lag {lag(view)}"]
    if view.latency_ms.p50 is not None:
        parts.append(f"latency {latency(view.latency_ms)}")
    odd = {"repairs": totals.repairs, "dead letters": totals.dead_letters, "tracker restarts": view.tracker.restarts}
    return ", ".join([*parts, *(f"{number:,} {name}" for name, number in odd.items() if number)])


def lag(view: JobView) -> str:
    """Return the lag of min time; if it is remarkable, also its holder, and for how long."""
    text = duration(view.lag_ms)
    if (view.lag_ms or 0) < REMARKABLE_LAG_MS or not view.holder:
        return text
    held = f" for {duration(1000 * view.held_s)}" if view.held_s else ""
    return f"{text}, held{held} by {view.holder}"


def latency(measured: Percentiles) -> str:
    """Return p50 and p99."""
    return f"p50 {duration(measured.p50)}, p99 {duration(measured.p99)}"


def count(number: float | None) -> str:
    """Return a number with commas; `-` for none."""
    return "-" if number is None else f"{number:,.0f}"


def duration(ms: float | None) -> str:
    """Return a duration in the unit that people would use; `-` for none."""
    if ms is None:
        return "-"
    for limit, unit_ms, unit in ((10, 1, "ms"), (1000, 1, "ms"), (120_000, 1000, "s"), (7_200_000, 60_000, "min")):
        if ms < limit:
            return f"{ms / unit_ms:.0f} {unit}" if limit == 1000 else f"{ms / unit_ms:.1f} {unit}"
    return f"{ms / 3_600_000:.1f} h"
