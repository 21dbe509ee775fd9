"""Shares of one delivery: each worker of a host learns only of its own records."""

from __future__ import annotations

from typing import Any

from lowtide.connectors.delivery import Delivery, Packet

__all__ = ["Share", "SharedDelivery"]


class SharedDelivery:
    """A delivery that several workers use; it takes what they put in one turn of the loop together.

    Args:
        delivery: The way to Kafka, in another thread.
    """

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery
        self._gathered: list[Packet] = []
        self._under_way: dict[tuple[int, int], Share] = {}
        """By sink and lane, each with one owner (R12) and one packet under way (R13)."""
        self._shares = 0

    def share(self) -> Share:
        """Make a worker's share; the first one reports the delivery's counts."""
        self._shares += 1
        return Share(self, counts=self._shares == 1)

    def put(self, packet: Packet, share: Share) -> None:
        """Take a packet of a share; `send` hands it over."""
        self._under_way[packet.sink, packet.lane] = share
        self._gathered.append(packet)

    def send(self) -> None:
        """Hand over what was put since the last call."""
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self.delivery.put(*gathered)

    def settle(self) -> None:
        """Pass to shares what has become durable (errors: the one that ended the delivery)."""
        for place in self.delivery.durable():
            self._under_way.pop(place).settle(place)

    def close(self, timeout_s: float) -> int:
        """Deliver what was put, as far as time allows, and return the number of records left."""
        self.send()
        return self.delivery.close(timeout_s)


class Share:
    """One worker's view of a shared delivery."""

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
        """Note that a packet of this share is durable."""
        del self._put[place]
        self._durable.append(place)

    @property
    def settled(self) -> bool:
        """Return whether `durable` has something to report."""
        return bool(self._durable)

    def durable(self) -> list[tuple[int, int]]:
        """Return the (sink, lane) of its packets that became durable since the last call."""
        durable, self._durable = self._durable, []
        return durable

    @property
    def queued(self) -> int:
        """Return the number of its records that are put and not durable."""
        return sum(self._put.values())

    def gauges(self) -> dict[str, Any]:
        """Return the counts of the whole delivery since its start, from the first share."""
        return self._shared.delivery.gauges() if self._counts else {}
