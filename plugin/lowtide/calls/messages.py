"""Messages between a host and its caller process, in the frames of `lowtide.process.wire`, as msgpack."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

from lowtide.calls.outcome import Answered
from lowtide.process.wire import HEAD


class Kind(IntEnum):
    """The first byte of a message."""

    START = 1
    """To the caller, first: `Start`."""
    ASK = 2
    """To the caller: `Ask`."""
    ANSWERS = 3
    """From the caller: a list of `Answered`."""
    BEAT = 4
    """From the caller, each second, the first once it is ready: `Beat`."""
    END = 5
    """From the caller, last: `End`."""


class Start(msgspec.Struct, array_like=True):
    """The work of a caller process.

    Attributes:
        path: `sys.path` of the host.
        settings: Its `CallSetting`s, pickled.
        max_answer_bytes: A larger result is a failure.
    """

    path: list[str]
    settings: bytes
    max_answer_bytes: int


class Ask(msgspec.Struct, array_like=True):
    """Questions of one call.

    Attributes:
        call: The call's place among the settings.
        ids: The questions'.
        keys: Their call keys.
        rows: Their records, as `encode_rows` gives them.
        tries: By id the tries that an earlier process has made, where there are any.
    """

    call: int
    ids: list[int]
    keys: list[str]
    rows: bytes
    tries: dict[int, int] = {}


class Beat(msgspec.Struct, array_like=True):
    """A sign of life.

    Attributes:
        retries: By call the tries since the last beat that were not a question's first.
    """

    retries: list[int]


class End(msgspec.Struct, array_like=True):
    """The reason why a caller process ends itself.

    Attributes:
        why: In words, after "the caller process …".
        tries: By id the tries that it has made of open questions.
        stuck: True if all places of a call hang: the process is well, and another one goes on.
    """

    why: str
    tries: dict[int, int] = {}
    stuck: bool = False


_encoder = msgspec.msgpack.Encoder()
read_start = msgspec.msgpack.Decoder(Start).decode
read_ask = msgspec.msgpack.Decoder(Ask).decode
read_answers = msgspec.msgpack.Decoder(list[Answered]).decode
read_beat = msgspec.msgpack.Decoder(Beat).decode
read_end = msgspec.msgpack.Decoder(End).decode


def framed(kind: Kind, message: Any) -> bytes:
    """Return a message as it goes over the line."""
    payload = _encoder.encode(message)
    return HEAD.pack(len(payload) + 1, kind) + payload
