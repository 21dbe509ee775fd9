"""Input and output of a process of simulated workers."""

from __future__ import annotations

from msgspec import Struct


class Swarm(Struct, frozen=True, kw_only=True):
    """The workers of one process.

    Attributes:
        address: The tracker's.
        shards: Addresses of its shards, if any; then its own address is the merge's.
        secret: The life's, in hexadecimal.
        first: The number of its first worker.
        workers: Number of workers.
        depth: Segments of the graph.
        entries: Acks of a flush.
        seconds: Duration.
        rate: Flushes of each worker per second; 0 for as fast as the tracker takes them.
        window: Rounds that a worker may be ahead of min time, without a rate.
        seed: Seed of the moments at which workers flush.
    """

    address: str = ""
    shards: tuple[str, ...] = ()
    secret: str = ""
    first: int = 0
    workers: int
    depth: int
    entries: int
    seconds: float
    rate: float = 0.0
    window: int = 8
    seed: int = 1


class SwarmSaid(Struct, frozen=True, kw_only=True):
    """Result of a swarm.

    Attributes:
        flushes: Flushes sent.
        seconds: From the first flush to the end.
        rounds: Rounds that min time has passed at all workers; without a rate, rounds that all have sent.
        arrived_ms: By round and worker: from the last flush, which let min time pass the round, to the notice's arrival
            at the worker's socket, by the kernel's timestamp.
        read_ms: The same until the process read it: one process reads for all its workers, one after the other.
    """

    flushes: int
    seconds: float
    rounds: int
    arrived_ms: list[float] = []
    read_ms: list[float] = []
