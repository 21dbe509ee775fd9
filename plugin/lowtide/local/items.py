"""Items: records on their way through a local run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from lowtide.core.fronts.source_rows import SourceRows
from lowtide.core.operators.order.order import Position


class Order(NamedTuple):
    """A record's place in the order of all; its child path is the way from its message."""

    tick: int
    front: int
    sequence: int
    child: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a source's log.

    Attributes:
        position: Its front and offset.
        timestamp: The log's timestamp in ms.
        key: Its key, None for none.
        value: Its value, None for a tombstone.
        headers: Packed (`lowtide.flow.schema.headers`); empty for none.
        topic: Its topic.
        partition: Its partition.
    """

    position: Position
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: bytes = b""
    topic: str = ""
    partition: int = 0

    @property
    def rows(self) -> SourceRows:
        """Return the message as a batch of its own."""
        return SourceRows(
            self.position.front,
            [self.position.sequence],
            [self.timestamp],
            [self.key],
            [self.value],
            [self.headers],
            topic=self.topic,
            partition=self.partition,
        )


@dataclass(frozen=True, slots=True)
class Item:
    """A record, or a window, on its way: its place, its source message, and its hash unit once it has one."""

    record: Any
    order: Order
    message: Message
    unit: int = -1

    def child(self, element: int) -> Item:
        """Return the item with one more element in its child path."""
        tick, front, sequence, child = self.order
        return Item(self.record, Order(tick, front, sequence, (*child, element)), self.message, self.unit)

    def turns(self, mark: int) -> int:
        """Return its turn in a loop with a `key_by` in its body: the element after the loop's mark."""
        child = self.order.child
        return child[child.index(mark) + 1]

    def in_next_turn(self, mark: int) -> Item:
        """Return the item one turn later."""
        tick, front, sequence, child = self.order
        index = child.index(mark) + 1
        later = (*child[:index], child[index] + 1, *child[index + 1 :])
        return Item(self.record, Order(tick, front, sequence, later), self.message, self.unit)

    def becomes(self, record: Any) -> Item:
        """Return the item with another record."""
        return Item(record, self.order, self.message, self.unit)

    def at(self, tick: int) -> Item:
        """Return the item at another tick."""
        return Item(self.record, self.order._replace(tick=tick), self.message, self.unit)

    def into(self, unit: int) -> Item:
        """Return the item in a hash unit."""
        return Item(self.record, self.order, self.message, unit)
