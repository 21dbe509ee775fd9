"""Records for the flows under measurement, and the means to recognize them at the other end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

KEYS = 1_000


class Records(Protocol):
    """The records of one flow: for the generator to send, and for the reader to interpret.

    A record is sent with a number, its sequence, from 0; below 0 it is a probe, which is in no figure and comes out as
    one message. A message that comes out has an *identity*: `sequence * width` and up to `width - 1` more.
    """

    width: int

    def message(self, sequence: int, sent_ns: int) -> tuple[bytes | None, bytes]:
        """Return key and value of a record; `sent_ns` is its due time, whether or not it is sent then."""

    def partition(self, sequence: int, partitions: int) -> int:
        """Return the partition to send a record to."""

    def read(self, values: list[bytes]) -> Int64s:
        """Return, of n messages of output: identity, `sent_ns`, and the rows for `faults`, int64[2 or more, n]."""

    def outputs(self, count: int) -> int:
        """Return the number of messages that the records 0 to `count` - 1 come out as."""

    def faults(self, rest: Int64s) -> int | None:
        """Return the number of wrong messages, given the further rows of all of them in order; None if unknown."""


def out_of_step(rest: Int64s) -> int:
    """Count the counts that are not one more than their key's previous count; a key's first must be 1.

    Args:
        rest: int64[2, n] of key and count, in the order of arrival.
    """
    if not len(rest):
        return 0
    keys, counts = rest
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = keys[1:] != keys[:-1]
    before = np.where(first, 0, np.concatenate(([0], counts[:-1])))
    return int(np.count_nonzero(counts != before + 1))


@dataclass(frozen=True, slots=True)
class Sample:
    """A record of `passthrough`: about 100 bytes of JSON.

    Attributes:
        key: One of `KEYS`.
        sequence: Its number.
        sent_ns: Its due time by the schedule, ns since 1970.
        text: The same for all.
    """

    key: str
    sequence: int
    sent_ns: int
    text: str


class _Numbers(msgspec.Struct):
    """Fields of a sample that the reader needs; the rest is not decoded."""

    sequence: int
    sent_ns: int


class Samples:
    """The records of `passthrough`; see `Records`."""

    width = 1

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder(_Numbers).decode

    def message(self, sequence: int, sent_ns: int) -> tuple[bytes | None, bytes]:
        """Fill a template: it takes a tenth of a general encoder's time, and the generator shares the machine."""
        return None, _TEMPLATE % (sequence % KEYS, sequence, sent_ns)

    def partition(self, sequence: int, partitions: int) -> int:
        """Send records to the partitions in turn."""
        return sequence % partitions

    def read(self, values: list[bytes]) -> Int64s:
        """Number and due."""
        decode = self._decode
        numbers = [(number.sequence, number.sent_ns) for number in map(decode, values)]
        return np.array(numbers, np.int64).reshape(-1, 2).T

    def outputs(self, count: int) -> int:
        """Return `count`: one message for each record."""
        return count

    def faults(self, rest: Int64s) -> int | None:
        """Return None: faults cannot be seen here."""
        return None


_TEXT = "abcdefghijklmnopqrstuv"
_TEMPLATE = b'{"key":"k%03d","sequence":%d,"sent_ns":%d,"text":"' + _TEXT.encode() + b'"}'
