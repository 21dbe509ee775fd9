"""Requests snapshots from a job at a pace during a measurement, over its control API as any client would."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.errors import LowtideError
from lowtide.status.control_client import ControlClient
from lowtide.status.job_view import SnapshotView
from lowtide_bench.arrivals import percentiles
from lowtide_bench.companion import Companion
from lowtide_bench.gaps import Span
from lowtide_bench.phases import Phase
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.systems import System

POLL_S = 0.1
"""Interval between looks at a snapshot's state; also the resolution of its time of commit."""
SILENCE_LIMIT_S = 20.0
"""Limit on failing requests: a job that restarts has no control API."""


class _Forgotten(LowtideError):
    """The job forgot the snapshot: request another one."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A requested snapshot.

    Attributes:
        turn: The position of its phase.
        asked_ns: Time of the request, ns since 1970.
        over_ns: Time at which its commit or failure was seen.
        parts: Parts written for it.
        rows: Rows in it, shared parts included.
        bytes: Bytes in it, shared parts included.
        sealed_s: Time until all of it was durable.
        pause_ms: The longest pause of a worker.
        min_time_ms: Its T; None if it had none.
        why: Reason of its failure; empty if it is committed.
    """

    turn: int
    asked_ns: int
    over_ns: int
    parts: int = 0
    rows: int = 0
    bytes: int = 0
    sealed_s: float = 0.0
    pause_ms: float = 0.0
    min_time_ms: int | None = None
    why: str = ""

    @property
    def span(self) -> Span:
        """Return the time from its request to its end, as two times in ns."""
        return self.asked_ns, self.over_ns


class Pacer(Companion):
    """Requests snapshots when they are due, one at a time.

    Args:
        phases: Returns the windows with their paces, given the schedule. A snapshot that falls due while another is
            still under way is left out and counted: asking for more than can be written would measure a queue.
    """

    def __init__(self, phases: Callable[[Schedule], Sequence[Phase]]) -> None:
        super().__init__()
        self._phases = phases
        self.taken: list[Taken] = []
        """All requested snapshots, oldest first."""
        self.left_out: dict[int, int] = {}
        """By turn, the number that were due while another was under way."""

    def go(self, system: System, schedule: Schedule) -> None:
        """Take them, phase by phase."""
        for turn, phase in enumerate(self._phases(schedule)):
            if phase.every_s > 0 and not self._keep_pace(system, turn, phase):
                return

    def _keep_pace(self, system: System, turn: int, phase: Phase) -> bool:
        due, step = phase.start_ns, round(phase.every_s * NS)
        while due < phase.end_ns:
            if not self.wait_until(due):
                return False
            self.taken.append(take(system.client, turn))
            missed = max(0, min(time.time_ns(), phase.end_ns - 1) - due) // step
            self.left_out[turn] = self.left_out.get(turn, 0) + missed
            due += (missed + 1) * step
        return True

    def of_turns(self, turns: Sequence[int]) -> dict[str, Any]:
        """Return the figures of these turns' snapshots; see `summary`."""
        left_out = sum(self.left_out.get(turn, 0) for turn in turns)
        return summary([each for each in self.taken if each.turn in turns], left_out)


def take(client: Callable[[], ControlClient | None], turn: int) -> Taken:
    """Take one snapshot and commit it; the result holds any error.

    Args:
        client: The control API of the job's current life; None while it has none.
        turn: See `Taken`.
    """
    asked_ns = heard_ns = time.time_ns()
    asked: SnapshotView | None = None
    while True:
        try:
            asked, over = _look(client(), asked)
            heard_ns = time.time_ns()
        except _Forgotten as error:
            return Taken(turn, asked_ns, time.time_ns(), why=str(error))
        except LowtideError as error:
            over, why = None, str(error)
            if time.time_ns() - heard_ns > SILENCE_LIMIT_S * NS:
                return Taken(turn, asked_ns, time.time_ns(), why=why)
        if over is not None:
            view, why = over, str(over.why or "")
            sizes = (view.parts, view.rows, view.bytes, view.took_s, view.pause_ms, view.min_time_ms)
            return Taken(turn, asked_ns, time.time_ns(), *sizes, why=why)
        time.sleep(POLL_S)


def _look(client: ControlClient | None, asked: SnapshotView | None) -> tuple[SnapshotView | None, SnapshotView | None]:
    """Ask for it, or for its state; the second value is set once it is over."""
    if client is None:
        raise LowtideError("the job has no control API now")
    if asked is None:
        return client.take_snapshot(), None
    now = next((view for view in client.snapshots() if view.id == asked.id), None)
    if now is None:
        raise _Forgotten(f"the job no longer knows snapshot {asked.id}: its life has ended")
    return asked, now if now.phase in ("committed", "failed") else None


def summary(taken: Sequence[Taken], left_out: int = 0) -> dict[str, Any]:
    """Return the figures of snapshots as in the JSON object; null where there were none."""
    good = [each for each in taken if not each.why]
    figures: dict[str, Any] = {
        "taken": len(good),
        "failed": len(taken) - len(good),
        "left_out": left_out,
        "why": sorted({each.why for each in taken if each.why}),
    }
    measured = {
        "parts": [each.parts for each in good],
        "bytes": [each.bytes for each in good],
        "sealed_s": [each.sealed_s for each in good],
        "pause_ms": [each.pause_ms for each in good],
        "committed_s": [(each.over_ns - each.asked_ns) / NS for each in good],
    }
    for name, values in measured.items():
        half, most = percentiles(np.array(values, np.float64), (50, 100)) if values else (None, None)
        for which, value in (("p50", half), ("max", most)):
            figures[f"{name}_{which}"] = None if value is None else round(value, 3)
    return figures
