"""`python -m lowtide.service.tracker_main`: the tracker of a life, in a process that does nothing else.

The service starts it and talks with it in lines of JSON over its standard input and output::

    <- {"secret": hex, "listener": descriptor, "setting": {...}, "era": n, "workers": [...] or null}
    -> {"ready": pid}
    -> {"report": {...}}        at once, and every REPORT_EVERY_S
    -> {"fault": text}          at most once: the life is over

It ends when its standard input closes, however its parent ended, and after a fault once all have been told. It is on
the way of every record, so nothing blocks its loop: a report that standard output does not take is left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from typing import Any

from lowtide.logs import log_to_stderr
from lowtide.service.tracker_report import TrackerReport
from lowtide.worker.garbage import set_up_collector
from lowtide_tracker import Graph, StillRebuilding, Tracker, TrackerError, TrackerServer

LOG = logging.getLogger(__name__)
REPORT_EVERY_S = 0.5
LAST_WORDS_S = 3.0
"""How long the clients of a life that is over have to be told: a little more than each of them has."""
POLL_S = 0.01


def tracker_of(first: dict[str, Any]) -> Tracker:
    """Return the tracker that the first line asks for: the life's first, or one that is to be rebuilt."""
    setting = first["setting"]
    graph = Graph(dict(setting["graph"]))
    fronts = dict(setting["fronts"])
    start, capacity_ticks, era = setting["start"], setting["capacity_ticks"], first["era"]
    if first["workers"] is None:
        return Tracker(graph, fronts, start=start, capacity_ticks=capacity_ticks, era=era)
    return Tracker.rebuilding(
        graph, fronts, workers=first["workers"], start=start, capacity_ticks=capacity_ticks, era=era
    )


def report_of(server: TrackerServer) -> TrackerReport:
    """Return how it stands with the tracker. O(segments + floors), some microseconds."""
    tracker = server.tracker
    held, holder, floors, min_times = None, "", 0, tracker.min_times()
    try:
        held = tracker.holder()
        holder, floors = str(held), len(tracker.whole_notice().floors)
    except StillRebuilding as error:
        holder = str(error)
    return TrackerReport(
        era=tracker.era,
        pid=os.getpid(),
        min_times=min_times,
        global_min=tracker.global_min,
        holder=holder,
        held=held,
        missing=tracker.missing,
        floors=floors,
        flushes=server.flushes,
        workers=server.connected[0],
    )


class _Input(asyncio.Protocol):
    """Standard input, of which only the end matters."""

    def __init__(self, ended: asyncio.Event) -> None:
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


async def serve(first: dict[str, Any]) -> None:
    """Serve until standard input closes, or the life is over and all have been told."""
    loop = asyncio.get_running_loop()
    closed, over = asyncio.Event(), asyncio.Event()
    await loop.connect_read_pipe(lambda: _Input(closed), sys.stdin)
    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)

    def say(line: dict[str, Any]) -> None:
        out.write(json.dumps(line).encode() + b"\n")

    def fault(error: TrackerError) -> None:
        say({"fault": str(error)})
        over.set()

    secret, incarnation = bytes.fromhex(first["secret"]), first["setting"]["incarnation"]
    try:
        tracker = tracker_of(first)
    except TrackerError as error:
        fault(error)
        return
    server = TrackerServer(tracker, secret=secret, incarnation=incarnation, on_fault=fault)
    listener = socket.socket(fileno=first["listener"])
    LOG.info("era %d of incarnation %d at %s", tracker.era, incarnation, await server.start(sock=listener))
    say({"ready": os.getpid()})
    set_up_collector()
    ends = [loop.create_task(event.wait()) for event in (closed, over)]
    while not (closed.is_set() or over.is_set()):
        if not out.get_write_buffer_size():
            say({"report": report_of(server).to_json()})
        await asyncio.wait(ends, timeout=REPORT_EVERY_S, return_when=asyncio.FIRST_COMPLETED)
    deadline = loop.time() + LAST_WORDS_S
    while over.is_set() and not closed.is_set() and server.connected[1] and loop.time() < deadline:
        await asyncio.sleep(POLL_S)
    for end in ends:
        end.cancel()
    await server.close()


def main() -> None:
    """Read the first line, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # A terminal's Ctrl-C goes to all; the service ends what it started.
    log_to_stderr("tracker")
    line = sys.stdin.readline()
    if line:
        asyncio.run(serve(json.loads(line)))


if __name__ == "__main__":
    main()
