"""What a worker is born with."""

import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Birth:
    """What the fork server knows of the worker that it forks.

    Attributes:
        name: ``level/partition``, at level 0 ``0/topic-partition``.
        level: The level whose partition it runs.
        number: Its number in the life's register; stands in the frames it sends.
        incarnation: The life it belongs to.
        executor: The executor it runs on.
        service: Where the job's service listens, ``host:port``.
        secret: The job's secret.
        listener: The listening socket on which tasks attach.
        address: Where that is, ``host:port``.
    """

    name: str
    level: int
    number: int
    incarnation: int
    executor: str
    service: str
    secret: bytes
    listener: socket.socket
    address: str
