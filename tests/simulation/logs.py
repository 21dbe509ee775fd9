"""Simulated source partitions: what they hold, what has come so far, and the labels that R1 gives it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import msgspec
from state_flows import Document

from lowtide.core.fronts.floors import NO_TICK, Floors
from lowtide.core.fronts.source_rows import ROW_BYTES
from lowtide.core.operators.order.order import Position
from lowtide.local.run import Message
from lowtide_tracker import Floor

from .verdict import Violation

FIRST_MS = 1_000
FAR_MS = 30
"""How far a timestamp may lie ahead of the broker's clock."""
NEVER_MS = 10**9
"""What no clock comes near."""
WORDS = ("to", "be", "or")
AGES_MS = (60, 300)
"""The age of a backfill's messages."""


@dataclass(slots=True)
class Log:
    """One source partition.

    Attributes:
        front: Its number.
        source: The name of the source that reads it.
        messages: All there will be.
        visible: How many are there already.
        opening: Its opening floor in the register, a tick; None until it is registered.
        age_ms: How much older than when they come a backfill's messages are; 0 where there is none.
        aged_from: The backfill begins at the message of this index.
        stop: The offset at which the source ends; None where it does not.
    """

    front: int
    source: str
    messages: list[Message]
    visible: int = 0
    opening: int | None = None
    age_ms: int = 0
    aged_from: int = 0
    stop: int | None = None

    def age(self, rng: Random) -> None:
        """Somebody writes older messages into this partition from some moment on: a backfill."""
        self.age_ms, self.aged_from = rng.choice(AGES_MS), rng.randint(0, len(self.messages))
        self.messages[self.aged_from :] = [
            each if each.timestamp >= NEVER_MS else replace(each, timestamp=each.timestamp - self.age_ms)
            for each in self.messages[self.aged_from :]
        ]

    def came_ms(self, index: int) -> int:
        """The time at which a message comes, by its producer's clock."""
        return self.messages[index].timestamp + (self.age_ms if index >= self.aged_from else 0)

    def append(self, stamp: int, document: Document) -> None:
        """One more message comes."""
        offset = self.messages[-1].position.sequence + 1 if self.messages else 1
        self.messages.append(Message(Position(self.front, offset), stamp, None, msgspec.json.encode(document)))
        self.visible += 1

    @property
    def end(self) -> int:
        """The offset behind the last message that is there, and behind a transaction's marker."""
        return self.messages[self.visible - 1].position.sequence + 1 if self.visible else 0


def draw_log(rng: Random, front: int, source: str, longest: int = 12) -> Log:
    """A log whose timestamps go back, leap and stand, with holes between its offsets."""
    at, offset = FIRST_MS + rng.choice([0, 0, 0, 400]), 0
    messages = []
    for _ in range(rng.randint(0, longest)):
        at += rng.choice([0, 0, 1, 2, 3, 20, -5])
        offset += rng.choice([1, 1, 1, 2, 4])
        stamp = at + (NEVER_MS if rng.random() < 0.03 else 0)  # Now and then one that nobody believes.
        text = " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 3)))
        document = Document(rng.choice("abc"), text)
        messages.append(Message(Position(front, offset), stamp, None, msgspec.json.encode(document)))
    return Log(front, source, messages)


class Labels:
    """R1 word for word, for one front in one life: an independent account of what the real one may label.

    Attributes:
        before: The label of the message before the next one.
        floors: All that hold for this front.
        bytes: What the messages with that label have had together.
    """

    def __init__(self, log: Log, slack_ms: int, floors: Floors, before: int, window_bytes: int) -> None:
        self._slack_ms = slack_ms
        self._window_bytes = window_bytes
        self._front = log.front
        self.floors = floors
        self.before = before
        self.bytes = 0
        self._labelled = -1
        self._granted: list[Floor] = []

    def take(self, message: Message, caps: Floors) -> int:
        """The label of the next message, with the caps that the front has reported."""
        label = self.peek(message, caps)
        self.bytes = size_of(message) + (self.bytes if label == self.before else 0)
        self.before, self._labelled = label, message.position.sequence
        return label

    def peek(self, message: Message, caps: Floors) -> int:
        """What the label of the next message will be."""
        offset = message.position.sequence
        tick = message.timestamp // self._slack_ms
        for cap in caps.of_front(self._front):
            if cap.cap and cap.offset == offset:
                tick = cap.tick
        return max(self.before, tick, self.floors.tick_at(self._front, offset))

    def least(self, offset: int) -> int:
        """No message from this offset on is labelled below this."""
        return max(self.before, self.floors.tick_at(self._front, offset), NO_TICK)

    def granted(self, floor: Floor) -> None:
        """The front hears of a grant: at its offset and behind, it may label no lower."""
        self._granted.append(floor)

    def follow(self, floors: Floors) -> None:
        """Take the floors that the front has set since, which have to rest on a grant, or close a tick that is full.

        Raises:
            Violation: R2.
        """
        for floor in floors.of_front(self._front):
            if floor.cap or floor.tick <= self.least(floor.offset):
                continue
            if floor.offset <= self._labelled:
                raise Violation("output", f"{floor} begins before offset {self._labelled}, which has its label")
            allowed = max([each.tick for each in self._granted if each.offset <= floor.offset], default=NO_TICK)
            closes = self.bytes >= self._window_bytes and floor.tick == self.least(floor.offset) + 1 == self.before + 1
            if floor.tick > allowed and not closes:
                raise Violation("output", f"{floor} was not granted there: tick {allowed} was")
            self.floors.add(floor)


def size_of(message: Message) -> int:
    """Bytes that a message counts in its front's window."""
    return ROW_BYTES + len(message.key or b"") + len(message.value or b"")
