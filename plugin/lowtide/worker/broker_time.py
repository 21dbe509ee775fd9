"""The broker's time on an executor: the service's last reading, advanced by a monotonic clock."""

from __future__ import annotations

__all__ = ["BrokerTime"]

DRIFT = 1e-3
"""By how much two machines' monotonic clocks may come apart, in seconds per second; generously."""


class BrokerTime:
    """How far the broker's clock is beyond this machine's monotonic one; pure.

    What is told was so when it was sent, so on arrival it is so at least: the largest of what was told counts, for as
    long as the clocks may not have come apart. It may be behind by the quickest way from the service to here.

    Args:
        told_ms: The broker's time, as it was told first.
        now_s: The monotonic time on arrival.
    """

    def __init__(self, told_ms: int, now_s: float) -> None:
        self._ahead_ms = told_ms - now_s * 1000
        self._at_s = now_s

    def tell(self, told_ms: int, now_s: float) -> None:
        """Take what the service has told by now."""
        drifted_ms = (now_s - self._at_s) * DRIFT * 1000
        self._ahead_ms = max(told_ms - now_s * 1000, self._ahead_ms - drifted_ms)
        self._at_s = now_s

    def ms(self, now_s: float) -> int:
        """The broker's time, as far as it is known."""
        return int(self._ahead_ms + now_s * 1000)
