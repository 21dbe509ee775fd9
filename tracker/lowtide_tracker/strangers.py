"""Strangers, connections that have not proved their identity yet: few at a time, each for a limited time. No I/O.

Idle ones can neither fill a door nor push others out. While `most` strangers are there, no more are let in: the others
wait in the kernel's queue, first come, first served. A stranger may be sent away for them only after its grace, of
which a peer that knows the secret needs a fraction. So a crowd of silent ones passes through a door at `most` per
`grace_s`, and a connection after 500 of them waits for a second.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

MOST = 128
GRACE_S = 0.25
"""A proof needs one round trip after the connection is accepted."""
LIMIT_S = 10.0
"""Time that a stranger may stay if no other waits."""
BACKLOG = 1024
"""Length of the kernel's queue."""
LOG_EVERY_S = 60.0

S = TypeVar("S")


class Strangers(Generic[S]):
    """The strangers at one door, each known by a value; time is in seconds of a monotonic clock.

    Args:
        most: how many there may be.
        grace_s: how long one may stay though others wait.
        limit_s: how long one may stay if no other waits.
    """

    def __init__(self, most: int = MOST, grace_s: float = GRACE_S, limit_s: float = LIMIT_S) -> None:
        self.most = most
        self.limit_s = limit_s
        self._grace_s = grace_s
        self._came_s: dict[S, float] = {}
        """Arrival times, the first one first."""

    def __len__(self) -> int:
        return len(self._came_s)

    def __contains__(self, stranger: S) -> bool:
        return stranger in self._came_s

    def __iter__(self) -> Iterator[S]:
        return iter(self._came_s)

    @property
    def full(self) -> bool:
        """True while no more may be let in."""
        return len(self._came_s) >= self.most

    def come(self, stranger: S, now_s: float) -> None:
        """One was let in."""
        assert not self.full, "somebody was let in over the limit"
        self._came_s[stranger] = now_s

    def leave(self, stranger: S) -> None:
        """One has proved its identity, or has gone."""
        self._came_s.pop(stranger, None)

    def yields(self, now_s: float) -> S | None:
        """Return the stranger that makes room for a waiting one: the oldest, if its grace is over; else None."""
        if not self.full:
            return None
        first = next(iter(self._came_s))
        return first if now_s - self._came_s[first] >= self._grace_s else None

    def late(self, now_s: float) -> list[S]:
        """Return the strangers that have been there for too long."""
        return [stranger for stranger, came_s in self._came_s.items() if now_s - came_s >= self.limit_s]


class Refusals:
    """Counts refusals at a door, so that a crowd does not fill the log."""

    def __init__(self) -> None:
        self._count = 0
        self._logged_s = float("-inf")

    def add(self, why: str, now_s: float) -> str:
        """Count one; what to write into the log now, or nothing."""
        self._count += 1
        if now_s - self._logged_s < LOG_EVERY_S:
            return ""
        count, self._count, self._logged_s = self._count, 0, now_s
        return f"refused a connection: {why}" + (f"; {count - 1} others since the last message" if count > 1 else "")
