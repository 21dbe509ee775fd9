"""An event loop whose clock jumps to the next timer when nothing is left to do: hours pass at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that never waits; it is for what has neither sockets nor threads."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing is left to do, and nothing will come"
        self._loop.now += max(timeout, 0.0)
        return super().select(0)


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run work to its end in virtual time, which begins at 0 s."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
