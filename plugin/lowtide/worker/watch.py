"""A thread's watch list: descriptors, and the calls to make when they are ready."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import suppress

__all__ = ["READ", "WRITE", "Watch"]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT

Call = Callable[[int], None]
"""A function called with the events of its descriptor."""


class Watch:
    """An epoll with its functions.

    Attributes:
        woke_ns: When the last turn's wait was over, by the monotonic clock.
    """

    woke_ns = 0

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Call] = {}

    def set(self, descriptor: int, events: int, call: Call) -> None:
        """Call a function while one of these events is present; 0 for none."""
        if descriptor not in self._calls:
            if events:
                self._epoll.register(descriptor, events)
                self._calls[descriptor] = call
        elif events:
            self._epoll.modify(descriptor, events)
            self._calls[descriptor] = call
        else:
            self.drop(descriptor)

    def drop(self, descriptor: int) -> None:
        """Stop watching a descriptor; it may be closed already."""
        if self._calls.pop(descriptor, None) is not None:
            with suppress(OSError):
                self._epoll.unregister(descriptor)

    def turn(self, patience_s: float) -> bool:
        """Wait at most this long until something is ready, make the calls, and return whether there were any."""
        calls, ready = self._calls, self._epoll.poll(patience_s)
        self.woke_ns = time.monotonic_ns()
        for descriptor, events in ready:
            call = calls.get(descriptor)  # None if an earlier call has dropped it.
            if call is not None:
                call(events)
        return bool(ready)

    def close(self) -> None:
        """Stop watching."""
        self._epoll.close()
