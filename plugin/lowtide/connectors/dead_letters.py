"""Dead letters in Kafka: the failed record, and where and why it failed, in the headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, for people.

    Attributes:
        step: The step that it failed in.
        partition: The partition of its source, as `orders-0`; "" for what no record was at fault for, as a timer.
        offset: Its offset there.
        error: Why.
        time_ms: Its timestamp, in ms since 1970.
        key: Its key, as text.
        value: The record, as text.
    """

    step: str
    partition: str
    offset: int
    error: str
    time_ms: int
    key: str
    value: str


def letter_of(message: Any) -> DeadLetter | None:
    """Return what a Kafka message says as a dead letter; None if it is none."""
    # Its own headers come last: the record that failed may have been a dead letter itself.
    headers = {name: value or b"" for name, value in message.headers() or ()}
    if "lowtide.vertex" not in headers:
        return None
    text = {name: value.decode("utf-8", "replace") for name, value in headers.items()}
    return DeadLetter(
        text["lowtide.vertex"],
        text.get("lowtide.partition", ""),
        int(text["lowtide.offset"]),
        text["lowtide.error"],
        message.timestamp()[1],
        (message.key() or b"").decode("utf-8", "replace"),
        (message.value() or b"").decode("utf-8", "replace"),
    )
