"""A thread's watch list: descriptors, and the calls to make when they are ready."""

from __future__ import annotations

import select
from collections.abc import Callable
from contextlib import suppress

__all__ = ["READ", "WRITE", "Watch"]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT

Call = Callable[[int], None]
"""Called with the events of its descriptor."""


class Watch:
    """An epoll with its functions."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._calls: dict[int, Call] = {}

    def set(self, descriptor: int, events: int, call: Call) -> None:
        """Call when one of these events is there, as long as it is; 0 for none."""
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
        """Watch a descriptor no more; it may have been closed."""
        if self._calls.pop(descriptor, None) is not None:
            with suppress(OSError):
                self._epoll.unregister(descriptor)

    def turn(self, patience_s: float) -> bool:
        """Wait until something is ready, at most so long, call what is to be called, and return whether it was."""
        calls, ready = self._calls, self._epoll.poll(patience_s)
        for descriptor, events in ready:
            call = calls.get(descriptor)  # None if one before it has dropped it.
            if call is not None:
                call(events)
        return bool(ready)

    def close(self) -> None:
        """Watch nothing any more."""
        self._epoll.close()
