"""How far ahead of min time it pays to work: what repairs cost decides it, and nothing else bounds it.

A worker that would rest while work waits works further ahead; one that takes back much of what it has done works less
far ahead. So guesses cost a bounded share of a worker's time, and no share of its throughput: a backlog that nothing
has to be taken back of is worked off at full speed, however much time of the log it spans.
"""

from __future__ import annotations

__all__ = ["FIRST_WINDOW_MS", "Optimism"]

FIRST_WINDOW_MS = 50
"""How far ahead a worker begins."""
PERIOD_RECORDS = 64
"""After so much work it is looked at what of it was taken back; what came before counts half."""
COSTLY = 0.25
"""Above this share of work that was taken back the window is halved."""
CHEAP = 0.125
"""Up to this share it may be doubled."""
MAX_TICKS = 1 << 40


class Optimism:
    """One worker's window. Pure.

    Args:
        ticks: Where it begins, at least 1.

    Attributes:
        ticks: How far ahead of min time, without the last, records are worth a guess; at least 1, so that what min
            time waits for is never held.
    """

    __slots__ = ("_taken_back", "_work", "ticks")

    def __init__(self, ticks: int) -> None:
        assert ticks >= 1, "a worker that holds the lowest tick would wait for itself"
        self.ticks = ticks
        self._work = 0.0
        self._taken_back = 0.0

    def worked(self, records: int, taken_back: int) -> None:
        """Records were processed; so many outputs were taken back, and given once more or not."""
        self._work += records + taken_back
        self._taken_back += taken_back
        if self._work < PERIOD_RECORDS:
            return
        if self._taken_back > COSTLY * self._work:
            self.ticks = max(1, self.ticks // 2)
        self._work /= 2
        self._taken_back /= 2

    @property
    def pays(self) -> bool:
        """Whether guesses have lately cost little, so that the window may grow."""
        return self._taken_back <= CHEAP * self._work and self.ticks < MAX_TICKS

    def widen(self) -> None:
        """Double the window, for a worker that has nothing else to do."""
        self.ticks *= 2
