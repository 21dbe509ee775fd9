"""A call's resource: made once in a process, and exited at that one's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from lowtide.calls.threads import Threads

RESOURCE_LIMIT_S = 300.0
"""The longest time that a resource may take to open: a large model is read from a disk within it."""
EXIT_LIMIT_S = 5.0


class Resource:
    """Value that a call's function uses, such as a connection or a model.

    Attributes:
        opened: True if it can be used.
        arguments: What the function gets: the resource's value, or nothing.

    Args:
        make: The user's function that makes it; None for no resource.
        threads: Where it is made, entered and exited, but for what is async; None for the event loop.
    """

    def __init__(self, make: Callable[[], Any] | None, threads: Threads | None) -> None:
        self.opened = make is None
        self.arguments: tuple[Any, ...] = ()
        self._make = make
        self._threads = threads
        self._manager: Any = None

    async def open(self) -> None:
        """Make and enter it; raises whatever it raises, TimeoutError after `RESOURCE_LIMIT_S`."""
        assert self._make is not None, "no resource is open from the start"
        try:
            async with asyncio.timeout(RESOURCE_LIMIT_S) as limit:
                made = await self._call(self._make)
                if hasattr(type(made), "__aenter__"):
                    value = await made.__aenter__()
                elif hasattr(type(made), "__enter__"):
                    value = await self._call(made.__enter__)
                else:
                    value, made = made, None
        except TimeoutError:  # Also that of a socket of the user's.
            if limit.expired():
                raise TimeoutError(f"it did not open within {RESOURCE_LIMIT_S:g} s") from None
            raise
        self._manager, self.arguments, self.opened = made, (value,), True

    async def close(self) -> None:
        """Exit it if it was entered; raises whatever it raises, TimeoutError after `EXIT_LIMIT_S`."""
        manager, self._manager = self._manager, None
        if manager is None:
            return
        async with asyncio.timeout(EXIT_LIMIT_S):
            if hasattr(type(manager), "__aenter__"):
                await manager.__aexit__(None, None, None)
            else:
                await self._call(partial(manager.__exit__, None, None, None))

    async def _call(self, function: Callable[[], Any]) -> Any:
        return function() if self._threads is None else await self._threads.result(function)
