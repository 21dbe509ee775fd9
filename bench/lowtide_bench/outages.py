"""Effect of a kill on the output. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide_bench.arrivals import Arrivals
from lowtide_bench.schedule import NS

CAUGHT_UP_MS = 1_000.0
"""A record at most this late shows that the backlog is worked off."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Outage of the output after a kill; None where output did not return.

    Attributes:
        back_s: From the kill to the first delivery after the longest gap that follows it.
        gap_s: Length of that gap; what was under way at the kill may still have come out before it.
        caught_up_s: From the kill to the first later record whose latency is within `CAUGHT_UP_MS`.
    """

    back_s: float | None
    gap_s: float | None
    caught_up_s: float | None

    def as_json(self) -> dict[str, Any]:
        """Return its entries of the JSON object."""
        return {"output_back_s": self.back_s, "gap_s": self.gap_s, "caught_up_s": self.caught_up_s}


def outage(arrivals: Arrivals, killed_ns: int, until_ns: int) -> Outage:
    """Return the outage after a kill; O(n log n).

    Args:
        arrivals: All arrivals.
        killed_ns: Time of the signal.
        until_ns: Time of the next kill, or of the end of sending.
    """
    order = np.argsort(arrivals.received_ns, kind="stable")
    received, latency = arrivals.received_ns[order], arrivals.latency_ms()[order]
    first = max(0, int(np.searchsorted(received, killed_ns, "right")) - 1)
    # One more than those in time: a gap may reach beyond, but later events do not belong to this kill.
    last = int(np.searchsorted(received, until_ns, "right")) + 1
    received, latency = received[first:last], latency[first:last]
    if len(received) < 2:
        return Outage(None, None, None)
    longest = int((np.minimum(received[1:], until_ns) - received[:-1]).argmax())
    caught = np.flatnonzero(latency[longest + 1 :] <= CAUGHT_UP_MS)
    back = received[longest + 1]
    caught_up = _seconds(received[longest + 1 + caught[0]] - killed_ns) if len(caught) else None
    return Outage(_seconds(back - killed_ns), _seconds(back - received[longest]), caught_up)


def _seconds(ns: int) -> float:
    return round(float(ns) / NS, 3)
