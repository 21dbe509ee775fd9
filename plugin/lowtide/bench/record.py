"""The record of the benchmarks: about 100 bytes of JSON that carry their number and when they were due."""

from __future__ import annotations

from dataclasses import dataclass

KEYS = 1_000
_TEXT = "abcdefghijklmnopqrstuv"
_TEMPLATE = b'{"key":"k%03d","sequence":%d,"sent_ns":%d,"text":"' + _TEXT.encode() + b'"}'


@dataclass(frozen=True, slots=True)
class Sample:
    """One record.

    Attributes:
        key: One of `KEYS`.
        sequence: Its number, from 0; below 0 for a probe, which is in no figure.
        sent_ns: When it was due by the schedule (ns since 1970), whether or not it was sent then.
        text: The same for all.
    """

    key: str
    sequence: int
    sent_ns: int
    text: str


def encode(sequence: int, sent_ns: int) -> bytes:
    """Return a sample as JSON; a tenth of the cost of a general encoder, as the generator shares the machine."""
    return _TEMPLATE % (sequence % KEYS, sequence, sent_ns)
