"""A service on the loopback that a flow's calls ask: `python -m lowtide_bench.called`, and its client.

A question is a line with the call key and the record, the answer the same line some time later; a connection has one
question at a time. The service honours keys: it does what a key asks for once.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import lowtide as lt
from lowtide_bench.arrivals import percentiles
from lowtide_bench.child import Child, Parent
from lowtide_bench.record import Sample

LIMIT_S = 120.0
RETRIES = 20
"""So many that a call outlives an outage of 30 s: the last pauses are 10 s."""
CONCURRENCY = 200
"""Calls open at once at each worker: far more than wait for an answer at the rate that is measured."""


class Connections:
    """Connections to the service that no call uses, for all calls of a process."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, key: str, record: str = "") -> None:
        """Send a key and the record's name, and wait for the answer; ConnectionError if another line comes."""
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        line = f"{key} {record}\n".encode()
        writer.write(line)
        if await reader.readline() != line:
            raise ConnectionError(f"no answer to {key}")
        self._idle.append((reader, writer))


def called(name: str, source: str, sink: str, *, port: int) -> lt.Flow:
    """Return the flow `passthrough` with a call to the service behind its exchange."""

    async def ask(sample: Sample, connections: Connections, key: str) -> Sample:
        await connections.ask(key, f"{sample.key}/{sample.sequence}/{sample.sent_ns}")
        return sample

    flow = lt.Flow(name)
    samples = flow.read("source", lt.kafka(source, lt.json(Sample))).key_by("key")
    answered = samples.call(
        "ask",
        ask,
        timeout=lt.seconds(LIMIT_S),
        concurrency=CONCURRENCY,
        retries=RETRIES,
        resource=lambda: Connections(port),
    )
    answered.write("sink", lt.kafka(sink, lt.json(Sample), key="key"))
    return flow


@dataclass(frozen=True, slots=True)
class Counts:
    """Account of a service.

    Attributes:
        keys: Different keys.
        twice: Keys that were asked about more than once.
        records: Different records.
        records_twice: Records about which two keys or more asked: the service has done its work twice for them.
        p50_ms: From the receipt of a question to its answer, in ms; nan if there was none.
    """

    keys: int
    twice: int
    records: int
    records_twice: int
    p50_ms: float


class Service:
    """The service, in a process of its own, as the benchmark sees it.

    Args:
        answers_after_ms: The time it takes for an answer.
    """

    def __init__(self, answers_after_ms: float) -> None:
        self._child = Child("lowtide_bench.called", {"answers_after_ms": answers_after_ms})
        self.port = int(self._child.expect("port", LIMIT_S)["port"])

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def away(self, *, away: bool) -> None:
        """Go away: all connections break, and no new one is taken; or come back, at the same port."""
        self._child.send({"away": away})
        self._child.expect("away", LIMIT_S)

    def counts(self, since_ns: int = 0, until_ns: int = 1 << 62) -> Counts:
        """Return its account; `p50_ms` of what was asked within these times, ns since 1970."""
        self._child.send({"since_ns": since_ns, "until_ns": until_ns})
        found = self._child.expect("keys", LIMIT_S)
        return Counts(**found)


class _Answering:
    """The service itself."""

    def __init__(self, answers_after_s: float) -> None:
        self._answers_after_s = answers_after_s
        self._asked: Counter[bytes] = Counter()
        self._keys_of: dict[bytes, set[bytes]] = {}
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._port = 0
        self._took: list[tuple[int, int]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the questions of one connection."""
        self._open.add(writer)
        with suppress(OSError):
            while line := await reader.readline():
                begun = time.time_ns()
                key, _, record = line.rstrip(b"\n").partition(b" ")
                self._asked[key] += 1
                self._keys_of.setdefault(record or key, set()).add(key)
                await asyncio.sleep(self._answers_after_s)
                writer.write(line)
                self._took.append((begun, time.time_ns() - begun))
        self._open.discard(writer)
        writer.close()

    async def come(self) -> int:
        """Take connections; return the port, which stays the same."""
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", self._port, backlog=1_024)
        self._port = self._server.sockets[0].getsockname()[1]
        return self._port

    def go(self) -> None:
        """Break all connections, and take no new ones."""
        assert self._server is not None, "it is there"
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    def counts(self, since_ns: int, until_ns: int) -> dict[str, Any]:
        """Return the fields of `Counts`."""
        import numpy as np

        took = [took for begun, took in self._took if since_ns <= begun < until_ns]
        (p50_ns,) = percentiles(np.array(took, np.float64), (50,))
        twice = sum(times > 1 for times in self._asked.values())
        return {
            "keys": len(self._asked),
            "twice": twice,
            "records": len(self._keys_of),
            "records_twice": sum(len(keys) > 1 for keys in self._keys_of.values()),
            "p50_ms": p50_ns / 1e6,
        }


async def main() -> int:
    """Serve until the parent ends this process."""
    parent = Parent()
    answering = _Answering(parent.task["answers_after_ms"] / 1e3)
    parent.say(port=await answering.come())
    while True:
        await asyncio.sleep(0.05)
        if parent.orders:
            asked = dict(parent.orders)
            parent.orders.clear()
            if "away" not in asked:
                parent.say(**answering.counts(**asked))
                continue
            if asked["away"]:
                answering.go()
            else:
                await answering.come()
            parent.say(away=asked["away"])


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
