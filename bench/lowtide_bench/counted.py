"""The records of `running-count`: 1,000 keys of 8 bytes, values of 32 bytes, the count in a user's function."""

from __future__ import annotations

import struct

import numpy as np

from lowtide.flow.schema.raw_record import Raw
from lowtide_bench.record import KEYS, Int64s, out_of_step

_VALUE = struct.Struct("<8sqqq")
_ROWS = np.dtype([("key", "S8"), ("sequence", "<i8"), ("sent_ns", "<i8"), ("count", "<i8")])
SPREAD = 2_654_435_761
"""Neighbouring records have keys far apart, and each key comes from every partition."""


def count(seen: int, record: Raw) -> tuple[int, Raw]:
    """Return the count so far, and the record with the count in its last 8 bytes: the user's function."""
    assert record.value is not None
    seen += 1
    return seen, Raw(record.key, record.value[:24] + seen.to_bytes(8, "little"))


FIRST_STATE = -(1 << 40)
"""The number of the first record that only fills the state, others are below it: like a probe it is in no figure."""


def state_message(number: int, sent_ns: int) -> tuple[bytes, bytes]:
    """Return key and value of a record that only fills the state; its key is its own, and never sent again."""
    key = b"s%07d" % number
    return key, _VALUE.pack(key, FIRST_STATE - number, sent_ns, 0)


class Counted:
    """The records; see `Records`. Key, number, due and count are 8 bytes each; the key is the message's key too."""

    width = 1

    def message(self, sequence: int, sent_ns: int) -> tuple[bytes | None, bytes]:
        """Return a message with a count of 0: nothing has counted it yet."""
        key = b"key-%04d" % ((sequence * SPREAD >> 16) % KEYS)
        return key, _VALUE.pack(key, sequence, sent_ns, 0)

    def partition(self, sequence: int, partitions: int) -> int:
        """Send records to the partitions in turn."""
        return sequence % partitions

    def read(self, values: list[bytes]) -> Int64s:
        """Number and due; key's number and count."""
        rows = np.frombuffer(b"".join(values), _ROWS)
        keys = np.frombuffer(rows["key"].astype("S8").tobytes(), np.int64)
        return np.array([rows["sequence"], rows["sent_ns"], keys, rows["count"]])

    def outputs(self, count: int) -> int:
        """Return `count`: one message for each record."""
        return count

    def faults(self, rest: Int64s) -> int | None:
        """Count the counts that are not one more than their key's previous count; a key's first must be 1."""
        return out_of_step(rest)

    def results(self, sequence: int) -> list[tuple[int, int]]:
        """Return identity and key of each result of a record; the key is read as a number."""
        key, _ = self.message(sequence, 0)
        return [(sequence, int.from_bytes(key or b"", "little"))]


class Uncounted(Counted):
    """The same without a count: for the bare loop."""

    def faults(self, rest: Int64s) -> int | None:
        """Return None: faults cannot be seen here."""
        return None
