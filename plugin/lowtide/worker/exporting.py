"""Exports spans: a thread of the host sends them to an OpenTelemetry collector; whatever fails there, the job goes on.

It is not the SDK's `BatchSpanProcessor`: that starts its thread again in processes forked for snapshots, drops spans
without a count, and may wait for half a minute when it ends. OpenTelemetry is imported before the thread starts, since
a process forked during an import would wait for it forever.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from lowtide.errors import ConfError
from lowtide.status.gauges import TraceGauges
from lowtide.version import __version__

LOG = logging.getLogger(__name__)
MAX_WAITING = 4096
"""Spans that may wait; more are dropped and counted."""
BATCH_SPANS = 512
EVERY_S = 1.0
"""The interval at which spans are sent."""
REQUEST_S = 5.0
"""How long the collector may take for one batch, tries together."""


def need_library() -> None:
    """Check that OpenTelemetry is installed, without importing it (errors: ConfError)."""
    for library in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter"):
        try:
            found = find_spec(library)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ConfError(
                f'traces need the library "{library}"',
                where="[traces] endpoint",
                way_out='pip install "lowtide[traces]" on every machine, or leave the endpoint out',
            )


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a record's way; times in ns since 1970.

    Attributes:
        name: Its name.
        kind: "internal"; "consumer" where a record is read, "producer" where it is written.
        trace: The trace's id, 128 bits.
        id: Its own, 64 bits.
        parent: That of the span above it; 0 for none.
        start_ns: When it began.
        end_ns: When it ended.
        attributes: As OpenTelemetry has them.
        events: Name and time of each.
    """

    name: str
    kind: str
    trace: int
    id: int
    parent: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any] = field(default_factory=dict)
    events: tuple[tuple[str, int], ...] = ()


class Exporting:
    """Sends the spans of one host; made after the fork, as it has a thread.

    Args:
        endpoint: The collector's URL.
        job: The job's name, which is OpenTelemetry's service.
        incarnation: The life's number.

    Raises:
        ConfError: the library is missing.
    """

    def __init__(self, endpoint: str, job: str, incarnation: int) -> None:
        need_library()
        self._endpoint = endpoint
        resource = {
            "service.name": job,
            "service.namespace": "lowtide",
            "service.version": __version__,
            "service.instance.id": f"{job}/{incarnation}/{socket.gethostname()}/{os.getpid()}",
            "host.name": socket.gethostname(),
            "process.pid": os.getpid(),
        }
        self._heard = _LastWords()
        self._exporter: Any = None
        try:
            self._exporter, self._convert = _exporter(endpoint, self._heard), converter(resource)
        except Exception:
            LOG.exception("traces are off for this process: OpenTelemetry cannot be used")
        self._sent = self._failed = self._dropped = 0
        self._waiting: deque[Span] = deque()
        self._ending = threading.Event()
        self._said = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def put(self, span: Span) -> None:
        """Take a span; never waits."""
        if self._exporter is None or len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
        else:
            self._waiting.append(span)

    def gauges(self) -> TraceGauges:
        """Return what became of its spans."""
        return TraceGauges(sent=self._sent, failed=self._failed, dropped=self._dropped)

    def close(self, timeout_s: float) -> None:
        """Send what waits, as far as time allows."""
        self._ending.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self._exporter is not None:
            with suppress(Exception):
                self._exporter.shutdown()

    def _run(self) -> None:
        while not self._ending.wait(EVERY_S):
            self._send()
        self._send()

    def _send(self) -> None:
        while self._waiting:
            count = min(BATCH_SPANS, len(self._waiting))
            spans = [self._waiting.popleft() for _ in range(count)]
            try:
                taken = self._exporter.export([self._convert(span) for span in spans]).name == "SUCCESS"
            except Exception as error:  # noqa: BLE001 - whatever the library raises, the job goes on
                taken, self._heard.words = False, str(error)
            if taken:
                self._sent += count
                continue
            self._failed += count
            if not self._said:
                self._said = True
                LOG.warning(
                    "spans cannot be sent to %s (%s): the job goes on without them; check that a collector takes OTLP "
                    "over HTTP there",
                    self._endpoint,
                    self._heard.words,
                )
            return


def refusal_of(endpoint: str) -> str:
    """Send no spans to an endpoint, and return why it does not take them; empty if it does.

    Args:
        endpoint: The collector's URL.
    """
    heard = _LastWords()
    exporter = _exporter(endpoint, heard)
    try:
        taken = exporter.export([]).name == "SUCCESS"
    finally:
        exporter.shutdown()
    return "" if taken else heard.words


class _LastWords(logging.Handler):
    """Keeps the last message of the library, which logs each try: the job's log has one line for all."""

    def __init__(self) -> None:
        super().__init__()
        self.words = "no answer"

    def emit(self, record: logging.LogRecord) -> None:
        self.words = record.getMessage()


def _exporter(endpoint: str, heard: logging.Handler) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    log = logging.getLogger(OTLPSpanExporter.__module__)
    log.handlers, log.propagate = [heard], False
    return OTLPSpanExporter(endpoint=endpoint, timeout=REQUEST_S)


def converter(resource: dict[str, Any]) -> Any:
    """Return what makes OpenTelemetry's spans of ours.

    Args:
        resource: The attributes that all of them share.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

    of, scope, sampled = Resource.create(resource), InstrumentationScope("lowtide", __version__), TraceFlags(1)

    def convert(span: Span) -> Any:
        above = SpanContext(span.trace, span.parent, is_remote=True, trace_flags=sampled) if span.parent else None
        return ReadableSpan(
            span.name,
            SpanContext(span.trace, span.id, is_remote=False, trace_flags=sampled),
            above,
            of,
            span.attributes,
            [Event(name, timestamp=at_ns) for name, at_ns in span.events],
            kind=SpanKind[span.kind.upper()],
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=scope,
        )

    return convert
