"""Shares of a host's deliveries, one for each store: each worker learns only of its own records."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from lowtide.sinks.contract import Delivery, Packet


class SharedDelivery:
    """The stores that several workers deliver to; each store takes together what they put in one turn of the loop.

    Args:
        store_of: Names the store of a sink.
    """

    def __init__(self, store_of: Callable[[int], str]) -> None:
        self._store_of = store_of
        self.deliveries: dict[str, Delivery] = {}
        """By store; each in a thread of its own, so that a slow one holds back no other."""
        self._gathered: dict[str, list[Packet]] = {}
        self._under_way: dict[tuple[int, int], Share] = {}
        """By sink and lane, each with one owner (R12) and one packet under way (R13)."""
        self._shares = 0

    def share(self) -> Share:
        """Make a worker's share; the first one reports the deliveries' counts."""
        self._shares += 1
        return Share(self, counts=self._shares == 1)

    def put(self, packet: Packet, share: Share) -> None:
        """Take a packet of a share; `send` hands it over."""
        self._under_way[packet.sink, packet.lane] = share
        self._gathered.setdefault(self._store_of(packet.sink), []).append(packet)

    def send(self) -> None:
        """Hand over what was put since the last call."""
        if self._gathered:
            gathered, self._gathered = self._gathered, {}
            for store, packets in gathered.items():
                self.deliveries[store].put(*packets)

    def settle(self) -> None:
        """Pass to shares what has become durable (errors: the one that ended a delivery)."""
        for delivery in self.deliveries.values():
            for lane_key in delivery.durable():
                self._under_way.pop(lane_key).settle(lane_key)

    def gauges(self) -> dict[str, Any]:
        """Return the counts of all deliveries since their start."""
        found = {store: delivery.gauges() for store, delivery in self.deliveries.items()}
        counts = {name: sum(each[name] for each in found.values()) for name in ("transactions", "records")}
        retries = {store: each["retries"] for store, each in found.items() if "retries" in each}
        refused = {sink: rows for each in found.values() for sink, rows in each.get("refused", {}).items()}
        durations = {store: each["commit"] for store, each in found.items()}
        protocols = {store: each["protocol"] for store, each in found.items() if "protocol" in each}
        silent = {store: each["trouble"] for store, each in found.items() if "trouble" in each}
        own = {"retries": retries, "refused": refused, "protocols": protocols, "stores": silent}
        return {**counts, "deliveries": durations, **{name: each or None for name, each in own.items()}}

    def close(self, timeout_s: float) -> int:
        """Deliver what was put, as far as time allows, and return the number of records left."""
        self.send()
        deadline = monotonic() + timeout_s
        return sum(delivery.close(max(0.0, deadline - monotonic())) for delivery in self.deliveries.values())


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

    def settle(self, lane_key: tuple[int, int]) -> None:
        """Note that a packet of this share is durable."""
        del self._put[lane_key]
        self._durable.append(lane_key)

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
        """Return the counts of all deliveries since their start, from the first share."""
        return self._shared.gauges() if self._counts else {}
