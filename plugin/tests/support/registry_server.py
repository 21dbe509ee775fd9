"""A schema registry for tests: a small server that speaks the API, as no registry of its own can be installed here.

It numbers schemas over all subjects, gives the same one its number again, and refuses those that are no JSON. It keeps
nothing, knows no compatibility, and counts what it is asked.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class RegistryServer:
    """The server, while it runs.

    Attributes:
        schemas: By number, from 1.
        subjects: The numbers of each subject, in order.
        asked: How often each path was asked.
        login: `user:password` that it wants; None for none.
        away: Whether it answers 503 to all.
        elsewhere: Where it redirects all to; None to answer itself.
        moved: A path that it redirects, and where to.
        logins: Each `Authorization` it was sent, in order.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, str] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: Counter[str] = Counter()
        self.login: str | None = None
        self.away = False
        self.elsewhere: str | None = None
        self.moved = ("", "")
        self.logins: list[str | None] = []
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*server.get(self.path, self.headers.get("Authorization")))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer(*server.post(self.path, body, self.headers.get("Authorization")))

            def _answer(self, status: int, value: Any) -> None:
                data = json.dumps(value).encode()
                server.logins.append(self.headers.get("Authorization"))
                there = server.elsewhere + self.path if server.elsewhere else None
                if self.path == server.moved[0]:
                    there = server.url + server.moved[1]
                self.send_response(302 if there else status)
                if there:
                    self.send_header("Location", there)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Silence."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def get(self, path: str, login: str | None) -> tuple[int, Any]:
        """`GET /schemas/ids/N`."""
        refused = self._refused(path, login)
        if refused:
            return refused
        schema = self.schemas.get(int(path.removeprefix("/schemas/ids/")))
        return (
            (404, {"error_code": 40403, "message": "Schema not found"}) if schema is None else (200, {"schema": schema})
        )

    def post(self, path: str, body: bytes, login: str | None) -> tuple[int, Any]:
        """`POST /subjects/NAME/versions`."""
        refused = self._refused(path, login)
        if refused:
            return refused
        schema = json.loads(body)["schema"]
        if not isinstance(json.loads(schema), dict):
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        with self._lock:
            return 200, {"id": self.add(unquote(path.split("/")[2]), schema)}

    def add(self, subject: str, schema: str) -> int:
        """The number of a schema."""
        number = next((known for known, text in self.schemas.items() if text == schema), len(self.schemas) + 1)
        self.schemas[number] = schema
        self.subjects.setdefault(subject, []).append(number)
        return number

    def _refused(self, path: str, login: str | None) -> tuple[int, Any] | None:
        self.asked[path] += 1
        wanted = None if self.login is None else f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if self.away:
            return 503, {"error_code": 50003, "message": "away"}
        return (401, {"error_code": 401, "message": "Unauthorized"}) if login != wanted else None

    def serve(self) -> None:
        """Until `close`."""
        self._http.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """A server until the block ends."""
    server = RegistryServer()
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
