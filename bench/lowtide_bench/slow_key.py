"""The records of `slow-key`, one key of which is slow, and its flow: the running count with dead letters."""

from __future__ import annotations

import time

from lowtide import Flow, kafka, raw
from lowtide.flow.schema.raw_record import Raw
from lowtide_bench.counted import Counted, count

EVERY = 99
"""One record of so many has the slow key; an odd number, so that it comes from both partitions."""
SLOW = b"key-slow"
LETTERS = "-dead"
"""What the topic of dead letters has behind the sink's name."""


class SlowKeyed(Counted):
    """The records of `running-count`, but for those that have the slow key; see `Records`."""

    def message(self, sequence: int, sent_ns: int) -> tuple[bytes | None, bytes]:
        """Return a message with a count of 0, at times with the slow key."""
        key, value = super().message(sequence, sent_ns)
        return (key, value) if sequence % EVERY else (SLOW, SLOW + value[len(SLOW) :])


class Slow:
    """Counts the records of each key, and sleeps at those of the slow one.

    Args:
        sleep_ms: Time that it sleeps.
    """

    def __init__(self, sleep_ms: float) -> None:
        self._sleep_s = sleep_ms / 1e3

    def __call__(self, seen: int, record: Raw) -> tuple[int, Raw]:
        """Return the count so far, and the record with the count in it: the user's function."""
        if self._sleep_s and record.key == SLOW:
            time.sleep(self._sleep_s)
        return count(seen, record)


def slow_key(name: str, source: str, sink: str, *, sleep_ms: float = 0.0) -> Flow:
    """Return a flow with dead letters that counts the records of each key, and sleeps at those of one."""
    flow = Flow(name, dead_letters=kafka(f"{sink}{LETTERS}", raw()))
    counts = flow.read("source", kafka(source, raw())).key_by("key").scan("count", Slow(sleep_ms), 0)
    counts.write("sink", kafka(sink, raw()))
    return flow
