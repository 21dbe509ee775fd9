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
    """The records of one flow: what the generator sends, and what the reader makes of what comes out.

    A record is sent with a number, its sequence, from 0; below 0 it is a probe, which is in no figure and comes out as
    one message. A message that comes out has an *identity*: `sequence * width` and up to `width - 1` more.
    """

    width: int

    def message(self, sequence: int, sent_ns: int) -> tuple[bytes | None, bytes]:
        """Return key and value of a record; `sent_ns` is when it is due, whether or not it is sent then."""

    def partition(self, sequence: int, partitions: int) -> int:
        """Return where a record is sent."""

    def read(self, values: list[bytes]) -> Int64s:
        """Return of n messages that came out: identity, `sent_ns`, and whatever `faults` wants, int64[2 or more, n]."""

    def outputs(self, count: int) -> int:
        """Return how many messages the records 0 to `count` - 1 come out as."""

    def faults(self, rest: Int64s) -> int | None:
        """Return how many messages are wrong, given the further rows of all of them in order; None if none is known."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A record of `passthrough`: about 100 bytes of JSON.

    Attributes:
        key: One of `KEYS`.
        sequence: Its number.
        sent_ns: When it was due by the schedule, ns since 1970.
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
        """A template takes a tenth of the time of a general encoder: the generator shares the machine."""
        return None, _TEMPLATE % (sequence % KEYS, sequence, sent_ns)

    def partition(self, sequence: int, partitions: int) -> int:
        """In turn."""
        return sequence % partitions

    def read(self, values: list[bytes]) -> Int64s:
        """Number and due."""
        decode = self._decode
        numbers = [(number.sequence, number.sent_ns) for number in map(decode, values)]
        return np.array(numbers, np.int64).reshape(-1, 2).T

    def outputs(self, count: int) -> int:
        """One each."""
        return count

    def faults(self, rest: Int64s) -> int | None:
        """Nothing is known."""
        return None


_TEXT = "abcdefghijklmnopqrstuv"
_TEMPLATE = b'{"key":"k%03d","sequence":%d,"sent_ns":%d,"text":"' + _TEXT.encode() + b'"}'
