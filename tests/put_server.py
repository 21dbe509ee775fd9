"""An HTTP server that takes puts as Elasticsearch's bulk API does, and as `lt.http` sends them; it can be a bad one.

It keeps versions as Elasticsearch does with `external_gte`, those of deleted keys too.
"""

from __future__ import annotations

import json
import random
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote

REFUSED = "a key that the mapping does not take"


class PutServer(ThreadingHTTPServer):
    """A server on a free port of the loopback; a context.

    Attributes:
        kept: By name and key the version and the value, None for deleted.
        counts: Puts by their outcome: "done", "older", "refused".
        requests: Requests that came.
        once: The `Idempotency-Key` and the rest of each request that had one.
        compares: False if it takes whatever comes.
        answer: If set, gives the status of the next requests before anything is done; 0 for none.
        token: The login that it asks for.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kept: dict[tuple[str, str], tuple[int, bytes | None]] = {}
        self.counts: Counter[str] = Counter()
        self.requests = 0
        self.once: list[tuple[str, tuple[str, bytes]]] = []
        self.compares = True
        self.answer: Callable[[], int] | None = None
        self.token: str | None = None
        self.struck = threading.Event()
        self._resets: random.Random | None = None
        self._scheme = "http"
        self._holds = False
        self._held: Callable[[], Any] | None = None
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_address[1]}"

    def wrap(self, tls: ssl.SSLContext) -> None:
        """Speaks TLS from now on."""
        self.socket, self._scheme = tls.wrap_socket(self.socket, server_side=True), "https"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: clients are killed."""

    def reset_at_random(self, seed: int | None) -> None:
        """Resets connections from now on, half of the time after what was asked is done."""
        self._resets = None if seed is None else random.Random(seed)

    def hold_next(self) -> None:
        """Has the next request lie somewhere; its connection ends."""
        self.struck.clear()
        self._holds = True

    def release(self) -> None:
        """Has the request arrive that was held."""
        assert self._held is not None, "no request was held"
        held, self._held = self._held, None
        held()

    def read(self, name: str) -> dict[str, Any]:
        """Returns by key what readers see."""
        with self._lock:
            return {key: json.loads(value) for (of, key), (_, value) in self.kept.items() if of == name and value}

    def put(self, name: str, key: str, version: int, value: bytes | None) -> int:
        """Takes a put, and returns its status."""
        with self._lock:
            if key == REFUSED:
                self.counts["refused"] += 1
                return 400
            was, _ = self.kept.get((name, key), (-1, None))
            if self.compares and was > version:
                self.counts["older"] += 1
                return 409
            self.counts["done"] += 1
            known = (name, key) in self.kept and self.kept[name, key][1] is not None
            self.kept[name, key] = version, value
            return 200 if value is not None or known else 404

    def faulty(self, do: Callable[[], Any]) -> tuple[bool, Any]:
        """Does what is asked, perhaps not now; False if no answer is to go out."""
        with self._lock:
            self.requests += 1
            drawn = 1.0 if self._resets is None else self._resets.random()
            if self._holds:
                self._holds, self._held = False, do
                self.struck.set()
                return False, None
        if drawn < 0.15:
            return False, None
        result = do()
        return drawn >= 0.3, result


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: PutServer

    def do_POST(self) -> None:
        name, what = self.path.removeprefix("/").split("/", 1)
        assert what.startswith("_bulk?")
        lines = self._body().splitlines()
        self._answer(lambda: (200, json.dumps(self._bulk(unquote(name), lines)).encode()))

    def do_PUT(self) -> None:
        self._one(self._body())

    def do_DELETE(self) -> None:
        self._body()
        self._one(None)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def _body(self) -> bytes:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # The client was killed after the headers.
            raise ConnectionAbortedError("a request that is not whole does nothing")
        return body

    def _one(self, value: bytes | None) -> None:
        name, key = map(unquote, self.path.removeprefix("/v1/").split("/"))
        version = self.headers["Lowtide-Version"]
        self.server.once.append((self.headers["Idempotency-Key"], (f"{key}@{version}", value or b"")))
        self._answer(lambda: (self.server.put(name, key, int(version), value), b"{}"))

    def _bulk(self, index: str, lines: list[bytes]) -> dict[str, Any]:
        items = []
        while lines:
            ((action, about),) = json.loads(lines.pop(0)).items()
            assert about["version_type"] == "external_gte"
            value = lines.pop(0) if action == "index" else None
            status = self.server.put(index, about["_id"], about["version"], value)
            item: dict[str, Any] = {"_id": about["_id"], "status": status}
            if status in (400, 409):
                item["error"] = {"type": "mapper_parsing_exception", "reason": "failed to parse field [number]"}
            items.append({action: item})
        return {"errors": any("error" in item for each in items for item in each.values()), "items": items}

    def _answer(self, do: Callable[[], tuple[int, bytes]]) -> None:
        early = 0
        if self.server.token is not None and self.headers.get("Authorization") != self.server.token:
            early = 401
        elif self.server.answer is not None:
            early = self.server.answer()
        goes_out, answer = (True, (early, b"not so")) if early else self.server.faulty(do)
        if not goes_out:
            self.close_connection = True
            return
        status, text = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
