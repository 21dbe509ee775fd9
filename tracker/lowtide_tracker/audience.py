"""The subscribers of a server's notices: which of them are sent a notice now, and what waits for the others.

A subscriber that names segments gets the notices in which one of them moves, without all others; what else it has to
know goes with the next of these, or is collected by `late`.

    >>> from lowtide_tracker import Notice
    >>> audience = Audience()
    >>> audience.join("a", Notice(1, 0, 0, {1: 0, 2: 0}, 0))
    >>> audience.join("b", Notice(1, 0, 0, {1: 0, 2: 0}, 0), (2,), global_min=False)
    >>> for name, notice in audience.tell(Notice(1, 1, 0, {1: 5}, 0)):
    ...     print(name, notice.after, notice.number, notice.min_times)
    a 0 1 {1: 5}
    >>> for name, notice in audience.tell(Notice(1, 2, 1, {1: 6, 2: 3}, 3)):
    ...     print(name, notice.after, notice.number, notice.min_times)
    a 1 2 {1: 6, 2: 3}
    b 0 2 {2: 3}
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from lowtide_tracker.floors import Floor
from lowtide_tracker.messages import Notice, Subscribe

Subscriber = TypeVar("Subscriber", bound=Hashable)


class _Seat:
    """The segments that one subscriber has named, and the last that it was told."""

    __slots__ = ("global_min", "number", "segments")

    def __init__(self, whole: Notice, segments: tuple[int, ...] | None) -> None:
        self.segments = segments
        self.number = whole.number
        self.global_min = whole.global_min


class Audience(Generic[Subscriber]):
    """The subscribers of one server; no clock, no socket.

    Its laws:

    * A subscriber is sent a notice at once in which a segment that it has named moves, or, if it has asked for that,
      the global min time; and each with a request (R14).
    * What it is sent continues what it was sent before: it has the newest global min time, all floors since (R2), and
      of the segments that it has named all that have moved since.
    * What it is not sent at once and would have to know, it gets by `late`: a larger global min time, and floors.

    Whoever uses it calls `late` soon after `behind` has become true. A notice costs O(those that are sent it).
    """

    def __init__(self) -> None:
        self.behind = False
        """True if `late` may have something for somebody."""
        self._seats: dict[Subscriber, _Seat] = {}
        self._all: dict[Subscriber, None] = {}
        """Those that have named no segments, so that they get every notice."""
        self._of_segment: dict[int, dict[Subscriber, None]] = {}
        self._leading: dict[Subscriber, None] = {}
        """Those that have named segments, and the global min time."""
        self._floors: list[tuple[int, tuple[Floor, ...]]] = []
        """(notice, its floors): those that somebody may not have."""
        self._last: Notice | None = None
        self._global_min: int | None = None
        """That of the newest notice; before the first, that of those that say everything."""

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def named(self) -> dict[Subscriber, Subscribe]:
        """Return the subscription of each."""
        return {
            each: Subscribe(seat.segments, seat.segments is None or each in self._leading)
            for each, seat in self._seats.items()
        }

    def join(
        self,
        subscriber: Subscriber,
        whole: Notice,
        segments: Iterable[int] | None = None,
        *,
        global_min: bool = True,
    ) -> None:
        """Begin with a subscriber, also again, that is sent a notice that says everything.

        Args:
            subscriber: Whoever it is.
            whole: The notice.
            segments: Those that matter to it; None for all.
            global_min: Whether the global min time does as well.
        """
        self.leave(subscriber)
        named = None if segments is None else tuple(segments)
        self._global_min = whole.global_min if self._global_min is None else self._global_min
        self._seats[subscriber] = _Seat(whole, named)
        if named is None:
            self._all[subscriber] = None
            return
        for segment in named:
            self._of_segment.setdefault(segment, {})[subscriber] = None
        if global_min:
            self._leading[subscriber] = None

    def leave(self, subscriber: Subscriber) -> None:
        """End with a subscriber, if it is one."""
        seat = self._seats.pop(subscriber, None)
        if seat is None:
            return
        self._all.pop(subscriber, None)
        self._leading.pop(subscriber, None)
        for segment in seat.segments or ():
            del self._of_segment[segment][subscriber]

    def tell(self, notice: Notice) -> list[tuple[Subscriber, Notice]]:
        """Return who is to be sent what of a notice, at once; it continues the one before."""
        self._last = notice
        if notice.floors:
            self._floors.append((notice.number, notice.floors))
        if notice.request is not None:
            due: Iterable[Subscriber] = self._seats
        else:
            found = dict(self._all)
            for segment in notice.min_times:
                found.update(self._of_segment.get(segment, ()))
            if self._global_min is None or notice.global_min > self._global_min:
                found.update(self._leading)
            due = found
        self._global_min = notice.global_min
        told = [(each, share) for each in due if (share := self._share(self._seats[each], notice)) is not None]
        self.behind = self.behind or len(told) < len(self._seats)
        if not self.behind:
            self._floors.clear()
        return told

    def late(self) -> list[tuple[Subscriber, Notice]]:
        """Return who is to be sent what of all that was left out for its own sake until now."""
        last, self.behind = self._last, False
        if last is None:
            return []
        told = []
        for subscriber, seat in self._seats.items():
            if seat.number < last.number:
                floors = self._floors_after(seat.number)
                if floors or seat.global_min < last.global_min:
                    told.append((subscriber, _of(seat, last, {}, floors)))
        self._floors.clear()
        return told

    def _share(self, seat: _Seat, notice: Notice) -> Notice | None:
        """Return a notice as a subscriber is sent it; None if it has had it."""
        if notice.number <= seat.number:
            return None
        if seat.segments is None:
            seat.number = notice.number
            return notice
        moved = notice.min_times
        mine = {segment: moved[segment] for segment in seat.segments if segment in moved}
        return _of(seat, notice, mine, self._floors_after(seat.number))

    def _floors_after(self, number: int) -> tuple[Floor, ...]:
        return tuple(floor for at, floors in self._floors if at > number for floor in floors) if self._floors else ()


def _of(seat: _Seat, notice: Notice, min_times: dict[int, int], floors: tuple[Floor, ...]) -> Notice:
    """A notice for one subscriber, which continues what it was sent before."""
    after, seat.number, seat.global_min = seat.number, notice.number, notice.global_min
    return Notice(notice.era, notice.number, after, min_times, notice.global_min, floors, notice.request)
