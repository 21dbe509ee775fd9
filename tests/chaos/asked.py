"""The HTTP service that a flow asks: slow at times, some connections are reset; its answer hangs on the question."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

RESETS = 0.05
SLOWEST_S = 0.02
THERE_WITHIN_S = 30.0
POLL_S = 0.02
PRIME = 1_000_003


def answer_to(question: bytes) -> int:
    """What the service says."""
    return zlib.crc32(question) % PRIME


class Asked:
    """The service in a process of its own, on the same port whenever it is started.

    Attributes:
        url: Its address.
        running: True while its process is there.
    """

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "it runs"
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self._process = subprocess.Popen([sys.executable, __file__, str(self._port)], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + THERE_WITHIN_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
            except OSError:
                assert self._process.poll() is None, "the service that is asked has ended"
                assert time.monotonic() < deadline, "the service that is asked takes no connections"
                time.sleep(POLL_S)
            else:
                return

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        question = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(random.uniform(0, SLOWEST_S))
        if random.random() < RESETS:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        body = str(answer_to(question)).encode()
        with suppress(ConnectionError):  # Whoever asked has been killed, or has stopped waiting.
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


if __name__ == "__main__":
    with _Server(("127.0.0.1", int(sys.argv[1])), _Handler) as server:
        server.serve_forever()
