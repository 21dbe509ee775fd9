"""The records of a lasts topic: what they look like, and what they say together (R13).

The topic has one partition and is compacted, so that it holds little more than the newest record of each key:

    key     [1, "last", level, sink, lane]
    value   [1, incarnation, tick, front, sequence, child, trace]

    key     [1, "floor", level, sink, lane, front, offset, cap]
    value   [1, tick]

Both are msgpack, each integer in its shortest form, so that equal keys are equal bytes. The first element is the
version of the key's or the value's form; a reader refuses one that it does not know. `sink` is the vertex's name, ""
for the dead letters of that level, whose lane at level 0 is the front. `child` is an array. A record without a value
takes what was said under its key back. A lane that nothing was delivered to has no "last".

Floors are kept per lane because lanes are owned by different workers, each of which knows for itself what its bundles
rest on; a reader takes the union.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from lowtide.errors import LowtideError
from lowtide.fronts.floors import Floors
from lowtide.operators.order import OrderKey
from lowtide_tracker import Floor

__all__ = ["Durable", "LaneName", "LastsUnreadable", "durable_of", "forget_records", "records_of"]

VERSION = 1
LAST, FLOOR = "last", "floor"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class LastsUnreadable(LowtideError):
    """Start the job with the version of Lowtide that wrote its lasts topic."""

    exit_code = 4


@dataclass(frozen=True, slots=True, order=True)
class LaneName:
    """What a lane is called over all lives of a job.

    Attributes:
        level: Of the workers that deliver it.
        sink: The vertex's name, "" for the dead letters of the level.
        lane: Its number in the sink; of dead letters at level 0 the front.
    """

    level: int
    sink: str
    lane: int


@dataclass(frozen=True, slots=True)
class Durable:
    """What all lives before have delivered.

    Attributes:
        last: By lane the order key up to which records were delivered; lanes without a delivery are not in it.
        floors: The union of what the lanes' bundles rested on, by front, offset and tick.
    """

    last: dict[LaneName, OrderKey]
    floors: tuple[Floor, ...]


def records_of(
    lane: LaneName, last: OrderKey | None, floors: Iterable[Floor], incarnation: int
) -> list[tuple[bytes, bytes]]:
    """The records, key and value, that say with a bundle what is durable once it is; O(1 + floors).

    Args:
        lane: The bundle's.
        last: The bundle's `last`; None if there is none.
        floors: The bundle's.
        incarnation: Of the life that delivers; for those who look into the topic.
    """
    name = (lane.level, lane.sink, lane.lane)
    records = [
        (_encode((VERSION, FLOOR, *name, floor.front, floor.offset, floor.cap)), _encode((VERSION, floor.tick)))
        for floor in floors
    ]
    if last is not None:
        place = (last.tick, last.front, last.sequence, last.child, last.trace)
        records.append((_encode((VERSION, LAST, *name)), _encode((VERSION, incarnation, *place))))
    return records


def forget_records(lane: LaneName, floors: Iterable[Floor]) -> list[tuple[bytes, None]]:
    """The records that take these floors of a lane back, once no record before them is read again."""
    name = (lane.level, lane.sink, lane.lane)
    return [(_encode((VERSION, FLOOR, *name, floor.front, floor.offset, floor.cap)), None) for floor in floors]


def durable_of(table: Mapping[bytes, bytes], topic: str) -> Durable:
    """What the newest values under each key of a topic say together (errors: LastsUnreadable)."""
    last: dict[LaneName, OrderKey] = {}
    floors = Floors()
    for key, value in table.items():
        match _parsed(key), _parsed(value):
            case [1, "last", level, sink, lane], [1, _, tick, front, sequence, child, trace]:
                last[LaneName(level, sink, lane)] = OrderKey(tick, front, sequence, tuple(child), trace)
            case [1, "floor", _, _, _, front, offset, cap], [1, tick]:
                floors.add(Floor(front, offset, tick, cap))
            case _:
                raise LastsUnreadable(
                    f'the topic "{topic}" has a record that this version of Lowtide does not know: '
                    f"key {key.hex()}, value {value.hex()}",
                    where=f"it knows version {VERSION} of the topic's form",
                    way_out="start the job with the version that ran it last; nobody but Lowtide may write this topic",
                )
    return Durable(last, tuple(floors))


def _parsed(data: bytes | None) -> Any:
    try:
        return _decode(data or b"")
    except msgspec.DecodeError:
        return None
