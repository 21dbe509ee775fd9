"""A fraud service to try out fraud_score.py with: slow, resets connections, and answers as it likes, once per key.

python fraud_service.py 8099
"""

import json
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOWEST_S = 0.05
RESETS = 0.2


class FraudService(ThreadingHTTPServer):
    """Draws the risk of a payment when it first sees the key, and gives the same whenever it is asked again.

    Attributes:
        asked: How often each key came.
        risks: The risk of each key.
        resets: The share of connections that end in a reset, half of them after the risk was drawn.
    """

    daemon_threads = True

    def __init__(self, port: int = 0, *, resets: float = RESETS, seed: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.asked: Counter[str] = Counter()
        self.risks: dict[str, float] = {}
        self.resets = resets
        self._dice, self._lock = random.Random(seed), threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/score"

    def risk(self, key: str) -> float | None:
        """Return the risk, after a while; None if the connection is to be reset."""
        with self._lock:
            self.asked[key] += 1
            wait_s, chance = self._dice.uniform(0, SLOWEST_S), self._dice.random()
            if chance >= self.resets / 2:
                self.risks.setdefault(key, round(self._dice.random(), 3))
        time.sleep(wait_s)
        return None if chance < self.resets else self.risks[key]


class Handler(BaseHTTPRequestHandler):
    server: FraudService

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        risk = self.server.risk(self.headers["Idempotency-Key"])
        if risk is None:
            # Closed at once, and with what is on the way: the other side sees a reset.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            return
        body = json.dumps({"risk": risk}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    with FraudService(int(sys.argv[1])) as service:
        service.serve_forever()
