"""A subscriber's min times."""

from collections.abc import Iterable

from lowtide_tracker.errors import NoticeGap
from lowtide_tracker.messages import Notice
from lowtide_tracker.table import INT64_MIN


class MinTimes:
    """The min times of all segments as received, notice after notice; none ever goes back.

    One that notices leave out, as this subscriber has not named it, counts as at the global min time, or where it was
    when a notice said everything, whichever is larger: nowhere may it be smaller than that.

    Args:
        start: the min time of segments without news.
    """

    def __init__(self, start: int = INT64_MIN) -> None:
        self.era = 0
        self.number = 0
        """The last notice of the era that was received."""
        self.start = start
        self._heard: dict[int, int] = {}
        self._global_min = start

    def hear(self, notice: Notice) -> bool:
        """Take a notice, in order and once; False if it says nothing new.

        One that says everything may have the number of the last one: then it has news of what that one left out.

        Raises:
            NoticeGap: one before it is missing; subscribe again.
        """
        same_era = notice.era == self.era
        if notice.era < self.era or (same_era and notice.number <= self.number and not self._left_out(notice)):
            return False
        if notice.after > (self.number if same_era else 0):
            raise NoticeGap(notice.era, notice.number, notice.after, self.number)
        self.era, self.number = notice.era, notice.number
        self._global_min = max(self._global_min, notice.global_min)
        for segment, tick in notice.min_times.items():
            self._heard[segment] = max(tick, self._heard.get(segment, tick))
        return True

    def __getitem__(self, segment: int) -> int:
        tick = self._heard.get(segment, self.start)
        return tick if tick > self._global_min else self._global_min

    def items(self, others: Iterable[int] = ()) -> tuple[tuple[int, int], ...]:
        """(segment, min time) of the segments with news, and of others that the global one has moved."""
        moved = dict.fromkeys(others) if self._global_min > self.start else {}
        return tuple([(segment, self[segment]) for segment in {**dict.fromkeys(self._heard), **moved}])

    def _left_out(self, notice: Notice) -> bool:
        """Return whether a notice of this era that says everything has news of what the last one has left out."""
        if notice.after or notice.number < self.number:
            return False
        return any([tick > self[segment] for segment, tick in notice.min_times.items()])

    @property
    def global_min(self) -> int:
        """The smallest min time of all segments."""
        return self._global_min
