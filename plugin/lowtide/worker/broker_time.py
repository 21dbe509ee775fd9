"""The broker's time on an executor: the service's last reading, advanced by a monotonic clock."""

from __future__ import annotations

DRIFT = 1e-3
"""A generous bound for the drift between two machines' monotonic clocks, in seconds per second."""


class BrokerTime:
    """The distance of the broker's clock from this machine's monotonic one; pure.

    A reading was right when it was sent, so on arrival it is a lower bound: the largest reading counts, less the
    possible drift. It may lag by the shortest trip from the service to here.

    Args:
        now_ms: The broker's time of the first reading.
        now_s: The monotonic time on arrival.
    """

    def __init__(self, now_ms: int, now_s: float) -> None:
        self._ahead_ms = now_ms - now_s * 1000
        self._at_s = now_s

    def update(self, now_ms: int, now_s: float) -> None:
        """Take a new reading from the service."""
        drifted_ms = (now_s - self._at_s) * DRIFT * 1000
        self._ahead_ms = max(now_ms - now_s * 1000, self._ahead_ms - drifted_ms)
        self._at_s = now_s

    def ms(self, now_s: float) -> int:
        """Return the broker's time, as far as it is known."""
        return int(self._ahead_ms + now_s * 1000)
