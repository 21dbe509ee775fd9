"""Kills a system once while it is measured, starts it again, and waits until results come out again."""

from __future__ import annotations

import time

from lowtide.bench.companion import Companion
from lowtide.bench.schedule import NS, Schedule
from lowtide.bench.systems import System, Way
from lowtide.errors import ServiceUnavailable
from peers.program import Restartable

BACK_LIMIT_S = 300.0
POLL_S = 0.2
REACH_LIMIT_S = 10.0


class Killer(Companion):
    """Sends one SIGKILL.

    Args:
        way: The system's topics.
        after_s: When, from the beginning of the window that is measured.
    """

    end_limit_s = BACK_LIMIT_S + REACH_LIMIT_S

    def __init__(self, way: Way, after_s: float) -> None:
        super().__init__()
        self._way = way
        self._after_s = after_s
        self.back_s: float | None = None
        """From the kill to the next result that a read_committed reader got; None as long as there is none."""

    def go(self, system: System, schedule: Schedule) -> None:
        """Kill, start, wait."""
        assert isinstance(system, Restartable), "only such a system can be killed"
        if not self.wait_until(schedule.window_ns[0] + round(self._after_s * NS)):
            return
        killed = time.monotonic()
        system.strike()
        self._wait_for_a_result(killed)
        self.back_s = round(time.monotonic() - killed, 2)

    def _wait_for_a_result(self, killed: float) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": f"{self._way.sink}-killer", "isolation.level": "read_committed"}
        consumer = Consumer({"bootstrap.servers": self._way.kafka, "enable.auto.commit": False, **settings})
        try:
            places = []
            for partition in range(self._way.partitions):
                place = TopicPartition(self._way.sink, partition)
                _, place.offset = consumer.get_watermark_offsets(place, timeout=REACH_LIMIT_S)
                places.append(place)
            consumer.assign(places)
            while not self.abandoned:
                message = consumer.poll(POLL_S)
                if message is not None and not message.error():
                    return
                if time.monotonic() - killed > BACK_LIMIT_S:
                    raise ServiceUnavailable(f"no result came within {BACK_LIMIT_S:g} s after the kill")
        finally:
            consumer.close()
