"""Judges a run's floors by what was in the broker's log: the oracle takes them as they are, so to it each is right.

A floor is a claim about time (R1, R2): at broker time *floor + allowed skew*, nothing lay at or after its offset. The
broker has dated the record that keeps it, which came later. So a floor never lies above that date less the skew, and
where the broker dates a source's records, never above the date of one at or after its offset less the skew. Two kinds
of floors say less: a front's opening floor, and the label before a front's first record, where a later life goes on.
A cap stands where a message's timestamp was further ahead of the broker's clock than is believed, and nowhere else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

from lowtide.conf import KafkaConf
from lowtide.connectors.topics import Topics
from lowtide.core.fronts.floors import NO_TICK
from lowtide.local.oracle import read_output
from lowtide.local.run import Message
from lowtide.service.fronts.broker_clock import JUMP_MS
from lowtide.sinks.kafka.floor_archive import archive_of
from lowtide.sinks.kafka.lasts import topic_of
from lowtide.sinks.kafka.lasts_records import floor_of
from lowtide_tracker import Floor


@dataclass(frozen=True, slots=True)
class Recorded:
    """One floor as a topic of the job keeps it, and when the broker took it, in ms."""

    floor: Floor
    at_ms: int


@dataclass(frozen=True, slots=True)
class FrontLog:
    """The messages that a front could read.

    Attributes:
        messages: All of its partition, by offset.
        opening: Its opening floor, a tick.
        dated_by_broker: Whether the broker dates the messages.
    """

    messages: Sequence[Message]
    opening: int
    dated_by_broker: bool = False


def read_recorded(
    kafka: KafkaConf, job: str, generation: int = 0, believed_ms: Callable[[int], int] = lambda ms: ms
) -> list[Recorded]:
    """Every floor that a job has recorded, each as it was first dated among what compaction has left.

    Args:
        kafka: Where.
        job: Its name.
        generation: Of its output.
        believed_ms: Turns the broker's date of a record into the latest time that a job may have believed in then;
            where its clock was never wrong, they are the same.
    """
    topics = {topic_of(job, generation), archive_of(job)} & set(Topics(kafka).names())
    first: dict[Floor, int] = {}
    for topic in topics:
        for record in chain.from_iterable(read_output(kafka, topic).values()):
            floor = None if record.key is None or record.value is None else floor_of(record.key, record.value)
            if floor is not None:
                at_ms = believed_ms(record.timestamp)
                first[floor] = min(first.get(floor, at_ms), at_ms)
    return [Recorded(floor, at_ms) for floor, at_ms in first.items()]


def wrong_floors(
    recorded: Iterable[Recorded],
    fronts: Mapping[int, FrontLog],
    *,
    slack_ms: int,
    skew_ms: int,
    max_future_ms: int,
) -> list[str]:
    """What is wrong with floors, in words; empty for none. O((floors + messages) log messages).

    Args:
        recorded: What was recorded; read before the logs were.
        fronts: Each front's log, all of it.
        slack_ms: How long a tick is.
        skew_ms: The allowed skew.
        max_future_ms: A timestamp further ahead of the broker's clock is not believed.
    """
    recorded = sorted(recorded, key=lambda each: each.floor)
    caps = {(each.floor.front, each.floor.offset): each.floor.tick for each in recorded if each.floor.cap}
    looked = {number: _Looked(number, log, caps, slack_ms) for number, log in fronts.items()}
    newest = max((each.newest for each in looked.values()), default=NO_TICK)
    wrong: list[str] = []
    for each in recorded:
        floor, floor_ms = each.floor, each.floor.tick * slack_ms
        front = looked.get(floor.front)
        if front is None:
            wrong.append(f"{floor}: there is no such front")
        elif floor.cap:
            at = front.at.get(floor.offset)
            if at is None or at <= floor_ms + max_future_ms:
                wrong.append(f"{floor}: the message has the timestamp {at}, which is to be believed")
            # A broker's clock that was set back stands still in a front, at what its job has relied on.
            if floor.tick > newest + 1 and floor_ms > each.at_ms + JUMP_MS:
                wrong.append(f"{floor}: it says {floor_ms} ms, and was recorded at {each.at_ms} ms")
        elif floor.tick > front.before(floor.offset):
            if floor_ms > each.at_ms - skew_ms + JUMP_MS:
                wrong.append(f"{floor}: it says {floor_ms} ms, and was recorded at {each.at_ms} ms")
            came_ms = front.first_ms(floor.offset)
            if came_ms is not None and floor_ms > came_ms - skew_ms:
                wrong.append(f"{floor}: it says {floor_ms} ms, and a message at or after it came at {came_ms} ms")
    return wrong


class _Looked:
    """One front's log, looked at: what its messages alone make of labels, and when they came.

    Attributes:
        at: The timestamp of each message, by offset.
        newest: The largest label, were no message capped.
    """

    def __init__(self, number: int, log: FrontLog, caps: Mapping[tuple[int, int], int], slack_ms: int) -> None:
        self.at = {message.position.sequence: message.timestamp for message in log.messages}
        self._offsets = list(self.at)
        own = [caps.get((number, offset), at // slack_ms) for offset, at in self.at.items()]
        believed = (at // slack_ms for offset, at in self.at.items() if (number, offset) not in caps)
        self.newest = max(believed, default=log.opening)
        self._labels = list(accumulate(own, max, initial=log.opening))
        # Where offsets are missing there were transactions, and their messages came before they could be read.
        whole = not self._offsets or self._offsets[-1] - self._offsets[0] + 1 == len(self._offsets)
        times = reversed(self.at.values()) if log.dated_by_broker and whole else ()
        self._first_ms = list(accumulate(times, min))

    def before(self, offset: int) -> int:
        """The label before an offset, were there no floors but the opening one."""
        return self._labels[bisect_left(self._offsets, offset)]

    def first_ms(self, offset: int) -> int | None:
        """When the first message at or after an offset came; None if there is none, or nobody can say."""
        behind = len(self._offsets) - bisect_left(self._offsets, offset)
        return self._first_ms[behind - 1] if self._first_ms and behind else None
