"""`python -m lowtide.service`: started by the driver plugin, ends when its standard input closes."""

import asyncio
import signal
import sys

from lowtide.assignment.messages import JobGauges, ServiceReady, ServiceStart, read_service_start
from lowtide.logs import log_to_stderr
from lowtide.process.credentials import credentials_of
from lowtide.process.doors import Doors
from lowtide.process.interpreter import versions
from lowtide.process.sockets_folder import SocketsRefused
from lowtide.service.lives import say
from lowtide.service.server import Service
from lowtide_snapshots.stores import lend

GAUGES_EVERY_S = 1.0


async def run(first: ServiceStart) -> None:
    """Serve until standard input closes."""
    secret = bytes.fromhex(first.secret)
    doors = Doors(first.doors, first.bind or first.host, called=first.host if first.bind else "")
    service = Service(secret, versions(), doors)
    lend(service.open_snapshots)
    address = service.serve()
    say(ServiceReady(address, credentials_of(secret) if doors.tls else None))
    loop = asyncio.get_running_loop()
    closed = loop.run_in_executor(None, sys.stdin.read)
    while not closed.done():
        say(JobGauges(service.lives.totals()))
        service.lives.look()
        await asyncio.wait([closed], timeout=GAUGES_EVERY_S)
    await service.close()
    doors.close()


def main() -> None:
    """Read the first line (secret, host, and bind if that is another address) and serve."""
    # A terminal's Ctrl-C reaches all processes; the driver ends those it started.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_to_stderr("service")
    try:
        asyncio.run(run(read_service_start(sys.stdin.readline())))
    except SocketsRefused as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
