"""Whether min time stands for no reason: a frame that was lost is named, and the life ends in replay (R10, T9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lowtide.service.lookout import Lookout
from lowtide.service.tracker_report import TrackerReport

__all__ = ["Stall"]


class Stall:
    """Watches the global min time; pure.

    It counts as stalled while an ack is open at the same tick though no worker has anything to do: whatever would
    close it is not on its way any more. What waits for a front does not count, nor does a worker that is busy.

    Args:
        limit_s: How long that may last.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._held: object = None
        self._since = 0.0
        self._lookout = Lookout()

    def look(self, report: TrackerReport, gauges: Iterable[Mapping[str, Any]], now_s: float) -> str:
        """Return what stands and for how long once it is over the limit; else an empty text.

        To be called each second. Who has not listened himself meanwhile, as his machine stood still, knows only what
        was true before: then the time begins anew.
        """
        if self._lookout.late(now_s):
            self._since = now_s
        held = report.held
        busy = any(each.get("busy", True) for each in gauges)
        if held is None or held.at_front or busy or held != self._held:
            self._held, self._since = held, now_s
            return ""
        stood_s = now_s - self._since
        if stood_s < self._limit_s:
            return ""
        return (
            f"min time has stood for {stood_s:.0f} s though no worker has anything to do: {report.holder}. A frame or "
            "its ack was lost\n  what to do: start the job again: it replays from its log"
        )
