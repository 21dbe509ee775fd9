"""The tracker's server, a process of its own: `python -m lowtide.bench.core_tracker_server`."""

from __future__ import annotations

import asyncio

from lowtide.bench.child import Parent
from lowtide.bench.core_traffic import INCARNATION, tracker
from lowtide_tracker import TrackerError, TrackerServer


async def serve(parent: Parent) -> None:
    """Serve until the parent ends the process, or something goes wrong."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(error: TrackerError) -> None:
        ended.set_exception(error)

    secret = bytes.fromhex(parent.task["secret"])
    server = TrackerServer(tracker(), secret=secret, incarnation=INCARNATION, on_fault=fail)
    parent.say(address=await server.start())
    await ended


def main() -> None:
    """Serve until the end."""
    asyncio.run(serve(Parent()))


if __name__ == "__main__":
    main()
