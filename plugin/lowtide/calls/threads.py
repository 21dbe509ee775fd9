"""Threads for plain functions: as many as run at one time, and none that a process waits for at its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

Ended = Callable[[Any, BaseException | None], None]
"""Takes a function's result or its exception, in the loop."""


class Threads:
    """Threads of one call, driven by an event loop; the caller bounds how many functions run at one time.

    The standard library's pool is waited for when the interpreter ends, so one function that hangs would keep it.

    Args:
        name: The threads', for people.
        loop: The loop.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._name = name
        self._loop = loop
        self._calls: SimpleQueue[tuple[Callable[[], Any], Ended] | None] = SimpleQueue()
        self._count = 0
        self._idle = 0

    def run(self, function: Callable[[], Any], ended: Ended) -> None:
        """Call a function in a thread that is free, or in a new one, and then `ended` in the loop."""
        if self._idle:
            self._idle -= 1
        else:
            self._count += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._count}", daemon=True).start()
        self._calls.put((function, ended))

    async def result(self, function: Callable[[], Any]) -> Any:
        """Call a function in a thread, and return what it returns or raise what it raises."""
        result: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()
        self.run(function, lambda value, error: None if result.done() else result.set_result((value, error)))
        value, error = await result
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the threads that are free, and the others as soon as their functions return."""
        for _ in range(self._count):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, ended = call
            value: Any = None
            error: BaseException | None = None
            try:
                value = function()
            except BaseException as caught:  # noqa: BLE001 - whatever the user's function raises
                error = caught
            with suppress(RuntimeError):  # The loop may be closed by now.
                self._loop.call_soon_threadsafe(self._back, ended, value, error)
            del call, function, ended, value, error

    def _back(self, ended: Ended, value: Any, error: BaseException | None) -> None:
        self._idle += 1
        ended(value, error)
