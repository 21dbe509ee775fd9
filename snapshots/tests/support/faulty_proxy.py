"""A proxy before a server of objects that fails in the ways networks and servers do."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from hanging import HANGS_S


@dataclass(frozen=True)
class Fault:
    """What is done to one request instead of passing it on.

    Attributes:
        status: answered; 0 passes on the server's answer.
        code: answered with it, as S3 and Azure do.
        applied: whether the server gets the request before.
        pause_s: waited before anything else.
        closed: the connection ends without an answer.
        cut: the answer's body ends in its middle.
        drop_s: waited after each tenth of the answer's body.
        edit: what becomes of the answer's body.
        spoil: what becomes of the request's body.
    """

    status: int = 0
    code: str = "InternalError"
    applied: bool = False
    pause_s: float = 0.0
    closed: bool = False
    cut: bool = False
    drop_s: float = 0.0
    edit: Callable[[bytes], bytes] | None = None
    spoil: Callable[[bytes], bytes] | None = None


class FaultyProxy:
    """Passes HTTP requests on, but for those that a fault is set for; a context.

    Attributes:
        seen: method and path of every request, in the order of their coming.
    """

    def __init__(self, port: int) -> None:
        self.seen: list[str] = []
        self.lock = threading.Lock()
        self.behind = port
        self._faults: list[tuple[str, Fault]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.proxy = self  # type: ignore[attr-defined]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, request: str, fault: Fault, times: int = 1) -> None:
        """Sets a fault for the next requests that begin so, e.g. `PUT` or `GET /bucket/key`."""
        self._faults += [(request, fault)] * times

    def begin_anew(self) -> None:
        """Forgets all faults and all that came."""
        with self.lock:
            self.seen.clear()
            self._faults.clear()

    def take(self, request: str) -> Fault | None:
        """The fault of a request that comes now."""
        with self.lock:
            self.seen.append(request)
            for fault in self._faults:
                if request.startswith(fault[0]):
                    self._faults.remove(fault)
                    return fault[1]
        return None

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            # The client has given up.
            self.close_connection = True

    def _pass(self) -> None:
        proxy: FaultyProxy = self.server.proxy  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = proxy.take(f"{self.command} {self.path}") or Fault()
        time.sleep(fault.pause_s)
        answer: tuple[int, list[tuple[str, str]], bytes] = (0, [], b"")
        if fault.applied or not (fault.status or fault.closed):
            answer = self._ask(proxy, fault.spoil(body) if fault.spoil else body)
        if fault.closed:
            self.close_connection = True
        elif fault.status:
            text = f"<Error><Code>{fault.code}</Code><Message>said by the proxy</Message></Error>"
            headers = [("x-ms-error-code", fault.code), ("Content-Type", "application/xml")]
            self._answer(fault.status, headers, text.encode() if fault.status >= 300 else b"", fault)
        else:
            self._answer(*answer, fault)

    def _ask(self, proxy: FaultyProxy, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.behind, timeout=HANGS_S)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "connection"):
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, fault: Fault) -> None:
        if fault.edit:
            body = fault.edit(body)
        head = self.command == "HEAD"
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding") and (head or name.lower() != "content-length"):
                self.send_header(name, value)
        if not head:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not head:
            self._write(body[: len(body) // 2] if fault.cut else body, fault)
        self.close_connection = self.close_connection or fault.cut

    def _write(self, body: bytes, fault: Fault) -> None:
        if not fault.drop_s:
            self.wfile.write(body)
            return
        step = len(body) // 10 + 1
        for at in range(0, len(body), step):
            self.wfile.write(body[at : at + step])
            time.sleep(fault.drop_s)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Says nothing: what came is in `seen`."""

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815
