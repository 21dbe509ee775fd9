"""The fixtures of a life without Spark. Every run of tests reads them, so that they import late."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from process_life import Life


@pytest.fixture(name="until")
def _until() -> Callable[[Callable[[], Any]], Any]:
    """Waits for something to become true."""
    from process_life import until

    return until


@pytest.fixture
def life(zookeeper: str, request: pytest.FixtureRequest) -> Iterator[Life]:
    """A life with the executors "0" and "1", and no plan yet; its doors are Unix sockets, or of a parameter's kind."""
    from process_life import Life

    from lowtide.process.doors import DoorKind

    started = Life(zookeeper, doors=getattr(request, "param", DoorKind.UNIX))
    try:
        started.executor("0")
        started.executor("1")
        yield started
    finally:
        started.close()


@pytest.fixture
def alive() -> Callable[[int], bool]:
    """True if a process of that pid runs."""

    def look(pid: int) -> bool:
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                return stat.read().rpartition(")")[2].split()[0] != "Z"
        except (ProcessLookupError, FileNotFoundError):
            return False

    return look


@pytest.fixture
def kill() -> Callable[[int], None]:
    """SIGKILL for a process that the test made."""
    return lambda pid: os.kill(pid, signal.SIGKILL)
