"""Events of a job, one line of JSON each: written to standard error, which is the job's log, and kept for a while.

events = EventLog("orders", incarnation=3)
events.event("worker_lost", worker="1/0", pid=4711, how="killed by SIGKILL")

{"ts":"2026-01-02T03:04:05.678Z","job":"orders","incarnation":3,"event":"worker_lost","worker":"1/0",…}
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, TextIO, get_args

import msgspec

__all__ = ["EVENTS", "EventLog", "EventName"]

EventName = Literal[
    "life_begun",
    "life_ended",
    "sources_ended",
    "worker_forked",
    "worker_lost",
    "front_registered",
    "tracker_restarted",
    "sink_claimed",
    "carrier_stopped",
    "carrier_resumed",
    "sources_rest",
    "sources_read",
    "records_late",
    "stalled",
    "resumed",
    "zookeeper_lost",
    "zookeeper_back",
    "ticks_too_large",
    "disk_filling",
    "clock_jumped",
    "clock_agrees",
    "floors_archived",
    "grant_failed",
    "grant_resumed",
    "snapshot_sealed",
    "snapshot_committed",
    "snapshot_failed",
    "commits_pruned",
]
EVENTS: tuple[EventName, ...] = get_args(EventName)

KEPT = 50
MAX_TEXT_CHARS = 4000
"""Longer texts, such as a user's traceback, are cut in the event; the log has the whole elsewhere."""

RESERVED = frozenset({"ts", "job", "incarnation", "event"})


class EventLog:
    """Writes the events of one life; any thread may call it.

    Args:
        job: The job's name.
        incarnation: The life's number.
        stream: Where the lines go; by default standard error, as it is when an event happens.
        clock: The time in UTC.
    """

    def __init__(
        self,
        job: str,
        incarnation: int,
        stream: TextIO | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._head: dict[str, Any] = {"job": job, "incarnation": incarnation}
        self._stream = stream
        self._clock = clock
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._lock = threading.Lock()

    def event(self, name: EventName, **fields: Any) -> None:
        """Write one event; what JSON does not know is written as text. A log that cannot be written stops nobody."""
        assert name in EVENTS, f"{name} is not an event"
        assert not RESERVED & fields.keys(), f"event {name} has a field with a name that is taken"
        plain = {key: _short(msgspec.to_builtins(value, enc_hook=str)) for key, value in fields.items()}
        with self._lock:
            at = self._clock().isoformat(timespec="milliseconds").replace("+00:00", "Z")
            entry = {"ts": at, **self._head, "event": name, **plain}
            self._kept.append(entry)
            stream = self._stream or sys.stderr
            with suppress(OSError, ValueError):  # The disk is full, or the stream was closed.
                stream.write(msgspec.json.encode(entry).decode() + "\n")
                stream.flush()

    @property
    def last(self) -> list[dict[str, Any]]:
        """The last events, oldest first."""
        with self._lock:
            return list(self._kept)


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        return value[:MAX_TEXT_CHARS] + "…"
    return value
