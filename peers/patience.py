"""Follows a system's results until all have come, beside the reader, and may kill the system before that.

The reader of `lowtide_bench` gives up after 10 s of silence. A peer that is restored, or whose batches are long on a
busy machine, may need longer; its late results would count as lost.
"""

from __future__ import annotations

import time
from contextlib import closing

from lowtide_bench.companion import Companion
from lowtide_bench.counted import Counted
from lowtide_bench.schedule import NS, Schedule
from lowtide_bench.systems import System, Way
from peers.program import Restartable

SILENCE_LIMIT_S = 240.0
"""After this long without a new result, the others are lost. Kafka ends a dead producer's transactions after 60 s, and
the records after them are invisible until then; a JVM on a busy machine needs a minute or more to start."""
KILLED_LIMIT_S = 480.0
SLACK_S = 10.0
POLL_S = 0.2
BATCH = 5_000


class Patience(Companion):
    """Starts when the last record is due, so that it does not share the machine with the measurement.

    Args:
        way: The system's topics.
        limit_s: Longest wait.
    """

    def __init__(self, way: Way, limit_s: float) -> None:
        super().__init__()
        self._way = way
        self._limit_s = limit_s
        self.end_limit_s = limit_s + SLACK_S

    def go(self, system: System, schedule: Schedule) -> None:
        """Wait for the results of all records, probes included."""
        self.wait_until(schedule.window_ns[1])
        self._follow(system, schedule.count + self._way.partitions)

    def _follow(self, system: System, awaited: int) -> None:
        """Read the results from the first on, until this many different ones came, or nothing new comes any more."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": f"{self._way.sink}-patience", "isolation.level": "read_committed"}
        places = [TopicPartition(self._way.sink, partition, 0) for partition in range(self._way.partitions)]
        records, came, newest_at = Counted(), set[int](), time.monotonic()
        until = newest_at + self._limit_s
        options = {"bootstrap.servers": self._way.kafka, "enable.auto.commit": False, **settings}
        with closing(Consumer(options)) as consumer:
            consumer.assign(places)
            while len(came) < awaited and time.monotonic() < min(until, newest_at + SILENCE_LIMIT_S):
                if self.abandoned:
                    return
                system.check()
                messages = consumer.consume(BATCH, POLL_S)
                values = [message.value() or b"" for message in messages if not message.error()]
                fresh = set(records.read(values)[0].tolist()) - came if values else set()
                if fresh:
                    came |= fresh
                    newest_at = time.monotonic()


class Killer(Patience):
    """Sends one SIGKILL before.

    Args:
        way: As in `Patience`.
        after_s: Time of it, from the beginning of the measured window.
    """

    def __init__(self, way: Way, after_s: float) -> None:
        super().__init__(way, KILLED_LIMIT_S)
        self._after_s = after_s
        self.killed_ns = 0
        """Time of the kill, ns since 1970."""

    def go(self, system: System, schedule: Schedule) -> None:
        """Kill, start, and wait."""
        assert isinstance(system, Restartable), "only such a system can be killed"
        if self.wait_until(schedule.window_ns[0] + round(self._after_s * NS)):
            self.killed_ns = time.time_ns()
            system.strike()
            super().go(system, schedule)
