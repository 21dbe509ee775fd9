"""Notices that wait to be sent to somebody, as one."""

from lowtide_tracker.floors import Floor
from lowtide_tracker.messages import Notice, Request


class Backlog:
    """Merges notices as they come, in O(what is new): newest min times, newest floor per (front, offset, cap)."""

    def __init__(self) -> None:
        self._after = 0
        self._last: Notice | None = None
        self._min_times: dict[int, int] = {}
        self._floors: dict[tuple[int, int, bool], Floor] = {}
        self._request: Request | None = None

    def __bool__(self) -> bool:
        """Return whether anything waits."""
        return self._last is not None

    def add(self, notice: Notice) -> None:
        """Take the notice after the one added before."""
        if self._last is None:
            self._after = notice.after
        else:
            assert notice.after == self._last.number, f"{notice.number} does not continue {self._last.number}"
        self._last = notice
        self._request = notice.request or self._request
        self._min_times.update(notice.min_times)
        for floor in notice.floors:
            self._floors[floor.front, floor.offset, floor.cap] = floor

    def clear(self) -> None:
        """Forget what waits."""
        self._last, self._min_times, self._floors, self._request = None, {}, {}, None

    def take(self) -> Notice | None:
        """All that waits as one notice, or None; nothing waits after it."""
        last = self._last
        if last is None:
            return None
        floors = tuple(self._floors.values())
        merged = Notice(last.era, last.number, self._after, self._min_times, last.global_min, floors, self._request)
        self.clear()
        return merged
