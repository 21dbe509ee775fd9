"""A message as it is in a log, for local runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Message:
    """A message for `Flow.run_locally`.

    Attributes:
        key: Its key.
        value: Its value, None for a tombstone.
        headers: Name and value of each header, in order.
        timestamp: The log's timestamp, with a time zone; 1970 if it does not matter.

    Example:
        >>> orders.write("chosen", to_chosen)
        >>> flow.run_locally(orders=[lt.Message(b"ada", b'{"user": "ada", "amount": 5}')])["chosen"]
        [Order(user='ada', amount=5)]
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: datetime | None = None
