"""A receiver of OTLP over HTTP, as a collector is one: keeps the spans that it is sent, and answers, or does not."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """A span as it came."""

    service: str
    instance: str
    name: str
    trace: int
    id: int
    parent: int
    start_ns: int
    end_ns: int
    of: dict[str, Any] = field(hash=False)


class Receiver:
    """Listens on a free port of loopback while it is open.

    Args:
        answers: False to leave every request without an answer until it is closed.

    Attributes:
        spans: What it was sent.
        requests: How often.
    """

    def __init__(self, *, answers: bool = True) -> None:
        self.spans: list[Received] = []
        self.requests = 0
        self._may_answer = threading.Event()
        if answers:
            self._may_answer.set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._may_answer.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: bytes) -> None:
        """Take a request, and return when it may be answered."""
        self.requests += 1
        self.spans += _parsed(body)
        self._may_answer.wait()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            known = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
            if known:
                receiver.take(body)
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    return Handler


def _parsed(body: bytes) -> list[Received]:
    found = []
    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _plain(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            assert of_scope.scope.name == "lowtide"
            found += [
                Received(
                    resource["service.name"],
                    resource["service.instance.id"],
                    span.name,
                    int.from_bytes(span.trace_id, "big"),
                    int.from_bytes(span.span_id, "big"),
                    int.from_bytes(span.parent_span_id, "big"),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    _plain(span.attributes),
                )
                for span in of_scope.spans
            ]
    return found


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def whole(spans: list[Received], levels: int) -> bool:
    """Return whether one record's spans of one life are whole: source, levels, wait and deliver, in this order."""
    by_name: dict[str, list[Received]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    order = ["source", *(f"level {level}" for level in range(levels)), "wait", "deliver"]
    if by_name.keys() != set(order) or len(by_name["source"]) != 1:
        return False
    (source,), above = by_name["source"], {span.id for span in spans if span.name.startswith("level ")}
    ordered = [min(span.start_ns for span in by_name[name]) for name in order]
    return (
        ordered == sorted(ordered)
        and len({span.id for span in spans}) == len(spans)
        and all(span.start_ns <= span.end_ns for span in spans)
        and source.parent == 0
        and all(span.parent == source.id for span in spans if span.id in above)
        and all(span.parent in above for span in by_name["wait"] + by_name["deliver"])
    )
