"""The service's sockets: workers, executors and the driver talk to it here; its core is ``register.py``."""

import asyncio
import json
import logging
import os
import sys
from contextlib import suppress
from typing import Any

from lowtide.logs import log_to_stderr
from lowtide.service.register import Fork, Found, Refused, Register
from lowtide.wire import HEAD, MAX_MESSAGE_BYTES, NONCE_BYTES, ConnectionClosed, Kind, head
from lowtide_tracker.handshake import REPLY_BYTES, HandshakeError, ServerHandshake

LOG = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_S = 10.0
GAUGES_EVERY_S = 1.0
DEATH_REPORT_WAIT_S = 0.3
"""How long a lost connection waits for the fork server to say how its worker died."""


class Peer:
    """One connection after its handshake."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> tuple[int, bytes]:
        """The next message as ``(kind, payload)``; ``ConnectionClosed`` at the end."""
        try:
            length, kind = HEAD.unpack(await self._reader.readexactly(HEAD.size))
            if not 1 <= length <= MAX_MESSAGE_BYTES:
                raise ConnectionClosed(f"a message of {length} bytes was announced")
            return kind, await self._reader.readexactly(length - 1)
        except (asyncio.IncompleteReadError, OSError) as gone:
            raise ConnectionClosed(str(gone)) from gone

    async def send(self, kind: Kind, payload: bytes | dict[str, Any]) -> None:
        """Sends one message; a dict goes as JSON. A peer that has gone is met by ``receive``."""
        data = json.dumps(payload).encode() if isinstance(payload, dict) else payload
        self._writer.write(head(kind, len(data)) + data)
        with suppress(OSError):
            await self._writer.drain()


class Service:
    """Serves one life of one job."""

    def __init__(self, incarnation: int, secret: bytes, python: dict[str, str]) -> None:
        self.register = Register(incarnation)
        self._secret = secret
        self._python = python
        self._plan = b""
        self._planned = asyncio.Event()
        self._ended = asyncio.Event()
        self._deaths: dict[str, str] = {}
        self._gauges: dict[str, dict[str, Any]] = {}
        self._executors: set[str] = set()

    async def serve(self, host: str) -> asyncio.Server:
        """Starts to listen on a free port of ``host``."""
        return await asyncio.start_server(self._connected, host, 0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            shake = ServerHandshake(self._secret, os.urandom(NONCE_BYTES))
            writer.write(shake.hello())
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                writer.write(shake.answer(await reader.readexactly(REPLY_BYTES)))
            await self._talk(Peer(reader, writer))
        except (HandshakeError, TimeoutError, asyncio.IncompleteReadError, ConnectionClosed, OSError) as error:
            if isinstance(error, HandshakeError):
                LOG.warning("a connection was refused: %s", error)
        except asyncio.CancelledError:
            pass  # The service ends; there is nobody to tell.
        finally:
            writer.close()

    async def _talk(self, peer: Peer) -> None:
        while True:
            kind, payload = await peer.receive()
            if kind == Kind.PLAN:
                self._plan = payload
                self._planned.set()
                await peer.send(Kind.ASK, {"planned": len(payload)})
                continue
            question = json.loads(payload)
            match question["ask"]:
                case "find":
                    await peer.send(Kind.ASK, self._find(question))
                case "end":
                    self.end(question["cause"])
                    await peer.send(Kind.ASK, {"ended": self.register.cause})
                case "status":
                    await peer.send(Kind.ASK, self.status())
                case "watch":
                    await self._ended.wait()
                    await peer.send(Kind.ASK, {"ended": self.register.cause})
                case "forkserver":
                    await self._serve_fork_server(peer, question)
                case "worker":
                    await self._serve_worker(peer, question)
                case other:
                    await peer.send(Kind.ASK, {"refused": f"the service knows no question {other!r}"})

    def _find(self, q: dict[str, Any]) -> dict[str, Any]:
        before = self.register.cause
        found = self.register.find(q["worker"], q["level"], q["epoch"], q["incarnation"], q["executor"])
        if self.register.cause != before:
            self.end(self.register.cause)
        match found:
            case Found(address):
                return {"at": address}
            case Fork(number):
                return {"fork": number}
            case Refused(reason):
                return {"refused": reason}

    async def _serve_fork_server(self, peer: Peer, hello: dict[str, Any]) -> None:
        """Compares the executor's Python with the driver's, then hears how its workers die."""
        executor, theirs = hello["executor"], hello["python"]
        wrong = [f"{k} {theirs.get(k)} (driver: {v})" for k, v in self._python.items() if theirs.get(k) != v]
        if wrong:
            self.end(
                f"executor {executor} on {hello['host']} runs another Python than the driver, {hello['executable']}: "
                + ", ".join(wrong)
                + ". Give every executor the driver's environment and set PYSPARK_PYTHON to its interpreter"
            )
        self._executors.add(executor)
        try:
            while True:
                _, payload = await peer.receive()
                died = json.loads(payload)
                self._deaths[died["worker"]] = died["how"]
        finally:
            self._executors.discard(executor)

    async def _serve_worker(self, peer: Peer, hello: dict[str, Any]) -> None:
        name = hello["worker"]
        worker = self.register.reported(name, hello["number"], hello["address"], hello["pid"])
        if isinstance(worker, Refused):
            await peer.send(Kind.ASK, {"refused": worker.reason})
            return
        try:
            await self._planned.wait()
            await peer.send(Kind.PLAN, self._plan)
            while True:
                _, payload = await peer.receive()
                said = json.loads(payload)
                if "failed" in said:
                    self.end(said["failed"])
                else:
                    self._gauges[name] = said["gauges"]
        except ConnectionClosed:
            await asyncio.sleep(DEATH_REPORT_WAIT_S)
            if not self.register.cause:
                self.register.lost(name, self._deaths.get(name, ""))
                self.end(self.register.cause)
            raise

    def end(self, cause: str) -> None:
        """Ends the life: the driver plugin cancels Spark's jobs, watchers are told."""
        self.register.end(cause)
        if not self._ended.is_set():
            self._ended.set()
            say({"ended": self.register.cause})

    def totals(self) -> dict[str, int]:
        """The job's gauges, summed over workers."""
        sums = {
            name: sum(int(g.get(name, 0)) for g in self._gauges.values())
            for name in ("records_in", "records_out", "dead_letters")
        }
        return {"workers": len(self.register.workers), "executors": len(self._executors)} | sums

    def status(self) -> dict[str, Any]:
        """What ``lowtide status`` shows of a running job."""
        workers = [
            {
                "worker": w.name,
                "level": int(w.name.partition("/")[0]),
                "executor": w.executor,
                "pid": w.pid,
                "address": w.address,
                "attached": w.name in self._gauges and self._gauges[w.name]["attached"],
                "gauges": self._gauges.get(w.name, {}),
            }
            for w in self.register.workers.values()
        ]
        return {
            "incarnation": self.register.incarnation,
            "cause": self.register.cause,
            "totals": self.totals(),
            "workers": workers,
        }


def say(line: dict[str, Any]) -> None:
    """One line of JSON to the driver plugin."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def run(first: dict[str, Any]) -> None:
    """Serves until standard input closes."""
    from lowtide.worker.environment import versions

    service = Service(first["incarnation"], bytes.fromhex(first["secret"]), versions())
    server = await service.serve(first["host"])
    host, port = server.sockets[0].getsockname()[:2]
    say({"ready": f"{host}:{port}"})
    loop = asyncio.get_running_loop()
    closed = loop.run_in_executor(None, sys.stdin.read)
    while not closed.done():
        say({"gauges": service.totals()})
        await asyncio.wait([closed], timeout=GAUGES_EVERY_S)


def main() -> None:
    """Reads the first line (secret, incarnation, host) and serves."""
    log_to_stderr("service")
    asyncio.run(run(json.loads(sys.stdin.readline())))
