"""The records of a lasts topic: what they look like, and what they say together (R13).

The topic has one partition and is compacted, so that it holds little more than the newest record of each key:

    key     [2, "last", level, sink, first unit, end unit]
    value   [1, incarnation, tick, front, sequence, child, trace]

    key     [1, "last", level, sink, lane]
    value   as of the other "last"

    key     [2, "floor", front, offset, tick, cap]
    value   [1, incarnation]

    key     [2, "archived", incarnation]
    value   [1, topic id, [[front, offset], ...]]

    key     [2, "owner"]
    value   [1, job id]

All are msgpack, each integer in its shortest form, so that equal keys are equal bytes. The first element is the
version of the key's or the value's form; a reader refuses one that it does not know. `sink` is the vertex's name, ""
for the dead letters of that level, whose lane at level 0 is the front. `child` is an array. A record without a value
takes what was said under its key back. A lane that nothing was delivered to has no "last".

A worker delivers its lanes as one *strand*, a range of hash units: all of their records up to that order key are
delivered. A life with other workers has other strands, so of each lane the largest "last" that its hash units lie in
counts. Answers of calls, records to be staged and the dead letters of fronts are delivered by lane, and earlier
versions delivered so everywhere.

A lane that relies on a floor writes it in its own transaction, since it cannot know what others have committed; all
lanes write the same record, so compaction leaves one. The tick is part of the key: otherwise, of two lanes that learn
of a front at different times, the later one would remove the floor that the other relies on. Floors that say nothing
about offsets from "archived" on are in the job's archive of floors (`floor_archive`) instead; each life records that
under its own key, so that one that is over cannot undo the record of a later one.

"owner" is the id of the job that made the topic: another job of that name, under another ZooKeeper, does not use the
topic. A topic of an earlier version has no owner until the job's next start.

Earlier versions wrote a floor once per lane, as [1, "floor", level, sink, lane, front, offset, cap] and [1, tick].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from lowtide.core.fronts.floors import Steps
from lowtide.core.operators.order.order import OrderKey
from lowtide.errors import LowtideError
from lowtide.sinks.contract import LaneName
from lowtide_tracker import Floor

VERSION, LATER = 1, 2
LAST, FLOOR, ARCHIVED, OWNER = "last", "floor", "archived", "owner"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_decode_floor = msgspec.msgpack.Decoder(tuple[int, str, int, int, int, bool]).decode
_FLOOR_KEY = b"\x96" + _encode(LATER) + _encode(FLOOR)
"""Beginning of a floor's key: an array of six, and its first two."""


class LastsUnreadable(LowtideError):
    """Start the job with the version of Lowtide that wrote its lasts topic."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Archived:
    """The floors that are in the job's archive instead of the lasts topic.

    Attributes:
        topic_id: The archive's, as the cluster gave it.
        below: By front, the offset below which its floors are there.
    """

    topic_id: str
    below: Mapping[int, int]

    def has(self, start: Mapping[int, int]) -> bool:
        """Return whether a reader of fronts from these offsets on, others from their beginning, needs some of them."""
        return any(start.get(front, 0) < offset for front, offset in self.below.items())

    def beyond(self, before: Archived | None) -> Archived:
        """These, and those that were archived before."""
        known = {} if before is None else before.below
        fronts = known.keys() | self.below.keys()
        return Archived(self.topic_id, {front: max(known.get(front, 0), self.below.get(front, 0)) for front in fronts})


@dataclass(frozen=True, slots=True)
class Durable:
    """Everything that earlier lives have delivered.

    Attributes:
        last: By lane, or strand, the order key up to which records are delivered; those without a delivery are missing.
        floors: The union of the floors that the lanes' bundles relied on, by front, offset and tick.
        archived: The floors that are in the archive; None if these are all.
        owner: The id of the job that delivered it; empty until one is recorded.
    """

    last: dict[LaneName, OrderKey]
    floors: tuple[Floor, ...]
    archived: Archived | None = None
    owner: str = ""


def last_of(last: Mapping[LaneName, OrderKey], name: LaneName, units: range) -> OrderKey | None:
    """Return the order key up to which a lane is delivered, by itself or in strands; None if nothing is.

    Args:
        last: As of `Durable`.
        name: The lane's name.
        units: Its hash units.
    """
    return max([key for each, key in last.items() if each.has(name, units)], default=None)


def records_of(
    lane: LaneName,
    last: OrderKey | None,
    floors: Iterable[Floor],
    incarnation: int,
    covered: Iterable[Floor] = (),
) -> list[tuple[bytes, bytes | None]]:
    """The records, key and value, that say with a bundle what is durable once it is; O(1 + floors).

    Args:
        lane: The bundle's.
        last: The bundle's `last`; None if there is none.
        floors: The bundle's.
        incarnation: Of the life that delivers, for people who read the topic.
        covered: Floors that are redundant besides those.
    """
    records: list[tuple[bytes, bytes | None]] = [*floor_records(floors, incarnation)]
    records += [(_floor_key(floor), None) for floor in covered]
    if last is not None:
        position = (last.tick, last.front, last.sequence, last.child, last.trace)
        records.append((_last_key(lane), _encode((VERSION, incarnation, *position))))
    return records


def taken_back(lane: LaneName) -> tuple[bytes, None]:
    """The record by which a lane, or strand, has no `last` any more."""
    return _last_key(lane), None


def floor_records(floors: Iterable[Floor], incarnation: int) -> list[tuple[bytes, bytes]]:
    """The records, key and value, that say these floors; of the archive too."""
    value = _encode((VERSION, incarnation))
    return [(_floor_key(floor), value) for floor in floors]


def archived_record(archived: Archived, incarnation: int) -> tuple[bytes, bytes]:
    """The record, key and value, by which a life says which floors are in the archive."""
    below = sorted(archived.below.items())
    return _encode((LATER, ARCHIVED, incarnation)), _encode((VERSION, archived.topic_id, below))


def owner_record(job_id: str) -> tuple[bytes, bytes]:
    """The record, key and value, by which a job says that the topic is its own."""
    return _encode((LATER, OWNER)), _encode((VERSION, job_id))


def floor_of(key: bytes, value: bytes) -> Floor | None:
    """The floor that a record says; None if it says something else."""
    if key.startswith(_FLOOR_KEY):
        try:
            return Floor(*_decode_floor(key)[2:])
        except msgspec.MsgspecError:
            return None
    match _parsed(key):
        case [1, "floor", _, _, _, front, offset, cap]:
            match _parsed(value):
                case [1, tick]:
                    return Floor(front, offset, tick, cap)
    return None


def durable_of(table: Mapping[bytes, bytes], topic: str) -> Durable:
    """Return the sum of the newest values under each key of a topic (errors: LastsUnreadable).

    O(keys), 2 us each: floors are many, and mostly in the order of their offsets.
    """
    last: dict[LaneName, OrderKey] = {}
    floors = Steps()
    archived: Archived | None = None
    owner = ""
    for key, value in table.items():
        floor = floor_of(key, value)
        if floor is not None:
            floors.add(floor)
            continue
        match _parsed(key), _parsed(value):
            case [1, "last", level, sink, lane], [1, _, tick, front, sequence, child, trace]:
                last[LaneName(level, sink, lane)] = OrderKey(tick, front, sequence, tuple(child), trace)
            case [2, "last", level, sink, first, end], [1, _, tick, front, sequence, child, trace]:
                last[LaneName(level, sink, first, end)] = OrderKey(tick, front, sequence, tuple(child), trace)
            case [2, "archived", _], [1, topic_id, below]:
                archived = Archived(topic_id, dict(below)).beyond(archived)
            case [2, "owner"], [1, str(job_id)]:
                owner = job_id
            case _:
                raise LastsUnreadable(
                    f'the topic "{topic}" has a record that this version of Lowtide does not know: '
                    f"key {key.hex()}, value {value.hex()}",
                    where=f"it knows versions {VERSION} and {LATER} of the topic's format",
                    way_out="start the job with the version that ran it last; only Lowtide may write this topic",
                )
    return Durable(last, tuple(floors), archived, owner)


def _last_key(lane: LaneName) -> bytes:
    name = (lane.level, lane.sink, lane.lane)
    return _encode((LATER, LAST, *name, lane.end) if lane.end else (VERSION, LAST, *name))


def _floor_key(floor: Floor) -> bytes:
    return _encode((LATER, FLOOR, floor.front, floor.offset, floor.tick, floor.cap))


def _parsed(data: bytes | None) -> Any:
    try:
        return _decode(data or b"")
    except msgspec.DecodeError:
        return None
