"""The fixtures of a tracker's tests. Every run of tests reads them, so that they import late."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from hanging import HANGS_S

if TYPE_CHECKING:
    from tracker_rig import Client, Running, Scribe

    from lowtide_tracker import LocalTracker, Tracker


@pytest.fixture
def scribe_of() -> Callable[..., Scribe]:
    """Who numbers a worker's flushes: `scribe_of(tracker, worker)`."""
    from tracker_rig import Scribe

    return Scribe


@pytest.fixture
def serve() -> Iterator[Callable[..., Running]]:
    """Starts servers, which stop after the test."""
    from tracker_rig import GRAPH, Running

    from lowtide_tracker import Tracker

    running: list[Running] = []

    def start(tracker: Tracker | None = None, sock: socket.socket | None = None) -> Running:
        running.append(Running(tracker or Tracker(GRAPH, {0: 0}, start=0, capacity_ticks=1 << 20), sock))
        return running[-1]

    yield start
    for each in running:
        each.stop()


@pytest.fixture
def join() -> Iterator[Callable[..., Client]]:
    """Connects clients, which leave after the test."""
    from tracker_rig import INCARNATION, SECRET, Client

    clients: list[Client] = []

    def connect(
        running: Running,
        local: LocalTracker | None = None,
        incarnation: int = INCARNATION,
        *,
        timeout_s: float = HANGS_S,
    ) -> Client:
        name = "listener" if local is None else f"worker {local.worker}"
        client = Client(
            running.address, secret=SECRET, incarnation=incarnation, local=local, name=name, timeout_s=timeout_s
        )
        clients.append(client)
        client.connect()
        return client

    yield connect
    for client in clients:
        client.close()
