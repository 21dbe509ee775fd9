"""Shares of one delivery: each worker of a host hears of its own records alone."""

from __future__ import annotations

from typing import Any

from lowtide.connectors.delivery import Delivery, Packet

__all__ = ["Share", "SharedDelivery"]


class SharedDelivery:
    """A delivery that several workers use; what they put in one turn of the loop goes to it together.

    Args:
        delivery: The way to Kafka, in another thread.
    """

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self._gathered: list[Packet] = []
        self._under_way: dict[tuple[int, int], Share] = {}
        """By sink and lane, of which each has one owner (R12) and one packet under way (R13)."""
        self._shares = 0

    def share(self) -> Share:
        """A worker's share; the first one says what the delivery has counted."""
        self._shares += 1
        return Share(self, counts=self._shares == 1)

    def put(self, packet: Packet, share: Share) -> None:
        """Take a packet of a share; it goes with `send`."""
        self._under_way[packet.sink, packet.lane] = share
        self._gathered.append(packet)

    def send(self) -> None:
        """Hand over what was put since this was called before."""
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self.delivery.put(*gathered)

    def settle(self) -> None:
        """Let shares know of what has become durable (errors: what ended the delivery)."""
        for place in self.delivery.durable():
            self._under_way.pop(place).settle(place)

    def close(self, timeout_s: float) -> int:
        """Deliver what was put, as far as it can be done in time, and return how many records were left."""
        self.send()
        return self.delivery.close(timeout_s)


class Share:
    """What one worker sees of a shared delivery."""

    def __init__(self, shared: SharedDelivery, *, counts: bool) -> None:
        self._shared = shared
        self._counts = counts
        self._put: dict[tuple[int, int], int] = {}
        self._durable: list[tuple[int, int]] = []

    def put(self, packet: Packet) -> None:
        """Take a packet."""
        self._put[packet.sink, packet.lane] = len(packet.messages)
        self._shared.put(packet, self)

    def settle(self, place: tuple[int, int]) -> None:
        """A packet of this share is durable."""
        del self._put[place]
        self._durable.append(place)

    @property
    def settled(self) -> bool:
        """Whether `durable` has something to say."""
        return bool(self._durable)

    def durable(self) -> list[tuple[int, int]]:
        """The (sink, lane) of its packets that became durable since the last call."""
        durable, self._durable = self._durable, []
        return durable

    @property
    def queued(self) -> int:
        """Records that it has put and that are not durable."""
        return sum(self._put.values())

    def gauges(self) -> dict[str, Any]:
        """Counts of the whole delivery since the beginning, from one of the shares."""
        return self._shared.delivery.gauges() if self._counts else {}
