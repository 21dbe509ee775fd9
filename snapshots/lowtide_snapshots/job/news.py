"""News of a running job: what its control API sends to subscribers, as server-sent events, and how it is read.

    GET /events?about=delivered&about=commit       each step of both, until the life is over
    GET /events?about=delivered&at_ms=TIME         one event: delivered time has come to TIME

An event is one of

    life       {"incarnation", "begins_at_ms"}: this life tells from here on; segments went back to where it begins
    delivered  {"incarnation", "about", "time_ms"}: everything before `time_ms` is durable in the sinks, for ever
    commit     ... and "snapshot", "name", "taken_by": the job may be recovered from this snapshot
    min_time   everything before `time_ms` has left the flow, in this life
    segment    likewise one segment
    done       the substream of one label has ended at `time_ms`, and all that came of it is durable in the sinks
    end        {"incarnation", "cause"}: the life is over; show the last id to the next one

`time_ms` is null at the end of time, when every source has ended. Each event has an id; who shows the last one that it
had (`Last-Event-ID`), to the same life or a later one, gets nothing twice and no commit too few.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

LIFE = "life"
DELIVERED = "delivered"
COMMIT = "commit"
MIN_TIME = "min_time"
SEGMENT = "segment"
DONE = "done"
END = "end"
BEGUN = "/begun"
"""Ends the name of the step that keeps the labels of a `when_begun`, whose name comes before."""
SILENCE_S = 15.0
"""A stream that is silent for this long is lost: the job writes a comment three times as often."""
MAX_LINE_BYTES = 64 << 10


def step_of_labels(step: str, *, begun: bool) -> str:
    """Return the name of the step to ask about a label.

    Args:
        step: The `when_done` or the `when_begun`, as the flow names it.
        begun: Whether it is a `when_begun`: its labels end with their first record, in a step of their own.
    """
    return f"{step}{BEGUN}" if begun else step


@dataclass(frozen=True, slots=True)
class News:
    """One event.

    Attributes:
        kind: "life", "delivered", "commit", "min_time", "segment", "done" or "end".
        id: The id to send in order to continue after it.
        data: What it says.

    Example:
        >>> lt.News("delivered", "3-17", {"incarnation": 3, "about": "delivered", "time_ms": 1700}).time_ms
        1700
    """

    kind: str
    id: str
    data: dict[str, Any] = field(default_factory=dict)

    def encoded(self) -> bytes:
        r"""The event as it is sent.

        Example:
            >>> lt.News("delivered", "3-17", {"time_ms": 1700}).encoded()
            b'event: delivered\nid: 3-17\ndata: {"time_ms":1700}\n\n'
        """
        data = json.dumps(self.data, separators=(",", ":"))
        return f"event: {self.kind}\nid: {self.id}\ndata: {data}\n\n".encode()

    @property
    def time_ms(self) -> int | None:
        """The time that it tells; None for the end of time, and of a life.

        Example:
            >>> lt.News("delivered", "3-17", {"time_ms": 1700}).time_ms
            1700
        """
        found: int | None = self.data.get("time_ms")
        return found

    @property
    def incarnation(self) -> int:
        """The life that sent it.

        Example:
            >>> lt.News("life", "3-0", {"incarnation": 3}).incarnation
            3
        """
        return int(self.data["incarnation"])


class NewsReader:
    """Makes events of the lines of a stream, given one by one without their ends.

    Raises:
        ValueError: by `read`: it is not what a job sends.
    """

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def read(self, line: bytes) -> News | None:
        """Take a line; return the event that it ends."""
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a line of {len(line)} bytes")
        text = line.decode().rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            if name:  # Without, it is a comment.
                self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        data = json.loads(fields["data"])
        if not isinstance(data, dict) or not isinstance(data.get("incarnation"), int):
            raise ValueError(f"an event without a life: {fields['data'][:100]}")
        return News(fields.get("event", ""), fields.get("id", ""), data)


def events_path(about: Sequence[str], at_ms: int | None = None) -> str:
    """Path and query of a subscription."""
    asked = [("about", each) for each in about] + ([] if at_ms is None else [("at_ms", str(at_ms))])
    return f"/events?{urlencode(asked)}"
