"""What moves through a run here and now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from lowtide.operators.meta import Position


class Order(NamedTuple):
    """A record's place in the order of all; the child path says which way it came from its message."""

    tick: int
    front: int
    sequence: int
    child: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a source's log.

    Attributes:
        position: Where it stands.
        timestamp: The log's timestamp in ms.
        key: Its key, None for none.
        value: Its value, None for a tombstone.
    """

    position: Position
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Item:
    """A record, or a window, on its way: its place, the message it was made of, and its hash unit once it has one."""

    record: Any
    order: Order
    message: Message
    unit: int = -1

    def child(self, element: int) -> Item:
        """The same with one more element in its child path."""
        return replace(self, order=self.order._replace(child=(*self.order.child, element)))
