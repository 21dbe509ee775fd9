"""Fields of messages: MessagePack arrays, and the ranges that every reader checks."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

MAX_TEXT_BYTES = 2048
"""A name, or the text of a fault, in UTF-8."""

Tick: TypeAlias = Annotated[int, Meta(le=(1 << 63) - 1)]
Offset: TypeAlias = Annotated[int, Meta(le=(1 << 63) - 1)]
Segment: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 16) - 1)]
Worker: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 16) - 1)]
ShardNumber: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 16) - 1)]
Front: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Era: TypeAlias = Annotated[int, Meta(ge=1, le=(1 << 32) - 1)]
MAX_OWNER = (1 << 16) - 1
Owner: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_OWNER)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
"""Any unsigned 64-bit integer, as MessagePack has no larger ones."""
Ordinal: TypeAlias = Annotated[int, Meta(ge=1)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT_BYTES)]

Ack: TypeAlias = tuple[Segment, Tick, Count]
"""(segment, tick, value)."""
Heartbeat: TypeAlias = tuple[Front, Tick]
MinTime: TypeAlias = tuple[Segment, Tick]
Due: TypeAlias = tuple[Segment, Owner, Tick | None]
"""(segment, owner, tick): the smallest tick at which it will send there without further input; None: at none."""


class Packed(Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A value whose fields travel as an array, in the order they are declared.

    Ranges are checked when one is read, not when one is made.
    """


def cut(text: str) -> str:
    """A text that has `MAX_TEXT_BYTES` at most and can be written; what is beyond is left out."""
    return text.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore")
